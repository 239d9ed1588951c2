"""What a pane head does with the pane rows that Spark sends: which join, which are late, what is told of results."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.spark.pane_window import PaneHead
from penstock.engine.spark.program import Counters
from penstock.windows.aggregates import bind, count
from penstock.windows.panes import END, PANE
from penstock.windows.time import Time

OUTPUTS = bind({"n": count()}, {})
SPECS = st.builds(
    lambda size, slide: Time(f"{size} us", slide=f"{slide} us"), st.integers(1, 30), st.integers(1, 30)
)  # also gaps and pairs
TIMES = st.lists(st.one_of(st.none(), st.integers(-90, 90)), min_size=1, max_size=12)
FAST = settings(max_examples=200, deadline=None, derandomize=True)


def head(spec: Time) -> PaneHead:
    return PaneHead("w", ("k",), spec, OUTPUTS, pa.schema([]))


def pane_rows(spec: Time, times: list[int | None]) -> pa.Table:
    """One pane row per event time, each of a key of its own, with its number of rows."""
    panes = [None if time is None else spec.pane_of(time) for time in times]
    return pa.table({
        "_ps_hash": np.arange(len(times)),
        "k": np.arange(len(times)),
        PANE: pa.array(panes, pa.int64()),
        "_ps_max": pa.array(times, pa.int64()),
        "_ps_rows": np.arange(1, len(times) + 1),
    })  # fmt: skip


def fresh(spec: Time, table: pa.Table, closed: int | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    task = SimpleNamespace(folder=None, extra={})
    found = head(spec)._fresh(table, closed, task, Counters())  # type: ignore[arg-type]
    return [] if found is None else found.to_pylist(), task.extra["seen"]["w"]


@FAST
@given(SPECS, TIMES, st.one_of(st.none(), st.integers(-120, 120)))
def test_pane_rows_join_or_are_late_as_their_windows_say(
    spec: Time, times: list[int | None], closed: int | None
) -> None:
    joined, late = [], 0
    for key, time in enumerate(times):
        rows = key + 1
        if time is None:
            late += rows
            continue
        windows = [k for k in range(-200, 200) if spec.start_of(k) <= time < spec.end_of(k)]
        shut = [k for k in windows if closed is not None and spec.end_of(k) <= closed]
        late += rows if shut else 0
        if closed is None or len(shut) < len(windows):
            joined.append(key)
    found, seen = fresh(spec, pane_rows(spec, times), closed)
    in_gaps = {key for key, time in enumerate(times) if time is not None and _in_no_window(spec, time)}
    assert {row["k"] for row in found} - in_gaps == set(joined) - in_gaps
    assert seen["late"] == late
    assert seen["max_event"] == max((time for time in times if time is not None), default=None)


def _in_no_window(spec: Time, time: int) -> bool:
    return bool(spec.first_window(time) > spec.last_window(time))


@FAST
@given(SPECS, TIMES, st.one_of(st.none(), st.integers(-120, 120)))
def test_a_pane_need_not_be_sent(spec: Time, times: list[int | None], closed: int | None) -> None:
    """The greatest event time of a pane lies in it, so it says which pane it is."""
    table = pane_rows(spec, times)
    assert fresh(spec, table.drop_columns([PANE]), closed) == fresh(spec, table, closed)


@FAST
@given(SPECS, st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_results_are_counted_by_the_end_of_their_window(spec: Time, windows: list[int]) -> None:
    ends = [spec.end_of(window) for window in windows]
    there, rows = head(spec)._rows_by_end(pa.table({END: pa.array(ends, pa.int64())}))
    assert dict(zip(there, rows, strict=True)) == Counter(ends)
    assert there == sorted(there)
