"""What a latency bound leaves: for the queues of its operators, and for the output batches between them.

    allowed = margin x bound - service times - transport

Where a host ships output batches, queues get what they need to run busy, within limits, and batches the rest: longer
batches make items cheaper (001, section 4.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive_learner import Learner

_MARGIN = 0.95  # share of a bound that is planned with
_ENOUGH = 1.0  # share of it from which on a change is worth its stop while rates are steady
_LEAST = 0.02  # queues get at least so much of a bound, however little is left
_QUEUES = (0.1, 0.4)  # least and most share for queues, where output batches may take the rest
_BUSY = 0.9  # queues get what they need to run so busy


@dataclass(frozen=True)
class Path:
    """A bound and the operators on its path that have a view, with what is left for their queues and batches.

    >>> Path(Bound("fast", ("a",), mean_s=0.1), 0.1, [], 0.07, 0.075, 0.0).limit_s
    0.1
    """

    bound: Bound
    limit_s: float  # the bound, as one on the mean
    views: list[OperatorView]
    allowed_s: float  # for the queues, to plan with
    most_s: float  # what they may take before a change is worth it
    batches_s: float  # for output batches

    def behind(self, view: OperatorView, service_s: float) -> bool:
        """Whether an operator has a backlog: more waits than the bound's queues ever hold, and too long."""
        usual = max(1.5 * self.allowed_s, 4.0 * service_s) * view.width
        return view.queue_items * service_s > usual and view.wait_s > self.allowed_s


class Budgets:
    """Splits bounds; it remembers the latency that is no operator's, which is transport."""

    def __init__(self) -> None:
        self._extra: dict[str, float] = {}  # per bound, smoothed

    def path(
        self, bound: Bound, observed: Observation, current: Decision, learners: Mapping[str, Learner]
    ) -> Path | None:
        """The path of a bound, or None if there is no limit or nothing was seen of it."""
        limit = mean_limit(bound)
        views = [observed.operators[n] for n in bound.operators if n in observed.operators]
        if limit is None or not views:
            return None
        service = sum(v.task_latency_s for v in views)
        batches = sum(v.batch_wait_s for v in views)
        measured = observed.latency.get(bound.name)
        if measured is not None and all(v.busiest < 0.95 for v in views):
            rest = measured[0] - service - batches - sum(v.wait_s for v in views)
            rest = min(max(rest, 0.0), 0.5 * limit)
            self._extra[bound.name] = 0.8 * self._extra.get(bound.name, rest) + 0.2 * rest
        allowed = max(_MARGIN * limit - service - self._extra.get(bound.name, 0.0), 0.0)
        if not current.lifetimes:
            queues = max(allowed - batches, _LEAST * limit)
            return Path(bound, limit, views, queues, queues + (_ENOUGH - _MARGIN) * limit, 0.0)
        busy = sum(learners[v.name].wait_when_busy(v, _BUSY, observed.interval_s) for v in views if v.lo < v.hi)
        queues = min(max(busy, _QUEUES[0] * allowed), _QUEUES[1] * allowed)
        planned = max(queues, _LEAST * limit)
        return Path(bound, limit, views, planned, planned, allowed - queues)


def mean_limit(bound: Bound) -> float | None:
    """A bound as one on the mean: waits are nearly exponential, so their 95th percentile is 3 means, the 99th 4.6.

    >>> mean_limit(Bound("fast", ("a",), p95_s=3.0))
    1.0
    """
    limits = [
        value / factor
        for value, factor in ((bound.mean_s, 1.0), (bound.p95_s, 3.0), (bound.p99_s, 4.6))
        if value is not None
    ]
    return min(limits) if limits else None
