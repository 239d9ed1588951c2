"""Which windows fire, as ranges of rows: what every window kind over *content* answers, for all keys at once.

**Arranged rows.** The rows of all K keys of a task stand in one table, key after key (`edges`, K + 1 row offsets), each
key's rows in its order (`windows/order.py`). A window is then a range [lo, hi) of rows: nothing is copied to fire it.

**Ordered kinds** (Count, Delta, slide-by-tuple) take the rows of a key one after the other. Of every key, the first
`known[k]` arranged rows were kept from batches before, the rest are fresh; `meta` holds a few numbers per key, 0 for a
new key. `advance` returns what fires *because of the fresh rows*, which rows a later window may still hold, and the
meta after. The kept rows of a key are always its most recent ones, so a row's position in its stream follows:

    position(row) = meta["count"] - known + (row - edges[key]) + 1          (1-based, as in both theses)

**Cost.** A few NumPy passes over rows and fired windows; where the content is a search, log2(rows of a key) passes over
the windows. No Python loop over rows, windows or keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Numbers = NDArray[np.int64 | np.float64]
Flags = NDArray[np.bool_]
Meta = Mapping[str, Numbers]


@dataclass(frozen=True)
class Fired:
    """The windows that fire, ordered by (slot, number).

    `start`, `end`: microseconds, end exclusive, for Time (also slide-by-tuple); positions in the key's stream, 1-based,
    both inclusive, for Count and Delta (an empty Delta window has end = start - 1). `number` counts a key's windows
    from 0; for Time it is the k of `Time.start_of`, which may be negative.

    >>> fired = Fired.none()
    >>> len(fired), fired.rows.tolist()
    (0, [])
    """

    slot: Longs
    lo: Longs
    hi: Longs
    start: Longs
    end: Longs
    number: Longs

    @classmethod
    def none(cls) -> Fired:
        """Return no windows."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def rows(self) -> Longs:
        """Return how many rows each window holds."""
        return self.hi - self.lo


@dataclass(frozen=True)
class Advance:
    """What a batch does to a window operator: the windows it fires, the rows to keep, the meta of each key after."""

    fired: Fired
    keep: Flags
    meta: dict[str, Numbers]


def rows_of(edges: Longs) -> Longs:
    """Return how many arranged rows each key has.

    >>> rows_of(np.array([0, 2, 2, 5]))
    array([2, 0, 3])
    """
    return np.diff(edges)


def slots_of(edges: Longs) -> Longs:
    """Return the key of each arranged row.

    >>> slots_of(np.array([0, 2, 2, 5]))
    array([0, 0, 2, 2, 2])
    """
    return np.repeat(np.arange(len(edges) - 1), rows_of(edges))


def runs(first: Longs, count: Longs) -> tuple[Longs, Longs]:
    """Return, for runs of `count[k]` consecutive numbers from `first[k]`, each number's run and the number itself.

    >>> runs(np.array([7, 0, 3]), np.array([2, 0, 1]))
    (array([0, 0, 2]), array([7, 8, 3]))
    """
    before = np.cumsum(count) - count  # numbers in the runs before
    number = np.arange(int(count.sum()), dtype=np.int64) + np.repeat(first - before, count)
    return np.repeat(np.arange(len(count)), count), number


def last_rows(edges: Longs) -> tuple[Longs, Longs]:
    """Return the keys that have rows, and the last row of each.

    >>> last_rows(np.array([0, 2, 2, 5]))
    (array([0, 2]), array([1, 4]))
    """
    some = np.flatnonzero(rows_of(edges))
    return some, edges[some + 1] - 1


def first_at_least(values: Numbers, lo: Longs, hi: Longs, target: Numbers) -> Longs:
    """Return for each query the least row in [lo, hi) whose value is >= target, or hi; values ascend in [lo, hi).

    One bisection for all queries at once: it compares the values themselves, so it is exact for floats too.

    >>> values = np.array([1, 3, 3, 9, 0, 5])  # two keys: rows 0-3 and 4-5
    >>> first_at_least(values, np.array([0, 0, 4]), np.array([4, 4, 6]), np.array([3, 10, 1]))
    array([1, 4, 5])
    """
    low, high = lo.copy(), hi.copy()
    if not len(values):
        return low
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        # a query that is done (low = high) reads some row and stays: `less` must be False for it
        less = (values[np.minimum(middle, len(values) - 1)] < target) & (low < high)
        np.copyto(low, middle + 1, where=less)
        np.copyto(high, middle, where=~less)
    return low
