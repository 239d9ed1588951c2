"""Move rows in runs where they stand one behind the other: a slice is free, a gather costs every cell.

State is kept in the order of the keys' hashes and read back in that order, so most moves are of whole runs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WORTH_A_SLICE = 512  # rows of a run, on average, from which slices are cheaper than a gather


def take_rows(table: pa.Table, rows: Longs) -> pa.Table:
    """Return these rows of a table; without a copy if they are one run.

    >>> take_rows(pa.table({"x": [4, 5, 6]}), np.array([1, 2])).column("x").to_pylist()
    [5, 6]
    """
    if len(rows) and (np.diff(rows) == 1).all():
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))


def keep_rows(table: pa.Table, keep: Bools) -> pa.Table:
    """Return the rows to keep, as one chunk.

    >>> keep_rows(pa.table({"x": [4, 5, 6]}), np.array([True, False, True])).column("x").to_pylist()
    [4, 6]
    """
    if keep.all():
        return table.combine_chunks()
    change = np.flatnonzero(np.diff(keep, prepend=False, append=False))
    starts, ends = change[::2], change[1::2]
    if not len(starts) or int((ends - starts).sum()) < WORTH_A_SLICE * len(starts):
        return table.filter(pa.array(keep)).combine_chunks()
    return pa.concat_tables([table.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]).combine_chunks()


def behind_each_other(old: pa.Table, old_counts: Longs, new: pa.Table, new_counts: Longs) -> pa.Table:
    """Put each key's new rows behind its old ones; both tables have their keys in the same order, so many rows each.

    >>> old, new = pa.table({"x": [1, 2, 3]}), pa.table({"x": [7, 8]})
    >>> behind_each_other(old, np.array([1, 2]), new, np.array([2, 0])).column("x").to_pylist()
    [1, 7, 8, 2, 3]
    """
    both = pa.concat_tables([old, new])
    if both.num_rows < WORTH_A_SLICE * 2 * len(old_counts):
        slots = np.concatenate([np.repeat(np.arange(len(counts)), counts) for counts in (old_counts, new_counts)])
        return both.take(pa.array(np.argsort(slots, kind="stable"))).combine_chunks()
    pieces, at_old, at_new = list[pa.Table](), 0, 0
    for first, second in zip(old_counts.tolist(), new_counts.tolist(), strict=True):
        pieces += [old.slice(at_old, first), new.slice(at_new, second)]
        at_old, at_new = at_old + first, at_new + second
    return pa.concat_tables(pieces).combine_chunks()
