"""The widths that `Adaptive` looks for on a continuous host: the least that fit a bound, and the one that drains.

The least total width that keeps a path within its bound comes from the greedy rule of thesis 001 (section 4.6.3,
Algorithm 7): begin at the least, give one subtask where it saves the most wait. Waits are Kingman's, as `Learner` has
fitted them, with what an interval's mean may scatter, and with the stop that a change of width is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.control.observation import OperatorView
from penstock.control.policies.adaptive_learner import Learner, Need
from penstock.control.policies.adaptive_paths import Path

_BUSIEST = 0.92  # never plan busier than this
_BLIND = 2.0  # what a saturated operator's load is taken for, in subtasks it has, when it cannot be seen
_DRAINS = 4  # a backlog is to be gone by the end of one of the next so many intervals
_NEARLY = 1.15  # a width so little beyond the greatest is taken for it
FULL = 0.97  # from here on an operator counts as saturated


@dataclass(frozen=True)
class Aim:
    """What a width is looked for.

    A change happens when it is due, and a burst when it likes: no width has to bear both in one interval.
    """

    later: bool  # for the rates a little further ahead
    room: bool  # with room for bursts
    stop: bool  # with room for the stop that a change is
    margin: bool = True


DUE = Aim(later=False, room=True, stop=False, margin=False)  # what makes a change necessary
RISES = Aim(later=False, room=False, stop=True)  # the same while rates rise: the change has to be borne, too
NEXT = Aim(later=True, room=False, stop=True)  # what to change to, so that the next change is borne
BARE = Aim(later=True, room=True, stop=False)  # what to change to, but for that


class WidthSearch:
    """Widths for one interval's needs."""

    def __init__(self, learners: Mapping[str, Learner], needs: Mapping[str, Need], interval_s: float) -> None:
        self.learners, self.needs, self.interval_s = learners, needs, interval_s

    def most(self, view: OperatorView, paths: list[Path], aim: Aim) -> int:
        """The least width that suits all of an operator's bounds."""
        return max(self.least(path, aim).get(view.name, view.lo) for path in paths)

    def least(self, path: Path, aim: Aim) -> dict[str, int]:
        """Algorithm 7 of thesis 001 with our rates: the least widths whose waits together fit."""
        rates = {
            name: (need.later if aim.later else need.soon) + (need.room if aim.room else 0.0)
            for name, need in self.needs.items()
        }
        allowed = path.allowed_s if aim.margin else path.most_s
        widths = {v.name: self._floor(v, rates[v.name]) for v in path.views}
        waits = {v.name: self._wait(v, widths[v.name], rates[v.name], stop=aim.stop) for v in path.views}
        by_name = {v.name: v for v in path.views}
        while sum(waits.values()) > allowed:
            best, gain, at = "", 0.0, 0.0
            for name, view in by_name.items():
                if widths[name] >= view.hi:
                    continue
                wait = self._wait(view, widths[name] + 1, rates[name], stop=aim.stop)
                saved = math.inf if math.isinf(waits[name]) and not math.isinf(wait) else waits[name] - wait
                if math.isinf(waits[name]) and math.isinf(wait):
                    saved = 1e-9  # still overloaded: go on
                if saved > gain:
                    best, gain, at = name, saved, wait
            if not best or gain < 1e-4 * max(allowed, 1e-6):
                break  # more subtasks would not help any more
            widths[best] += 1
            waits[best] = at
        return widths

    def _floor(self, view: OperatorView, rate: float) -> int:
        """The least width below the greatest utilisation; the hottest key's subtask is looked at where it can help."""
        hot, load = self.needs[view.name].hot, rate * self.learners[view.name].service_s
        width = max(math.ceil((1.0 - hot) * load / _BUSIEST - 1e-9), 1)
        room = _BUSIEST - hot * load
        if hot > 0.0 and room > 0.05:
            width = max(width, math.ceil((1.0 - hot) * load / room - 1e-9))
        return min(max(width, view.lo), view.hi)

    def _wait(self, view: OperatorView, width: int, rate: float, *, stop: bool) -> float:
        """The wait to plan with; with `stop`, and what a change of width adds."""
        if view.lo == view.hi:
            return view.wait_s if view.utilisation < 1.0 else 0.0  # nothing to decide there
        learner, need = self.learners[view.name], self.needs[view.name]
        wait = learner.wait_at(width, rate, need.hot, view, self.interval_s)
        return wait + learner.stop_at(width, need.soon) if stop else wait

    def drain(self, view: OperatorView, ordered: int, now_s: float, price: float) -> int:
        """The width that works a backlog off when it pays best; 0 if it goes away with what is ordered.

        Until new subtasks work, after a lag l, the backlog B (in subtask-seconds) changes by the load x less the width.
        Then p subtasks drain it in B / (p - x) seconds. It is to be gone when an interval ends, D after they began:
        p = x + B / D. They are paid for from the order until the interval after; each interval more that breaks the
        bound costs `price` intervals at the load's width.
        """
        learner, interval = self.learners[view.name], self.interval_s
        load = seen = self.needs[view.name].soon * learner.service_s
        if FULL <= view.utilisation < 1.12:  # just saturated: sources may be held back, and want more than was seen
            load = max(load, _BLIND * view.width)
        lag = learner.lag_s(interval)
        pending = min(learner.pending_s(now_s, interval), lag)
        backlog = view.queue_items * learner.service_s
        # Who is held back adds nothing to the backlog, so it grows by what was seen.
        backlog += (seen - view.width) * pending + (seen - ordered) * (lag - pending)
        if backlog <= 0.0 and load < ordered:
            return 0
        first = math.ceil(lag / interval + 1e-9) * interval - lag
        best, least = 0.0, math.inf
        for late in range(_DRAINS):
            lasts = first + (late - 0.1) * interval  # a little early, as what is estimated may be too little
            if lasts <= 0.05 * interval:
                continue
            width = load + max(backlog, 0.0) / lasts
            cost = (width - load) * (lag + lasts + interval) + price * interval * load * late
            if (width <= _NEARLY * view.hi or late == _DRAINS - 1) and cost < least:
                best, least = width, cost
        return math.ceil(min(best, view.hi))
