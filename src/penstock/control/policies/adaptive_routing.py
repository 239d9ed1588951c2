"""`Adaptive`'s routing: which task gets which key groups, so that tasks finish together and a hot key sits alone.

A key belongs to one of a fixed number of key groups. With w_g the smoothed rows of group g, the groups go to p tasks,
heaviest first, each to the task with the least so far (Graham's LPT rule, within 4/3 of the best makespan; thesis 000
calls for the same where it rebalances). A group heavier than all others together / p so ends up alone. Where a hot key
has moved, what was smoothed is forgotten: between its old group and its new one it would be given to both for some
batches, and be alone in none. State is read from files by whoever gets the group, so a move costs a batch almost
nothing; still, a route stays while it is about as good as a new one.

    imbalance of a route = most rows of a task / mean rows of a task
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from penstock.control.observation import OperatorView

_FRESH = 0.5  # weight of the newest batch
_WORTH = 1.1  # a route is replaced if it is so many times as uneven as a new one
_SIGMAS = 5.0  # a group with so many deviations more rows than it used to have is where a hot key has moved to


def lightest_first(weights: Sequence[float], tasks: int) -> tuple[int, ...]:
    """The task of each group: heaviest group first, each to the task that has the least.

    >>> lightest_first([9.0, 1.0, 2.0, 3.0, 3.0], tasks=2)
    (0, 1, 1, 1, 1)
    """
    loads = [(0.0, task) for task in range(tasks)]
    route = [0] * len(weights)
    for group in sorted(range(len(weights)), key=lambda g: (-weights[g], g)):
        load, task = heapq.heappop(loads)
        route[group] = task
        heapq.heappush(loads, (load + weights[group], task))
    return tuple(route)


def imbalance(weights: Sequence[float], route: Sequence[int], tasks: int) -> float:
    """The heaviest task's rows over the mean; 1 if there are none.

    >>> imbalance([9.0, 1.0, 2.0], (0, 1, 1), tasks=2)
    1.5
    """
    loads = [0.0] * tasks
    for group, task in enumerate(route):
        loads[task] += weights[group]
    total = sum(loads)
    return max(loads) * tasks / total if total > 0.0 else 1.0


class Router:
    """Routes per operator, smoothed and held."""

    def __init__(self) -> None:
        self._weights: dict[str, list[float]] = {}

    def route(self, view: OperatorView, width: int, current: Sequence[int] | None) -> tuple[int, ...] | None:
        """The route for the next batch; None where the plain one (group modulo width) is as good.

        >>> from penstock.control.observation import OperatorView
        >>> def seen(*groups):
        ...     return OperatorView("sum", 2, 1, 8, 1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.1, groups=groups)
        >>> Router().route(seen(8.0, 4.0, 8.0, 4.0), 2, None)
        (0, 0, 1, 1)
        >>> Router().route(seen(5.0, 5.0, 5.0, 5.0), 2, None) is None
        True
        """
        if not view.groups or width < 2:
            return None
        known = self._weights.get(view.name)
        if known is None or len(known) != len(view.groups):
            weights = list(view.groups)
        else:
            weights = [_FRESH * new + (1.0 - _FRESH) * old for new, old in zip(view.groups, known, strict=True)]
            if _moved(view.groups, known):
                weights = list(view.groups)
        self._weights[view.name] = weights
        best = lightest_first(weights, width)
        even = _WORTH * imbalance(weights, best, width)
        if current is not None and len(current) == len(weights) and max(current) < width:
            if imbalance(weights, current, width) <= even:
                return tuple(current)
            return best
        plain = [group % width for group in range(len(weights))]
        return None if imbalance(weights, plain, width) <= even else best


def _moved(newest: Sequence[float], known: Sequence[float]) -> bool:
    """Whether the heaviest group of the newest batch has far more rows than it used to: n - e > 5 sqrt(e + 1).

    e is its smoothed share of the batch's rows; the deviation of a count of about e is sqrt(e).

    >>> usual = [50.0, 10.0, 10.0, 10.0]
    >>> _moved([12.0, 9.0, 48.0, 11.0], usual), _moved([43.0, 13.0, 14.0, 10.0], usual)
    (True, False)
    >>> _moved([1.0, 0.0, 2.0, 0.0], usual)   # too few rows to tell
    False
    """
    before = sum(known)
    if before <= 0.0:
        return False
    heaviest = max(range(len(newest)), key=lambda group: newest[group])
    expected = known[heaviest] / before * sum(newest)
    return newest[heaviest] - expected > _SIGMAS * math.sqrt(expected + 1.0)
