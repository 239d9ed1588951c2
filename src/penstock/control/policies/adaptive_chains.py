"""Which operators `Adaptive` fuses on a continuous host: thesis 001's rule (section 4.7) on what the host can fuse.

A stream inside a chain has no queue, no output batch and no hand-over: latency and work are saved. The rule is
`chaining.DynamicChaining`; here is said what it is asked about: runs of operators that the host can fuse
(`Observation.pipelines`), that a bound is set on (others would gain nothing that was asked for), and whose width is
fixed. An operator that can be scaled keeps a width and a queue of its own: what is fused is scaled together, and gives
up what `adaptive_widths` saves by widths that differ.

A chaining stays for a few intervals, unless a chain has become too busy: the thesis has no hysteresis.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.adaptive_paths import Path
from penstock.control.policies.chaining import DynamicChaining
from penstock.control.policies.chaining_chains import Chain

_DWELL = 3  # intervals for which a chaining stays


class Chains:
    """Asks thesis 001's rule about the pipelines that may be fused now.

    >>> from penstock.control.observation import Bound, OperatorView
    >>> def view(name, utilisation):
    ...     return OperatorView(name, 4, 4, 4, arrivals_per_s=100.0, completed_per_s=100.0, service_s=0.01,
    ...         service_cv=0.5, interarrival_s=0.04, arrival_cv=1.0, wait_s=0.001, batch_wait_s=0.0, queue_items=1.0,
    ...         utilisation=utilisation)
    >>> views = [view("decode", 0.2), view("merge", 0.1)]
    >>> bound = Bound("fast", ("decode", "merge"), mean_s=0.1)
    >>> seen = Observation(5.0, 5.0, {v.name: v for v in views}, (bound,), pipelines=(("decode", "merge"),))
    >>> Chains().decide([Path(bound, 0.1, views, 0.05, 0.05, 0.0)], seen, Decision())
    (('decode', 'merge'),)
    """

    def __init__(self) -> None:
        self._rule: DynamicChaining | None = None

    def decide(self, paths: Iterable[Path], observed: Observation, current: Decision) -> tuple[Chain, ...]:
        """The chains of the next interval; those there are, where the host says of none that it can fuse them."""
        if not observed.pipelines:
            return current.chains
        bounded = {name for path in paths for name in path.bound.operators}
        fusible = tuple(
            run for pipeline in observed.pipelines for run in _runs(pipeline, bounded, observed) if len(run) > 1
        )
        if self._rule is None or self._rule.pipelines != fusible:
            self._rule = DynamicChaining(pipelines=fusible, dwell_intervals=_DWELL)
        return self._rule.decide(observed, current).chains


def _runs(pipeline: Chain, bounded: set[str], observed: Observation) -> list[Chain]:
    """A pipeline cut where an operator has no bound or can be scaled; who was not seen stays, as nothing is known."""

    def may_be_fused(name: str) -> bool:
        view = observed.operators.get(name)
        return name in bounded and (view is None or view.lo == view.hi)

    return [tuple(run) for allowed, run in groupby(pipeline, key=may_be_fused) if allowed]
