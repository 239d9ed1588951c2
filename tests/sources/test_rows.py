"""Rows, keys and times of a replay: the same however they are cut, and refused early when they cannot be."""

from __future__ import annotations

import itertools
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructType

from penstock.errors import FlowError
from penstock.sources import ReplaySpec, constant, due, hot, poisson, recorded, write_limits, zipf
from penstock.sources.api import build_spec
from penstock.sources.limits import Limits, LiveLimits
from penstock.sources.spec import ARROW_ROWS, decode

SCHEMA = StructType().add("id", LongType()).add("x", DoubleType()).add("name", StringType())
START = 1_700_000_000_000_000


def some_rows(index: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
    names = np.array(["ann", "bob", None], dtype=object)
    return {"x": random.standard_normal(len(index)), "id": index, "name": names[random.integers(0, 3, len(index))]}


def spec_of(rows: Any = some_rows, **given: Any) -> ReplaySpec:
    settings_ = {
        "schema": SCHEMA,
        "repeat": False,
        "schedule": poisson(1000, seed=2),
        "total": None,
        "keys": {"key": zipf(50), "spot": hot(10, 0.3, 1)},
        "seed": 5,
        "partitions": 4,
        "split_rows": 16384,
        "start": None,
        "limits": Limits(),
        "control": None,
        "scheduled": "scheduled",
    }
    return build_spec(rows, **{**settings_, **given})


def table(spec: ReplaySpec, first: int, last: int) -> pa.Table:
    return pa.Table.from_batches(spec.batches(first, last, START), schema=spec.schema)


SPEC = spec_of()
WHOLE = table(SPEC, 0, 200_000)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=5))
def test_rows_do_not_depend_on_the_cuts(cuts: list[int]) -> None:
    edges = sorted({0, 3000, *cuts})
    for first, last in itertools.pairwise(edges):
        assert table(SPEC, first, last).equals(WHOLE.slice(first, last - first))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 40_000))
def test_tasks_cover_the_batch_in_order(first: int, count: int, partitions: int, split_rows: int) -> None:
    ranges = spec_of(partitions=partitions, split_rows=split_rows).ranges(first, first + count) if count else []
    assert sum(high - low for low, high in ranges) == count
    assert all(low < high for low, high in ranges)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    assert len(ranges) <= (partitions if count >= split_rows else 1)
    if ranges:
        assert (ranges[0][0], ranges[-1][1]) == (first, first + count)


def test_batches_are_small_and_stamped_with_their_scheduled_time() -> None:
    batches = list(SPEC.batches(100_000, 300_000, START))
    assert max(batch.num_rows for batch in batches) <= ARROW_ROWS
    stamped = pa.Table.from_batches(batches)["scheduled"].cast(pa.int64()).to_numpy()
    assert (stamped == START + SPEC.schedule.time_us(np.arange(100_000, 300_000))).all()


def test_seeds_and_streams_are_independent() -> None:
    other = table(spec_of(seed=6), 0, 1000)
    assert not other["x"].equals(WHOLE["x"].slice(0, 1000))
    draws = table(spec_of(keys={"a": zipf(50), "b": zipf(50)}), 0, 1000)
    assert not draws["a"].equals(draws["b"])


def test_a_spec_survives_the_trip_as_text() -> None:
    again = decode(spec_of(total=10, control="limits.json").encoded())
    assert again.total == 10 and again.control and Path(again.control).is_absolute()
    assert table(again, 0, 10).equals(WHOLE.slice(0, 10))


def test_due_counts_from_the_start_to_the_end() -> None:
    spec = spec_of(schedule=constant(1000), total=500)
    assert due(spec, START, START - 1) == 0
    assert due(spec, START, START) == 1
    assert due(spec, START, START + 100_000) == 101
    assert due(spec, START, START + 10**9) == 500


def test_record_batches_and_binary_columns() -> None:
    def numbers(index: np.ndarray, random: np.random.Generator) -> pa.RecordBatch:
        raw = random.bytes(32 * len(index))
        return pa.record_batch(
            {"n": pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(index), [None, pa.py_buffer(raw)])}
        )

    made = table(spec_of(numbers, schema=StructType().add("n", BinaryType())), 1000, 5000)
    assert len(made["n"][0].as_py()) == 32 and len(set(made["n"].to_pylist())) == 4000


@pytest.fixture(params=["parquet", "csv", "folder"])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    full = pa.table({"id": np.arange(1000), "at": np.arange(1000) ** 2 / 1000.0, "x": np.sin(np.arange(1000))})
    if request.param == "csv":
        pyarrow.csv.write_csv(full, tmp_path / "trace.csv")
        return tmp_path / "trace.csv"
    pq.write_table(full.slice(0, 600), tmp_path / "a.parquet", row_group_size=100)
    pq.write_table(full.slice(600), tmp_path / "b.parquet", row_group_size=150)
    if request.param == "folder":
        return tmp_path
    pq.write_table(full, tmp_path / "c.parquet", row_group_size=70)
    return tmp_path / "c.parquet"


def test_a_trace_gives_its_rows_and_wraps_around(trace: Path) -> None:
    spec = spec_of(trace, schema=None, repeat=True, schedule=constant(10), keys=None)
    assert spec.schema.names == ["id", "at", "x", "scheduled"]
    for first, last in ((0, 1000), (95, 105), (599, 601), (990, 2010), (10**9 + 1, 10**9 + 3)):
        assert table(spec, first, last)["id"].to_pylist() == [row % 1000 for row in range(first, last)]
    once = spec_of(trace, schema=StructType().add("id", StringType()), schedule=constant(10), keys=None)
    assert once.row_count == 1000 and table(once, 3, 5)["id"].to_pylist() == ["3", "4"]


def test_a_recording_is_replayed_at_its_own_times(trace: Path) -> None:
    load = recorded(trace, "at", speed=200)
    assert load.rows == 1000 and load.duration == pytest.approx(998.001 / 200)
    assert load.time_of([0, 10, 999, 1000]).tolist() == [0.0, 0.0005, 4.990005, np.inf]
    times = load.time_us(np.arange(1000))
    for us in (-1, 0, *times[[5, 99, 100, 650]].tolist(), int(times[-1]), 2**62):
        assert load.count_us(us) == int((times <= us).sum())


def test_an_unsorted_recording_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": [1.0, 3.0, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(FlowError, match="decreases at row 2"):
        recorded(tmp_path / "t.parquet", "at")


def test_limits_come_from_the_file_while_it_can_be_read(tmp_path: Path) -> None:
    control = tmp_path / "limits.json"
    live = LiveLimits(Limits(7, 2.0), str(control))
    assert live.now() == Limits(7, 2.0)
    write_limits(control, max_rows=100)
    assert live.now() == Limits(100, None)
    control.write_text('{"max_rows": 5')
    assert live.now() == Limits(7, 2.0)
    for text, expected in (
        ('{"max_rows": 9}', Limits(9, 2.0)),
        ('{"max_rows": null, "max_seconds": 0.5}', Limits(None, 0.5)),
        ('{"max_rows": 0, "max_seconds": -1}', Limits(7, 2.0)),
        ('{"max_rows": true, "max_seconds": "1"}', Limits(7, 2.0)),
        ("[]", Limits(7, 2.0)),
    ):
        control.write_text(text)
        assert live.now() == expected, text
    control.unlink()
    assert live.now() == Limits(7, 2.0)


def test_reading_the_limits_is_cheap(tmp_path: Path) -> None:
    control = tmp_path / "limits.json"
    write_limits(control, max_rows=100)
    live = LiveLimits(Limits(), str(control))
    best = 1.0
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(100):
            live.now()
        best = min(best, (time.perf_counter() - begin) / 100)
    assert best < 0.0002


def impure(index: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
    return {"id": index, "x": np.random.default_rng().random(len(index)), "name": np.full(len(index), "a")}


@pytest.mark.parametrize(
    ("given_", "named"),
    [
        ({"rows": impure}, "different values"),
        ({"rows": lambda index, random: {"id": index}}, "its schema says"),
        ({"rows": lambda index, random: {"id": index[:5], "x": index[:5], "name": index[:5]}}, "5 values"),
        (
            {"rows": lambda index, random: {"id": index, "x": np.full(len(index), "a"), "name": index}},
            "'x' is not double",
        ),
        ({"rows": lambda index, random: None}, "dict of arrays"),
        ({"rows": 5}, "function or a path"),
        ({"rows": "/nowhere/trace.parquet"}, "no .parquet"),
        ({"schema": None}, "declared"),
        ({"repeat": True}, "traces"),
        ({"schedule": 1000}, "schedule"),
        ({"total": -1}, "total"),
        ({"partitions": 0}, "partitions"),
        ({"seed": 1.5}, "seed"),
        ({"limits": Limits(max_rows=0)}, "max_rows"),
        ({"limits": Limits(max_seconds=-1.0)}, "max_seconds"),
        ({"keys": {"id": zipf(5)}}, "twice"),
        ({"keys": {"k": 5}}, "mix of keys"),
        ({"scheduled": "_ps_time"}, "reserved"),
        ({"start": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the point
    ],
)
def test_wrong_arguments_are_refused_when_built(given_: dict[str, Any], named: str) -> None:
    with pytest.raises(FlowError, match=named):
        spec_of(**given_)
