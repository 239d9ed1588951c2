"""Count, slide-by-tuple and Delta windows against the sequential oracle: any stream, any cut into batches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.windows.count import Count
from penstock.windows.delta import Delta, DisorderedAttribute, attribute
from penstock.windows.firing import first_at_least
from penstock.windows.kinds import WindowSpec, advance, new_meta
from penstock.windows.oracle_kinds import Row, Window
from penstock.windows.time import Time
from tests.windows.ordered_cases import Batch, OrderedHost, cut, feeds, oracle_of, rows_in_order, seen, us

FAST = settings(max_examples=150, deadline=None, derandomize=True)

sizes = st.one_of(st.integers(1, 6), st.integers(1, 50))
maybe = st.one_of(st.none(), sizes)
counts = st.builds(Count, sizes, maybe, st.booleans())
everys = st.builds(lambda size, every: Time(us(size), every=every), sizes, sizes)
distances = st.one_of(sizes, st.sampled_from([0.1, 0.5, 2.5, 7.3]))
deltas = st.builds(Delta, st.sampled_from(["x", "d"]), distances, st.one_of(st.none(), distances))
ordered = st.one_of(counts, everys, deltas)


def content(windows: list[Window], column: str = "x") -> list[list[Any]]:
    return [[row[column] for row in w.rows] for w in windows]


def rows_of(values: list[Any], column: str = "x", times: list[int] | None = None) -> list[Row]:
    rows = [{"key": "a", "time": i, "x": i + 1, "d": None} for i in range(len(values))]
    when = times or [row["time"] for row in rows]
    return [row | {"time": t, column: v} for row, t, v in zip(rows, when, values, strict=True)]


# --- against the oracle ----------------------------------------------------------------------------------------------


# batches        |  b1   |  b2 |   b3      |        the same rows, cut anywhere
# rows           1 2 3 4 5 6 7 8 9 ...
# kept           '---'            carried over: only what a later window may hold
@pytest.mark.parametrize("kind", [counts, everys, deltas], ids=["count", "every", "delta"])
@settings(FAST, max_examples=100)
@given(data=st.data(), rows=rows_in_order())
def test_as_rows_come(kind: st.SearchStrategy[WindowSpec], data: st.DataObject, rows: list[Row]) -> None:
    spec = data.draw(kind)
    host, oracle = OrderedHost(spec, by_time=False), oracle_of(spec, by_time=False)
    for batch in data.draw(cut(rows)):
        assert seen(host.batch(batch)) == seen(oracle.batch(batch))
        if isinstance(spec, Count):  # nothing is kept that no window can need
            assert len(host.kept) <= len(host.keys) * (spec.size - 1)
    assert seen(host.flush()) == seen(oracle.flush())


# time        5 3 9 | 4 8 7 | 12 2 |             lateness 2: W of a batch = greatest time of those before - 2
# released          | 3 4 5 |      | 7 8 9       in the order of time, then of the other columns
# late                         2                 below the W of the batch before, which has released others
@FAST
@given(spec=st.one_of(counts, everys), lateness=st.integers(0, 60), feed=feeds(), order=st.sampled_from([(), ("d",)]))
def test_released_by_the_watermark(spec: Any, lateness: int, feed: list[Batch], order: tuple[str, ...]) -> None:
    if isinstance(spec, Count):
        spec = Count(spec.size, spec.slide, spec.partial, lateness=us(lateness))
    else:
        spec = Time(us(spec.size_us), every=spec.every, lateness=us(lateness))
    host, oracle = OrderedHost(spec, order=order), oracle_of(spec, order=order)
    for rows, tick in feed:
        assert seen(host.batch(rows, tick)) == seen(oracle.batch(rows, tick))
        assert sorted(map(repr, host.late)) == sorted(map(repr, oracle.late))
    assert seen(host.flush()) == seen(oracle.flush())


# rows        1 2 3 4 5 6        all the results of
# cut once    |         |        one batch
# cut anyhow  | |   | |||        equal those of many
@FAST
@given(spec=ordered, data=st.data(), rows=rows_in_order(), seed=st.integers(0, 99))
def test_cuts_leave_no_trace(spec: WindowSpec, data: st.DataObject, rows: list[Row], seed: int) -> None:
    def run(batches: list[list[Row]]) -> dict[str, list[Any]]:
        host = OrderedHost(spec)
        windows = [w for batch in batches for w in host.batch(batch)] + host.flush()
        assert not host.late
        return seen(windows)

    if isinstance(spec, Delta):  # the tie of two times is broken by the other columns, not by the attribute
        rows = [row | {"time": i} for i, row in enumerate(rows)]
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    assert run(data.draw(cut(rows))) == run([shuffled])


# --- by hand: the theses' own examples -------------------------------------------------------------------------------


# size 3, slide 2     1 2 3 4 5 6 7
#                     [   ]
#                         [   ]
#                             [   ]
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Count(3, 2), [[1, 2, 3], [3, 4, 5], [5, 6, 7]]),
        (Count(4), [[1, 2, 3, 4]]),
        (Count(2, 3), [[1, 2], [4, 5]]),  # 3 and 6 are in no window
        (Count(5, 2), [[1, 2, 3, 4, 5], [3, 4, 5, 6, 7]]),
        (Count(5, 2, partial=True), [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5], [3, 4, 5, 6, 7]]),
        (Count(4, 2, partial=True), [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6]]),
        (Count(3, 9, partial=True), [[1, 2, 3]]),
    ],
)
def test_count_examples(spec: Count, expected: list[list[int]]) -> None:
    rows = rows_of(list(range(1, 8)))
    for host in (OrderedHost(spec, by_time=False), oracle_of(spec, by_time=False)):
        windows = host.batch(rows)
        assert content(windows) == expected
        assert [(w.number, w.start, w.end) for w in windows] == [(i, e[0], e[-1]) for i, e in enumerate(expected)]
        assert host.flush() == []  # half-full windows stay unsaid


# time  0.5 1.0 1.2 2.0 2.1 7.0 7.1 7.2 7.9 8.0 8.1 13.5        size 5, every 3 (002 section 4.3)
#       [   W1    ]
#                   [   W2    ]
#                           [      W3     ]
#                                                   [W4]         tuples 10 and 11 are in no window
def test_every_example() -> None:
    times = [5, 10, 12, 20, 21, 70, 71, 72, 79, 80, 81, 135]
    spec = Time(us(50), every=3)
    for host in (OrderedHost(spec), oracle_of(spec)):
        assert host.batch(rows_of(list(range(1, 13)), times=times)) == []
        windows = host.flush()
        assert content(windows) == [[1, 2, 3], [4, 5, 6], [6, 7, 8, 9], [12]]
        assert [(w.start, w.end) for w in windows] == [(-38, 13), (20, 71), (29, 80), (85, 136)]


# Fig. 10 of 002: t_1 at 1, t_100 at 10, size 5: W_1 = [5, 10], and t_1 is in no window
def test_a_tuple_may_be_in_no_window() -> None:
    times = [1, *[6] * 98, 10]
    host = OrderedHost(Time(us(5), every=100))
    host.batch(rows_of(list(range(1, 101)), times=times))
    assert content(host.flush()) == [list(range(2, 101))]


# a           0.1 1.0 2.1 2.5 3.0 4.2 5.0 6.3 6.4 8.9     (002 section 4.4)
# fires               x           x       x       x       slide 2
# tumbling    [     ][          ][      ][      ]
LONG = [0.1, 1.0, 2.1, 2.5, 3.0, 4.2, 5.0, 6.3, 6.4, 8.9]


@pytest.mark.parametrize(
    ("spec", "values", "expected"),
    [
        (Delta("d", 2), [0.1, 2.1, 4.2, 6.3], [[1], [2], [3]]),
        (Delta("d", 5, slide=2), [0.1, 2.1, 4.2, 6.3], [[1], [1, 2], [2, 3]]),
        (Delta("d", 5, slide=2), LONG, [[1, 2], [1, 2, 3, 4, 5], [3, 4, 5, 6, 7], [6, 7, 8, 9]]),
        (Delta("d", 2), LONG, [[1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (Delta("d", 2), [0.0, 1.0, 50.0, 90.0], [[1, 2], [3]]),  # tumbling loses none after a jump
        (Delta("d", 2, slide=2), [0.0, 1.0, 50.0, 90.0], [[], []]),  # sliding reaches back `size` only
        (Delta("d", 1, slide=1), [1e300, 1e300, 1e300], [[1], [1, 2]]),  # 1e300 + 1 is 1e300: it is reached
        (Delta("d", 3, slide=1), [-5.0, -4.0, -3.0, -3.0, -3.0, -2.0], [[1], [1, 2], [1, 2, 3, 4, 5]]),
    ],
)
def test_delta_examples(spec: Delta, values: list[float], expected: list[list[int]]) -> None:
    for host in (OrderedHost(spec), oracle_of(spec)):
        assert host.batch(rows_of(values, "d")) == []
        windows = host.flush()
        assert content(windows) == expected
        assert [w.end - w.start + 1 for w in windows] == [len(e) for e in expected]
        assert [w.rows[0]["x"] for w in windows if w.rows] == [w.start for w in windows if w.rows]


# a          0 4 6 | 8        size 6, slide 5: the marker is 6 (fired at 6 >= 0 + 5), the next trigger is 11 or more,
# kept           x |          so that of 0, 4 and 6 only 6 (>= 11 - 6) can be in its window
def test_delta_keeps_what_the_next_window_may_hold() -> None:
    for spec, keep in [
        (Delta("x", 6, slide=5), [False, False, True]),
        (Delta("x", 7, slide=5), [False, True, True]),
        (Delta("x", 2, slide=5), [False, False, False]),
        (Delta("x", 5), [False, False, True]),
    ]:
        step = advance(spec, np.array([0, 3]), np.array([0]), np.array([0, 4, 6]), new_meta(spec, 1))
        assert step.keep.tolist() == keep
        assert {name: array.tolist() for name, array in step.meta.items()} == {
            "count": [3], "fired": [1], "marker": [6], "last": [6],
        }  # fmt: skip


def test_a_decreasing_attribute_names_its_row() -> None:
    #   key 0: rows 0 1 (kept) 2 3      key 1: rows 4 5
    spec, edges = Delta("x", 5, slide=2), np.array([0, 4, 6])
    meta = new_meta(spec, 2) | {"count": np.array([2, 0]), "last": np.array([1, 0]), "marker": np.array([0, 0])}
    known = np.array([2, 0])
    for values, row, problem in [
        ([0, 1, 0, 1, 0, 0], 2, "is 0, after 1"),
        ([0, 1, 5, 4, 0, 0], 3, "is 4, after 5"),
        ([0, 1, 5, 5, 9, 8], 5, "is 8, after 9"),
    ]:
        with pytest.raises(DisorderedAttribute, match=f"row {row} {problem}") as error:
            advance(spec, edges, known, np.array(values), meta)
        assert error.value.row == row
    assert len(advance(spec, edges, known, np.array([0, 1, 1, 1, -9, -9]), meta).fired) == 0
    # the row before may be gone: what it was is remembered
    gone = new_meta(spec, 1) | {"count": np.array([7]), "last": np.array([9]), "marker": np.array([9])}
    with pytest.raises(DisorderedAttribute, match="row 0 is 8, after 9"):
        advance(spec, np.array([0, 1]), np.array([0]), np.array([8]), gone)


def test_an_attribute_must_be_a_number() -> None:
    with pytest.raises(DisorderedAttribute, match="row 1 is null"):
        attribute(pa.chunked_array([[1, None]]), "x")
    nan = new_meta(Delta("d", 1), 1, floating=True)
    for values in ([0.0, math.nan], [math.nan, 0.0]):
        with pytest.raises(DisorderedAttribute, match=f"row {values.index(math.nan)} is NaN"):
            advance(Delta("d", 1), np.array([0, 2]), np.array([0]), np.array(values), nan)
    for column in (pa.chunked_array([["a"]]), pa.chunked_array([[True]]), pa.chunked_array([[1]], pa.uint64())):
        with pytest.raises(FlowError, match="must be an integer or floating column"):
            attribute(column, "x")


# Integers stay exact where floats would not, and at both ends of 64 bits.
@pytest.mark.parametrize(
    ("spec", "values", "fires"),
    [
        (Delta("x", 2, slide=1), [2**53, 2**53 + 1, 2**53 + 2], [1, 2]),
        (Delta("x", 0.5, slide=0.5), [0, 1, 1, 2], [1, 3]),
        (Delta("x", 3, slide=3), [2**63 - 3, 2**63 - 2, 2**63 - 1], []),
        (Delta("x", 2, slide=2), [2**63 - 3, 2**63 - 2, 2**63 - 1], [2]),
        (Delta("x", 2**61, slide=2**61), [-(2**63), -(2**63) + 5, 0], [2]),
    ],
)
def test_delta_over_integers(spec: Delta, values: list[int], fires: list[int]) -> None:
    step = advance(spec, np.array([0, len(values)]), np.array([0]), np.array(values), new_meta(spec, 1))
    assert step.fired.hi.tolist() == fires
    host, oracle = OrderedHost(spec), oracle_of(spec)
    rows = rows_of(values)
    assert seen(host.batch(rows) + host.flush()) == seen(oracle.batch(rows) + oracle.flush())


@given(st.lists(st.tuples(st.lists(st.integers(-5, 5), max_size=8), st.integers(-6, 6)), max_size=8))
def test_bisection(groups: list[tuple[list[int], int]]) -> None:
    lists = [sorted(group) for group, _ in groups]
    edges = np.array([0, *itertools.accumulate(map(len, lists))], dtype=np.int64)
    values = np.array([v for group in lists for v in group], dtype=np.int64)
    targets = np.array([target for _, target in groups], dtype=np.int64)
    found = first_at_least(values, edges[:-1], edges[1:], targets)
    expected = [
        next((i for i in range(a, b) if values[i] >= t), b)
        for a, b, t in zip(edges[:-1], edges[1:], targets, strict=True)
    ]
    assert found.tolist() == expected


def test_no_keys_and_no_rows() -> None:
    nothing, one = np.zeros(0, dtype=np.int64), np.array([0, 0])
    for spec in (Count(3), Time("1 s", every=2), Delta("x", 2), Delta("x", 2, slide=1)):
        for keys, edges in ((0, np.array([0])), (1, one)):
            step = advance(spec, edges, np.zeros(keys, dtype=np.int64), nothing, new_meta(spec, keys))
            assert (len(step.fired), len(step.keep)) == (0, 0)
            assert all(len(array) == keys for array in step.meta.values())
    with pytest.raises(ValueError, match="closes with the watermark"):
        advance(Time("1 s"), one, np.array([0]), nothing, {})
