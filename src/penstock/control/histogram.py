"""A histogram of seconds whose quantiles are right within 1 %, and which merges without further error.

The idea is DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error
guarantees", VLDB 2019): buckets grow by a constant factor g, so a value is known by its bucket within a constant
*relative* error. With t0 = 1 ns the smallest time told apart, bucket i >= 1 holds t0 g^(i-1) < x <= t0 g^i, bucket 0
what is below t0, and

    i = ceil(log(x / t0) / log g),   estimate = t0 g^i 2 / (g + 1),   relative error <= (g - 1) / (g + 1)

g = 1.02 makes that 0.9901 %: the rest up to 1 % is room for rounding in the logarithm. No bucket is ever collapsed, so
merging is adding counts: the merge of two histograms has the buckets of the histogram of all their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

_GROWTH = 1.02
_LOG_GROWTH = math.log(_GROWTH)
_LEAST = 1e-9
_MOST = 1e15  # 30 million years: more is a time in another unit, and keeps every sum far from overflow


def _estimate(bucket: int) -> float:
    """The value that stands for a bucket: as far, relatively, from its lower as from its upper end."""
    return 0.0 if bucket == 0 else _LEAST * math.exp(bucket * _LOG_GROWTH) * 2.0 / (_GROWTH + 1.0)


@dataclass(frozen=True)
class LogHistogram:
    """How many values fell into each log-spaced bucket, with their exact count, sum and maximum. Immutable.

    >>> h = LogHistogram.of([0.1, 0.2, 0.3, 4.0])
    >>> h.count, h.max, round(h.quantile(0.5), 2)
    (4, 4.0, 0.2)
    >>> h.merge(LogHistogram.of([5.0])).max
    5.0
    """

    buckets: tuple[int, ...] = ()  # bucket numbers that hold something, ascending
    counts: tuple[int, ...] = ()  # how many values each of them holds, all >= 1
    sum: float = 0.0  # seconds
    max: float | None = None  # seconds; None: empty

    def __post_init__(self) -> None:
        if len(self.buckets) != len(self.counts) or (self.max is None) != (not self.buckets):
            raise ValueError("a histogram needs one count per bucket, and a maximum exactly if it is not empty")
        if not math.isfinite(self.sum) or (self.max is not None and not math.isfinite(self.max)):
            raise ValueError(f"a histogram must be finite, got sum={self.sum}, max={self.max}")

    @staticmethod
    def of(values: Any, weights: Any = None) -> LogHistogram:
        """The histogram of an array of non-negative seconds; `weights` are whole numbers: how often each occurs.

        A negative, huge or non-finite value is an error here: whoever subtracted two clocks knows what it means.

        >>> LogHistogram.of([0.5, 2.0], weights=[3, 1]).count
        4
        >>> LogHistogram.of([]).quantile(0.5) is None
        True
        """
        x = np.asarray(values, dtype=np.float64).ravel()
        w = None if weights is None else _whole(weights, x.size)
        # One pass for the least and one for the most, without a mask: this runs over every row. A NaN fails both.
        if x.size and not (float(x.min()) >= 0.0 and float(x.max()) <= _MOST):
            raise ValueError(f"a histogram takes seconds from 0 to {_MOST:g}")
        if w is not None:
            x, w = x[w > 0], w[w > 0]
        if x.size == 0:
            return LogHistogram()
        log = np.log(np.maximum(x, _LEAST))
        log -= math.log(_LEAST)
        log /= _LOG_GROWTH
        # 1 ns itself has logarithm 0; bucket 0 means "less", so it goes to the first.
        at = np.maximum(np.ceil(log, out=log), 1.0, out=log).astype(np.int64)
        at[x < _LEAST] = 0
        return _counted(at, w, float(x.sum() if w is None else x @ w), float(x.max()))

    @staticmethod
    def total(histograms: Iterable[LogHistogram]) -> LogHistogram:
        """All histograms in one, in one pass.

        >>> LogHistogram.total([LogHistogram.of([1.0]), LogHistogram.of([2.0]), LogHistogram()]).sum
        3.0
        """
        full = [h for h in histograms if h.max is not None]
        if not full:
            return LogHistogram()
        at = np.array([b for h in full for b in h.buckets], dtype=np.int64)
        w = np.array([c for h in full for c in h.counts], dtype=np.int64)
        return _counted(at, w, math.fsum(h.sum for h in full), max(h.max for h in full if h.max is not None))

    def merge(self, other: LogHistogram) -> LogHistogram:
        """The histogram of both sets of values.

        >>> LogHistogram.of([1.0]).merge(LogHistogram.of([3.0])) == LogHistogram.of([1.0, 3.0])
        True
        """
        return LogHistogram.total((self, other))

    @cached_property
    def count(self) -> int:
        """How many values there are, exactly.

        >>> LogHistogram.of([1.0, 1.0]).count
        2
        """
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The exact mean in seconds; None if empty.

        >>> LogHistogram.of([1.0, 3.0]).mean
        2.0
        """
        return self.sum / self.count if self.counts else None

    def quantile(self, q: float) -> float | None:
        """The value at rank ceil(q n) within 1 % (nearest rank: with few values it errs upwards); None if empty.

        >>> h = LogHistogram.of(range(1, 101))
        >>> abs(h.quantile(0.95) / 95 - 1) <= 0.01, h.quantile(1.0)
        (True, 100.0)
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile is between 0 and 1, got {q}")
        if self.max is None:
            return None
        # The factor keeps 0.07 * 100 = 7.000000000000001 at rank 7.
        rank = max(math.ceil(q * self.count * (1.0 - 1e-12)), 1)
        if rank == self.count:
            return self.max
        at = int(np.searchsorted(np.cumsum(self.counts), rank))
        return min(_estimate(self.buckets[at]), self.max)

    def to_json(self) -> dict[str, Any]:
        """A plain dict: `buckets` and `counts` (only those that hold something), `sum` and `max` in seconds.

        >>> LogHistogram.of([1.0, 1.0]).to_json()
        {'buckets': [1047], 'counts': [2], 'sum': 2.0, 'max': 1.0}
        """
        return {"buckets": list(self.buckets), "counts": list(self.counts), "sum": self.sum, "max": self.max}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LogHistogram:
        """What `to_json` wrote.

        >>> h = LogHistogram.of([0.0, 1.5])
        >>> LogHistogram.from_json(h.to_json()) == h
        True
        """
        peak = value["max"]
        return LogHistogram(
            tuple(value["buckets"]), tuple(value["counts"]), float(value["sum"]), None if peak is None else float(peak)
        )


def _whole(weights: Any, size: int) -> np.ndarray[Any, Any]:
    """The weights as whole numbers, or an error."""
    given = np.asarray(weights).ravel()
    with np.errstate(invalid="ignore"):  # a NaN is caught by the comparison below
        whole = given.astype(np.int64)
    if whole.size != size or bool(np.any(whole < 0)) or bool(np.any(whole != given)):
        raise ValueError("weights must be whole numbers >= 0, one per value")
    return whole


def _counted(at: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None, total: float, peak: float) -> LogHistogram:
    """How often each bucket occurs. There are fewer than 3000 (1 ns to `_MOST`), so counting beats sorting by far."""
    if weights is None:
        dense = np.bincount(at)
    else:
        dense = np.zeros(int(at.max()) + 1, dtype=np.int64)  # not bincount: its float weights lose counts above 2^53
        np.add.at(dense, at, weights)
    buckets = np.flatnonzero(dense)
    return LogHistogram(tuple(buckets.tolist()), tuple(dense[buckets].tolist()), total, peak)
