"""The order of rows: against Python's sort for plain columns, and for every Arrow type the same whatever came first."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.oracle_kinds import sort_key
from penstock.windows.order import arrange, edges_of, watermark_split

FAST = settings(max_examples=200, deadline=None, derandomize=True)
NAN = math.nan

rows = st.lists(
    st.fixed_dictionaries(
        {
            "slot": st.integers(0, 3),
            "time": st.one_of(st.none(), st.integers(0, 2), st.sampled_from([-(2**63), 2**63 - 1])),
            "text": st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä", "ab"])),
            "d": st.sampled_from([None, NAN, 0.0, -0.0, 1.0, math.inf, -math.inf, 5e-324]),
            "flag": st.one_of(st.none(), st.booleans()),
        }
    ),
    max_size=30,
)
SCHEMA = pa.schema(
    [("slot", pa.int64()), ("time", pa.int64()), ("text", pa.string()), ("d", pa.float64()), ("flag", pa.bool_())]
)


@FAST
@given(rows=rows, by=st.lists(st.sampled_from(["text", "d", "flag"]), unique=True), seed=st.integers(0, 9))
def test_as_python_sorts(rows: list[dict[str, Any]], by: list[str], seed: int) -> None:
    rows = [{name: row[name] for name in SCHEMA.names} for row in rows]
    rows = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    table = pa.Table.from_pylist(rows, SCHEMA)
    slots = np.array([row["slot"] for row in rows], dtype=np.int64)
    order = arrange(table, slots, ["time", *by])
    assert sorted(order) == list(range(len(rows)))
    expected = sorted(rows, key=lambda row: sort_key(row, ["slot", "time", *by]))
    assert [repr(rows[i]) for i in order] == [repr(row) for row in expected]
    # without columns to order by, rows stand as they came
    assert arrange(table, slots, []).tolist() == np.argsort(slots, kind="stable").tolist()


# ascending, null first; rows that differ nowhere else must come out in this order from any permutation
INSTANT = datetime(2024, 1, 1, tzinfo=UTC)
ASCENDING: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [None, -128, 0, 127]),
    (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
    (pa.int64(), [None, -(2**63), 0, 2**63 - 1]),
    (pa.float32(), [None, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, NAN]),
    (pa.float16(), [None, -1.0, 1.0]),
    (pa.bool_(), [None, False, True]),
    (pa.string(), [None, "", "a", "aa", "b"]),
    (pa.large_string(), [None, "a", "b"]),
    (pa.binary(), [None, b"", b"\x00", b"\xff"]),
    (pa.binary(2), [None, b"aa", b"ab"]),
    (pa.decimal128(38, 10), [None, Decimal("-1.5"), Decimal("0.1"), Decimal("10")]),
    (pa.decimal256(60, 10), [None, Decimal("-1.5"), Decimal("10")]),
    (pa.date32(), [None, date(1900, 1, 1), date(2024, 1, 1)]),
    (pa.date64(), [None, date(1900, 1, 1), date(2024, 1, 1)]),
    (pa.timestamp("us", "UTC"), [None, INSTANT, INSTANT + timedelta(microseconds=1)]),
    (pa.timestamp("ns"), [None, datetime(1960, 1, 1), datetime(2024, 1, 1)]),  # noqa: DTZ001
    (pa.time32("ms"), [None, time(0), time(23)]),
    (pa.time64("us"), [None, time(0), time(23)]),
    (pa.duration("us"), [None, timedelta(-1), timedelta(1)]),
    (pa.dictionary(pa.int32(), pa.string()), [None, "a", "b", "c"]),
    (pa.list_(pa.int64()), [None, [], [None], [1], [1, 2], [2]]),
    (pa.list_(pa.float64()), [None, [-0.0], [0.0], [1.0, 2.0], [NAN]]),
    (pa.list_(pa.struct([("a", pa.int64())])), [None, [], [{"a": None}], [{"a": 1}]]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), [
        None, {"a": None, "b": "z"}, {"a": 1, "b": None}, {"a": 1, "b": "a"}, {"a": 2, "b": "a"},
    ]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", None)], [("a", 1)], [("b", 0)]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), ASCENDING, ids=lambda v: str(v) if isinstance(v, pa.DataType) else "")
def test_every_type(kind: pa.DataType, values: list[Any]) -> None:
    if kind == pa.float16():
        values = [None if v is None else np.float16(v) for v in values]
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    column = pa.array(values, plain)
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
    doubled = pa.chunked_array([column, column])  # each value twice, in two chunks
    table = pa.table({"time": pa.array([7] * len(doubled)), "v": doubled})
    text = [repr(v) for v in doubled.to_pylist()]
    expected = [t for t in text[: len(values)] for _ in range(2)]
    for seed in range(6):
        by = np.random.default_rng(seed).permutation(len(doubled))
        shuffled = table.take(pa.array(by))
        slots = np.zeros(len(by), dtype=np.int64)
        for columns in (["time"], ["time", "v"], ["v", "time"]):
            order = arrange(shuffled, slots, columns)
            assert [text[i] for i in by[order]] == expected, columns


def test_only_tied_rows_are_compared() -> None:
    """A column that tells nothing more is not even read: here it could not be."""

    class Unreadable(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.null(), "tests.unreadable")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    column = pa.ExtensionArray.from_storage(Unreadable(), pa.nulls(3))
    table = pa.table({"time": [3, 1, 2], "rest": column})
    assert arrange(table, np.array([0, 0, 0]), ["time"]).tolist() == [1, 2, 0]
    assert arrange(table, np.array([1, 0, 1]), ["time"]).tolist() == [1, 2, 0]


def test_no_rows() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert arrange(pa.table({"time": pa.array([], pa.int64())}), nothing, ["time"]).tolist() == []
    assert edges_of(nothing, 2).tolist() == [0, 0, 0]
    split = watermark_split(nothing, 3, 5, nothing.astype(bool))
    assert len(split.released) == len(split.late) == len(split.waiting) == 0


# time       3      4      5           watermark 5, that of the batch before 4: what it has passed is what lies below
# waiting           goes   stays
# fresh      late   goes   stays
def test_the_watermark_itself_has_not_passed() -> None:
    times, fresh = np.array([4, 5, 3, 4, 5]), np.arange(5) >= 2
    split = watermark_split(times, 4, 5, fresh)
    assert np.flatnonzero(split.released).tolist() == [0, 3]
    assert np.flatnonzero(split.late).tolist() == [2]
    valid = np.array([True, True, True, True, False])
    assert np.flatnonzero(watermark_split(times, None, None, fresh, valid).late).tolist() == [4]
    assert not watermark_split(times, None, None, fresh).released.any()
    assert np.flatnonzero(watermark_split(times, None, 5, fresh).released).tolist() == [0, 2, 3]
