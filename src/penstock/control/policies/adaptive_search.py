"""`Adaptive` without a latency bound: the least width that reaches a throughput, or the width of the greatest one.

**A goal** (`GoalSeeker`). Throughput per subtask at the present width says how many would do: n = width x goal /
measured. The gain of each widening is measured, and where it fell short of a tenth of what was promised, no more are
added for a while. Intervals in which the width changed say nothing (the farm stood still), and a narrowing waits until
it has been possible for a while. A rate that keeps falling is taken to fall on for another interval.

**No goal** (`Climber`). A wider farm is not always faster: hyper-threads and shared links take their share. The climber
tries a width and compares it with the old width just before and just after (the load drifts, so only neighbours in time
can be compared), in turns until they can be told apart or it does not matter. Where the farm is always busy, items are
counted: nothing need be timed for that. Elsewhere the rate is what the width could do, width / service time, and a
sample of the times does. With d the logarithms of the ratios so far, n of them, m their mean and s their spread,

    noise  = cv / sqrt(items in a window) x sqrt(1.5)          a ratio has one window above and two halves below
    s^2    = (2 noise^2 + sum of (d - m)^2) / (2 + n - 1)      few ratios tell little of their spread: noise counts as 2
    adopt  if m > 2 s / sqrt(n), or after `_ROUNDS` rounds m > 0.8 s / sqrt(n);   reject if n > 1 and m < -s / sqrt(n)

It first tries what leaves two hardware threads free (003, section 4.6), then the widest, then its neighbours; when none
helps it rests, and tries the neighbours again, rarer each time, and never for more than 1 % of what could have been
done: a trial of s replicas fewer of p may lose s / p for as long as it lasts. Speed has one top: where a width is no
better, one further in that direction is not tried.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.baseline_common import clamped

_SETTLE = 1  # intervals after a change that are not believed
_DOUBT = 5  # intervals: what did not help may have met a heavier load, so it is tried again
_FALLS = 0.1  # by so much a rate must fall over two intervals to be taken to fall on
_ENOUGH = 24  # items in a window that is compared
_CLEARLY = 2.0  # standard errors by which another width must be better to be taken
_ROUNDS = 8  # comparisons of two widths after which it is decided in any case
_AT_LAST = 0.8  # standard errors by which the other must be better then
_LONGEST = 8  # intervals such a window takes at most
_SPREADS = (0.2, 0.4)  # coefficient of variation of service times: the least that few timed items show, and of none
_BUSY = 0.97  # from here on a farm counts as always busy
_EXPLORES = 0.01  # share of what could be done that trials may lose
_TRIALS = 2  # windows that a trial of a bad width takes


@dataclass
class _Goal:
    width: int = 0
    age: int = 0  # intervals at this width
    before: tuple[int, float] | None = None  # width and throughput before the last widening
    doubt: int = 0  # intervals for which a widening that did not help is not repeated
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
                ordered = int(current.widths.get(name, view.width))
                widths[name] = clamped(view, self._width(view, goal, ordered, observed.micro_batch))
        return replace(current, widths=widths)

    def _width(self, view: OperatorView, goal: float, ordered: int, micro_batch: bool) -> int:
        state = self._states.setdefault(view.name, _Goal())
        if view.width != state.width:
            # A job's first batch tells enough: at a width far too small the next one would take as long again.
            state.age = _SETTLE if micro_batch and state.width == 0 else 0
            state.width = view.width
            state.recent.clear()
        state.age += 1
        if view.width != ordered or state.age <= _SETTLE or view.completed_per_s <= 0.0:
            return ordered
        state.recent.append(view.completed_per_s)
        rate = sum(state.recent) / len(state.recent)
        if state.before is not None and state.age == _SETTLE + 1:
            width, then = state.before
            if view.width > width and rate < then * (1.0 + 0.1 * (view.width / width - 1.0)):
                state.doubt = _DOUBT
            state.before = None
        state.doubt = max(state.doubt - 1, 0)
        # A tenth above the goal: throughput varies, and a little short is short. Falling rates count at once.
        rate = min(rate, soon(state.recent))
        need = min(max(math.ceil(view.width * 1.1 * goal / rate), view.lo), view.hi)
        if rate < 1.02 * goal and need > view.width and state.doubt == 0:
            state.lower = 0
            state.before = (view.width, rate)
            return min(need, 2 * view.width + 2)
        spare = math.ceil(view.width * 1.2 * goal / rate)
        state.lower = state.lower + 1 if spare < view.width else 0
        if state.lower >= 5 and len(state.recent) == state.recent.maxlen:
            state.lower = 0
            return max(spare, view.lo)
        return ordered


def soon(rates: Sequence[float]) -> float:
    """The last of three rates; where each was lower than the one before, and clearly, what the next will be.

    >>> soon([120.0, 110.0, 100.0]), soon([102.0, 101.0, 100.0]), soon([90.0, 110.0, 100.0])
    (90.0, 100.0, 100.0)
    """
    last = rates[-1]
    if len(rates) < 3 or not rates[-3] > rates[-2] > last or last > (1.0 - _FALLS) * rates[-3]:
        return last
    return max(last - (rates[-3] - last) / 2.0, 0.5 * last)


@dataclass
class _Window:
    """What was seen at one width over some intervals."""

    items: float = 0.0
    elapsed_s: float = 0.0
    timed: float = 0.0  # items of intervals whose service time is known
    busy_s: float = 0.0  # sum over those of seconds per item at one subtask
    spread: float = 0.0
    intervals: int = 0
    saturated: bool = True

    def add(self, view: OperatorView, interval_s: float) -> None:
        """Take an interval in."""
        items = view.completed_per_s * interval_s
        self.items += items
        self.elapsed_s += interval_s
        if view.service_s > 0.0:
            self.timed += items
            self.busy_s += items * view.service_s
        self.spread = max(self.spread, view.service_cv)
        self.intervals += 1
        self.saturated = self.saturated and view.utilisation >= _BUSY

    @property
    def full(self) -> bool:
        """Whether it is long enough to be compared."""
        return self.items >= _ENOUGH or self.intervals >= _LONGEST

    def rate(self, width: int) -> float:
        """Items per second that the width could do; 0 if nothing is known."""
        if self.saturated:
            return self.items / self.elapsed_s
        return width * self.timed / self.busy_s if self.busy_s > 0.0 else 0.0

    @property
    def noise(self) -> float:
        """By how much (relative) a ratio of such windows scatters, if items differ by what they cost."""
        spread = max(self.spread, _SPREADS[0]) if self.spread > 0.0 else _SPREADS[1]
        return max(spread * math.sqrt(1.5 / max(self.items, 1.0)), 0.02)


@dataclass
class _Climb:
    best: int
    candidates: list[int]
    trying: int = 0
    phase: str = "base"  # base: measuring the best width; trial: another one; rest
    before: float = 0.0  # rate of the best width in the window before the trial
    tried: float = 0.0  # rate of the last trial, 0 if there was none
    ratios: list[float] = field(default_factory=list)  # logarithms, of the trials so far
    window: _Window = field(default_factory=_Window)  # that is being measured
    rest: int = 0
    patience: int = 40


class Climber:
    """The width of the greatest throughput, found by comparing neighbours in time."""

    def __init__(self) -> None:
        self._states: dict[str, _Climb] = {}

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The next widths of the elastic operators."""
        widths = dict(current.widths)
        for view in observed.operators.values():
            if view.lo < view.hi:
                wanted = self._width(view, int(current.widths.get(view.name, view.width)), observed)
                widths[view.name] = clamped(view, wanted)
        return replace(current, widths=widths)

    def _width(self, view: OperatorView, ordered: int, observed: Observation) -> int:
        state = self._states.get(view.name)
        if state is None:
            roomy = min(max(observed.parallelism - 2, view.lo), view.hi) if observed.parallelism > 2 else view.hi
            first = [width for width in (roomy, view.hi) if width != view.width]
            state = self._states[view.name] = _Climb(view.width, list(dict.fromkeys(first)))
        if view.width != ordered:
            return ordered  # not there yet
        if state.phase == "rest":
            state.rest -= 1
            if state.rest > 0:
                return state.best
            state.candidates = _neighbours(state.best, view)
            state.phase = "base"
        state.window.add(view, observed.interval_s)
        if not state.window.full:
            return state.trying if state.phase == "trial" else state.best
        return self._measured(view, state)

    def _measured(self, view: OperatorView, state: _Climb) -> int:
        """A window is full: what it showed, and what comes next."""
        width = state.trying if state.phase == "trial" else state.best
        window, state.window = state.window, _Window()
        rate = window.rate(width)
        if rate <= 0.0:
            return width  # nothing came out: nothing is known
        if state.phase == "trial":
            state.tried = rate
            ratio = math.log(rate / state.before)
            if abs(ratio) > 0.15 + 2.0 * window.noise:  # too much to be drift
                return self._adopt(view, state, rate) if ratio > 0.0 else self._reject(view, state, window)
            state.phase = "base"
            return state.best
        if state.tried > 0.0:
            state.ratios.append(math.log(state.tried / math.sqrt(state.before * rate)))
            verdict = told_apart(state.ratios, window.noise)
            if verdict is not None:
                state.before = rate
                return self._adopt(view, state, state.tried) if verdict else self._reject(view, state, window)
            state.before, state.phase = rate, "trial"
            return state.trying
        state.before = rate
        return self._try_next(view, state, window)

    def _adopt(self, view: OperatorView, state: _Climb, rate: float) -> int:
        state.best, state.before = state.trying, rate
        state.tried, state.ratios, state.phase = 0.0, [], "base"
        if not state.candidates:
            state.candidates = _neighbours(state.best, view)
        return state.best

    def _reject(self, view: OperatorView, state: _Climb, window: _Window) -> int:
        wider = state.trying > state.best
        state.candidates = [w for w in state.candidates if not (w > state.trying if wider else w < state.trying)]
        return self._try_next(view, state, window)

    def _try_next(self, view: OperatorView, state: _Climb, window: _Window) -> int:
        state.tried, state.ratios = 0.0, []
        while state.candidates:
            state.trying = state.candidates.pop(0)
            if state.trying != state.best:
                state.phase = "trial"
                return state.trying
        lost = max((1.0 - w / state.best for w in _neighbours(state.best, view)), default=0.0)
        worth = math.ceil(max(lost, 0.0) * _TRIALS * window.intervals / _EXPLORES)
        state.phase, state.rest = "rest", max(state.patience, worth)
        state.patience = min(2 * state.patience, 1000)
        return state.best


def told_apart(ratios: Sequence[float], noise: float) -> bool | None:
    """Whether a width is better, by the logarithms of its ratios to another; None if that cannot be said yet.

    >>> told_apart([0.1], 0.02), told_apart([0.03], 0.02), told_apart([-0.05, -0.04], 0.02)
    (True, None, False)
    >>> told_apart([0.01, 0.02] * 4, 0.02)  # after so many rounds it is taken if it is likely better
    True
    """
    count, mean = len(ratios), statistics.fmean(ratios)
    squares = sum((ratio - mean) ** 2 for ratio in ratios)
    error = math.sqrt((2.0 * noise * noise + squares) / (1.0 + count) / count)
    if count >= _ROUNDS:
        return mean > _AT_LAST * error
    if mean > _CLEARLY * error:
        return True
    return False if count > 1 and mean < -error else None


def _neighbours(width: int, view: OperatorView) -> list[int]:
    """The widths next to one, a little above and below."""
    step = max(1, round(0.15 * width))
    near = (min(width + step, view.hi), max(width - step, view.lo))
    return [w for w in near if w != width]
