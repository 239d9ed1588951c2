"""What the four strategies of thesis 003 share: a step up, down or none every TI seconds, within bounds (section 4.4).

::

    up()    N <- min(N + SF, Nmax)        down()  N <- max(N - SF, Nmin)

``SF``, the scaling factor, is 1 or 2 in the thesis, ``TI``, the time interval, 0.5 or 1 s. A step that would pass a
bound stops at it (our reading: the thesis says only that N stays within). A run of the regulator is an *iteration*;
one that changed N is an *adaptation*. The metric is taken over all that was seen since the last iteration: items /
time that really passed (algorithm 4.3 divides by TI; when a wake-up is late only the real time is right).

The regulators are for stateless operators whose source is always ready, as in the thesis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView

UP, KEEP, DOWN = 1, 0, -1


def resize(width: int, step: int, scaling_factor: int, lo: int, hi: int) -> int:
    """Return the width after a step of UP, KEEP or DOWN.

    >>> resize(13, UP, 2, 2, 14), resize(2, DOWN, 2, 2, 14), resize(8, KEEP, 2, 2, 14)
    (14, 2, 8)
    """
    return min(max(width + step * scaling_factor, lo), hi)


class Cadence:
    """Says when the next iteration is due: TI after the last one (section 4.7, without a thread of its own).

    >>> cadence = Cadence(0.5)
    >>> [cadence.due(t) for t in (0.0, 0.3, 0.5, 0.9, 1.2)]
    [True, False, True, False, True]
    """

    def __init__(self, every_s: float) -> None:
        self.every_s = at_least("regulator", "every_s", every_s, 0.0)
        self._next: float | None = None

    def due(self, now_s: float) -> bool:
        """Return whether an iteration is due, and count from now if it is."""
        if self._next is not None and now_s < self._next - 1e-9:  # a clock that adds 0.1 five times shows 0.4999...
            return False
        self._next = now_s + self.every_s
        return True


@dataclass
class Monitor:
    """The collector's monitor: throughput (algorithm 4.3) and mean latency (4.6.1) since it was last read.

    >>> monitor = Monitor()
    >>> monitor.add(items=30, seconds=0.5, latency_s=0.2)
    >>> monitor.throughput, monitor.latency_s
    (60.0, 0.2)
    >>> Monitor().throughput is None, Monitor(seconds=1.0).throughput, Monitor(seconds=1.0).latency_s
    (True, 0.0, None)
    """

    items: float = 0.0
    seconds: float = 0.0
    latency_sum: float = 0.0

    def add(self, *, items: float, seconds: float, latency_s: float = 0.0) -> None:
        """Take what a stretch of time showed: items completed, and their mean latency."""
        self.items += items
        self.seconds += seconds
        self.latency_sum += items * latency_s

    @property
    def throughput(self) -> float | None:
        """Items per second; None if no time passed."""
        return self.items / self.seconds if self.seconds > 0 else None

    @property
    def latency_s(self) -> float | None:
        """Mean latency per item; None if none completed: then there is nothing to decide by (our reading)."""
        return self.latency_sum / self.items if self.items > 0 else None


class Regulator(ABC):
    """Turns a strategy into a policy: one step per operator and iteration.

    Args:
        operator: the operator to regulate; None regulates every one the strategy has a goal for.
        scaling_factor: SF, how many replicas one adaptation adds or removes.
        every_s: TI, the least time between two iterations; observations in between only count.
        most: Nmax, where the host's bound is wider than the thesis' (see ``spar_bounds``).

    >>> class AlwaysMore(Regulator):
    ...     def _step(self, view, monitor, observed):
    ...         return UP
    >>> view = OperatorView("score", 8, 2, 14, 50.0, 50.0, 0.1, 0, 0, 0, 0, 0, 0, 1.0)
    >>> AlwaysMore(scaling_factor=1).decide(Observation(0.5, 0.5, {"score": view}), Decision({"score": 8})).widths
    {'score': 9}
    """

    def __init__(
        self, *, operator: str | None = None, scaling_factor: int = 2, every_s: float = 0.5, most: int | None = None
    ) -> None:
        self._operator = operator
        self._scaling_factor = int(at_least(f"policy '{self.name}'", "scaling_factor", scaling_factor, 1))
        self._every_s = above(f"policy '{self.name}'", "every_s", every_s, 0.0)
        self._most = None if most is None else int(at_least(f"policy '{self.name}'", "most", most, 1))
        self.reset()

    name = "spar"

    def reset(self) -> None:
        """Forget all that was measured and counted."""
        self.iterations = self.adaptations = 0
        self._cadence = Cadence(self._every_s)
        self._monitors: dict[str, Monitor] = {}

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """Return the current decision with the widths moved by at most one step."""
        if observed is None:
            return current
        for view in self._regulated(observed):
            monitor = self._monitors.setdefault(view.name, Monitor())
            items = view.completed_per_s * observed.interval_s
            monitor.add(items=items, seconds=observed.interval_s, latency_s=self._latency_s(view, observed))
        if not self._cadence.due(observed.now_s):
            return current
        self.iterations += 1
        widths = dict(current.widths)
        for view in self._regulated(observed):
            lo, hi = view.lo, max(view.lo, min(view.hi, self._most or view.hi))
            before = widths.get(view.name, view.width)
            step = self._step(view, self._monitors.pop(view.name, Monitor()), observed)
            widths[view.name] = resize(before, step, self._scaling_factor, lo, hi)
            self.adaptations += widths[view.name] != before
        return replace(current, widths=widths)

    def _regulated(self, observed: Observation) -> list[OperatorView]:
        views = [view for view in observed.operators.values() if self._operator in (None, view.name)]
        return [view for view in views if self._operator is not None or view.lo < view.hi]

    def _latency_s(self, view: OperatorView, observed: Observation) -> float:
        return view.task_latency_s

    @abstractmethod
    def _step(self, view: OperatorView, monitor: Monitor, observed: Observation) -> int:
        """Return UP, KEEP or DOWN."""
