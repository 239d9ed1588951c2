"""close_windows against the oracle: any cut into batches, any watermarks, any windows; then the corners by hand."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows import panes
from penstock.windows.aggregates import AggregateOverflow, bind, count
from penstock.windows.aggregates import sum as total
from penstock.windows.oracle import Oracle
from penstock.windows.panes import _order, close_windows, compact, live, needed_from, pane_bounds
from penstock.windows.scans import checked
from penstock.windows.time import END_OF_TIME, Time
from tests.windows.window_cases import (
    OUTPUTS,
    ROW,
    assert_same,
    batches,
    concat,
    lift,
    partial_columns,
    row,
    shuffled,
    specs,
    us,
)

FAST = settings(max_examples=300, deadline=None)


@FAST
@given(
    spec=specs(),
    feed=batches(),
    ticks=st.lists(st.one_of(st.none(), st.integers(-80, 200)), min_size=5, max_size=5),
    collide=st.booleans(),
    drop=st.booleans(),
    squeeze=st.lists(st.booleans(), min_size=5, max_size=5),
    seed=st.integers(0, 99),
)
def test_every_batch_closes_what_the_oracle_closes(
    *,
    spec: Time,
    feed: list[list[ROW]],
    ticks: list[int | None],
    collide: bool,
    drop: bool,
    squeeze: list[bool],
    seed: int,
) -> None:
    oracle = Oracle(spec, OUTPUTS)
    log, before = lift([], spec), None
    for number, rows in enumerate(feed):
        expected = oracle.batch(rows, ticks[number])
        watermark, kept = oracle.watermark, rows
        if drop and before is not None:  # what the caller does: dead rows do not enter the log
            kept = [r for r in rows if spec.pane_of(r["time"]) >= needed_from(spec, before)]
        log = shuffled(concat([log, lift(kept, spec, collide=collide)]), seed)
        if squeeze[number]:
            log = compact(log, ["key"], OUTPUTS)
        if watermark is not None:
            got = close_windows(log, ["key"], spec, OUTPUTS, before, watermark)
            assert_same(got, expected, [r for b in feed[: number + 1] for r in b], spec)
            if drop:  # and dead panes leave it
                log = live(log, spec, watermark)
        else:
            assert expected == []
        before = watermark
    got = close_windows(log, ["key"], spec, OUTPUTS, before, END_OF_TIME)
    assert_same(got, oracle.flush(), [r for b in feed for r in b], spec)


@FAST
@given(
    spec=specs(),
    rows=st.lists(row(st.integers(-100, 100)), max_size=40),
    cuts=st.lists(st.integers(-250, 250), max_size=5),
)
def test_any_sequence_of_watermarks_cuts_the_same_results(spec: Time, rows: list[ROW], cuts: list[int]) -> None:
    """One log, closed in steps: together the steps are what one step gives, in the same order per key."""
    log = lift(rows, spec)
    whole = close_windows(log, ["key"], spec, OUTPUTS, None, END_OF_TIME)
    marks: list[int | None] = [None, *sorted(cuts), END_OF_TIME]
    parts = [close_windows(log, ["key"], spec, OUTPUTS, a, b) for a, b in itertools.pairwise(marks) if b is not None]
    stepped = sorted(pa.concat_tables(parts).to_pylist(), key=lambda r: (str(r["key"]), r["_ps_start"]))
    once = sorted(whole.to_pylist(), key=lambda r: (str(r["key"]), r["_ps_start"]))
    assert repr(stepped) == repr(once)  # repr: NaN equals NaN, and doubles are the same to the last bit
    assert whole.num_rows == len({(r["key"], r["_ps_start"]) for r in once})


@FAST
@given(
    spec=specs(),
    rows=st.lists(row(st.integers(-100, 100)), max_size=40),
    seed=st.integers(0, 99),
    collide=st.booleans(),
)
def test_compact_is_idempotent_and_changes_no_result(spec: Time, rows: list[ROW], seed: int, collide: bool) -> None:
    log = shuffled(concat([lift(rows[::2], spec, collide=collide), lift(rows[1::2], spec, collide=collide)]), seed)
    small = compact(log, ["key"], OUTPUTS)
    again = compact(small, ["key"], OUTPUTS)
    assert repr(small.to_pylist()) == repr(again.to_pylist())
    assert small.num_rows == len({(r["key"], spec.pane_of(r["time"])) for r in rows})
    order = [(r["_ps_hash"] % 2**64, r["key"] is not None, r["key"] or "", r["_ps_pane"]) for r in small.to_pylist()]
    assert order == sorted(order)
    oracle = Oracle(spec, OUTPUTS)
    oracle.batch(rows)
    assert_same(close_windows(small, ["key"], spec, OUTPUTS, None, END_OF_TIME), oracle.flush(), rows, spec)


def _close(rows: list[ROW], spec: Time, upto: int | None = None, watermark: int = END_OF_TIME) -> list[tuple[Any, ...]]:
    full = [{"x": 1, "d": 1.0} | r for r in rows]
    got = close_windows(lift(full, spec), ["key"], spec, OUTPUTS, upto, watermark).to_pylist()
    return [(r["key"], r["_ps_start"], r["_ps_end"], r["_ps_rows"]) for r in got]


def test_sliding() -> None:
    # time   0    5    10   15   20
    # rows     a        a            (2 and 11)
    # -1  [----)                      [-5, 5): 2
    #  0     [---------)              [0, 10): 2
    #  1          [---------)         [5, 15): 11
    #  2               [---------)    [10, 20): 11
    spec = Time(us(10), us(5))
    assert _close([{"key": "a", "time": 2}, {"key": "a", "time": 11}], spec) == [
        ("a", -5, 5, 1), ("a", 0, 10, 1), ("a", 5, 15, 1), ("a", 10, 20, 1),
    ]  # fmt: skip


def test_tumbling_end_is_exclusive() -> None:
    # time   0         10        20
    # rows           a b            (9 and 10)
    #  0     [---------)             9
    #  1               [---------)   10
    spec = Time(us(10))
    assert _close([{"key": "a", "time": 9}, {"key": "a", "time": 10}], spec) == [("a", 0, 10, 1), ("a", 10, 20, 1)]


def test_gap_rows_belong_to_no_window() -> None:
    # time   0    5    10   15   20
    # rows     a    b       a          2 in, 7 in the gap, 16 in
    #  0     [----)
    #               (gap)
    #  1                    [----)     [15, 20)
    spec = Time(us(5), us(15))
    rows = [{"key": "a", "time": 2}, {"key": "b", "time": 7}, {"key": "a", "time": 16}]
    assert _close(rows, spec) == [("a", 0, 5, 1), ("a", 15, 20, 1)]


def test_the_watermark_bounds_are_exclusive_below_and_inclusive_above() -> None:
    # closed_upto = 10: [0, 10) is out already;  watermark = 20: [10, 20) closes, [20, 30) does not
    spec = Time(us(10))
    rows = [{"key": "a", "time": t} for t in (5, 15, 25)]
    assert _close(rows, spec, upto=10, watermark=20) == [("a", 10, 20, 1)]
    assert _close(rows, spec, upto=10, watermark=19) == []
    assert _close(rows, spec, upto=20, watermark=20) == []


def test_a_late_row_still_counts_in_open_windows() -> None:
    # time   0    5    10   15
    # batch 0:           a        11, so W_1 = 11
    # batch 1:      a             5: just in time, [0, 10) closes at the end of this batch
    # batch 2:       a            6: misses [0, 10), counts in [5, 15)
    spec = Time(us(10), us(5))
    oracle = Oracle(spec, OUTPUTS)
    rows = [{"key": "a", "time": t, "x": 1, "d": 1.0} for t in (11, 5, 6)]
    fired = [[(r["start"], r["rows"]) for r in oracle.batch([row])] for row in rows]
    assert fired == [[], [(0, 1)], []]
    log = lift(rows[:2], spec)
    got = close_windows(log, ["key"], spec, OUTPUTS, None, 11).to_pylist()
    assert [(r["_ps_start"], r["_ps_rows"]) for r in got] == [(0, 1)]
    log = concat([log, lift(rows[2:], spec)])
    got = close_windows(log, ["key"], spec, OUTPUTS, 11, END_OF_TIME).to_pylist()
    assert [(r["_ps_start"], r["_ps_rows"]) for r in got] == [(5, 3), (10, 1)]
    assert {(r["start"], r["rows"]) for r in oracle.flush()} == {(5, 3), (10, 1)}
    assert oracle.late == rows[2:]


def test_nan_and_infinity_touch_only_their_windows() -> None:
    # 1e300 at 0, NaN at 1, inf at 2, then a thousand times 0.1: every window without them is exact to 1e-9
    spec = Time(us(7), us(1))
    rows = [{"key": "a", "time": t, "x": 1, "d": v} for t, v in enumerate([1e300, math.nan, math.inf] + [0.1] * 50)]
    got = {
        r["_ps_start"]: r["sd"]
        for r in close_windows(lift(rows, spec), ["key"], spec, OUTPUTS, None, END_OF_TIME).to_pylist()
    }
    assert math.isnan(got[0])
    assert math.isnan(got[1])
    assert got[2] == math.inf
    assert all(abs(got[start] - 0.7) < 1e-9 for start in range(3, 47))


def test_sums_beyond_64_bits_fail_and_prefixes_that_wrap_do_not() -> None:
    spec, outputs = Time(us(2), us(1)), bind({"s": total("x")}, {"x": "long"})
    big = 2**62
    rows = [{"key": "a", "time": t, "x": v} for t, v in enumerate([big, -big, big, big - 1, -big, 5, big])]
    got = close_windows(lift(rows, spec, outputs), ["key"], spec, outputs, None, END_OF_TIME).to_pylist()
    assert [r["s"] for r in got] == [big, 0, 0, 2**63 - 1, -1, 5 - big, 5 + big, big]
    for times, values in [((0, 1), (big, big)), ((0, 0, 0), (-big, -big, -1))]:  # over panes; over batches of one pane
        bad = concat(
            [lift([{"key": "a", "time": t, "x": v}], spec, outputs) for t, v in zip(times, values, strict=True)]
        )
        with pytest.raises(AggregateOverflow, match="sum\\('x'\\)"):
            close_windows(bad, ["key"], spec, outputs, None, END_OF_TIME)


@given(values=st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5)), min_size=1, max_size=6))
def test_checked_sums_are_exact_or_refused(values: list[int]) -> None:
    def add() -> int:
        return int(checked(np.array(values), len(values), lambda x: np.add.reduceat(x, [0]), "sum('x')")[0])

    if -(2**63) <= sum(values) < 2**63:
        assert add() == sum(values)
    else:
        with pytest.raises(AggregateOverflow):
            add()


def test_sparse_panes_of_a_long_window_cost_what_is_there() -> None:
    # 10 s windows of 10 us panes: a million panes per window, three of them present, tumbling so three results
    spec = Time("10 s")
    assert _close([{"key": "a", "time": t} for t in (0, 11_000_000, 10**15)], spec) == [
        ("a", 0, 10**7, 1), ("a", 10**7, 2 * 10**7, 1), ("a", 10**15, 10**15 + 10**7, 1),
    ]  # fmt: skip
    wide = Time("1 day", slide="1 day")
    assert len(_close([{"key": str(k), "time": 86_400_000_000 * k} for k in range(-500, 500)], wide)) == 1000


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, None, False]), pa.array([1.5, math.nan, None]), pa.array([b"x", None, b""]),
        pa.array([1, None, 3], pa.timestamp("us", "UTC")), pa.array([None, None, None], pa.null()),
        pa.array(["1.10", None, "2"]).cast(pa.decimal128(10, 2)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("collide", [False, True])
def test_any_atomic_key_type(values: pa.Array, collide: bool) -> None:
    """Each distinct key keeps its own windows, hash collisions or not; the column comes back in its type."""
    spec, outputs = Time(us(10)), bind({"n": count()}, {})
    distinct = len(values.unique())
    twice = pa.concat_arrays([values, values])
    hashes = [7] * 6 if collide else [hash(str(v)) for v in twice]
    log = pa.table(
        {"_ps_hash": pa.array(hashes, pa.int64()), "k": twice, "_ps_pane": [0, 1, 2] * 2, "_ps_rows": [1] * 6}
    )
    got = close_windows(log, ["k"], spec, outputs, None, END_OF_TIME)
    assert got.schema.field("k").type == values.type
    assert got.column("n").to_pylist() == [2, 2, 2]
    assert got.num_rows == 3
    assert len(got.column("k").combine_chunks().unique()) == distinct


def test_minus_zero_is_zero_as_a_key() -> None:
    log = pa.table({"_ps_hash": [1, 1], "k": [0.0, -0.0], "_ps_pane": [0, 0], "_ps_rows": [1, 1]})
    assert compact(log, ["k"], []).column("_ps_rows").to_pylist() == [2]


def test_two_key_columns_and_none() -> None:
    spec, outputs = Time(us(10)), bind({"n": count()}, {})
    columns: dict[str, Any] = {"_ps_hash": [1, 1, 1, 1], "a": ["x", "x", None, None], "b": [1, None, 1, 1]}
    log = pa.table(columns | {"_ps_pane": [0, 0, 0, 0], "_ps_rows": [1, 2, 3, 4]})
    got = close_windows(log, ["a", "b"], spec, outputs, None, END_OF_TIME).to_pylist()
    assert [(r["a"], r["b"], r["n"]) for r in got] == [(None, 1, 7), ("x", None, 2), ("x", 1, 1)]
    everything = close_windows(log, [], spec, outputs, None, END_OF_TIME).to_pylist()
    assert everything == [{"_ps_start": 0, "_ps_end": 10, "_ps_rows": 10, "n": 10}]


def test_an_empty_log_has_no_windows_but_a_schema() -> None:
    spec = Time(us(10), us(3))
    empty = lift([], spec)
    assert pane_bounds(empty) is None
    assert live(empty, spec, 5).num_rows == 0
    got = close_windows(empty, ["key"], spec, OUTPUTS, None, END_OF_TIME)
    assert got.num_rows == 0
    assert got.column_names == ["key", "_ps_start", "_ps_end", "_ps_rows", *(o.name for o in OUTPUTS)]
    full = close_windows(
        lift([{"key": "a", "time": 1, "x": 1, "d": 1.0}], spec), ["key"], spec, OUTPUTS, None, END_OF_TIME
    )
    assert got.schema.equals(full.schema)
    assert compact(empty, ["key"], OUTPUTS).column_names == empty.column_names


def test_pane_rows_with_no_rows_make_no_window() -> None:
    spec = Time(us(10))
    log = lift([{"key": "a", "time": 1, "x": 1, "d": 1.0}], spec)
    zero = log.set_column(log.column_names.index("_ps_rows"), "_ps_rows", pa.array([0]))
    assert partial_columns(zero)["_ps_rows"] == [0]
    assert close_windows(zero, ["key"], spec, OUTPUTS, None, END_OF_TIME).num_rows == 0


def test_panes_far_apart_do_not_overflow_the_sort() -> None:
    # 3 keys x 2**62 panes do not fit one 64-bit integer
    far, outputs = 2**61, bind({"n": count()}, {})
    log = pa.table({
        "_ps_hash": [3, 2, 1] * 3, "key": ["c", "b", "a"] * 3, "_ps_rows": range(1, 10),
        "_ps_pane": [far, far, -far, -far, 0, 0, far, -far, far],
    })  # fmt: skip
    got = close_windows(log, ["key"], Time("1 us"), outputs, None, END_OF_TIME).to_pylist()
    assert [(r["key"], r["_ps_start"], r["n"]) for r in got] == [
        ("a", -far, 3), ("a", 0, 6), ("a", far, 9), ("b", -far, 8), ("b", 0, 5), ("b", far, 2),
        ("c", -far, 4), ("c", far, 8),
    ]  # fmt: skip
    huge = np.array([2**61, 5, 2**61, 0])
    assert _order(huge).tolist() == [3, 1, 0, 2]


@pytest.mark.parametrize("most", [2, 2**16, 2**32, 2**40, 2**62])
def test_rows_are_sorted_stably_however_large_their_places_are(most: int) -> None:
    """By radix below 2^32, with the row number in the low bits above it, by argsort where there is no room for that."""
    places = np.random.default_rng(7).integers(0, most, 1000, dtype=np.int64)
    places[:500] = places[500:]  # ties
    assert (_order(places) == np.argsort(places, kind="stable")).all()
    assert _order(np.sort(places)) is None


def test_specs_and_outputs_travel() -> None:
    spec = Time("10 s", slide="1 s", lateness="2 s")
    assert pickle.loads(pickle.dumps((spec, OUTPUTS))) == (spec, OUTPUTS)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(spec=specs(), feed=batches(), watermark=st.integers(-80, 200), piece=st.sampled_from([0, 10**9]))
def test_a_log_in_pieces_closes_as_one(spec: Time, feed: list[list[ROW]], watermark: int, piece: int) -> None:
    """Pieces are looked at one by one where they are long, and all together where they are short."""
    log = concat([lift(rows, spec) for rows in feed])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "_WORTH_A_PIECE", piece)
        found = close_windows(log, ["key"], spec, OUTPUTS, watermark - 40, watermark)
    whole = close_windows(log.combine_chunks(), ["key"], spec, OUTPUTS, watermark - 40, watermark)
    assert repr(found.to_pylist()) == repr(whole.to_pylist())  # NaN as well
