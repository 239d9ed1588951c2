"""A function that returns another schema than it declared: the message names the column."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark.conform import Undeclared, as_batches, as_mask, conform
from tests.flow.functions import lacking, widened, yielding

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
DECLARED = pa.schema([("n", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC")), ("b", pa.binary())])
GOOD: dict[str, pa.Array] = {
    "n": pa.array([1, None]),
    "s": pa.array(["x", None]),
    "t": pa.array([NOON, None], pa.timestamp("us", "UTC")),
    "b": pa.array([b"x", None]),
}
VALUES = [{"n": 1, "s": "x", "t": NOON, "b": b"x"}, {"n": None, "s": None, "t": None, "b": None}]


def returned(**other: pa.Array | None) -> pa.RecordBatch:
    columns = {name: array for name, array in {**GOOD, **other}.items() if array is not None}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"s": GOOD["s"].cast(pa.large_string())},
        {"s": GOOD["s"].cast(pa.string_view())},
        {"s": GOOD["s"].dictionary_encode()},
        {"s": GOOD["s"].cast(pa.large_string()).dictionary_encode()},
        {"n": GOOD["n"].dictionary_encode()},
        {"t": GOOD["t"].cast(pa.timestamp("ns", "UTC"))},
        {"t": GOOD["t"].cast(pa.timestamp("ms", "UTC"))},
        {"t": GOOD["t"].cast(pa.timestamp("s", "UTC"))},
        {"t": GOOD["t"].cast(pa.timestamp("us", "Asia/Tokyo"))},
        {"b": GOOD["b"].cast(pa.large_binary())},
    ],
    ids=lambda other: str(next(iter(other.values())).type) if other else "as declared",
)
def test_other_forms_of_the_same_values_are_accepted(other: dict[str, pa.Array]) -> None:
    conformed = conform(returned(**other), DECLARED)
    assert conformed.schema == DECLARED
    assert conformed.to_pylist() == VALUES


def test_columns_of_nothing_but_nulls_need_no_type() -> None:
    conformed = conform(returned(**{name: pa.nulls(2) for name in GOOD}), DECLARED)
    assert conformed.schema == DECLARED
    assert conformed.to_pylist() == [VALUES[1]] * 2


def test_columns_in_another_order_are_put_in_order() -> None:
    batch = returned().select(["b", "t", "s", "n"])
    conformed = conform(batch, DECLARED)
    assert (conformed.schema, conformed.to_pylist()) == (DECLARED, VALUES)


def test_a_table_of_several_chunks_is_accepted() -> None:
    table = pa.Table.from_batches([returned(), returned()])
    rows = [row for batch in as_batches(table) for row in conform(batch, DECLARED).to_pylist()]
    assert rows == VALUES * 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"s": None}, r"column 's' is declared but missing; the function returned \['n', 't', 'b'\]"),
        (
            {"S": GOOD["s"], "s": None},
            r"column 's' is declared but missing; the function returned \['n', 't', 'b', 'S'\]",
        ),
        ({"more": GOOD["n"]}, r"column 'more' was returned but is not declared; declared are \['n', 's', 't', 'b'\]"),
        ({"n": GOOD["n"].cast(pa.int32())}, r"column 'n' is declared int64 but was returned as int32"),
        ({"n": GOOD["n"].cast(pa.float64())}, r"column 'n' is declared int64 but was returned as double"),
        ({"s": GOOD["n"]}, r"column 's' is declared string but was returned as int64"),
        (
            {"s": GOOD["n"].dictionary_encode()},
            r"column 's' is declared string but was returned as dictionary<values=int64",
        ),
        (
            {"t": GOOD["t"].cast(pa.timestamp("us"))},
            r"column 't' is declared timestamp\[us, tz=UTC\] but was returned as timestamp\[us\]",
        ),
        (
            {"t": pa.array([1, None], pa.timestamp("ns", "UTC"))},  # a nanosecond cannot be kept
            r"column 't' ",
        ),
    ],
)
def test_another_schema_names_the_column(other: dict[str, Any], message: str) -> None:
    with pytest.raises(Undeclared, match=message):
        conform(returned(**other), DECLARED)


def test_a_column_returned_twice_is_named() -> None:
    batch = pa.RecordBatch.from_arrays([*GOOD.values(), GOOD["n"]], names=[*GOOD, "n"])
    with pytest.raises(Undeclared, match=r"column 'n' "):
        conform(batch, DECLARED)


@pytest.mark.parametrize("value", [None, [1], {"n": [1]}, pa.array([1])], ids=lambda v: type(v).__name__)
def test_what_is_not_a_batch_is_named(value: Any) -> None:
    message = rf"must return a pyarrow RecordBatch or Table, it returned {type(value).__name__}$"
    with pytest.raises(Undeclared, match=message):
        list(as_batches(value))


@pytest.mark.parametrize("value", [pa.array([True, None]), pa.chunked_array([[True], [None]]), [True, False]])
def test_predicates_may_answer_in_any_form(value: Any) -> None:
    assert as_mask(value, 2).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (pa.array([True]), r"one boolean per row \(2\), it returned 1 of bool"),
        (pa.array([1, 0]), r"one boolean per row \(2\), it returned 2 of int64"),
        (["yes", "no"], r"one boolean per row \(2\), it returned 2 of string"),
    ],
)
def test_predicates_that_answer_something_else(value: Any, message: str) -> None:
    with pytest.raises(Undeclared, match=message):
        as_mask(value, 2)


# -- as the user sees it -----------------------------------------------------------------------------------------------


def test_the_message_goes_with_the_dead_letters(spark: SparkSession) -> None:
    read = ps.Flow("f").read(spark.range(0, 2, 1, 1))
    dead = read.map(lacking, on_error="dead_letter").dead_letter
    farm = read.flat_map(yielding, replicas=2, on_error="dead_letter")
    assert sorted(map(tuple, dead.union(farm.dead_letter).to_df(spark).collect())) == [
        (row, f"Undeclared: column 'id' is declared {text}")
        for row in range(2)
        for text in ("but missing; the function returned []", "int64 but was returned as double")
    ]


def test_the_message_reaches_the_user(spark: SparkSession) -> None:
    stream = ps.Flow("f").read(spark.range(0, 3, 1, 1)).stateful(widened, state_schema="n long", key="id", replicas=1)
    message = (
        r"operator 'widened': \(stateful\) raised Undeclared: column 'more' was returned but is not declared; "
        r"declared are \['id'\]; batch 0, 3 rows of 3 keys"
    )
    with pytest.raises(PythonException, match=message):
        stream.to_df(spark).collect()
