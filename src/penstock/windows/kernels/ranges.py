"""Combine values over many ranges of rows at once: two-stacks, vectorised.

A range [lo, hi) is cut once, at a row `middle`: it is a suffix of the block that ends there plus a prefix of the block
that begins there. Both scans are shared by all ranges, so n rows and w ranges cost O(n + w) combines. This is the flip
of two-stacks for all windows together; nothing is ever subtracted, so nothing drifts.

**Where to cut.** Let a and b be the positions of a range's first and last row. With j the lesser of the highest bit of
a xor b and the bits of b - a, exactly one multiple of 2**j lies in (a, b]: the range is cut there, a lies in the block
of 2**j positions before the cut and b in the one behind it. Ranges of one length need two values of j, ranges of any
length at most log2(longest) + 1, each a *level* with blocks of its own. The cut depends on positions alone: where these
do not depend on how batches were cut, nor do the last bits of a sum.

**Nulls** never reach a kernel: rows without a value are dropped and the ranges shrink (`keep`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.windows.scans import Arrays, Combine, Longs, block_scans, checked, scan_arrays, scan_arrays_back

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Level:
    """Ranges that are cut by blocks of the same length: which ones, where each is cut, the blocks' first rows."""

    which: Rows | None  # None: all
    middle: Longs
    starts: Rows


@dataclass(frozen=True)
class Ranges:
    """Ranges of rows, some of which may be empty, and how each is cut.

    >>> ranges = Ranges.over_rows(5, np.array([0, 1, 3]), np.array([3, 4, 3]))
    >>> ranges.add_longs(np.array([1, 2, 4, 8, 16])), ranges.lengths
    (array([ 7, 14,  0]), array([3, 3, 0]))
    """

    rows: int
    lo: Longs
    hi: Longs
    cut: Callable[[], tuple[Level, ...]]  # asked at the first fold: sums of integers and counts need none
    are_runs: bool = False

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """How the ranges are cut."""
        return self.cut()

    # --- made from -----------------------------------------------------------------------------------------------

    @classmethod
    def over_rows(cls, rows: int, lo: Longs, hi: Longs, position: Longs | None = None) -> Ranges:
        """Take any ranges; `position` numbers the rows, by one more from each row of a range to its next.

        >>> Ranges.over_rows(3, np.array([0]), np.array([3])).fold(np.array([0.5, 2.0, 1.0]), np.maximum)
        array([2.])
        """
        lo, hi = np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64)
        return cls(rows, lo, hi, lambda: cls._cut_rows(rows, lo, hi, position))

    @staticmethod
    def _cut_rows(rows: int, lo: Longs, hi: Longs, position: Longs | None) -> tuple[Level, ...]:
        filled = np.flatnonzero(hi > lo)
        whole = len(filled) == len(lo)
        first, last = (lo, hi - 1) if whole else (lo[filled], hi[filled] - 1)
        a, b = (first, last) if position is None else (position[first], position[last])
        level = _levels(a, b)
        levels = []
        for j in np.flatnonzero(np.bincount(level)):
            mine = np.flatnonzero(level == j)
            cut = (b[mine] >> j) << j
            middle = np.maximum(first[mine] + (cut - a[mine]), first[mine])
            which = mine if whole else filled[mine]
            levels.append(Level(None if len(which) == len(lo) else which, middle, _starts(rows, int(j), position)))
        return tuple(levels)

    @classmethod
    def runs(cls, rows: int, starts: Rows) -> Ranges:
        """Cut the rows into runs that begin at `starts` (ascending, the first 0).

        >>> Ranges.runs(3, np.array([0, 2])).add_longs(np.array([1, 2, 4]))
        array([3, 4])
        """
        lo = starts.astype(np.int64)
        hi = np.append(lo[1:], rows) if rows else lo
        return cls(rows, lo, hi, lambda: (Level(None, lo, starts),), are_runs=True)

    def keep(self, valid: NDArray[np.bool_] | None) -> Ranges:
        """Return the ranges over the rows with a value only.

        >>> kept = Ranges.over_rows(3, np.array([0, 1]), np.array([2, 2])).keep(np.array([True, False, True]))
        >>> kept.rows, kept.lengths
        (2, array([1, 0]))
        """
        if valid is None:
            return self
        before = np.zeros(self.rows + 1, dtype=np.int64)
        np.cumsum(valid, out=before[1:])
        rows = int(before[-1])

        def cut() -> tuple[Level, ...]:
            levels = []
            for level in self.levels:
                starts = before[level.starts]
                fresh = np.diff(starts, append=rows) > 0  # a block without values is gone
                levels.append(Level(level.which, before[level.middle], starts[fresh]))
            return tuple(levels)

        # runs that lost all their rows are ranges like others
        runs = self.are_runs and bool((before[self.lo] < before[self.hi]).all())
        return Ranges(rows, before[self.lo], before[self.hi], cut, runs)

    # --- figures -------------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> Longs:
        """How many rows each range has."""
        return self.hi - self.lo

    @property
    def filled(self) -> NDArray[np.bool_] | None:
        """Which ranges have rows; None: all."""
        filled = self.lo < self.hi
        return None if filled.all() else filled

    def __len__(self) -> int:
        return len(self.lo)

    # --- combine -------------------------------------------------------------------------------------------------

    def add_longs(self, values: Longs, what: str | None = None) -> Longs:
        """Sum integers; 0 where empty. `what` names the sum in the error if it leaves 64 bits, None if it cannot.

        >>> Ranges.over_rows(2, np.array([0]), np.array([2])).add_longs(np.array([2**62, 2**62]), "sum('x')")
        Traceback (most recent call last):
        ...
        penstock.windows.scans.AggregateOverflow: sum('x'): a sum of integers left 64 bits; cast the column to double
        """

        def add(terms: Longs) -> Longs:
            if self.are_runs and len(terms):
                return np.asarray(np.add.reduceat(terms, self.lo), dtype=np.int64)
            upto = np.zeros(len(terms) + 1, dtype=np.int64)
            np.cumsum(terms, out=upto[1:])
            return upto[self.hi] - upto[self.lo]

        return add(values) if what is None else checked(values, int(self.lengths.max(initial=0)), add, what)

    def fold(self, values: NDArray[Any], ufunc: np.ufunc) -> NDArray[Any]:
        """Combine by a ufunc (add, fmin, minimum, maximum); undefined, though a number, where empty.

        >>> Ranges.over_rows(4, np.array([0, 2]), np.array([3, 4])).fold(np.array([4, 1, 3, 2]), np.minimum)
        array([1, 2])
        """
        if self.are_runs and self.rows:
            with np.errstate(invalid="ignore", over="ignore"):
                return np.asarray(ufunc.reduceat(values, self.lo))

        def scans(part: Arrays, starts: Rows, left: bool) -> tuple[Arrays, Arrays]:
            prefix, suffix = block_scans(part[0], starts, ufunc)
            return (prefix,), (suffix,)

        def combine(a: Arrays, b: Arrays) -> Arrays:
            with np.errstate(invalid="ignore", over="ignore"):
                return (ufunc(a[0], b[0]),)

        return self._fold((values,), scans, combine)[0]

    def fold_arrays(self, values: Arrays, combine: Combine) -> Arrays:
        """Combine by any associative function; undefined where empty.

        >>> words = np.array(["a", "b", "c"], dtype=object)
        >>> Ranges.over_rows(3, np.array([0, 1]), np.array([2, 3])).fold_arrays((words,), lambda a, b: (a[0] + b[0],))
        (array(['ab', 'bc'], dtype=object),)
        """

        def scans(part: Arrays, starts: Rows, left: bool) -> tuple[Arrays, Arrays]:
            prefix = scan_arrays(part, starts, combine)
            return prefix, scan_arrays_back(part, starts, combine) if left else prefix

        return self._fold(values, scans, combine)

    def _fold(self, values: Arrays, scans: Any, combine: Combine) -> Arrays:
        out = tuple(np.zeros(len(self.lo), dtype=array.dtype) for array in values)
        for level in self.levels:
            pick = slice(None) if level.which is None else level.which
            lo, hi = self.lo[pick], self.hi[pick]
            middle, starts, part = level.middle, level.starts, values
            used = self._used(lo, hi)
            if used is not None:  # a level that few ranges need scans only their rows
                before = np.zeros(self.rows + 1, dtype=np.int64)
                np.cumsum(used, out=before[1:])
                part = tuple(array[used] for array in values)
                lo, hi, middle, starts = before[lo], before[hi], before[middle], before[starts]
                starts = starts[np.diff(starts, append=int(before[-1])) > 0]
            if not len(part[0]):
                continue
            left, right = lo < middle, middle < hi
            prefix, suffix = scans(part, starts, bool(left.any()))
            both = left & right
            if both.all():
                head = combine(tuple(s[lo] for s in suffix), tuple(p[hi - 1] for p in prefix))
            else:
                pairs = zip(prefix, suffix, strict=True)
                head = tuple(np.where(right, p[hi - 1], s[np.minimum(lo, len(s) - 1)]) for p, s in pairs)
                if both.any():
                    rest = combine(tuple(s[lo[both]] for s in suffix), tuple(h[both] for h in head))
                    for array, new in zip(head, rest, strict=True):
                        array[both] = new
            for array, new in zip(out, head, strict=True):
                array[pick] = new
        return out

    def _used(self, lo: Longs, hi: Longs) -> NDArray[np.bool_] | None:
        """Tell which rows these ranges hold; None if it is most of them, so that choosing would not pay."""
        if len(self.levels) == 1 or 2 * len(lo) >= self.rows or 2 * int((hi - lo).sum()) >= self.rows:
            return None
        change = np.zeros(self.rows + 1, dtype=np.int64)
        np.add.at(change, lo, 1)
        np.subtract.at(change, hi, 1)
        return np.cumsum(change)[:-1] > 0


def _levels(a: Longs, b: Longs) -> Longs:
    """Return j for each range: min(highest bit of a xor b, bits of b - a), at least 0."""
    span = b - a
    if not len(span):
        return span
    most = int(span.max())
    cap = most.bit_length() if most == int(span.min()) else _bits(span)  # one length: no array is needed
    level = np.empty(len(a), dtype=np.int64)
    level[:] = cap
    inside = np.flatnonzero((a >> cap) == (b >> cap))  # no multiple of 2**cap to cut at
    level[inside] = np.maximum(_bits(a[inside] ^ b[inside]) - 1, 0)
    return level


def _bits(values: Longs) -> Longs:
    """Return how many bits a number needs; 64 for a negative one (two positions on both sides of 0).

    >>> _bits(np.array([0, 1, 7, 8, 2**62, -5])).tolist()
    [0, 1, 3, 4, 63, 64]
    """
    high, low = values >> 32, values & 0xFFFF_FFFF  # each is exact as a double, whose exponent says it
    bits = np.where(high > 0, np.frexp(high.astype(np.float64))[1] + 32, np.frexp(low.astype(np.float64))[1])
    return np.where(values < 0, 64, bits).astype(np.int64)


def _starts(rows: int, level: int, position: Longs | None) -> Rows:
    """Return the first row of each block of 2**level positions."""
    if position is None:
        return np.arange(0, max(rows, 1), 1 << level, dtype=np.intp)
    block = position >> level
    return np.concatenate([np.zeros(1, dtype=np.intp), np.flatnonzero(block[1:] != block[:-1]) + 1])
