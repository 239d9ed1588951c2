"""The highest rate that a flow sustains (thesis 000 section 4.9.2, F52), as pure search: no clock, no Spark.

The thesis raises the rate until the generator's outgoing buffer stays full. Here the sign is the growth of the backlog,
rows that were due and are not processed: a rate is sustained if the backlog does not grow by more than a small share of
the rate. One trial says so with a confidence; bracketing and bisection over rates find the border.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

# Student's t, 95 % one-sided, by degrees of freedom; beyond the table the normal quantile is near enough.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
_MOST_BLOCKS = 10
_LEAST_BLOCKS = 4


@dataclass(frozen=True)
class Growth:
    """How fast a backlog grows, in rows per second, with 95 % one-sided limits on either side."""

    slope: float
    low: float
    high: float
    samples: int


def growth(times: Sequence[float], backlog: Sequence[float]) -> Growth:
    """The slope of a backlog over time, by least squares over means of consecutive samples.

    Samples of one stream depend on each other (a batch follows on a batch), so that the textbook's error would be too
    small. Means over up to ten blocks of consecutive samples are nearly independent (the method of batch means).

    >>> found = growth([0, 1, 2, 3, 4, 5, 6, 7], [0, 10, 20, 30, 40, 50, 60, 70])
    >>> round(found.slope, 6), round(found.low, 6), found.samples
    (10.0, 10.0, 8)
    >>> growth([0, 1], [5, 5]).high
    inf
    """
    count = len(times)
    if count < _LEAST_BLOCKS:
        return Growth(0.0, -math.inf, math.inf, count)
    blocks = min(_MOST_BLOCKS, count)
    t = np.array([block.mean() for block in np.array_split(np.asarray(times, float), blocks)])
    y = np.array([block.mean() for block in np.array_split(np.asarray(backlog, float), blocks)])
    centred = t - t.mean()
    spread = float(centred @ centred)
    if spread <= 0.0:
        return Growth(0.0, -math.inf, math.inf, count)
    slope = float(centred @ (y - y.mean())) / spread
    rest = y - y.mean() - slope * centred
    error = math.sqrt(max(0.0, float(rest @ rest)) / (blocks - 2) / spread)
    margin = _T95[min(blocks - 2, len(_T95)) - 1] * error
    return Growth(slope, slope - margin, slope + margin, count)


class Verdict(Enum):
    """What a trial says of a rate."""

    SUSTAINED = "sustained"
    OVERLOADED = "overloaded"
    UNSURE = "unsure"  # watch longer


def judge(found: Growth, rate: float, tolerance: float = 0.01) -> Verdict:
    """A rate is sustained if the backlog surely grows by less than `tolerance` x rate, overloaded if surely by more.

    >>> judge(Growth(5.0, -1.0, 9.0, 20), rate=1000.0), judge(Growth(50.0, 20.0, 80.0, 20), rate=1000.0)
    (<Verdict.SUSTAINED: 'sustained'>, <Verdict.OVERLOADED: 'overloaded'>)
    >>> judge(Growth(9.0, -5.0, 30.0, 20), rate=1000.0)
    <Verdict.UNSURE: 'unsure'>
    """
    if found.high < tolerance * rate:
        return Verdict.SUSTAINED
    return Verdict.OVERLOADED if found.low > tolerance * rate else Verdict.UNSURE


@dataclass(frozen=True)
class Trial:
    """One rate that was tried."""

    rate: float
    verdict: Verdict
    growth: Growth
    seconds: float = 0.0

    @property
    def sustained(self) -> bool:
        """Whether the rate counts as sustained; one that stays unsure does not.

        >>> Trial(10.0, Verdict.UNSURE, Growth(0, -1, 1, 9)).sustained
        False
        """
        return self.verdict is Verdict.SUSTAINED


@dataclass
class Search:
    """Which rate to try next: doubles or halves to a bracket, bisects it, then tries its lower end once more.

    The bracket is geometric, so `resolution` is relative. If the second look at the lower end fails, that rate becomes
    the upper end and the search goes on below it, so one lucky trial does not decide.

    >>> search = Search(start=100.0, resolution=0.1)
    >>> while (rate := search.rate) is not None:
    ...     search.took(rate, rate <= 730.0)
    >>> 650.0 < search.sustained <= 730.0 < search.refused, search.confirmed
    (True, True)
    """

    start: float
    resolution: float = 0.05
    least: float = 1.0
    most: float = math.inf
    confirm: bool = True
    sustained: float = 0.0  # the highest rate that was sustained; 0: none
    refused: float = math.inf  # the lowest that was not
    confirmed: bool = False
    tried: int = field(default=0)

    def __post_init__(self) -> None:
        if not 0 < self.resolution < 1 or not 0 < self.least <= self.start <= self.most:
            raise ValueError("needs 0 < resolution < 1 and 0 < least <= start <= most")

    @property
    def rate(self) -> float | None:
        """The next rate to try; None at the end."""
        if self.sustained == 0.0 and self.refused == math.inf:
            return self.start
        if self.refused <= self.least:
            return None  # not even the least rate is sustained
        if self.sustained == 0.0:
            return max(self.least, self.refused / 2)
        if self.refused == math.inf:
            if self.sustained < self.most:
                return min(self.most, self.sustained * 2)
        elif self.refused > self.sustained * (1 + self.resolution):
            return math.sqrt(self.sustained * self.refused)
        return None if self.confirmed or not self.confirm else self.sustained

    def took(self, rate: float, sustained: bool) -> None:
        """Take in what a trial said."""
        self.tried += 1
        if not sustained:
            self.refused, self.confirmed = min(self.refused, rate), False
            if rate <= self.sustained:
                self.sustained = 0.0  # the first look was luck: go down from here
        elif rate == self.sustained:
            self.confirmed = True
        elif rate > self.sustained:
            self.sustained, self.confirmed = rate, False


@dataclass(frozen=True)
class Found:
    """The answer: the highest rate sustained, the lowest refused, and the trials between."""

    sustained: float
    refused: float
    confirmed: bool
    trials: tuple[Trial, ...]

    @property
    def text(self) -> str:
        """One line for people.

        >>> Found(1000.0, 1049.0, True, ()).text
        'sustained 1,000 rows/s (confirmed by a second trial), 1,049 rows/s not; 0 trials'
        """
        if self.sustained == 0.0:
            return f"not even {self.refused:,.0f} rows/s is sustained; {len(self.trials)} trials"
        sure = "confirmed by a second trial" if self.confirmed else "in one trial"
        upper = "the limit of the search" if self.refused == math.inf else f"{self.refused:,.0f} rows/s not"
        return f"sustained {self.sustained:,.0f} rows/s ({sure}), {upper}; {len(self.trials)} trials"


def find(trial: Callable[[float], Trial], search: Search, say: Callable[[str], None] = lambda text: None) -> Found:
    """Try rates until the search ends.

    >>> def capacity(rate):  # a server of 5000 rows/s
    ...     grows = max(0.0, rate - 5000.0)
    ...     found = growth(range(10), [grows * t for t in range(10)])
    ...     return Trial(rate, judge(found, rate), found, 10.0)
    >>> found = find(capacity, Search(start=1000.0, resolution=0.05))
    >>> 4800 < found.sustained <= 5051, found.confirmed  # 1 % more than it can is within the tolerance
    (True, True)
    """
    trials: list[Trial] = []
    while (rate := search.rate) is not None:
        done = trial(rate)
        trials.append(done)
        search.took(rate, done.sustained)
        g = done.growth
        say(
            f"  {rate:,.0f} rows/s {done.verdict.value}: backlog {g.slope:+,.0f} rows/s "
            f"({g.low:+,.0f} to {g.high:+,.0f}), {g.samples} batches in {done.seconds:.0f} s"
        )
    return Found(search.sustained, search.refused, search.confirmed, tuple(trials))
