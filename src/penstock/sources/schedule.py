"""When each row of a replayed stream is due: load shapes as pure functions of time, exact to the microsecond.

A schedule answers two questions that must agree: when is row i due (`time_of`), and how many rows are due by
t (`count`). Both come from one rule. The rate, integrated from 0 to t, is the *mass* of t; row i is due where
the mass passes i. `time_us` rounds that instant to a microsecond and is the only truth: `count` starts from an
estimate and then settles on what `time_us` says, so the two cannot disagree by a rounding.

Rates are piecewise linear in time, which covers every shape here and has an exact inverse.

>>> load = constant(100, 2).then(ramp(100, 300, 2))
>>> load.duration, load.rows, load.count(2.0), load.rate(3.0)
(4.0, 600.0, 201, 200.0)
>>> load.time_of([0, 1, 200]).tolist()
[0.0, 0.01, 2.0]
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import FlowError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The instant of a row that a finite schedule never reaches.
NEVER = int(np.iinfo(np.int64).max)
SINE_PIECES = 256  # linear pieces per period; the rate is then within 1e-4 of the amplitude


def settle(guess: int, limit: float, due: Callable[[int], bool]) -> int:
    """How many of the rows 0, 1, .. below `limit` are due, when `due` turns from true to false once.

    Gallops from `guess`, so a good guess costs two or three calls.

    >>> settle(3, math.inf, lambda row: row * row <= 100)
    11
    """
    low = high = min(max(guess, 0), int(min(limit, NEVER)))
    step = 1
    while high < limit and due(high):
        low, step = high + 1, 2 * step
        high = int(min(high + step, limit))
    step = 1
    while low > 0 and not due(low - 1):
        high, step = low - 1, 2 * step
        low = max(low - step, 0)
    while low < high:
        middle = (low + high) // 2
        if due(middle):
            low = middle + 1
        else:
            high = middle
    return low


class Schedule(ABC):
    """When rows are due. Row 0 is the first; times run from the start of the stream."""

    @property
    @abstractmethod
    def duration(self) -> float:
        """Seconds after which no further row comes due; inf if endless."""

    @property
    @abstractmethod
    def rows(self) -> float:
        """How many rows the schedule holds; inf if endless."""

    @abstractmethod
    def _rate(self, seconds: Floats) -> Floats: ...

    @abstractmethod
    def time_us(self, index: Ints) -> Ints:
        """Microseconds from the start at which each row is due, never decreasing; NEVER past the last row."""

    @abstractmethod
    def _estimate(self, us: int) -> int:
        """About how many rows are due by `us`."""

    def count_us(self, us: int) -> int:
        """How many rows are due at `us` microseconds from the start."""
        if us < 0:
            return 0
        return settle(self._estimate(us), self.rows, lambda row: int(self.time_us(np.array([row]))[0]) <= us)

    def count(self, seconds: float) -> int:
        """How many rows have `time_of` <= `seconds`. For many instants: `np.searchsorted` on `time_of`."""
        if seconds == math.inf:
            return self.count_us(NEVER - 1)
        # The last microsecond that `time_of` would give as `seconds` or less; the product may be an ulp off.
        us = math.floor(seconds * 1e6)
        us += 1 if (us + 1) / 1e6 <= seconds else -1 if us / 1e6 > seconds else 0
        return self.count_us(us)

    def time_of(self, index: ArrayLike) -> Floats:
        """Seconds from the start at which each row is due; inf past the last row."""
        us = self.time_us(np.atleast_1d(np.asarray(index, dtype=np.int64)))
        return np.where(us == NEVER, np.inf, us / 1e6)

    @overload
    def rate(self, seconds: float) -> float: ...
    @overload
    def rate(self, seconds: Floats) -> Floats: ...
    def rate(self, seconds: float | Floats) -> float | Floats:
        """Rows per second at an instant, or at each of an array of them; 0 outside the schedule."""
        at = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        inside = (at >= 0) & (at < self.duration)
        rates = np.where(inside, self._rate(np.where(inside, at, 0.0)), 0.0)
        return rates if isinstance(seconds, np.ndarray) else float(rates[0])

    @abstractmethod
    def then(self, following: Schedule) -> Schedule:
        """This schedule, and when it has ended the `following` one."""


class Profile(Schedule):
    """A schedule whose rows are evenly spaced in mass: row i is due where the integral of the rate passes i."""

    @abstractmethod
    def mass(self, seconds: Floats) -> Floats:
        """The integral of the rate from 0 to each instant."""

    @abstractmethod
    def instant(self, mass: Floats) -> Floats:
        """The instant at which the integral of the rate passes each mass (its right-continuous inverse)."""

    @cached_property
    def total_mass(self) -> float:
        return float(self.mass(np.array([self.duration]))[0])

    @cached_property
    def rows(self) -> float:
        if math.isinf(self.total_mass):
            return math.inf
        # Less the rounding of the sum: 0.1/s for 30 s is 3 rows, although the product is above 3.
        return float(math.ceil(self.total_mass - 1e-12 * self.total_mass - 1e-9))

    def time_us(self, index: Ints) -> Ints:
        inside = index < self.rows
        seconds = self.instant(np.where(inside, index, 0).astype(np.float64)) if self.rows else np.zeros(len(index))
        return np.where(inside, np.rint(seconds * 1e6).astype(np.int64), NEVER)

    def _estimate(self, us: int) -> int:
        # Half a microsecond on, for `time_us` rounds; mass m means that rows 0 .. floor(m) are due.
        seconds = min((us + 0.5) / 1e6, self.duration)
        return int(min(self.mass(np.array([seconds]))[0] + 1, self.rows, 2.0**62))

    def then(self, following: Schedule) -> Schedule:
        """This load shape, and when it has ended the `following` one.

        >>> constant(10, 1).then(constant(20, 1)).rows
        30.0
        """
        if not isinstance(following, Profile):
            raise FlowError(
                f"schedule {self}",
                "an evenly spaced schedule cannot be followed by a random one",
                "join the load shapes first and make the whole random: poisson(first.then(second))",
            )
        mine = self.parts if isinstance(self, Phases) else (self,)
        theirs = following.parts if isinstance(following, Phases) else (following,)
        return Phases(mine + theirs)


@dataclass(frozen=True)
class Piece:
    """A stretch of time over which the rate goes in a straight line from `start` to `end`."""

    seconds: float
    start: float
    end: float


@dataclass(frozen=True, repr=False)
class Rates(Profile):
    """Pieces one after another, from the first again when they are through, until `seconds` have passed."""

    label: str
    pieces: tuple[Piece, ...]
    seconds: float

    def __repr__(self) -> str:
        return self.label

    @property
    def duration(self) -> float:
        return float(self.seconds)

    @cached_property
    def _table(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Per piece: start of time (and the period), start of mass (and its total), first rate, slope."""
        seconds, start, end = np.array([(p.seconds, p.start, p.end) for p in self.pieces], dtype=np.float64).T
        mean = (start + end) / 2
        # An endless piece without rate holds nothing; 0 * inf would be NaN.
        mass = np.multiply(mean, seconds, out=np.zeros_like(mean), where=mean > 0)
        slope = (end - start) / seconds
        return np.append(0.0, np.cumsum(seconds)), np.append(0.0, np.cumsum(mass)), start, slope

    def _locate(self, edges: Floats, value: Floats) -> tuple[Floats, Ints, Floats]:
        """Number of whole periods before each value, its piece, and what remains from the start of the piece."""
        cycle = np.floor(value / edges[-1])
        rest = np.clip(value - cycle * edges[-1] if math.isfinite(edges[-1]) else value, 0.0, edges[-1])
        piece = np.clip(np.searchsorted(edges, rest, side="right") - 1, 0, len(self.pieces) - 1)
        return cycle, piece, rest - edges[piece]

    def _rate(self, seconds: Floats) -> Floats:
        times, _, start, slope = self._table
        _, piece, rest = self._locate(times, seconds)
        return start[piece] + slope[piece] * rest

    def mass(self, seconds: Floats) -> Floats:
        times, masses, start, slope = self._table
        if math.isinf(times[-1]) and np.isinf(seconds).any():
            return np.where(np.isinf(seconds), masses[-1], self.mass(np.where(np.isinf(seconds), 0.0, seconds)))
        if np.isinf(seconds).any():  # an endless repetition
            return np.where(np.isinf(seconds), np.inf if masses[-1] else 0.0, 0.0)
        cycle, piece, rest = self._locate(times, seconds)
        whole = cycle * masses[-1] if math.isfinite(times[-1]) else 0.0
        result: Floats = whole + masses[piece] + rest * (start[piece] + slope[piece] * rest / 2)
        return result

    def instant(self, mass: Floats) -> Floats:
        times, masses, start, slope = self._table
        if len(self.pieces) == 1 and not slope[0]:  # as below, at a twentieth of the cost
            evenly: Floats = mass / start[0] if start[0] else np.zeros_like(mass)
            return evenly
        cycle, piece, rest = self._locate(masses, mass)
        first = start[piece]
        # The root of slope/2 t^2 + first t = rest, written so that it holds for slope 0 and loses no digits.
        divisor = first + np.sqrt(np.maximum(first * first + 2 * slope[piece] * rest, 0.0))
        within = np.divide(2 * rest, divisor, out=np.zeros_like(rest), where=divisor > 0)
        within = np.minimum(within, np.diff(times)[piece])
        whole = cycle * times[-1] if math.isfinite(times[-1]) else 0.0
        result: Floats = whole + times[piece] + within
        return result


@dataclass(frozen=True, repr=False)
class Phases(Profile):
    """Load shapes one after another; a fraction of a row that one leaves over goes to the next."""

    parts: tuple[Profile, ...]

    def __post_init__(self) -> None:
        for part in self.parts[:-1]:
            if math.isinf(part.duration):
                raise FlowError(f"schedule {part}", "nothing can follow an endless phase", "give it seconds=")

    def __repr__(self) -> str:
        return repr(self.parts[0]) + "".join(f".then({part!r})" for part in self.parts[1:])

    @cached_property
    def _edges(self) -> tuple[Floats, Floats]:
        times = np.cumsum([0.0, *(part.duration for part in self.parts)])
        masses = np.cumsum([0.0, *(part.total_mass for part in self.parts)])
        return times, masses

    @property
    def duration(self) -> float:
        return float(self._edges[0][-1])

    def _per_part(self, edges: Floats, value: Floats, answer: Callable[[int, Floats], Floats]) -> Floats:
        part = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(self.parts) - 1)
        result = np.empty_like(value)
        for number in np.unique(part):
            mine = part == number
            result[mine] = answer(int(number), value[mine] - edges[number])
        return result

    def _rate(self, seconds: Floats) -> Floats:
        return self._per_part(self._edges[0], seconds, lambda part, rest: self.parts[part]._rate(rest))

    def mass(self, seconds: Floats) -> Floats:
        times, masses = self._edges
        return self._per_part(times, seconds, lambda part, rest: masses[part] + self.parts[part].mass(rest))

    def instant(self, mass: Floats) -> Floats:
        times, masses = self._edges
        return self._per_part(masses, mass, lambda part, rest: times[part] + self.parts[part].instant(rest))


def check(where: str, *, not_negative: Mapping[str, float] = {}, positive: Mapping[str, float] = {}) -> None:
    """Refuse parameters that are no numbers, infinite or below 0 where >= 0 is the rule, not above 0 where > 0 is."""
    for names, rule in ((not_negative, "a finite number >= 0"), (positive, "a number > 0")):
        for name, value in names.items():
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not number or not (value > 0 if names is positive else 0 <= value < math.inf):
                raise FlowError(where, f"{name} must be {rule}, got {value!r}", f"pass {name} as {rule}")


def _label(name: str, *values: Any) -> str:
    return f"{name}({', '.join(f'{value:g}' for value in values if value != math.inf)})"


def constant(rate: float, seconds: float = math.inf) -> Profile:
    """`rate` rows per second, evenly spaced.

    >>> constant(4, 1).time_of(range(5)).tolist()
    [0.0, 0.25, 0.5, 0.75, inf]
    """
    check("constant", not_negative={"rate": rate}, positive={"seconds": seconds})
    return Rates(_label("constant", rate, seconds), (Piece(seconds, rate, rate),), seconds)


def ramp(start: float, end: float, seconds: float) -> Profile:
    """A rate that goes in a straight line from `start` to `end`.

    >>> ramp(0, 100, 10).rows
    500.0
    """
    check("ramp", not_negative={"start": start, "end": end, "seconds": seconds}, positive={"seconds": seconds})
    return Rates(_label("ramp", start, end, seconds), (Piece(seconds, start, end),), seconds)


def step(before: float, after: float, at: float, seconds: float = math.inf) -> Profile:
    """`before` rows per second until `at`, then `after`; `seconds` in all.

    >>> step(10, 50, at=5, seconds=6).rows
    100.0
    """
    check("step", not_negative={"before": before, "after": after, "at": at})
    check("step", positive={"at": at, "seconds": seconds})
    check("step", positive={"seconds - at": seconds - at})
    pieces = (Piece(at, before, before), Piece(seconds - at, after, after))
    return Rates(_label("step", before, after, at, seconds), pieces, seconds)


def staircase(low: float, high: float, steps: int, step_seconds: float) -> Profile:
    """Up and down in equal steps: the PrimeTest load. Every level lasts `step_seconds`.

    Warm-up at `low`, `steps` - 1 levels of increment, the plateau at `high`, `steps` levels of decrement, the
    last of which is `low` again: 2 * `steps` + 1 levels in all.

    >>> load = staircase(10, 40, steps=3, step_seconds=60)
    >>> [load.rate(60.0 * level) for level in range(7)], load.duration
    ([10.0, 20.0, 30.0, 40.0, 30.0, 20.0, 10.0], 420.0)
    """
    check("staircase", not_negative={"low": low, "high": high, "step_seconds": step_seconds})
    check("staircase", positive={"steps": steps, "step_seconds": step_seconds})
    if steps != int(steps):
        raise FlowError("staircase", f"steps must be a whole number, got {steps!r}", "pass steps=7 or the like")
    up = [float(low + (high - low) * level / steps) for level in range(int(steps) + 1)]
    pieces = tuple(Piece(step_seconds, level, level) for level in up + up[-2::-1])
    return Rates(_label("staircase", low, high, steps, step_seconds), pieces, step_seconds * len(pieces))


def burst(base: float, peak: float, length: float, every: float, seconds: float = math.inf) -> Profile:
    """`base` rows per second; the last `length` seconds of every `every` seconds at `peak`.

    >>> load = burst(10, 100, length=1, every=5, seconds=10)
    >>> load.rows, load.rate(4.5), load.rate(5.5)
    (280.0, 100.0, 10.0)
    """
    check("burst", not_negative={"base": base, "peak": peak, "every": every})
    check("burst", positive={"length": length, "seconds": seconds})
    check("burst", positive={"every - length": every - length})
    pieces = (Piece(every - length, base, base), Piece(length, peak, peak))
    return Rates(_label("burst", base, peak, length, every, seconds), pieces, seconds)


def sine(mean: float, amplitude: float, period: float, seconds: float = math.inf) -> Profile:
    """Day and night: a rate of `mean` + `amplitude` * sin(2 pi t / `period`), in 256 straight pieces per period.

    >>> load = sine(100, 50, period=60)
    >>> load.count(600.0), round(load.rate(15.0)), round(load.rate(45.0))
    (60001, 150, 50)
    """
    check("sine", not_negative={"mean": mean, "amplitude": amplitude, "period": period})
    check("sine", positive={"period": period, "seconds": seconds})
    if amplitude > mean:
        raise FlowError("sine", f"the rate must not fall below 0, but {amplitude=} > {mean=}", "lower the amplitude")
    rate = mean + amplitude * np.sin(2 * np.pi * np.arange(SINE_PIECES + 1) / SINE_PIECES)
    rate = np.maximum(rate, 0.0)
    pieces = tuple(Piece(period / SINE_PIECES, float(a), float(b)) for a, b in itertools.pairwise(rate))
    return Rates(_label("sine", mean, amplitude, period, seconds), pieces, seconds)
