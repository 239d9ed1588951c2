"""Random arrivals: a Poisson process over any load shape, with random access to any row.

The gaps of a unit-rate Poisson process are exponential; mapped through the inverse of the integrated rate they
give a process of that rate. To find row 10**9 without drawing the 10**9 gaps before it, the process is built
from the top: the span of 2**k blocks of rows is Gamma distributed, and a Beta draw splits it into its halves,
down to one block, whose gaps are exponentials scaled to the block's span. That is the same process in law, and
the position of a block costs log2 of its number in draws, each addressed by (seed, place in the tree).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from penstock.errors import FlowError
from penstock.sources.draws import STREAM_ARRIVALS, generator
from penstock.sources.schedule import NEVER, Floats, Ints, Profile, Schedule, check, constant, settle

BLOCK = 4096


@lru_cache(maxsize=4096)
def _span(seed: int, start: int, size: int) -> float:
    """Mass of the blocks `start` .. `start + size`, one of the independent spans 0, [1, 2), [2, 4), [4, 8) .."""
    return float(generator(seed, STREAM_ARRIVALS, start).standard_gamma(size * BLOCK))


@lru_cache(maxsize=65536)
def _left_share(seed: int, start: int, size: int) -> float:
    """Which share of the mass of the blocks `start` .. `start + size` lies in their first half."""
    shape = size // 2 * BLOCK
    return float(generator(seed, STREAM_ARRIVALS + size.bit_length(), start).beta(shape, shape))


@lru_cache(maxsize=4096)
def _edge(seed: int, block: int) -> float:
    """Mass before the first row of a block."""
    if block == 0:
        return 0.0
    before, start = _span(seed, 0, 1), 1
    while 2 * start <= block:
        before += _span(seed, start, start)
        start *= 2
    size, mass = start, _span(seed, start, start)
    while size > 1:
        size //= 2
        left = mass * _left_share(seed, start, 2 * size)
        if block < start + size:
            mass = left
        else:
            before, mass, start = before + left, mass - left, start + size
    return before


def _block_at(seed: int, mass: float) -> int:
    """The block in which `mass` falls (to an ulp; `settle` does the rest)."""
    before, start, size = 0.0, 0, 1
    while mass >= before + _span(seed, start, size):
        before += _span(seed, start, size)
        start, size = start + size, max(start + size, 1)
    within = _span(seed, start, size)
    while size > 1:
        left = within * _left_share(seed, start, size)
        size //= 2
        if mass < before + left:
            within = left
        else:
            before, within, start = before + left, within - left, start + size
    return start


@lru_cache(maxsize=32)
def _block_masses(seed: int, block: int) -> Floats:
    """The mass at which each row of a block arrives."""
    low, high = _edge(seed, block), _edge(seed, block + 1)
    # Its own stream: whole spans use + 0, and split ones (of two blocks or more) + 2 and up.
    gaps = generator(seed, STREAM_ARRIVALS + 1, block).standard_exponential(BLOCK)
    steps = np.cumsum(gaps)
    masses: Floats = low + steps / steps[-1] * (high - low)
    return masses


def _masses(seed: int, index: Ints) -> Floats:
    result = np.empty(len(index))
    block = index // BLOCK
    for number in np.unique(block):
        mine = block == number
        result[mine] = _block_masses(seed, int(number))[index[mine] - number * BLOCK]
    return result


@dataclass(frozen=True)
class Poisson(Schedule):
    """Rows that arrive at random with the rate of a load shape."""

    profile: Profile
    seed: int = 0

    @property
    def duration(self) -> float:
        return self.profile.duration

    @cached_property
    def rows(self) -> float:
        total = self.profile.total_mass
        if math.isinf(total):
            return math.inf
        guess = _block_at(self.seed, total) * BLOCK
        return float(settle(guess, math.inf, lambda row: float(_masses(self.seed, np.array([row]))[0]) < total))

    def _rate(self, seconds: Floats) -> Floats:
        return self.profile._rate(seconds)

    def time_us(self, index: Ints) -> Ints:
        inside = index < self.rows
        if not inside.any():
            return np.full(len(index), NEVER)
        seconds = self.profile.instant(_masses(self.seed, np.where(inside, index, 0)))
        return np.where(inside, np.rint(seconds * 1e6).astype(np.int64), NEVER)

    def _estimate(self, us: int) -> int:
        seconds = min((us + 0.5) / 1e6, self.duration)
        mass = float(self.profile.mass(np.array([seconds]))[0])
        block = _block_at(self.seed, mass)
        return block * BLOCK + int(np.searchsorted(_block_masses(self.seed, block), mass, side="right"))

    def then(self, following: Schedule) -> Schedule:
        """This process, and when its time is over the `following` one, drawn from this one's seed.

        >>> poisson(1000, 10).then(poisson(2000, 10)).duration
        20.0
        """
        if not isinstance(following, Poisson):
            raise FlowError(
                f"schedule {self}",
                "a random schedule cannot be followed by an evenly spaced one",
                "join the load shapes first and make the whole random: poisson(first.then(second))",
            )
        joined = self.profile.then(following.profile)
        assert isinstance(joined, Profile)
        return Poisson(joined, self.seed)


def poisson(rate: float | Profile, seconds: float = math.inf, *, seed: int = 0) -> Poisson:
    """Arrivals with exponential gaps: at `rate` rows per second, or with the rate of a load shape.

    The draws are those of the installed NumPy: another version may give other gaps from the same seed.

    >>> calls = poisson(1000, seconds=3600, seed=7)
    >>> abs(calls.rows - 3_600_000) < 5 * 3_600_000**0.5
    True
    >>> from penstock.sources.schedule import ramp
    >>> poisson(ramp(100, 200, seconds=10)).rate(5.0)
    150.0
    """
    if isinstance(rate, Schedule) and not isinstance(rate, Profile):
        raise FlowError("poisson", "it makes an evenly spaced schedule random, once", "pass the load shape itself")
    if isinstance(rate, Profile) and seconds != math.inf:
        raise FlowError("poisson", "a load shape has its own duration", "leave seconds= out")
    check("poisson", not_negative={"seed": seed})
    return Poisson(rate if isinstance(rate, Profile) else constant(rate, seconds), int(seed))
