"""How output batches look on a channel, from its rate and the batch lifetime (thesis 001, section 4.5.2).

The first item opens a batch and waits the whole lifetime L; the r L items that follow at rate r while it is open wait
L/2 on average. With b = 1 + r L items in a batch, the mean delay is

    obl = (L + r L L / 2) / b          (one item per batch: L; dense: L / 2)

A buffer of B items is shipped when it is full, after (B - 1) / r: if that is always sooner, obl = (B - 1) / (2 r). In
between, with N(u) the Poisson number that followed by u, a batch holds min(1 + N(L), B) items, and its items wait
together the integral over u < L of the expected 1 + N(u) while N(u) < B - 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def batch_shape(rate_per_s: float, lifetime_s: float, buffer_items: int | None) -> tuple[float, float]:
    """Items in a batch and mean delay of an item, on a channel of this rate.

    >>> batch_shape(1000.0, 0.0, None)
    (1.0, 0.0)
    >>> items, delay = batch_shape(1000.0, 0.02, None)
    >>> items, round(delay, 4)
    (21.0, 0.0105)
    >>> batch_shape(1000.0, 0.2, 11)
    (11.0, 0.005)
    >>> [round(x, 3) for x in batch_shape(10.0, 0.2, 4)]
    [2.782, 0.109]
    """
    if rate_per_s <= 0.0 or lifetime_s <= 0.0:
        return 1.0, 0.0
    follow = rate_per_s * lifetime_s
    if buffer_items is not None:
        spread = 4.0 * math.sqrt(buffer_items)
        if follow >= buffer_items - 1 + spread:
            return float(buffer_items), (buffer_items - 1) / (2.0 * rate_per_s)
        if follow > buffer_items - 1 - spread:
            return _sometimes_full(rate_per_s, lifetime_s, buffer_items)
    return 1.0 + follow, lifetime_s * (1.0 + follow / 2.0) / (1.0 + follow)


def _sometimes_full(rate: float, lifetime: float, buffer: int) -> tuple[float, float]:
    """Items in a batch and mean delay when some batches are full before their time."""
    k = np.arange(buffer - 1)  # followers of a batch that is still open
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, max(buffer - 1, 1))))])[: k.size]
    u = (np.arange(32) + 0.5) / 32.0 * lifetime
    mean = rate * np.append(u, lifetime)[:, None]
    chance = np.exp(k * np.log(mean) - mean - log_factorial)  # P(N(u) = k), one row per u
    held = float(((1.0 + k) * chance[:-1]).sum(axis=1).mean()) * lifetime
    at_end = chance[-1]
    items = float(((1.0 + k) * at_end).sum() + buffer * (1.0 - at_end.sum()))
    return items, held / items


def item_arrival_cv(items: float, gaps: float, squares: float) -> float:
    """Coefficient of variation of the gaps between items that came in batches: `items` in all, sums over their gaps.

    Within a batch all gaps are zero, so sums over the gaps between batches are sums over all: c^2 = n sum g^2 /
    (sum g)^2 - 1. Batches of b items at gaps of variation c_gap give b (1 + c_gap^2) - 1.

    >>> round(item_arrival_cv(40.0, 10.0, 10.0) ** 2, 6)  # ten batches of 4 items, 1 s apart
    3.0
    """
    return math.sqrt(max(items * squares / (gaps * gaps) - 1.0, 0.0)) if gaps > 0.0 else 0.0


def channel_batches(
    rng: np.random.Generator,
    rates: Floats,
    channels: int,
    lifetime_s: float,
    buffer_items: int | None,
    length_s: float,
) -> tuple[Floats, Ints, Ints]:
    """The batches that reach several subtasks in a span, `channels` channels into each: (times, sizes, how many each).

    Items come to each channel of subtask j as Poisson with rate `rates[j]`. So batches are a renewal process: the wait
    for the first item, then the time the batch is open; drawn from its equilibrium, so that spans can follow each
    other. The result is grouped by subtask and in order of time.

    >>> times, sizes, counts = channel_batches(np.random.default_rng(1), np.array([50.0, 0.0]), 3, 0.1, 4, 20.0)
    >>> counts.tolist()[1], 2900 < int(sizes.sum()) < 3100, int(sizes.max())
    (0, True, 4)
    """
    busy = np.flatnonzero(rates > 0.0)
    if busy.size == 0 or lifetime_s <= 0.0:
        return np.empty(0), np.empty(0, dtype=np.int64), np.zeros(rates.size, dtype=np.int64)
    slowest, fastest = float(rates[busy].min()), float(rates[busy].max())
    smallest = min(batch_shape(r, lifetime_s, buffer_items)[0] for r in (slowest, fastest))
    expected = length_s * fastest / smallest
    columns = math.ceil(expected + 6.0 * math.sqrt(expected) / smallest) + 3
    cells = (busy.size, channels, columns)
    rate = np.broadcast_to(rates[busy][:, None, None], cells)
    shape = _Batches(rng, lifetime_s, buffer_items, slowest, fastest)
    open_s = shape.open_for(rate)
    time = rng.standard_exponential(cells) / rate + open_s
    # At a random time a batch is open with the chance 1 - 1/b, and then one meets the longer ones more often.
    is_open = rng.random(cells[:2]) >= 1.0 / (1.0 + rate[:, :, 0] * float(open_s.mean()))
    time[:, :, 0] = np.where(is_open, shape.left_of(rate[:, :, :4]), time[:, :, 0])
    time = np.cumsum(time, axis=2)
    inside = np.flatnonzero(time.ravel() < length_s)
    owner = busy[inside // (channels * columns)]
    when = time.ravel()[inside]
    order = np.argsort(owner * (2.0 * length_s) + when, kind="stable")
    sizes = shape.sizes(rates[owner], inside)
    return when[order], sizes[order], np.bincount(owner, minlength=rates.size)


class _Batches:
    """Draws batches: how long each is open (its lifetime, or until the buffer is full) and how many items it holds."""

    def __init__(
        self, rng: np.random.Generator, lifetime_s: float, buffer: int | None, slowest: float, fastest: float
    ) -> None:
        self.rng, self.lifetime_s, self.buffer = rng, lifetime_s, buffer
        most, least = fastest * lifetime_s, slowest * lifetime_s
        self.never_full = buffer is None or most + 8.0 * math.sqrt(most) + 8.0 < buffer
        self.always_full = buffer is not None and least > buffer + 8.0 * math.sqrt(buffer)
        self._follow = np.empty(0, dtype=np.int64)

    def open_for(self, rate: Floats) -> Floats:
        """How long each batch is open, on channels of these rates."""
        if self.never_full:
            return np.full(rate.shape, self.lifetime_s)
        assert self.buffer is not None
        if self.buffer <= 1:
            return np.zeros(rate.shape)
        if self.always_full:
            return self.rng.standard_gamma(self.buffer - 1, rate.shape) / rate
        follow = self.rng.poisson(rate * self.lifetime_s)
        open_s = np.full(rate.shape, self.lifetime_s)
        early = follow >= self.buffer - 1
        # Of k arrivals in the lifetime, the (B - 1)-th comes at a beta distributed share of it.
        open_s[early] *= self.rng.beta(self.buffer - 1, follow[early] - self.buffer + 2)
        self._follow = follow.ravel()
        return open_s

    def left_of(self, rate: Floats) -> Floats:
        """How long a batch that is met open stays so; of a few candidates one is met in proportion to its time."""
        if self.never_full:
            return self.lifetime_s * self.rng.random(rate.shape[:2])
        kept = self._follow
        candidates = self.open_for(rate)
        self._follow = kept
        among = np.cumsum(candidates, axis=2)
        at = (among < self.rng.random((*rate.shape[:2], 1)) * among[:, :, -1:]).sum(axis=2, keepdims=True)
        met = np.take_along_axis(candidates, np.minimum(at, rate.shape[2] - 1), axis=2)[:, :, 0]
        return met * self.rng.random(rate.shape[:2])

    def sizes(self, rate: Floats, drawn: Ints) -> Ints:
        """Items of the batches at these places, whose channels have these rates."""
        if self.never_full:
            return 1 + self.rng.poisson(rate * self.lifetime_s)
        assert self.buffer is not None
        if self.always_full or self.buffer <= 1:
            return np.full(rate.shape, self.buffer, dtype=np.int64)
        return np.minimum(1 + self._follow[drawn], self.buffer)
