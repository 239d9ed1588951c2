"""`Adaptive` on a continuous host: the least widths that keep the bounds over the time it takes to react.

Per bound, what the queues may take is what the bound leaves after service, transport and output batches. The least
total
width that keeps within it comes from the greedy rule of thesis 001 (section 4.6.3, Algorithm 7): begin at the least,
give one subtask where it saves the most wait. The rates are those to come, with room for bursts (`adaptive_learner`).

Changing has a price: every change stops an operator for a moment. So a widening goes a little further than needed now;
a narrowing waits until the lower need has lasted, and is skipped if it saves less than 10 %.

When a backlog has built up, the operator is made wide enough to work it off within a few intervals: an interval that
breaks the bound is worth `price` intervals of the present width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive_learner import Learner, Need

_MARGIN = 0.95  # share of a bound that is planned with
_BUSIEST = 0.92  # never plan busier than this
_FULL = 0.97  # from here on an operator counts as saturated
_BLIND = 2.0  # what a saturated operator's load is taken for, in subtasks it has, when it cannot be seen
_DRAIN = 2.4  # a backlog is worked off with at most so many times the load's subtasks
_WORTH = 0.1  # a narrowing that saves less is not worth a change
_QUEUES = (0.1, 0.4)  # least and most share of a bound for queues, where output batches may take the rest
_BUSY = 0.85  # queues get what they need to run so busy


@dataclass
class _Path:
    """A bound and the operators on its path that have a view, with what is left for their queues."""

    bound: Bound
    views: list[OperatorView]
    allowed_s: float  # for the queues
    batches_s: float  # for output batches


class QueuePlanner:
    """Widths and output-batch lifetimes for continuous hosts."""

    def __init__(self, price: float) -> None:
        self.price = price
        self.learners: dict[str, Learner] = {}
        self._interval_s = 5.0
        self._extra: dict[str, float] = {}  # per bound: latency that is no operator's (transport), smoothed

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The decision for the next interval."""
        self._interval_s = observed.interval_s
        needs: dict[str, Need] = {}
        for name, view in observed.operators.items():
            learner = self.learners.setdefault(name, Learner(self.price))
            needs[name] = learner.add(view, observed.now_s, observed.interval_s)
        paths = [p for p in (self._path(b, observed, current) for b in observed.bounds) if p is not None]
        widths: dict[str, int] = {}
        for view in observed.operators.values():
            if view.lo == view.hi or not any(view.name in p.bound.operators for p in paths):
                continue
            widths[view.name] = self._width(view, paths, needs, observed, current)
        lifetimes = self._lifetimes(paths, observed, current)
        return replace(current, widths={**current.widths, **widths}, lifetimes=lifetimes)

    # --- widths -------------------------------------------------------------------------------------------------------

    def _width(
        self,
        view: OperatorView,
        paths: list[_Path],
        needs: Mapping[str, Need],
        observed: Observation,
        current: Decision,
    ) -> int:
        learner = self.learners[view.name]
        ordered = int(current.widths.get(view.name, view.width))
        mine = [p for p in paths if view.name in p.bound.operators]
        soon = max(self._least(p, needs, later=False).get(view.name, view.lo) for p in mine)
        later = max(self._least(p, needs, later=True).get(view.name, view.lo) for p in mine)
        drain = max((self._drain(view, p, needs[view.name]) for p in mine), default=0)
        need = max(soon, drain)
        learner.wanted.append(max(later, drain))
        draining = drain > soon
        if need > (1.15 * ordered if draining and ordered > view.width else ordered):
            target = max(need, later)
            learner.ordered(observed.now_s, target)
            return min(target, view.hi)
        limit = min(mean_limit(p.bound) or math.inf for p in mine)
        hold = learner.hold(ordered, needs[view.name].soon, limit)
        lower = max(list(learner.wanted)[-hold:])
        worth = _WORTH if hold > 2 else 0.3 * _WORTH
        if len(learner.wanted) >= hold and lower <= ordered - max(1.0, worth * ordered) and view.width <= ordered:
            return max(lower, view.lo)
        return ordered

    def _least(self, path: _Path, needs: Mapping[str, Need], *, later: bool) -> dict[str, int]:
        """Algorithm 7 of thesis 001 with our rates: the least widths whose waits together fit."""
        rates = {v.name: needs[v.name].later if later else needs[v.name].soon for v in path.views}
        widths = {v.name: self._floor(v, rates[v.name], needs[v.name].hot) for v in path.views}
        waits = {v.name: self._wait(v, widths[v.name], rates, needs, later=later) for v in path.views}
        by_name = {v.name: v for v in path.views}
        while sum(waits.values()) > path.allowed_s:
            best, gain, at = "", 0.0, 0.0
            for name, view in by_name.items():
                if widths[name] >= view.hi:
                    continue
                wait = self._wait(view, widths[name] + 1, rates, needs, later=later)
                saved = math.inf if math.isinf(waits[name]) and not math.isinf(wait) else waits[name] - wait
                if math.isinf(waits[name]) and math.isinf(wait):
                    saved = 1e-9  # still overloaded: go on
                if saved > gain:
                    best, gain, at = name, saved, wait
            if not best or gain < 1e-4 * max(path.allowed_s, 1e-6):
                break  # more subtasks would not help any more
            widths[best] += 1
            waits[best] = at
        return widths

    def _floor(self, view: OperatorView, rate: float, hot: float) -> int:
        """The least width below the greatest utilisation; the hottest key's subtask is looked at where it can help."""
        service = self.learners[view.name].service_s
        load = rate * service
        width = max(math.ceil((1.0 - hot) * load / _BUSIEST - 1e-9), 1)
        room = _BUSIEST - hot * load
        if hot > 0.0 and room > 0.05:
            width = max(width, math.ceil((1.0 - hot) * load / room - 1e-9))
        return min(max(width, view.lo), view.hi)

    def _wait(
        self, view: OperatorView, width: int, rates: Mapping[str, float], needs: Mapping[str, Need], *, later: bool
    ) -> float:
        """The wait to plan with; for a width to change to, with what the change itself adds."""
        if view.lo == view.hi:
            return view.wait_s if view.utilisation < 1.0 else 0.0  # nothing to decide there
        learner = self.learners[view.name]
        wait = learner.wait_at(width, rates[view.name], needs[view.name].hot, view, self._interval_s)
        return wait + learner.stop_at(width, needs[view.name].soon) if later else wait

    def _drain(self, view: OperatorView, path: _Path, need: Need) -> int:
        """The width that works a backlog off soon, if there is one.

        Until more subtasks work, the backlog B (subtask-seconds) grows by what the load x exceeds the width. Then p
        subtasks drain it in B / (p - x), which is to take a third of an interval; p is at most `_DRAIN` times the load.
        """
        service = self.learners[view.name].service_s
        backlog = view.queue_items * service / view.width
        if backlog <= max(1.5 * path.allowed_s, 4.0 * service) or view.wait_s <= path.allowed_s:
            return 0
        load = need.soon * service
        if _FULL <= view.utilisation < 1.12:  # just saturated: sources may be held back, and want more than was seen
            load = max(load, _BLIND * view.width)
        grows = max(need.soon * service - view.width, 0.0)
        waiting = view.queue_items * service + grows * self.learners[view.name].lag_s
        return min(math.ceil(min(load + waiting / (0.35 * self._interval_s), _DRAIN * load)), view.hi)

    # --- what a bound leaves ------------------------------------------------------------------------------------------

    def _path(self, bound: Bound, observed: Observation, current: Decision) -> _Path | None:
        limit = mean_limit(bound)
        if limit is None:
            return None
        views = [observed.operators[n] for n in bound.operators if n in observed.operators]
        if not views:
            return None
        service = sum(v.task_latency_s for v in views)
        batches = sum(v.batch_wait_s for v in views)
        measured = observed.latency.get(bound.name)
        calm = all(v.busiest < 0.95 for v in views)
        if measured is not None and calm:
            rest = measured[0] - service - batches - sum(v.wait_s for v in views)
            rest = min(max(rest, 0.0), 0.5 * limit)
            self._extra[bound.name] = 0.8 * self._extra.get(bound.name, rest) + 0.2 * rest
        allowed = max(_MARGIN * limit - service - self._extra.get(bound.name, 0.0), 0.0)
        if not current.lifetimes:
            return _Path(bound, views, max(allowed - batches, 0.02 * limit), 0.0)
        busy = sum(self.learners[v.name].wait_when_busy(v, _BUSY, self._interval_s) for v in views if v.lo < v.hi)
        queues = min(max(busy, _QUEUES[0] * allowed), _QUEUES[1] * allowed)
        return _Path(bound, views, max(queues, 0.02 * limit), allowed - queues)

    # --- output batches -----------------------------------------------------------------------------------------------

    def _lifetimes(self, paths: list[_Path], observed: Observation, current: Decision) -> dict[str, float]:
        """Spend what the queues do not need on output batches, evenly over the streams; the tightest bound governs."""
        chosen: dict[str, float] = {}
        for path in paths:
            limit = mean_limit(path.bound)
            streams = [s for s in path.bound.streams(observed.operators) if s in current.lifetimes]
            if limit is None or not streams:
                continue
            target = path.batches_s / len(streams)
            for stream in streams:
                view = observed.operators.get(stream.split("->")[1])
                now = float(current.lifetimes[stream])
                delay = view.batch_wait_s if view is not None else 0.0
                # delay grows with the lifetime: half of it where batches are large, all of it where they are not
                wanted = target if now <= 0.0 or delay <= 0.0 else now * min(max(target / delay, 0.5), 1.5)
                lifetime = min(wanted, 2.0 * target)
                if self._cut_short(path, observed, limit):
                    lifetime = min(lifetime, 0.5 * now)
                chosen[stream] = min(chosen.get(stream, lifetime), lifetime)
        return {**current.lifetimes, **chosen}

    def _cut_short(self, path: _Path, observed: Observation, limit: float) -> bool:
        """Whether shorter batches may bring a broken bound back: batches take most of it, and the backlog is short."""
        measured = observed.latency.get(path.bound.name)
        if measured is None or measured[0] <= limit:
            return False
        batches = sum(v.batch_wait_s for v in path.views)
        return batches > 0.5 * limit and measured[0] - batches <= 2.0 * limit


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
