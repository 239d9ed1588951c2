"""What adaptive batching is compared with: thesis 001, sections 4.5 and 5.2.

**Immediate shipping** sends every item by itself (lifetime 0): the lowest latency at low load, the highest cost per
item. **Ship when full** waits for the buffer to fill: N items at rate r wait (N - 1) / (2 r) on average, so the lowest
cost per item and any latency. A decision is finite, so "for ever" is 30 years.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.control.checks import at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.registry import Registration

FOREVER_S = 1e9


class ImmediateShipping:
    """Lifetime 0 on every stream.

    >>> ImmediateShipping().decide(Observation(5.0, 5.0), Decision(lifetimes={"a->b": 0.5}, lifetime_s=2.0)).lifetimes
    {'a->b': 0.0}
    """

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """Every stream known ships at once."""
        return replace(current, lifetime_s=0.0, lifetimes=dict.fromkeys(_streams(observed, current), 0.0))


class ShipWhenFull:
    """A batch leaves when `rows` are in it, however long that takes.

    On a micro-batch host the cut is timed: the lifetime is the time in which `rows` arrive.

    >>> ShipWhenFull(rows=100).decide(Observation(5.0, 5.0), Decision(lifetimes={"a->b": 0.0})).lifetimes
    {'a->b': 1000000000.0}
    >>> ShipWhenFull(rows=100).decide(None, Decision()).row_cap
    100
    """

    def __init__(self, *, rows: int = 1024) -> None:
        self.rows = int(at_least("policy 'ship-when-full'", "rows", rows, 1))

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """Every stream known waits to be full."""
        if observed is not None and observed.micro_batch:
            rate = max((view.arrivals_per_s for view in observed.operators.values()), default=0.0)
            lifetime = min(FOREVER_S, self.rows / rate) if rate > 0.0 else current.lifetime_s
            return replace(current, lifetime_s=lifetime, row_cap=self.rows)
        lifetimes = dict.fromkeys(_streams(observed, current), FOREVER_S)
        return replace(current, row_cap=self.rows, lifetimes=lifetimes)


def _streams(observed: Observation | None, current: Decision) -> list[str]:
    """Every stream that a bound or the current decision names, in a fixed order."""
    bounds = () if observed is None else observed.bounds
    views = {} if observed is None else observed.operators
    return list(dict.fromkeys([*current.lifetimes, *(s for bound in bounds for s in bound.streams(views))]))


REGISTRATIONS = (
    Registration(
        "immediate",
        ImmediateShipping,
        thesis="001, section 4.5 (baseline)",
        observes=("bounds",),
        decides=("lifetimes", "lifetime_s"),
    ),
    Registration(
        "ship-when-full",
        ShipWhenFull,
        thesis="001, section 4.5 (baseline)",
        observes=("bounds", "arrivals_per_s"),
        decides=("lifetimes", "lifetime_s", "row_cap"),
    ),
)
