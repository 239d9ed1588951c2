"""The order of rows: by key and event time, ties broken so that how the stream was cut into batches leaves no trace.

With an event time, a row waits until the watermark has passed it (`watermark_split`), and the released rows of a key
are taken in the order (event time, the `order=` columns, all remaining columns). Two rows that are still equal are the
same row twice, and may stand either way round. Null comes first, NaN last, -0.0 before 0.0.

Most rows are told apart by their times. `arrange` therefore looks at a column only for the rows that the columns before
it left tied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.windows.firing import Flags, Longs

_ROOM = 2**62


@dataclass(frozen=True)
class Split:
    """What becomes of rows when a watermark comes: every row is in exactly one of the three."""

    released: Flags
    waiting: Flags
    late: Flags


def watermark_split(
    times: Longs, before: int | None, watermark: int | None, fresh: Flags, valid: Flags | None = None
) -> Split:
    """Sort out the waiting rows and the fresh ones of a batch, for kinds that take rows in event-time order.

    Rows with time < watermark are released, the batch's own too. `before` is the watermark of the batch before: a fresh
    row with time < before would have had to be released ahead of others that were, so it is late. So is a row without
    a time (`valid` False). END_OF_TIME releases all that wait. None: there is no watermark yet.

    >>> split = watermark_split(np.array([3, 9, 1, 3, 9]), 2, 5, fresh=np.arange(5) >= 2)
    >>> [np.flatnonzero(rows).tolist() for rows in (split.released, split.waiting, split.late)]
    [[0, 3], [1, 4], [2]]
    """
    nothing = np.zeros(len(times), dtype=np.bool_)
    late = nothing if before is None else fresh & (times < before)
    if valid is not None:
        late = late | ~valid
    released = nothing if watermark is None else (times < watermark) & ~late
    return Split(released, ~released & ~late, late)


def edges_of(slots: Longs, keys: int) -> Longs:
    """Return the row offsets of the keys once rows are sorted by slot.

    >>> edges_of(np.array([2, 0, 2]), keys=4)
    array([0, 1, 1, 3, 3])
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(slots, minlength=keys))])


def arrange(table: pa.Table, key_slots: Longs, order_columns: Sequence[str]) -> Longs:
    """Return the permutation that sorts rows by (slot, `order_columns`, remaining columns): `table.take` it.

    `order_columns` is the event time followed by the `order=` columns; without it, rows keep the order in which they
    stand, key by key. The remaining columns follow as the table has them, nested ones last: those are slow to compare.
    A map, which has no order, is compared by its entries in Python's notation: arbitrary, but always the same.

    >>> rows = pa.table({"time": [5, 1, 5, 1], "x": [None, 2.0, -1.0, 1.0]})
    >>> arrange(rows, np.array([0, 0, 0, 1]), ["time"])
    array([1, 0, 2, 3])
    >>> arrange(rows, np.array([0, 0, 0, 1]), [])
    array([0, 1, 2, 3])
    """
    if not order_columns:
        return _by_slot(key_slots)
    order, group = _refine(np.arange(table.num_rows), np.zeros(table.num_rows, dtype=np.int64), key_slots)
    rest = [name for name in table.column_names if name not in set(order_columns)]
    rest.sort(key=lambda name: pa.types.is_nested(table.schema.field(name).type))  # stable
    for name in (*order_columns, *rest):
        if not len(group) or group[-1] == len(group) - 1:  # no two rows are tied
            break
        tied = _tied(group)
        rows = order[tied]
        column = table.column(name)
        codes = _codes(column if len(rows) == table.num_rows and _straight(rows) else column.take(pa.array(rows)))
        order[tied], group = _resolve(rows, group, tied, codes)
    return order


def _by_slot(slots: Longs) -> Longs:
    """Sort rows by slot alone; slots count from 0, and below 2**16 a radix sort does it."""
    few = len(slots) and int(slots.max()) < 2**16
    return np.argsort(slots.astype(np.uint16) if few else slots, kind="stable")


def _straight(rows: Longs) -> bool:
    return bool((rows == np.arange(len(rows))).all())


def _tied(group: Longs) -> Longs:
    """Return the positions whose group has more than one row."""
    equal = group[1:] == group[:-1]
    return np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))


def _resolve(rows: Longs, group: Longs, tied: Longs, codes: Longs) -> tuple[Longs, Longs]:
    """Sort the tied rows of each group by their codes; return them and the finer groups of all rows."""
    moved, finer = _refine(rows, group[tied], codes)
    new = np.append(False, group[1:] != group[:-1])[: len(group)]
    new[tied] |= np.append(False, finer[1:] != finer[:-1])
    return moved, np.cumsum(new)


def _refine(rows: Longs, group: Longs, codes: Longs) -> tuple[Longs, Longs]:
    """Sort rows, which stand by group, by (group, code); return them and dense numbers of the groups so made."""
    if not len(rows):
        return rows, group
    least, most = int(codes.min()), int(codes.max())
    if (int(group[-1]) + 1) * (most - least + 1) >= _ROOM:
        codes = np.unique(codes, return_inverse=True)[1]
        least, most = 0, int(codes.max())
    place = group * (most - least + 1) + (codes - least)
    if (place[1:] < place[:-1]).any():  # often they stand in order already
        small = int(place.max()) < 2**16 and int(place.min()) >= 0
        by = np.argsort(place.astype(np.uint16) if small else place, kind="stable")  # 16 bits: a radix sort
        rows, place = rows[by], place[by]
    return rows.copy(), np.cumsum(np.append(False, place[1:] != place[:-1]))


# --- one number per value, in the order of the values ----------------------------------------------------------------


def _codes(column: pa.ChunkedArray | pa.Array) -> Longs:
    """Return for each value a number that compares as the values do: null first, equal values equal."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # chunks that do not fit one array
        array = pa.concat_arrays(array.chunks)
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _codes(array.storage)
    if pa.types.is_null(kind):
        return np.zeros(len(array), dtype=np.int64)
    if pa.types.is_dictionary(kind):
        return _codes(array.dictionary_decode())
    if pa.types.is_struct(kind):
        return _struct_codes(array)
    integers = _integers(array)
    if integers is not None:
        return _nulls_first(integers, array)
    return _by_value(array)


def _integers(array: pa.Array) -> NDArray[Any] | None:
    """Return the values of fixed-width types as integers that compare as they do; None for other types."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False), dtype=np.int64)
    if pa.types.is_floating(kind):
        doubles = np.asarray(pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(), dtype=np.float64)
        bits = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)  # one NaN for all
        return np.asarray(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))  # the order of IEEE 754 total ordering
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        if kind == pa.month_day_nano_interval():
            return None
        if pa.types.is_temporal(kind):
            array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        numbers = np.asarray(pc.fill_null(array, 0).to_numpy())
        # the codes are 64-bit and signed: flip the top bit of unsigned ones
        return (numbers ^ np.uint64(2**63)).view(np.int64) if kind == pa.uint64() else numbers.astype(np.int64)
    return None


def _nulls_first(codes: Longs, array: pa.Array) -> Longs:
    if array.null_count == 0:
        return codes
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    ranks = np.zeros(len(codes), dtype=np.int64)
    ranks[valid] = np.unique(codes[valid], return_inverse=True)[1] + 1
    return ranks


def _struct_codes(array: pa.StructArray) -> Longs:
    """Compare structs field by field; a null one comes first."""
    codes = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), dtype=np.int64)
    for field in array.flatten():  # with the struct's own nulls
        by = np.unique(_codes(field), return_inverse=True)[1]
        codes = np.unique(codes * (int(by.max(initial=0)) + 1) + by, return_inverse=True)[1]
    return codes


def _by_value(array: pa.Array) -> Longs:
    """Rank the distinct values: Arrow where it can sort them (text, binary, decimals), Python for what it cannot."""
    ranks = np.zeros(len(array), dtype=np.int64)
    if _arrow_sorts(array.type):
        encoded = array.dictionary_encode(null_encoding="mask")
        by = pc.sort_indices(encoded.dictionary).to_numpy()
        rank_of = np.empty(len(by), dtype=np.int64)
        rank_of[by] = np.arange(1, len(by) + 1)
        valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
        ranks[valid] = rank_of[encoded.indices.drop_null().to_numpy()]
        return ranks
    keys = [_python_key(value) for value in array.to_pylist()]
    distinct = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([distinct[key] for key in keys], dtype=np.int64)


def _arrow_sorts(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(text or binary or pa.types.is_decimal(kind))


def _python_key(value: Any) -> tuple[Any, ...]:
    """Return a key that compares values of one Arrow type: null first, lists by their items, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, list):  # (1, ...) per item, so a shorter list that is a prefix comes first
        return (1, tuple(_python_key(item) for item in value))
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    if isinstance(value, dict):
        return (1, tuple((name, _python_key(item)) for name, item in value.items()))
    if isinstance(value, tuple) and not hasattr(value, "_fields"):  # an entry of a map
        return (1, tuple(_python_key(item) for item in value))
    return (1, value)
