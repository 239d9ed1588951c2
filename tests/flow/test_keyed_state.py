"""What a `stateful` function sees and gives back, without Spark."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps


def state(**columns: pa.Array) -> ps.KeyedState:
    """State of the keys a, b, c, of which c is new: its columns are null."""
    return ps.KeyedState(
        slots=np.array([0, 1, 0, 2]),
        keys=pa.table({"k": ["a", "b", "c"]}),
        table=pa.table(columns),
        is_new=np.array([False, False, True]),
    )


def test_numbers_and_booleans_of_a_new_key_read_as_nothing_yet() -> None:
    s = state(n=pa.array([1, 2, None]), x=pa.array([0.5, None, None]), seen=pa.array([True, False, None]))
    assert len(s) == 3
    assert (s["n"].tolist(), s["n"].dtype) == ([1, 2, 0], np.int64)
    assert (s["x"].tolist(), s["x"].dtype) == ([0.5, 0.0, 0.0], np.float64)
    assert (s["seen"].tolist(), s["seen"].dtype) == ([True, False, False], np.bool_)
    assert s.arrow("n").to_pylist() == [1, 2, None]  # the null is still to be had


def test_other_columns_keep_their_nulls() -> None:
    s = state(last=pa.array(["x", None, None]), day=pa.array([date(2024, 1, 1), None, None]))
    assert s["last"].tolist() == ["x", None, None]
    assert np.isnat(s["day"]).tolist() == [False, True, True]


def test_columns_in_several_pieces_read_as_one() -> None:
    pieces = pa.chunked_array([[1], [2, None]])
    s = ps.KeyedState(np.array([0]), pa.table({"k": [1, 2, 3]}), pa.table({"n": pieces}), np.zeros(3, dtype=bool))
    assert s["n"].tolist() == [1, 2, 0]
    assert isinstance(s.arrow("n"), pa.Array)
    empty = ps.KeyedState(np.array([]), pa.table({"k": pa.array([], "string")}), s.table.slice(0, 0), np.array([]))
    assert (len(empty), empty["n"].tolist()) == (0, [])


VALUES = [
    np.array([5, 6, 7]),
    np.array([5, 6, 7], dtype=np.int16),
    np.array([5.0, 6.0, 7.0]),
    pa.array([5, 6, 7]),
    pa.chunked_array([[5], [6, 7]]),
    [5, 6, 7],
    (5, 6, 7),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda v: f"{type(v).__name__} {getattr(v, 'dtype', '')}")
def test_update_takes_any_column_of_the_declared_type(values: Any) -> None:
    before = state(n=pa.array([1, 2, None]), x=pa.array([0.5, 1.5, None]))
    after = before.update(n=values)
    assert after.arrow("n").equals(pa.array([5, 6, 7]))
    assert after["x"].tolist() == before["x"].tolist()
    assert before["n"].tolist() == [1, 2, 0]  # never changed in place
    assert (after.table.schema, after.is_new is before.is_new) == (before.table.schema, True)


@given(st.lists(st.one_of(st.none(), st.floats(width=64)), min_size=3, max_size=3))
def test_floats_come_back_bit_by_bit(values: list[float | None]) -> None:
    after = state(x=pa.array([None, None, None], pa.float64())).update(x=pa.array(values, pa.float64()))
    assert [repr(v) for v in after.arrow("x").to_pylist()] == [repr(v) for v in values]


def test_update_takes_nulls_texts_dates_and_decimals() -> None:
    s = state(
        text=pa.array(["", None, None]),
        day=pa.array([None] * 3, pa.date32()),
        money=pa.array([None] * 3, pa.decimal128(10, 2)),
    )
    after = s.update(text=["p", None, "q"], day=[date(2024, 2, 29), None, None], money=[Decimal("1.25"), None, None])
    assert after.table.schema == s.table.schema
    assert after.table.to_pydict() == {
        "text": ["p", None, "q"],
        "day": [date(2024, 2, 29), None, None],
        "money": [Decimal("1.25"), None, None],
    }


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"m": [1, 2, 3]}, r"state has no column 'm'; state_schema declares \['n'\]"),
    ({"n": [1, 2]}, r"state column 'n' needs 3 values, one per key, got 2"),
    ({"n": np.zeros(4)}, r"state column 'n' needs 3 values, one per key, got 4"),
    ({"n": 7}, r"state column 'n' needs 3 values, one per key, got int"),
    ({"n": [1, 2, 2.5]}, r"state column 'n' is declared int64: .*2\.5"),
    ({"n": np.array([1, 2, 2.5])}, r"state column 'n' is declared int64: .*2\.5"),
    ({"n": ["1", "2", "three"]}, r"state column 'n' is declared int64: .*'three'"),
    (
        {"n": np.array([2**64 - 1, 0, 0], dtype=np.uint64)},
        r"state column 'n' is declared int64: .*18446744073709551615",
    ),
    ({"n": [2**70, 0, 0]}, r"state column 'n' is declared int64: "),
    ({"n": [1, "two", 3]}, r"state column 'n' is declared int64: "),
    ({"n": [object(), None, None]}, r"state column 'n' is declared int64: "),
]


@pytest.mark.parametrize(("columns", "message"), REFUSED)
def test_update_refuses_what_was_not_declared_and_names_the_column(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ps.UserFunctionError, match=message):
        state(n=pa.array([1, 2, None])).update(**columns)


@pytest.mark.parametrize("read", [lambda s: s["m"], lambda s: s.arrow("m")], ids=["numpy", "arrow"])
def test_a_column_that_is_not_there_is_named(read: Any) -> None:
    with pytest.raises(ps.UserFunctionError, match=r"state has no column 'm'; state_schema declares \['n'\]"):
        read(state(n=pa.array([1, 2, None])))


def test_drop_adds_up_and_leaves_the_rest() -> None:
    s = state(n=pa.array([1, 2, None]))
    once = s.drop(np.array([True, False, False]))
    twice = once.drop([False, False, True]).update(n=[7, 8, 9])  # type: ignore[arg-type]
    assert s.dead is None
    assert once.dead is not None
    assert once.dead.tolist() == [True, False, False]
    assert twice.dead is not None
    assert (twice.dead.tolist(), twice["n"].tolist()) == ([True, False, True], [7, 8, 9])


@pytest.mark.parametrize("mask", [[True], [1, 0, 1], np.zeros((3, 1), dtype=bool), True])
def test_drop_needs_one_boolean_per_key(mask: Any) -> None:
    with pytest.raises(ps.UserFunctionError, match=r"drop\(\) needs 3 booleans, one per key, got "):
        state(n=pa.array([1, 2, None])).drop(mask)


def test_state_cannot_be_assigned_to() -> None:
    s = state(n=pa.array([1, 2, 3]))
    with pytest.raises(FrozenInstanceError):
        s.table = None
    with pytest.raises(ValueError, match="read-only"):
        s["n"][0] = 5
    with pytest.raises(TypeError):
        s["n"] = [1, 2, 3]  # type: ignore[index]
