"""Which rows have the same key, and how keys are ordered: equal by the key columns, sorted by (unsigned hash, key).

The hash comes with the rows and only sorts: it spreads keys over state files the same way everywhere. Two keys may
share a hash, so a row's key is decided by its columns alone. A null is a key, NaN equals NaN and -0.0 equals 0.0, as in
Spark's groupBy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

HASH = "_ps_hash"


def key_ranks(table: pa.Table, key_columns: Sequence[str]) -> NDArray[np.int64]:
    """Return for each row the position of its key among the distinct keys, ordered by (unsigned hash, key columns).

    >>> table = pa.table({"_ps_hash": [-1, 7, 7, 7], "key": ["a", "c", None, "c"]})
    >>> key_ranks(table, ["key"])  # unsigned, -1 is the greatest hash; null stands before "c" under the shared hash 7
    array([2, 1, 0, 1])
    """
    if table.num_rows == 0:
        return np.zeros(0, dtype=np.int64)
    codes = _codes(table, key_columns)
    first = _first_rows(codes)
    hashes = table.column(HASH).to_numpy().view(np.uint64)[first]
    order = np.argsort(hashes, kind="stable")
    ties = hashes[order][1:] == hashes[order][:-1]
    if ties.any():  # rare: only keys that share a hash are compared by value
        order = _break_ties(table, key_columns, first, order, ties)
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[order] = np.arange(len(first))
    return np.asarray(ranks[codes], dtype=np.int64)


def _codes(table: pa.Table, key_columns: Sequence[str]) -> NDArray[np.int64]:
    """Number the distinct keys in the order in which they first occur."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for position, name in enumerate(key_columns):
        column = _column_codes(table.column(name))
        if position == 0:
            codes = column
        else:  # both are below the number of rows, so the product fits; then dense again, for the next column
            codes = _column_codes(pa.chunked_array([pa.array(codes * (int(column.max()) + 1) + column)]))
    return codes


def _column_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 + 0.0 is 0.0
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(), dtype=np.int64)


def _first_rows(codes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the first row of each code: codes count up by first occurrence, so it is where a new maximum appears."""
    highest = np.maximum.accumulate(codes)
    return np.concatenate([np.zeros(1, dtype=np.intp), np.flatnonzero(highest[1:] > highest[:-1]) + 1])


def _break_ties(
    table: pa.Table,
    key_columns: Sequence[str],
    first: NDArray[np.intp],
    order: NDArray[np.intp],
    ties: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Reorder the keys that share a hash by their columns, nulls first."""
    tied = np.flatnonzero(np.append(ties, False) | np.insert(ties, 0, False))  # positions in `order`
    keys = table.select(list(key_columns)).take(pa.array(first[order[tied]]))
    group = np.cumsum(~np.insert(ties, 0, False))[tied]  # equal hashes stand together and must stay where they are
    columns = [pa.array(group)]
    for column in keys.columns:  # null (False) before every value, said by a column: Arrow's option for it changed
        columns += [pc.is_valid(column), column]
    names = [str(i) for i in range(len(columns))]
    by = pc.sort_indices(pa.table(columns, names=names), sort_keys=[(name, "ascending") for name in names])
    out = order.copy()
    out[tied] = order[tied][by.to_numpy()]
    return out
