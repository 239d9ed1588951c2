"""Which key each row of a replayed stream carries: uniform, skewed, or with a hot key that moves.

A mix turns one uniform draw per row into a key 0 .. n-1 by inverting the cumulative distribution: exact, one
`searchsorted`, nothing rejected, so row i's key depends on row i's draw (and its scheduled time) alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.errors import FlowError
from penstock.sources.schedule import Floats, Ints, check


class Keys(ABC):
    """A mix of keys 0 .. n-1."""

    n: int

    @abstractmethod
    def draw(self, uniform: Floats, seconds: Floats) -> Ints:
        """The key of each row from its uniform draw in [0, 1) and its scheduled time in seconds."""


@dataclass(frozen=True)
class Uniform(Keys):
    """Every key equally often."""

    n: int

    def draw(self, uniform: Floats, seconds: Floats) -> Ints:
        # The product may round up to n itself for the largest draws.
        return np.minimum((uniform * self.n).astype(np.int64), self.n - 1)


@dataclass(frozen=True)
class Zipf(Keys):
    """Key k as often as 1 / (k + 1) ** s: key 0 is the most frequent."""

    n: int
    s: float

    @cached_property
    def shares(self) -> Floats:
        """The probability of each key."""
        weight = np.arange(1, self.n + 1, dtype=np.float64) ** -self.s
        shares: Floats = weight / weight.sum()
        return shares

    @cached_property
    def _upper(self) -> Floats:
        # Without the last edge: whatever the sum rounds to, a draw above the others is the last key.
        return np.cumsum(self.shares)[:-1]

    def draw(self, uniform: Floats, seconds: Floats) -> Ints:
        return np.searchsorted(self._upper, uniform, side="right").astype(np.int64)


@dataclass(frozen=True)
class Hot(Keys):
    """A share of the rows goes to one key, which moves every so many seconds; the rest are uniform."""

    n: int
    share: float
    every_s: float

    @cached_property
    def _stride(self) -> int:
        """Prime to n and about 0.618 n: the hot key jumps far, never stays, and visits every key."""
        return next(k for k in range(max(1, round(self.n * 0.618)), self.n + 1) if math.gcd(k, self.n) == 1 or k == 1)

    def hot_key(self, seconds: Floats) -> Ints:
        """The hot key at each instant."""
        epoch = np.floor(seconds / self.every_s).astype(np.int64)
        key: Ints = epoch % self.n * self._stride % self.n
        return key

    def draw(self, uniform: Floats, seconds: Floats) -> Ints:
        # One draw decides both: below `share` it is hot, and what lies above, stretched, is uniform again.
        rest = np.maximum(uniform - self.share, 0.0) / max(1 - self.share, np.finfo(np.float64).tiny)
        return np.where(uniform < self.share, self.hot_key(seconds), Uniform(self.n).draw(rest, seconds))


def _checked(where: str, n: int) -> int:
    check(where, positive={"n": n})
    if n != int(n):
        raise FlowError(where, f"n must be a whole number of keys, got {n!r}", "pass n=1000 or the like")
    return int(n)


def uniform(n: int) -> Keys:
    """`n` keys, each equally often.

    >>> uniform(4).draw(np.array([0.0, 0.3, 0.99]), np.zeros(3)).tolist()
    [0, 1, 3]
    """
    return Uniform(_checked("uniform", n))


def zipf(n: int, s: float = 1.059) -> Keys:
    """`n` keys of which key k comes as often as 1 / (k + 1) ** s; the theses use 0.626 and 1.059.

    >>> mix = zipf(1000, 1.059)
    >>> mix.draw(np.array([0.0, 0.5, 0.9]), np.zeros(3)).tolist()
    [0, 15, 400]
    """
    check("zipf", not_negative={"s": s})
    return Zipf(_checked("zipf", n), float(s))


def hot(n: int, share: float, every_s: float) -> Keys:
    """`n` uniform keys, but a `share` of the rows goes to one key that moves every `every_s` seconds of schedule.

    >>> mix = hot(10, share=0.5, every_s=60)
    >>> mix.draw(np.full(3, 0.1), np.array([0.0, 59.0, 60.0])).tolist()
    [0, 0, 7]
    """
    check("hot", not_negative={"share": share}, positive={"every_s": every_s})
    if share > 1:
        raise FlowError("hot", f"share must be at most 1, got {share!r}", "pass the share of rows as 0.5 or the like")
    return Hot(_checked("hot", n), float(share), float(every_s))
