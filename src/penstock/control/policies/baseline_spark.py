"""Spark's dynamic allocation as a width policy: more while tasks wait, fewer when executors idle.

While work has been waiting for the backlog timeout, one more is asked for, then 2, 4, 8, ... each time it still waits;
as soon as nothing waits the count starts at one again. What has been idle for the idle timeout is given back. An
operator's subtasks share the load evenly, so "idle executors" is what remains when its busy time is packed tightly.
"""

from __future__ import annotations

import math

from penstock.control.checks import above
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.baseline_common import clamped, elastic_views, with_widths
from penstock.control.policies.registry import Registration


class SparkAllocation:
    """Exponential growth while there is a backlog; idle executors go after a timeout.

    >>> from penstock.control.observation import OperatorView
    >>> view = OperatorView("a", 2, 1, 64, 300.0, 200.0, 0.01, 1.0, 0.02, 1.0, 0.5, 0.0, 90.0, 1.0)
    >>> policy, decision = SparkAllocation(), Decision({"a": 2})
    >>> for now in (5.0, 10.0, 15.0):
    ...     decision = policy.decide(Observation(now, 5.0, {"a": view}), decision)
    >>> decision.widths
    {'a': 9}
    """

    def __init__(
        self, *, backlog_timeout_s: float = 1.0, idle_timeout_s: float = 60.0, tasks_each: float = 1.0
    ) -> None:
        where = "policy 'spark'"
        self._backlog_timeout_s = above(where, "backlog_timeout_s", backlog_timeout_s, 0.0)
        self._idle_timeout_s = above(where, "idle_timeout_s", idle_timeout_s, 0.0)
        self._tasks_each = above(where, "tasks_each", tasks_each, 0.0)
        self.reset()

    def reset(self) -> None:
        """Forget backlogs and idle times."""
        self._step: dict[str, int] = {}
        self._idle_since: dict[str, tuple[float, int]] = {}

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """Grow, shrink or keep, per operator."""
        if observed is None:
            return current
        widths = {}
        for view in elastic_views(observed):
            ordered = int(current.widths.get(view.name, view.width))
            # A task per waiting item would always be a backlog; what an interval's work leaves over is one.
            waiting = view.queue_items > view.width and observed.interval_s >= self._backlog_timeout_s
            if waiting:
                step = self._step.get(view.name, 1)
                most = math.ceil((view.queue_items + view.width) / self._tasks_each)
                widths[view.name] = clamped(view, min(ordered + step, max(most, ordered)))
                self._step[view.name] = 2 * step
                self._idle_since.pop(view.name, None)
                continue
            self._step[view.name] = 1
            idle = ordered - max(math.ceil(min(view.utilisation, 1.0) * view.width), 1)
            since, least = self._idle_since.get(view.name, (observed.now_s, idle))
            least = min(least, idle)
            if least <= 0:
                self._idle_since.pop(view.name, None)
            elif observed.now_s - since >= self._idle_timeout_s:
                widths[view.name] = clamped(view, ordered - least)
                self._idle_since.pop(view.name, None)
            else:
                self._idle_since[view.name] = (since, least)
        return with_widths(current, widths)


REGISTRATIONS = (
    Registration(
        "spark",
        SparkAllocation,
        thesis="Spark's dynamic allocation",
        observes=("queue_items", "utilisation"),
        decides=("widths",),
    ),
)
