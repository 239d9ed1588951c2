"""First-come-first-served queues, many at once, without a loop: Lindley's recursion as a running maximum.

A server that is free at `free` gets customers at a_1 <= a_2 <= ... with service times s_1, s_2, ...; they leave at

    d_i = max(a_i, d_{i-1}) + s_i                                     (Lindley 1952, in departure times; d_0 = free)

With the running sum C_i = s_1 + ... + s_i this unrolls to d_i = C_i + max_{k <= i} (max(a_k, free) - C_{k-1}): one
cumulative sum and one cumulative maximum. Many servers become one array: the customers of server j are shifted by j
times a span that no queue outlives, so every server's first customer finds an idle server. Exact up to rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def departures(arrive: Floats, service: Floats, counts: Ints, free: Floats) -> Floats:
    """When each customer leaves; customers are grouped by server, `counts` of them each, in order of arrival.

    `free` is the time at which each server is done with what it had before.

    >>> arrive, service = np.array([0.0, 1.0, 0.0]), np.array([2.0, 2.0, 1.0])
    >>> departures(arrive, service, np.array([2, 1]), np.array([0.0, 5.0])).tolist()
    [2.0, 4.0, 6.0]
    """
    if arrive.size == 0:
        return np.empty(0)
    total = np.cumsum(service)
    before = total - service
    # Longer than anything here lasts, so that no server's queue reaches into the next server's shifted time.
    low = min(float(arrive.min()), float(free.min()))
    span = max(float(arrive.max()), float(free.max())) - low + float(total[-1]) + 1.0
    shift = np.repeat(np.arange(counts.size) * span - low, counts)
    first = np.maximum(arrive, np.repeat(free, counts)) + shift
    left: Floats = total + np.maximum.accumulate(first - before) - shift
    return left


def last_of_each(values: Floats, counts: Ints, empty: Floats) -> Floats:
    """The last value of every group, or the value in `empty` for a group without any.

    >>> last_of_each(np.array([2.0, 4.0, 6.0]), np.array([2, 0, 1]), np.array([0.0, 7.0, 5.0])).tolist()
    [4.0, 7.0, 6.0]
    """
    ends = np.cumsum(counts) - 1
    result = empty.copy()
    some = counts > 0
    result[some] = values[ends[some]]
    return result


def renewal_times(rng: np.random.Generator, expected: Floats, cv: float) -> tuple[Floats, Ints]:
    """Arrivals in [0, 1) for several servers, grouped by server and ordered: (times, how many each).

    `expected` arrivals come on average. The gaps are gamma distributed with coefficient of variation `cv`: 1 is
    Poisson, 0 is evenly spaced with a random phase. A count is drawn first and the gaps are stretched to it, which
    is exact for Poisson (uniform order statistics) and keeps the mean rate exact otherwise.

    >>> times, counts = renewal_times(np.random.default_rng(1), np.array([3.0, 0.0]), 0.0)
    >>> counts.tolist(), bool(np.all((times >= 0.0) & (times < 1.0)))
    ([3, 0], True)
    """
    servers = expected.size
    if cv <= 0.0:
        counts = np.floor(expected + rng.random(servers)).astype(np.int64)
        gaps = np.ones(int(counts.sum()))
        slack = np.ones(servers)
        phase = rng.random(servers)
    else:
        shape = 1.0 / (cv * cv)
        # Var of a renewal count over a long span is cv^2 times its mean.
        counts = _counts(rng, expected, cv)
        total = int(counts.sum())
        gaps = rng.standard_exponential(total) if cv == 1.0 else rng.standard_gamma(shape, total)
        slack = rng.standard_exponential(servers) if cv == 1.0 else rng.standard_gamma(shape, servers)
        phase = np.ones(servers) if cv == 1.0 else rng.random(servers)
    if gaps.size == 0:
        return np.empty(0), counts
    total_gap = np.cumsum(gaps)
    ends = np.cumsum(counts)
    base = np.where(ends - counts > 0, total_gap[np.maximum(ends - counts - 1, 0)], 0.0)
    length = np.where(counts > 0, total_gap[np.maximum(ends - 1, 0)] - base, 0.0)
    if cv == 1.0:  # the n gaps before the n events and one after them share the unit span
        scale = 1.0 / (length + slack)
        offset = np.zeros(servers)
    else:  # a random phase: the first gap is cut at a uniform point
        scale = 1.0 / np.maximum(length, 1e-300)
        first = np.where(counts > 0, gaps[np.minimum(np.maximum(ends - counts, 0), gaps.size - 1)], 0.0) * scale
        offset = -first * phase
    at = (total_gap - np.repeat(base, counts)) * np.repeat(scale, counts) + np.repeat(offset, counts)
    return np.clip(at, 0.0, np.nextafter(1.0, 0.0)), counts


def _counts(rng: np.random.Generator, expected: Floats, cv: float) -> Ints:
    """How many arrivals: Poisson for cv = 1, else a rounded normal of variance cv^2 x mean (unbiased rounding)."""
    if cv == 1.0:
        return rng.poisson(expected).astype(np.int64)
    drawn = expected + cv * np.sqrt(expected) * rng.standard_normal(expected.size)
    return np.floor(np.maximum(drawn, 0.0) + rng.random(expected.size)).astype(np.int64)
