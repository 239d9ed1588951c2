"""`Adaptive` without a latency bound: the least width that reaches a throughput, or the width of the greatest throughput.

**A goal** (`GoalSeeker`). Throughput per subtask at the present width says how many would do: n = width x goal / measured.
More subtasks than twice the work never helped are believed only as far as they have helped: the gain of the last widening
is measured, and where it fell short of a tenth of what was promised, no more are added. Intervals in which the width
changed say nothing (the farm stood still), and a narrowing waits until it has been possible for a while.

**No goal** (`Climber`). A wider farm is not always faster: hyper-threads and shared links take their share. The climber
tries a width, compares it with the intervals just before and after at the old width (the load drifts, so only neighbours
in time can be compared), and keeps the better one. It starts with the widest and steps half as far after every
disappointment; when no step helps it rests, and tries again, rarer each time.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView

_SETTLE = 1  # intervals after a change that are not believed


@dataclass
class _Goal:
    width: int = 0
    age: int = 0  # intervals at this width
    before: tuple[int, float] | None = None  # width and throughput before the last widening
    useless_above: int | None = None
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=3))
    lower: int = 0  # for how long fewer would have done


class GoalSeeker:
    """The least width whose throughput reaches the goal, with few changes."""

    def __init__(self) -> None:
        self._states: dict[str, _Goal] = {}

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The next widths of the operators that have a goal."""
        widths = dict(current.widths)
        for name, goal in observed.target_per_s.items():
            view = observed.operators.get(name)
            if view is not None and view.lo < view.hi and goal > 0.0:
                widths[name] = self._width(view, goal, int(current.widths.get(name, view.width)))
        return replace(current, widths=widths)

    def _width(self, view: OperatorView, goal: float, ordered: int) -> int:
        state = self._states.setdefault(view.name, _Goal())
        if view.width != state.width:
            state.width, state.age = view.width, 0
            state.recent.clear()
        state.age += 1
        if view.width != ordered or state.age <= _SETTLE or view.completed_per_s <= 0.0:
            return ordered
        state.recent.append(view.completed_per_s)
        rate = sum(state.recent) / len(state.recent)
        if state.before is not None and state.age == _SETTLE + 1:
            width, then = state.before
            if view.width > width and rate < then * (1.0 + 0.1 * (view.width / width - 1.0)):
                state.useless_above = view.width
            state.before = None
        if state.useless_above is not None and view.width < state.useless_above:
            state.useless_above = None
        # 4 % above the goal: throughput varies, and a little short is short.
        need = min(max(math.ceil(view.width * 1.04 * goal / rate), view.lo), view.hi)
        if rate < goal and need > view.width and state.useless_above is None:
            state.lower = 0
            state.before = (view.width, rate)
            return min(need, 2 * view.width + 2)
        spare = math.ceil(view.width * 1.12 * goal / rate)
        state.lower = state.lower + 1 if spare < view.width else 0
        if state.lower >= 5 and len(state.recent) == state.recent.maxlen:
            state.lower = 0
            return max(spare, view.lo)
        return ordered


@dataclass
class _Climb:
    best: int = 0
    trying: int = 0  # the width under trial; 0: none
    samples: list[float] = field(default_factory=list)  # throughput at the best width before, in and after the trial
    gains: list[float] = field(default_factory=list)
    step: int = 0
    rest: int = 0
    patience: int = 4
    phase: str = "start"
    up: bool = True


class Climber:
    """The width of the greatest throughput, found by comparing neighbours in time."""

    def __init__(self) -> None:
        self._states: dict[str, _Climb] = {}

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The next widths of the elastic operators."""
        widths = dict(current.widths)
        for view in observed.operators.values():
            if view.lo < view.hi and view.completed_per_s > 0.0:
                widths[view.name] = self._width(view, int(current.widths.get(view.name, view.width)), observed)
        return replace(current, widths=widths)

    def _width(self, view: OperatorView, ordered: int, observed: Observation) -> int:
        state = self._states.get(view.name)
        rate = view.completed_per_s
        if state is None:
            state = self._states[view.name] = _Climb(best=view.width, step=max((view.hi - view.lo) // 2, 1))
        if view.width != ordered:
            return ordered
        if state.phase == "rest":
            state.rest -= 1
            if state.rest > 0:
                return state.best
            state.phase = "start"
        if state.phase == "start":
            state.samples = [rate]
            state.trying = self._next(view, state)
            if state.trying == state.best:
                return self._rest(state)
            state.phase = "trial"
            return state.trying
        if state.phase == "trial":
            state.samples.append(rate)
            state.phase = "back"
            return state.best
        before, tried, after = state.samples[0], state.samples[1], rate
        state.gains.append(tried / max(math.sqrt(before * after), 1e-9))
        return self._judge(view, state)

    def _judge(self, view: OperatorView, state: _Climb) -> int:
        gain = sum(state.gains) / len(state.gains)
        doubtful = abs(gain - 1.0) < 0.03 and len(state.gains) < 2
        if doubtful:  # once more before believing a small difference
            state.phase = "trial"
            state.samples = [state.samples[0]]
            return state.trying
        better = gain > 1.0
        state.gains = []
        state.phase = "start"
        if better:
            state.best = state.trying
        else:
            state.up = not state.up
            state.step = max(state.step // 2, 1) if state.up else state.step
            if state.step == 1 and state.up:
                return self._rest(state)
        return state.best

    def _next(self, view: OperatorView, state: _Climb) -> int:
        step = state.step if state.up else -state.step
        return min(max(state.best + step, view.lo), view.hi)

    def _rest(self, state: _Climb) -> int:
        state.phase, state.rest = "rest", state.patience
        state.patience = min(2 * state.patience, 256)
        state.step, state.up = 2, True
        return state.best
