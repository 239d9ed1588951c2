"""Sums over many ranges of rows at once, in time linear in rows + ranges: the arithmetic under the pane kernel.

Integers: differences of one running prefix. They are exact modulo 2**64, so a range whose true sum fits 64 bits is
right even where the prefix itself wrapped; whether it fits is checked apart (`checked`).

Doubles: never a difference of prefixes. One NaN, infinity or 1e300 would stay in every later prefix, and small values
beside it would be lost. Instead prefixes and suffixes *inside blocks* (van Herk; Gil and Werman; the flip of two-stacks
is the same suffix scan): a window of r panes touches at most two blocks of r panes and is a suffix of one plus a prefix
of the next, so only values of the window itself are ever added, each once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.windows.aggregates import AggregateOverflow

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

_LOW = 0xFFFF_FFFF


def checked(values: Longs, terms: int, add: Callable[[Longs], Longs], what: str) -> Longs:
    """Return `add(values)`, where `add` sums at most `terms` values at a time modulo 2**64; refuse sums beyond 64 bits.

    >>> checked(np.array([1, 2]), 2, lambda x: np.cumsum(x), "sum('x')")
    array([1, 3])
    >>> checked(np.array([2**62, 2**62]), 2, lambda x: np.cumsum(x), "sum('x')")
    Traceback (most recent call last):
    ...
    penstock.windows.aggregates.AggregateOverflow: sum('x'): a sum of integers left 64 bits; cast the column to double
    """
    if not len(values) or max(-int(values.min()), int(values.max())) * terms < 2**63:
        return add(values)
    # x = high * 2**32 + low with 0 <= low < 2**32: both sums fit 64 bits for less than 2**31 terms, so they are exact.
    high, low = add(values >> 32), add(values & _LOW)
    high = high + (low >> 32)
    if ((high < -(2**31)) | (high >= 2**31)).any():
        raise AggregateOverflow(f"{what}: a sum of integers left 64 bits; cast the column to double")
    return (high << 32) | (low & _LOW)


def block_scans(values: Doubles, starts: NDArray[np.intp]) -> tuple[Doubles, Doubles]:
    """Return running sums from each block's start up to a row, and from a row up to its block's end (both inclusive).

    `starts` are the first rows of the blocks, ascending, the first 0.

    >>> prefix, suffix = block_scans(np.array([1.0, 2.0, 4.0, np.inf, 8.0]), np.array([0, 3, 4]))
    >>> prefix.tolist(), suffix.tolist()
    ([1.0, 3.0, 7.0, inf, 8.0], [7.0, 6.0, 4.0, inf, 8.0])
    """
    lengths = np.diff(starts, append=len(values))
    longest = int(lengths.max(initial=0))
    if longest <= 1:
        return values, values
    if longest * len(starts) == len(values):  # dense: all blocks equally long, a matrix as it stands
        prefix, suffix = _scan_rows(values.reshape(-1, longest))
        return prefix.ravel(), suffix.ravel()
    # Ragged: blocks of similar length (between two powers of two) are padded into one matrix, so the padding at most
    # doubles the work and the loop runs log2(longest) times.
    prefix, suffix = np.empty_like(values), np.empty_like(values)
    classes = np.frexp((lengths - 1).astype(np.float64))[1]
    for size in np.unique(classes):
        mine = classes == size
        rows = np.repeat(mine, lengths)
        width = lengths[mine]
        cells = np.arange(width.max()) < width[:, None]
        matrix = np.zeros(cells.shape)
        matrix[cells] = values[rows]
        ahead, behind = _scan_rows(matrix)
        prefix[rows], suffix[rows] = ahead[cells], behind[cells]
    return prefix, suffix


def _scan_rows(matrix: Doubles) -> tuple[Doubles, Doubles]:
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is NaN and 1e308 + 1e308 is inf, as in Spark
        return np.cumsum(matrix, axis=1), np.cumsum(matrix[:, ::-1], axis=1)[:, ::-1]
