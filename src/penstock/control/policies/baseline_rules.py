"""Two rules of thumb that clusters run today: follow the utilisation, or follow the latency.

**Utilisation rule**, in the form that container orchestrators made common: wanted = ceil(width x utilisation / target),
nothing within 10 % of the target, and downwards only to the greatest wish of the last minutes.

**Latency rule**: above the bound, wider by half (twice if it is far above); below a half of it for some time, one less.
"""

from __future__ import annotations

import math
from collections import deque

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation
from penstock.control.policies.baseline_common import clamped, elastic_views, with_widths
from penstock.control.policies.registry import Registration


class UtilisationRule:
    """wanted = ceil(width x utilisation / target); down only to the most wanted in `hold_s` seconds.

    >>> from penstock.control.observation import OperatorView
    >>> view = OperatorView("a", 4, 1, 64, 100.0, 100.0, 0.01, 1.0, 0.02, 1.0, 0.0, 0.0, 0.0, 1.4)
    >>> UtilisationRule().decide(Observation(5.0, 5.0, {"a": view}), Decision({"a": 4})).widths
    {'a': 6}
    """

    def __init__(self, *, target: float = 0.7, tolerance: float = 0.1, hold_s: float = 300.0) -> None:
        where = "policy 'utilisation'"
        self._target = above(where, "target", target, 0.0)
        self._tolerance = at_least(where, "tolerance", tolerance, 0.0)
        self._hold_s = at_least(where, "hold_s", hold_s, 0.0)
        self.reset()

    def reset(self) -> None:
        """Forget earlier wishes."""
        self._wishes: dict[str, deque[tuple[float, int]]] = {}

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The rule for every elastic operator."""
        if observed is None:
            return current
        widths = {}
        for view in elastic_views(observed):
            busy = min(view.utilisation, 1.0)  # a processor is never more than fully busy
            ratio = busy / self._target
            wish = view.width if abs(ratio - 1.0) <= self._tolerance else clamped(view, math.ceil(view.width * ratio))
            wishes = self._wishes.setdefault(view.name, deque())
            wishes.append((observed.now_s, wish))
            while wishes and wishes[0][0] <= observed.now_s - self._hold_s:
                wishes.popleft()
            ordered = int(current.widths.get(view.name, view.width))
            most = max((w for _, w in wishes), default=wish)
            widths[view.name] = max(wish, ordered) if wish >= ordered else min(ordered, most)
        return with_widths(current, widths)


class LatencyRule:
    """Above the bound: half as wide again (twice from double the bound on). Below half of it for a while: one less.

    >>> from penstock.control.observation import OperatorView
    >>> view = OperatorView("a", 4, 1, 64, 100.0, 100.0, 0.01, 1.0, 0.02, 1.0, 0.0, 0.0, 0.0, 0.9)
    >>> bound = Bound("fast", ("a",), mean_s=0.1)
    >>> seen = Observation(5.0, 5.0, {"a": view}, (bound,), {"fast": (0.15, 0.2, 0.3, 0.4)})
    >>> LatencyRule().decide(seen, Decision({"a": 4})).widths
    {'a': 6}
    """

    def __init__(self, *, low: float = 0.5, patience: int = 6, cool_down: int = 2) -> None:
        where = "policy 'latency'"
        self._low = above(where, "low", low, 0.0)
        self._patience = int(at_least(where, "patience", patience, 1))
        self._cool_down = int(at_least(where, "cool_down", cool_down, 0))
        self.reset()

    def reset(self) -> None:
        """Forget how long it has been quiet."""
        self._quiet: dict[str, int] = {}
        self._rest = 0

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The rule for every bound and the elastic operators on its path."""
        if observed is None:
            return current
        if self._rest > 0:
            self._rest -= 1
            return current
        widths: dict[str, int] = {}
        for bound in observed.bounds:
            strain = strain_of(bound, observed.latency.get(bound.name))
            if strain is None:
                continue
            self._quiet[bound.name] = self._quiet.get(bound.name, 0) + 1 if strain < self._low else 0
            for view in elastic_views(observed):
                if view.name not in bound.operators:
                    continue
                ordered = int(current.widths.get(view.name, view.width))
                if strain > 1.0:
                    factor = 2.0 if strain > 2.0 else 1.5
                    widths[view.name] = max(widths.get(view.name, 0), clamped(view, math.ceil(ordered * factor)))
                elif self._quiet[bound.name] >= self._patience:
                    widths.setdefault(view.name, clamped(view, ordered - 1))
            if self._quiet[bound.name] >= self._patience:
                self._quiet[bound.name] = 0
        if any(w > int(current.widths.get(name, w)) for name, w in widths.items()):
            self._rest = self._cool_down
        return with_widths(current, widths)


def strain_of(bound: Bound, measured: tuple[float, float, float, float] | None) -> float | None:
    """Measured over allowed, of whichever limit is nearest to breaking; None if nothing was measured.

    >>> strain_of(Bound("fast", ("a",), mean_s=0.1, p95_s=0.4), (0.05, 0.2, 0.3, 0.4))
    0.5
    """
    if measured is None:
        return None
    limits = (bound.mean_s, bound.p95_s, bound.p99_s)
    ratios = [value / limit for limit, value in zip(limits, measured, strict=False) if limit is not None]
    return max(ratios) if ratios else None


REGISTRATIONS = (
    Registration(
        "utilisation",
        UtilisationRule,
        thesis="baseline: the usual autoscaler's rule",
        observes=("utilisation", "width"),
        decides=("widths",),
    ),
    Registration(
        "latency",
        LatencyRule,
        thesis="baseline",
        observes=("latency", "bounds"),
        decides=("widths",),
        needs=("a latency bound",),
    ),
)
