"""The window benchmark's own arithmetic: events, truth, comparison, prefix, journal and targets; no engine is timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bench.windows import suite, truth, tuples
from penstock.bench.windows.data import START_MS, Events, sql_of
from penstock.bench.windows.engines import Files, Shape, duckdb_panes
from penstock.bench.windows.functions import POINTS, closed_windows
from penstock.bench.windows.journal import Journal, Row
from penstock.bench.windows.peers import sized
from penstock.errors import PenstockError

SHAPES = st.sampled_from([(1000, 1000), (1000, 500), (600, 100), (200, 10), (60, 60)])


def by_hand(events: Events, rows: int, size: int, slide: int, limit: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Every event put into every window that holds it."""
    content: dict[tuple[int, int], list[float]] = {}
    made = events.columns(0, rows)
    for t, k, v in zip(*(made[name].tolist() for name in ("t_ms", "k", "v")), strict=True):
        start = t // slide * slide
        while start > t - size:
            if start + size <= limit:
                content.setdefault((k, start), []).append(v)
            start -= slide
    return {which: (sum(values), max(values)) for which, values in content.items()}


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 30), st.sampled_from([1000, 3000, 20_000]), st.integers(1, 3000), SHAPES)
def test_the_truth_is_what_one_gets_by_hand(keys: int, per_second: int, rows: int, shape: tuple[int, int]) -> None:
    events, (size, slide) = Events(keys, per_second), shape
    limit = events.closed_by(rows)
    found = truth.expected(events, rows, size, slide, limit)
    given_rows = {(r["k"], r["start_ms"]): (r["total"], r["top"]) for r in found.to_pylist()}
    assert given_rows == by_hand(events, rows, size, slide, limit)
    assert found.num_rows == len(given_rows)


def test_the_comparison_sees_every_kind_of_difference() -> None:
    events, size = Events(3, 1000), 200
    limit = events.closed_by(2000)
    right = truth.expected(events, 2000, size, 100, limit)
    assert right.num_rows > 50
    assert truth.same_rows(
        right.take(pa.array(np.random.default_rng(0).permutation(right.num_rows))), right, size, limit
    )
    still_open = pa.table({"k": [0], "start_ms": [limit - size + 1], "total": [1.0], "top": [1.0]}, schema=right.schema)
    assert truth.same_rows(pa.concat_tables([right, still_open]), right, size, limit), "open windows do not count"
    wrong = {
        "one missing": right.slice(1),
        "one twice": pa.concat_tables([right, right.slice(0, 1)]),
        "another sum": right.set_column(2, "total", pc.add(right.column("total"), pa.scalar(1.0))),
        "another top": right.set_column(3, "top", pc.add(right.column("top"), pa.scalar(1.0))),
        "another start": right.set_column(1, "start_ms", pc.subtract(right.column("start_ms"), 1)),
    }
    assert not [name for name, table in wrong.items() if truth.same_rows(table, right, size, limit)]


def test_files_hold_the_events_and_a_tail(tmp_path: Path) -> None:
    events = Events(10, 1000)
    events.write(tmp_path / "in", 2500, 1000)
    sizes = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "in").iterdir())]
    assert sizes == [1000, 1000, 500, 1]
    table, made = pq.read_table(tmp_path / "in"), events.columns(0, 2501)
    assert table.column("k").to_pylist() == made["k"].tolist() and table.column("v").to_pylist() == made["v"].tolist()
    assert (table.column("ts").cast(pa.int64()).to_numpy() == made["t_ms"] * 1000).all()


def test_keys_are_spread_and_a_round_has_each_once() -> None:
    counts = np.bincount(Events(100, 1000).columns(0, 100_000)["k"], minlength=100)
    assert counts.min() > 800 and counts.max() < 1200
    assert set(Events(10_000, 1000, mixed=False).columns(777, 10_777)["k"].tolist()) == set(range(10_000))


@pytest.mark.parametrize("events", [Events(100, 1000), Events(1000, 100_000)])
def test_flink_is_told_the_same_events(events: Events) -> None:
    duckdb = pytest.importorskip("duckdb")
    made, texts = events.columns(3_999_000, 4_000_000), sql_of(events)
    select = ", ".join(f"{texts[name]} AS {name}" for name in ("t_ms", "k", "v"))
    found = duckdb.sql(f"SELECT {select} FROM range(3999000, 4000000) t(i) ORDER BY i").fetchall()
    assert found == list(zip(*(made[name].tolist() for name in ("t_ms", "k", "v")), strict=True))


@pytest.mark.parametrize(("size", "slide"), [(60_000, 600), (10_000, 100), (1000, 1000)])
def test_the_query_by_hand_is_right(tmp_path: Path, size: int, slide: int) -> None:
    pytest.importorskip("duckdb")
    events = Events(20, 1000)
    files = Files(events.write(tmp_path / "in", 80_000, 50_000), 80_000)
    duckdb_panes(Shape("batch", events, size, slide))(files, tmp_path / "none", tmp_path / "out")
    limit = events.closed_by(80_000)
    wanted = truth.expected(events, 80_000, size, slide, limit)
    assert wanted.num_rows > 100
    assert truth.same_rows(pq.read_table(tmp_path / "out"), wanted, size, limit)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 500), max_size=60), SHAPES, st.lists(st.integers(0, 900), min_size=1, max_size=5))
def test_the_processor_emits_each_window_once(times: list[int], shape: tuple[int, int], marks: list[int]) -> None:
    """Rows in batches cut by a rising watermark: together the windows of all the rows, each once."""
    (size, slide), marks = shape, sorted(marks)
    rows = sorted((START_MS + t, float(n % 7)) for n, t in enumerate(times))
    kept_t, kept_v, done, out = np.empty(0, np.int64), np.empty(0), -(2**62), list[tuple[int, float, float]]()
    before = 0
    for mark in [START_MS + m for m in marks]:
        kept_t = np.concatenate([kept_t, np.array([t for t, _ in rows if before <= t < mark], np.int64)])
        kept_v = np.concatenate([kept_v, [v for t, v in rows if before <= t < mark]])
        found, kept_t, kept_v = closed_windows(kept_t, kept_v, size, slide, done, mark)
        out, done, before = out + found, mark, mark
    content: dict[int, list[float]] = {}
    for t, v in rows:
        for start in range(t // slide * slide, t - size, -slide):
            if start + size <= done:
                content.setdefault(start, []).append(v)
    assert sorted(out) == sorted((start, sum(values), max(values)) for start, values in content.items())


def test_tuple_windows_are_compared_row_by_row(tmp_path: Path) -> None:
    events = Events(2, 1000)
    files = Files(events.write(tmp_path / "in", 500, 200), 500)
    made = events.columns(0, 501)
    content: dict[int, list[float]] = {0: [], 1: []}
    rows: list[dict[str, Any]] = []
    for k, v in zip(made["k"].tolist(), made["v"].tolist(), strict=True):
        content[k].append(v)
        if len(content[k]) >= 40:
            last = content[k][-40:]
            end = len(content[k])
            rows.append({"k": k, "start": end - 39, "end": end, "total": sum(last), "top": max(last)})
    right = pa.Table.from_pylist(rows)
    assert tuples.last_tuples_equal(right, files, 40)
    assert not tuples.last_tuples_equal(right.slice(1), files, 40)
    for name in right.column_names:
        changed = right.column(name).to_pylist()
        changed[17] += 1
        position = right.column_names.index(name)
        assert not tuples.last_tuples_equal(right.set_column(position, name, pa.array(changed)), files, 40), name


def test_the_reference_statistic_is_compared(tmp_path: Path) -> None:
    events = Events(2, 1000)
    files = Files(events.write(tmp_path / "in", 4000, 4000), 4000)
    made = events.columns(0, 4001)
    rows: list[dict[str, Any]] = []
    for k in (0, 1):
        values = made["v"][made["k"] == k]
        values = np.arctan(values[:, None] + np.arange(POINTS)).sum(axis=1)
        for end in range(1000, len(values) + 1, 200):
            rows.append({"k": k, "end": end, "statistic": float(values[end - 1000 : end].sum())})
    right = pa.Table.from_pylist(rows)
    assert right.num_rows > 8 and tuples.statistic_equal(right, files)
    assert not tuples.statistic_equal(right.slice(1), files)
    assert not tuples.statistic_equal(right.set_column(2, "statistic", pc.multiply(right.column(2), 1.000001)), files)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(10.0, 1e7), st.floats(0.0, 3.0), st.integers(100, 10_000))
def test_a_slow_peer_gets_a_prefix_that_is_long_enough(pace: float, fixed: float, least: int) -> None:
    def run(rows: int) -> float:
        return fixed + rows / pace

    rows = sized(run, least, 4_000_000, at_least_s=60.0)
    assert least <= rows <= 4_000_000
    assert run(rows) >= 50.0 or rows == 4_000_000
    assert run(rows) <= max(run(least), 200.0), "and not much longer"


def row(engine: str, case: str, seconds: list[float], **more: Any) -> Row:
    return Row.of(engine, case, seconds, rows=1000, results=more.pop("results", 0), equal=True, **more)


def test_the_journal_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "deep" / "windows.json"
    first = Journal(path, {"rows": 10}, said.append)
    first.add("a", [row("spark", "sweep", [2.0], size_s=60.0, slide_s=60.0, beside=[1500.0])])
    again = Journal(path, {"rows": 10}, said.append)
    assert again.has("a") and not again.has("b") and again.rows() == first.rows()
    again.add("b", [row("flink", "sweep", [4.0])])
    again.write(suite.figures(again.rows()))
    document = json.loads(path.read_text())
    assert [r["engine"] for r in document["rows"]] == ["spark", "flink"]
    needed = {"engine", "case", "size_s", "slide_s", "rows", "seconds", "rows_per_s", "results", "equal"}
    assert all(needed <= r.keys() for r in document["rows"])
    assert not Journal(path, {"rows": 20}, said.append).has("a"), "other settings: measured anew"
    assert not Journal(path, {"rows": 10}, said.append, fresh=True).has("a")
    assert "other settings" in said[-1]


def test_targets_are_formed_within_rounds() -> None:
    rows = [
        row("penstock", "sweep", [1.0, 2.0, 1.0], size_s=60.0, slide_s=60.0, results=100),
        row("penstock", "sweep", [1.25, 2.5, 1.25], size_s=60.0, slide_s=0.5, results=900),
        row("spark", "sweep", [2.0, 4.0, 2.0], size_s=60.0, slide_s=60.0, beside=[1000.0, 500.0, 1000.0]),
        row("spark", "sweep", [50.0], size_s=60.0, slide_s=0.5, beside=[800.0]),
        row("flink", "sweep", [10.0], size_s=60.0, slide_s=0.5, beside=[800.0]),
        row("duckdb", "batch", [1.0], beside=[250.0]),
        row("penstock", "count", [1.0], variant="1000 tuples"),
        row("penstock", "count", [1.4], variant="10000 tuples"),
        row("penstock", "reference", [10.0], variant="key partitioning", beside=[450.0]),
        row("spark", "python", [10.0], beside=[1100.0]),
    ]
    found = {(f.case, f.variant): f for f in suite.figures(rows) if f.target is not None}
    value = {which: pytest.approx(figure.value) for which, figure in found.items()}
    assert value["sweep", "(rows + results)/s, size/120 / tumbling"] == 1900 / 1.25 / 1100
    assert value["sweep", "rows/s, size/120 / tumbling"] == 0.8
    assert value["sweep", "rows/s, Penstock / spark, tumbling"] == 2.0
    assert value["sweep", "rows/s, Penstock / spark, size/120"] == 40.0
    assert value["sweep", "rows/s, Penstock / flink, size/120"] == 8.0
    assert value["batch, size/slide 100", "seconds, Penstock / DuckDB"] == 4.0
    assert value["tuple by tuple, 1 k to 1 M", "dearest / cheapest size, per tuple"] == 1.4
    assert value["reference <1000, 200>", "pane farming / key partitioning"] == 4.5
    assert value["a Python function per window, 10 000 keys", "Penstock / transformWithStateInPandas"] == 11.0
    missed = {which for which, figure in found.items() if not figure.target.holds(figure.value)}  # type: ignore[union-attr]
    assert ("sweep", "rows/s, Penstock / flink, size/120") in missed
    assert ("dense", "rows/s, Penstock / spark, size/1000") in missed, "what was not measured is missed"
    assert ("sweep", "rows/s, Penstock / spark, size/120") not in missed


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(PenstockError, match="sweeep: not known. Remedy: name some of sweep, dense"):
        suite.chosen("sweeep", suite.CASES)
