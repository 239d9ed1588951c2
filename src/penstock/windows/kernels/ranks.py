"""Order statistics over many ranges of rows at once: the k-th least, and how many lie below a bound.

A *wavelet matrix* (Claude, Navarro and Ordonez 2015) holds the ranks of all rows bit by bit, from the highest: at each
bit the rows are parted stably, those with a 0 before those with a 1, and a running count of zeros is kept. A range of
rows then stays one range at every bit: to find its k-th least value, count the zeros in it and go left or right. All
ranges do each step together. Building costs O(n log n), a query O(log n) whatever the range's length: exact quantiles,
top-k lists and distinct counts without recomputing a window.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.windows.scans import Doubles, Longs


class OrderStatistics:
    """Values 0 .. n of every row, asked by range.

    >>> values = OrderStatistics(np.array([3, 1, 2, 1]))
    >>> values.kth(np.array([0, 1]), np.array([4, 3]), np.array([2, 0]))  # 1 1 [2] 3; [1] 2
    array([2, 1])
    >>> values.below(np.array([0]), np.array([4]), np.array([2]))
    array([2])
    """

    def __init__(self, values: Longs) -> None:
        self._bits = int(values.max(initial=0)).bit_length()
        self._zeros: list[Longs] = []  # per bit, from the highest: how many zeros stand before each row
        at = np.asarray(values, dtype=np.int64)
        for bit in range(self._bits - 1, -1, -1):
            zero = (at >> bit) & 1 == 0
            before = np.zeros(len(at) + 1, dtype=np.int64)
            np.cumsum(zero, out=before[1:])
            self._zeros.append(before)
            at = np.concatenate([at[zero], at[~zero]])

    def kth(self, lo: Longs, hi: Longs, k: Longs) -> Longs:
        """Return the k-th least value (k from 0) of rows [lo, hi); every range must have more than k rows."""
        lo, hi, k = lo.copy(), hi.copy(), k.copy()
        found = np.zeros(len(lo), dtype=np.int64)
        for depth, before in enumerate(self._zeros):
            left_lo, left_hi = before[lo], before[hi]
            zeros = left_hi - left_lo
            right = k >= zeros
            found |= right.astype(np.int64) << (self._bits - 1 - depth)
            k -= np.where(right, zeros, 0)
            lo = np.where(right, before[-1] + lo - left_lo, left_lo)  # the ones stand behind all zeros
            hi = np.where(right, before[-1] + hi - left_hi, left_hi)
        return found

    def below(self, lo: Longs, hi: Longs, bound: Longs) -> Longs:
        """Return how many of the rows [lo, hi) have a value less than the bound."""
        total = np.where(bound >> self._bits > 0, hi - lo, 0)  # beyond every value
        lo, hi = lo.copy(), hi.copy()
        inside = bound >> self._bits == 0
        for depth, before in enumerate(self._zeros):
            left_lo, left_hi = before[lo], before[hi]
            right = (bound >> (self._bits - 1 - depth)) & 1 == 1
            total += np.where(right & inside, left_hi - left_lo, 0)
            lo = np.where(right, before[-1] + lo - left_lo, left_lo)
            hi = np.where(right, before[-1] + hi - left_hi, left_hi)
        return total


def as_doubles(values: pa.ChunkedArray | pa.Array) -> Doubles:
    """Return a numeric column without nulls as doubles with one zero, so that equal numbers have equal bits."""
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False)) + 0.0


def order_codes(values: pa.Array) -> tuple[Longs, pa.Array]:
    """Return for each value its place among the distinct values in Spark's order, and those values.

    NaN is equal to itself and the greatest, -0.0 equals 0.0; texts and bytes compare byte by byte. No nulls.

    >>> codes, distinct = order_codes(pa.array([2.5, float("nan"), -1.0, 2.5]))
    >>> codes.tolist(), distinct.to_pylist()
    ([1, 2, 0, 1], [-1.0, 2.5, nan])
    """
    kind = values.type
    if pa.types.is_floating(kind):
        numbers: NDArray[np.float64] = as_doubles(values)
        distinct, codes = np.unique(numbers, return_inverse=True)  # one NaN, at the end
        return codes.astype(np.int64), pa.array(distinct).cast(kind)
    if pa.types.is_integer(kind):
        whole, codes = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)
        return codes.astype(np.int64), pa.array(whole, kind)
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[encoded.indices.to_numpy(zero_copy_only=False)], encoded.dictionary.take(pa.array(order))
