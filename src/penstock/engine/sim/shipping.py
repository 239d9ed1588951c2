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


def item_arrival_cv(batch: float, gap_cv: float) -> float:
    """Coefficient of variation of the gaps between items that come in batches of `batch` items.

    Of `batch` gaps all but one are zero, and the other is the gap between batches: c^2 = b (1 + c_gap^2) - 1.

    >>> item_arrival_cv(1.0, 1.0)
    1.0
    >>> round(item_arrival_cv(4.0, 1.0) ** 2, 6)
    7.0
    """
    return math.sqrt(max(batch * (1.0 + gap_cv * gap_cv) - 1.0, 0.0))


def batch_gap_cv(batch: float, channels: int, lifetime_s: float, service_s: float, utilisation: float) -> float:
    """Coefficient of variation of the gaps between batches at a subtask that `channels` channels lead to.

    On one channel a batch follows the last after L + the wait for its first item: c = 1 / b, nearly regular for large
    b. Many channels together look like Poisson (c = 1) over times shorter than L and keep c = 1 / b over longer ones.
    Which of the two a queue feels depends on how long it remembers: of the order of S / (1 - rho)^2. So

        c^2 = w / b^2 + (1 - w),   w = 1 / (1 + (1 - 1/n) L (1 - rho)^2 / (3 S))

    (an interpolation of ours between two exact limits; the 3 was fitted to the item-level simulator, and the tests hold
    it there).

    >>> round(batch_gap_cv(1.0, 10, 0.01, 0.001, 0.8), 9)
    1.0
    >>> batch_gap_cv(4.0, 1, 0.01, 0.001, 0.5)
    0.25
    """
    idle = 1.0 - min(utilisation, 1.0)
    weight = 1.0 / (1.0 + (1.0 - 1.0 / max(channels, 1)) * lifetime_s * idle * idle / max(3.0 * service_s, 1e-12))
    return math.sqrt(weight / (batch * batch) + 1.0 - weight)
