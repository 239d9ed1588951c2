"""The clairvoyant optimum: a plan made from the whole trace beforehand. Nobody can run it; it is a measuring rod."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence

from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.baseline_common import with_widths
from penstock.control.policies.registry import Registration
from penstock.errors import PolicyError


class Clairvoyant:
    """Follows a plan of (time, widths): from each time on, those widths are ordered.

    Whoever makes the plan puts each step as early as the host needs it (`simulate` does, from the load to come).

    >>> policy = Clairvoyant(plan=[(0.0, {"a": 2}), (10.0, {"a": 5})])
    >>> policy.decide(Observation(5.0, 5.0), Decision({"a": 1})).widths
    {'a': 2}
    >>> policy.decide(Observation(10.0, 5.0), Decision({"a": 1})).widths
    {'a': 5}
    """

    def __init__(self, *, plan: Sequence[tuple[float, Mapping[str, int]]]) -> None:
        if not plan or any(a[0] > b[0] for a, b in itertools.pairwise(plan)):
            raise PolicyError("policy 'clairvoyant'", "a plan is a non-empty list in order of time", "sort it")
        self._times = [at for at, _ in plan]
        self._widths = [dict(widths) for _, widths in plan]

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """What the plan says for now."""
        now = 0.0 if observed is None else observed.now_s
        at = bisect.bisect_right(self._times, now + 1e-9) - 1
        return with_widths(current, self._widths[at]) if at >= 0 else current


REGISTRATIONS = (
    Registration(
        "clairvoyant",
        Clairvoyant,
        thesis="baseline: knows the load to come",
        observes=("now_s",),
        decides=("widths",),
        needs=("plan: (time, widths) steps",),
    ),
)
