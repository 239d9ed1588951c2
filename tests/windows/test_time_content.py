"""Time windows over content, origin="first" and empty=True against the oracle: any batches, any watermarks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows import time_content
from penstock.windows.oracle_kinds import Row
from penstock.windows.oracle_time import TimeOracle
from penstock.windows.time import END_OF_TIME, Time
from tests.windows.ordered_cases import Batch, TimeHost, cut, feeds, rows_in_order, seen, us

FAST = settings(max_examples=100, deadline=None, derandomize=True)

sizes = st.one_of(st.integers(1, 6), st.integers(1, 50))


@st.composite
def specs(draw: st.DrawFn, late: bool = True) -> Time:
    origin = draw(st.sampled_from([None, "first", "first", -7, 13]))
    lateness = us(draw(st.integers(0, 60))) if late else "0 s"
    slide = draw(st.one_of(st.none(), sizes))
    return Time(
        us(draw(sizes)), None if slide is None else us(slide), lateness, origin=origin, empty=draw(st.booleans())
    )


# batch        b1        b2           b3
# watermark    none      W1           W2        from the batches before
# log          b1        + b2         + b3      the batch joins, late rows by the W before; then windows up to W close
@FAST
@given(spec=specs(), feed=feeds())
def test_every_batch_closes_what_the_oracle_closes(spec: Time, feed: list[Batch]) -> None:
    host, oracle = TimeHost(spec), TimeOracle(spec)
    for rows, tick in feed:
        assert seen(host.batch(rows, tick)) == seen(oracle.batch(rows, tick))
        assert sorted(map(repr, host.late)) == sorted(map(repr, oracle.late))
    assert seen(host.flush()) == seen(oracle.flush())


@FAST
@given(spec=specs(), rows=rows_in_order(most=100), data=st.data())
def test_many_keys(spec: Time, rows: list[Row], data: st.DataObject) -> None:
    host, oracle = TimeHost(spec), TimeOracle(spec)
    for batch in data.draw(cut(rows)):
        assert seen(host.batch(batch)) == seen(oracle.batch(batch))
    assert seen(host.flush()) == seen(oracle.flush())
    assert host.late == oracle.late == []


# cut once    |1 2 3 4 5 6|        rows in order of time are never late,
# cut anyhow  |1|2 3||4 5|6|       so all the windows are the same ones
@FAST
@given(spec=specs(late=False), rows=rows_in_order(most=100), data=st.data())
def test_cuts_leave_no_trace(spec: Time, rows: list[Row], data: st.DataObject) -> None:
    found = []
    for batches in ([rows], data.draw(cut(rows))):
        host = TimeHost(spec)
        found.append(seen([w for batch in batches for w in host.batch(batch)] + host.flush()))
    assert found[0] == found[1]


# time      3     7         15  16                25
# first    [3 .. 7)[7 .. 11)[11 .. 15)[15 .. 19)[19 .. 23)[23 .. 27)
# empty                      empty               empty
def test_first_and_empty_by_hand() -> None:
    rows = [{"key": "a", "time": t, "x": t, "d": None} for t in (3, 7, 15, 16, 25)]
    host = TimeHost(Time(us(4), origin="first", empty=True))
    assert host.batch(rows) == []
    assert [(w.number, w.start, w.end, len(w.rows)) for w in host.flush()] == [
        (0, 3, 7, 1), (1, 7, 11, 1), (2, 11, 15, 0), (3, 15, 19, 2), (4, 19, 23, 0), (5, 23, 27, 1),
    ]  # fmt: skip


# batch         b1: 10      b2: 7          b3: 30       b4: 5
# watermark     none        10             10           30
# origin        10          7 = 10 - 3     stands       stands: 5 is late
def test_an_origin_stands_once_the_watermark_has_passed_it() -> None:
    host = TimeHost(Time(us(8), origin="first"))
    batches = [[row("a", 10)], [row("a", 7)], [row("a", 30)], [row("a", 5)]]
    fired = [w for batch in batches for w in host.batch(batch)]
    assert [(w.start, [r["time"] for r in w.rows]) for w in fired] == [(7, [7, 10])]
    assert [r["time"] for r in host.late] == [5]


# watermark 30, size 8: a key that begins at 22 would have had its window [22, 30) closed; one that begins at 23 has not
def test_a_key_may_begin_behind_the_watermark_while_its_window_is_open() -> None:
    host = TimeHost(Time(us(8), origin="first"))
    host.batch([row("a", 30)])
    host.batch([])
    host.batch([row("b", 22), row("c", 23)])
    assert [(r["key"], r["time"]) for r in host.late] == [("b", 22)]
    assert [(w.key, w.start) for w in host.flush()] == [("a", 30), ("c", 23)]


# the same without a batch between: no window was closed by 30 before b came, so its window closes with it
def test_a_key_may_begin_in_the_batch_that_closes_its_window() -> None:
    host = TimeHost(Time(us(8), origin="first"))
    host.batch([row("a", 30)])
    fired = host.batch([row("b", 22), row("c", 23)])
    assert [(w.key, w.start) for w in fired] == [("b", 22)]
    assert host.late == []


# time            10        19                  b1; then W = 10: the origin 10 may still go down
# origin 10      [10, 12)       [20, 22)        19 is in a gap
# origin 9     [9, 11)      [19, 21)            after b2 it is not
def test_a_row_in_a_gap_waits_for_its_origin_to_stand() -> None:
    host = TimeHost(Time(us(2), us(10), us(9), origin="first"))
    fired = host.batch([row("a", 10), row("a", 19)]) + host.batch([row("a", 9)])
    assert (host.closed, fired, host.late) == (10, [], [])
    assert [(w.start, [r["time"] for r in w.rows]) for w in host.flush()] == [(9, [9, 10]), (19, [19])]


def row(key: str, time: int) -> Row:
    return {"key": key, "time": time, "x": 0, "d": None}


# window     0   1   2   3   4   5
# rows       x               x           the watermark passes 2: windows 1 and 2 leave only once 4 has a row
def test_an_empty_window_waits_for_a_later_row() -> None:
    host = TimeHost(Time(us(10), empty=True))
    starts = [
        [w.start for w in host.batch(batch, tick)]
        for batch, tick in [([row("a", 5)], None), ([], 35), ([row("a", 45)], 36), ([], 40), ([], 60)]
    ]
    assert starts == [[], [0], [10, 20], [30], [40]]


def test_a_gap_of_millions_of_empty_windows_is_an_error() -> None:
    spec = Time("1 ms", empty=True)
    new = {"next": np.array([0]), "has_next": np.array([0])}
    times = np.array([0, 86_400_000_000 * 365])
    with pytest.raises(time_content.TooManyEmptyWindows, match="holds 31535999999 empty windows"):
        time_content.advance(spec, np.array([0, 2]), times, None, END_OF_TIME, new)


def test_far_times_and_the_end_of_time() -> None:
    far = 253_402_300_799_999_999  # the last microsecond of the year 9999, and as far back
    for spec in (Time("36500 days", slide="365 days"), Time("1 s", origin="first")):
        host, oracle = TimeHost(spec), TimeOracle(spec)
        for t in (-far, 0, far):
            assert seen(host.batch([row("a", t)])) == seen(oracle.batch([row("a", t)]))
        assert seen(host.flush()) == seen(oracle.flush())


@given(data=st.data(), spec=specs(), watermark=st.integers(-60, 120))
def test_plain_arithmetic_agrees(data: st.DataObject, spec: Time, watermark: int) -> None:
    """What `Time` says of times, `admit` says of rows."""
    times = np.array(data.draw(st.lists(st.integers(-100, 100), min_size=1, max_size=20)))
    plain = Time(us(spec.size_us), us(spec.slide_us), origin=spec.origin_us)
    admitted = time_content.admit(plain, np.zeros(len(times), dtype=np.int64), times, watermark, {})
    assert admitted.accept.tolist() == plain.has_open(times, watermark).tolist()
    assert admitted.late.tolist() == plain.has_missed(times, watermark).tolist()
    fired = time_content.fire_time(plain, np.array([0, len(times)]), np.sort(times), None, watermark)
    expected = sorted(
        {k for t in times for k in range(plain.first_window(int(t)), plain.last_window(int(t)) + 1)}
        & set(itertools.takewhile(lambda k: plain.end_of(k) <= watermark, range(-300, 300)))
    )
    assert fired.number.tolist() == expected
