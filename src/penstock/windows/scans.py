"""Running combinations inside blocks of rows, in time linear in the rows: the arithmetic under every range kernel.

Integers are added by differences of one running prefix. They are exact modulo 2**64, so a range whose true sum fits 64
bits is right even where the prefix itself wrapped; whether it fits is checked apart (`checked`).

Everything else: never a difference of prefixes. One NaN, infinity or 1e300 would stay in every later prefix, and small
values beside it would be lost. Instead prefixes and suffixes *inside blocks* (van Herk; Gil and Werman; the flip of
two-stacks is the same suffix scan): a window that spans two blocks is a suffix of one plus a prefix of the next, so
only values of the window itself are ever combined, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]
Arrays = tuple[NDArray[Any], ...]
"""One element per position, spread over several arrays of the same length."""
Combine = Callable[[Arrays, Arrays], Arrays]
"""Combine earlier elements with later ones, position by position."""

_LOW = 0xFFFF_FFFF
_FAN = 32  # elements that one pass of `scan_arrays` walks through; fixed, so that how values associate is too
_LONG = 4096  # rows of a block from which it is scanned by itself


class AggregateOverflow(PenstockError, ArithmeticError):
    """A sum of integers left 64 bits. Spark's ANSI mode fails here too; cast the column to double to go on."""


def checked(values: Longs, terms: int, add: Callable[[Longs], Longs], what: str) -> Longs:
    """Return `add(values)`, where `add` sums at most `terms` values at a time modulo 2**64; refuse sums beyond 64 bits.

    >>> checked(np.array([1, 2]), 2, lambda x: np.cumsum(x), "sum('x')")
    array([1, 3])
    >>> checked(np.array([2**62, 2**62]), 2, lambda x: np.cumsum(x), "sum('x')")
    Traceback (most recent call last):
    ...
    penstock.windows.scans.AggregateOverflow: sum('x'): a sum of integers left 64 bits; cast the column to double
    """
    if not len(values) or max(-int(values.min()), int(values.max())) * terms < 2**63:
        return add(values)
    # x = high * 2**32 + low with 0 <= low < 2**32: both sums fit 64 bits for less than 2**31 terms, so they are exact.
    high, low = add(values >> 32), add(values & _LOW)
    high = high + (low >> 32)
    if ((high < -(2**31)) | (high >= 2**31)).any():
        raise AggregateOverflow(f"{what}: a sum of integers left 64 bits; cast the column to double")
    return (high << 32) | (low & _LOW)


# --- one array and a ufunc -------------------------------------------------------------------------------------------


def neutral(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Any:
    """Return the value that changes nothing: 0 for add, the greatest one for a minimum, the least for a maximum.

    >>> neutral(np.add, np.dtype(float)), neutral(np.minimum, np.dtype(np.int64)), neutral(np.maximum, np.dtype(float))
    (0.0, 9223372036854775807, -inf)
    """
    if ufunc is np.add:
        return dtype.type(0).item()
    if dtype.kind == "f":
        return np.nan if ufunc is np.fmin else -np.inf  # fmin passes over NaN
    bounds = np.iinfo(dtype)
    return int(bounds.max if ufunc in (np.minimum, np.fmin) else bounds.min)


def block_scans(
    values: NDArray[Any], starts: NDArray[np.intp], ufunc: np.ufunc = np.add
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the combination from each block's start up to a row, and from a row up to its block's end (inclusive).

    `starts` are the first rows of the blocks, ascending, the first 0.

    >>> prefix, suffix = block_scans(np.array([1.0, 2.0, 4.0, np.inf, 8.0]), np.array([0, 3, 4]))
    >>> prefix.tolist(), suffix.tolist()
    ([1.0, 3.0, 7.0, inf, 8.0], [7.0, 6.0, 4.0, inf, 8.0])
    >>> block_scans(np.array([3, 1, 2]), np.array([0]), np.minimum)[1].tolist()
    [1, 1, 2]
    """
    lengths = np.diff(starts, append=len(values))
    longest = int(lengths.max(initial=0))
    if longest <= 1:
        return values, values
    if longest * len(starts) == len(values):  # dense: all blocks equally long, a matrix as it stands
        prefix, suffix = _scan_rows(values.reshape(-1, longest), ufunc)
        return prefix.ravel(), suffix.ravel()
    turn = _turn(lengths, longest)
    if turn:  # dense, each turn, but for its first and its last block
        turns = values.reshape(len(starts) // turn, -1)
        before, after = np.empty_like(turns), np.empty_like(turns)
        cuts = (0, int(lengths[0]), int(starts[turn - 1]), turns.shape[1])
        for (a, b), blocks in zip(pairwise(cuts), (1, turn - 2, 1), strict=True):
            ahead, behind = _scan_rows(turns[:, a:b].reshape(len(turns) * blocks, -1), ufunc)
            before[:, a:b], after[:, a:b] = ahead.reshape(len(turns), -1), behind.reshape(len(turns), -1)
        return before.ravel(), after.ravel()
    prefix, suffix = np.empty_like(values), np.empty_like(values)
    if len(values) >= _LONG * len(starts):  # few and long: one by one, nothing is copied
        with np.errstate(invalid="ignore", over="ignore"):
            for a, b in pairwise([*starts.tolist(), len(values)]):
                ufunc.accumulate(values[a:b], out=prefix[a:b])
                ufunc.accumulate(values[a:b][::-1], out=suffix[a:b][::-1])
        return prefix, suffix
    # Ragged: blocks of similar length (between two powers of two) are padded into one matrix, so the padding at most
    # doubles the work and the loop runs log2(longest) times.
    classes = np.frexp((lengths - 1).astype(np.float64))[1]
    for size in np.unique(classes):
        mine = classes == size
        rows = np.repeat(mine, lengths)
        width = lengths[mine]
        cells = np.arange(width.max()) < width[:, None]
        matrix = np.full(cells.shape, neutral(ufunc, values.dtype), dtype=values.dtype)
        matrix[cells] = values[rows]
        ahead, behind = _scan_rows(matrix, ufunc)
        prefix[rows], suffix[rows] = ahead[cells], behind[cells]
    return prefix, suffix


def _turn(lengths: NDArray[np.intp], longest: int) -> int:
    """Return after how many blocks their lengths come again, where all but the first and the last of a turn are alike.

    That is so where all keys have the same panes, one after the other, and a window does not begin or end with a block.
    0 if it is not so.

    >>> [_turn(np.array(lengths), 4) for lengths in ([1, 4, 4, 2, 1, 4, 4, 2], [4, 4, 2, 4, 4, 2], [4, 1, 4])]
    [4, 3, 0]
    """
    odd = np.flatnonzero(lengths != longest)[:2]
    for turn in (*(odd + 1).tolist(), *odd.tolist(), len(lengths)):
        if turn < 3 or len(lengths) % turn or (lengths[1 : turn - 1] != longest).any():
            continue
        if (lengths.reshape(-1, turn) == lengths[:turn]).all():
            return int(turn)
    return 0


def _scan_rows(matrix: NDArray[Any], ufunc: np.ufunc) -> tuple[NDArray[Any], NDArray[Any]]:
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is NaN and 1e308 + 1e308 is inf, as in Spark
        return ufunc.accumulate(matrix, axis=1), ufunc.accumulate(matrix[:, ::-1], axis=1)[:, ::-1]


# --- several arrays and any associative combine ----------------------------------------------------------------------


def scan_arrays(values: Arrays, starts: NDArray[np.intp], combine: Combine) -> Arrays:
    """Return the combination from each block's start up to a row, for any associative `combine`; it need not commute.

    Blocks are cut into pieces of at most 32. All pieces are walked at once, element by element: 32 vectorised steps.
    The pieces' totals are scanned in the same way, and what lies before a piece is combined into its elements. So n
    elements cost O(n) combines in O(log n) rounds of 32 steps, and no identity is needed.

    >>> add = lambda a, b: (a[0] + b[0],)
    >>> scan_arrays((np.array(["a", "b", "c", "d"], dtype=object),), np.array([0, 3]), add)[0].tolist()
    ['a', 'ab', 'abc', 'd']
    """
    rows = len(values[0])
    lengths = np.diff(starts, append=rows)
    if not rows or int(lengths.max()) <= 1:
        return values
    pieces = -(-lengths // _FAN)  # per block
    first_piece = np.cumsum(pieces) - pieces
    inside = np.arange(int(pieces.sum())) - np.repeat(first_piece, pieces)  # number of the piece in its block
    begin = np.repeat(starts, pieces) + inside * _FAN
    size = np.minimum(np.repeat(starts + lengths, pieces) - begin, _FAN)
    out = tuple(array.copy() for array in values)
    longest_first = np.argsort(-size, kind="stable")
    begin_sorted, size_sorted = begin[longest_first], -size[longest_first]
    for step in range(1, int(size.max())):
        here = begin_sorted[: np.searchsorted(size_sorted, -step, side="left")] + step
        _put(out, here, combine(_take(out, here - 1), _take(out, here)))
    if int(pieces.max()) > 1:
        totals = scan_arrays(_take(out, begin + size - 1), first_piece, combine)
        follows = np.flatnonzero(inside > 0)  # pieces with something before them in their block
        members = np.repeat(begin[follows], size[follows]) + _counting(size[follows])
        before = np.repeat(follows - 1, size[follows])
        _put(out, members, combine(_take(totals, before), _take(out, members)))
    return out


def scan_arrays_back(values: Arrays, starts: NDArray[np.intp], combine: Combine) -> Arrays:
    """Return the combination from a row up to its block's end.

    >>> add = lambda a, b: (a[0] + b[0],)
    >>> scan_arrays_back((np.array(["a", "b", "c", "d"], dtype=object),), np.array([0, 3]), add)[0].tolist()
    ['abc', 'bc', 'c', 'd']
    """
    rows = len(values[0])
    ends = np.append(starts[1:], rows) if rows else starts
    mirrored = (rows - ends)[::-1].astype(np.intp)
    swapped = scan_arrays(tuple(v[::-1] for v in values), mirrored, lambda a, b: combine(b, a))
    return tuple(v[::-1] for v in swapped)


def _counting(lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return 0, 1, ... anew for each length."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _take(values: Arrays, rows: NDArray[Any]) -> Arrays:
    return tuple(array[rows] for array in values)


def _put(into: Arrays, rows: NDArray[Any], values: Arrays) -> None:
    for array, new in zip(into, values, strict=True):
        array[rows] = new
