"""What a job measures of itself, against what is known of the flow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock import sources
from penstock.engine.spark.crash import CrashPlan
from penstock.engine.spark.measure import concurrency
from penstock.engine.spark.watermarks import RealTime, after, completed_at, in_force
from penstock.flow.operators import Window
from penstock.observe.telemetry import read, telemetry_dir
from tests.engine.tools import rows, stream


def test_counts_latency_and_parts(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows due one second ago at a constant rate: latency is from the scheduled time to the sink."""

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.01)
        return batch.slice(0, batch.num_rows // 2)

    start_us = int(time.time() * 1e6) - 10_000_000
    frame = sources.replay(
        spark,
        rows,
        schema="i bigint, v double",
        schedule=sources.constant(100),
        total=600,
        start=start_us,
        max_rows=200,
    )
    flow = ps.Flow("measured")
    flow.read(frame).map(slow, replicas=2, chunk=50, name="slow").write("console", name="out", rows=3)
    job = flow.start(spark, str(tmp_path), available_now=True)
    assert job.await_end(60)
    job.stop()
    ended = time.time()
    assert "--- out, batch 0: 100 rows" in capsys.readouterr().out
    records = list(read(telemetry_dir(tmp_path)))
    assert [record.rows_in for record in records] == [200, 200, 200]
    assert [record.rows_out for record in records] == [100, 100, 100]
    assert {record.latency_from for record in records} == {"arrival"}
    first = records[0].latency["out"]
    assert first.count == 200
    # Row 0 was due at start, row 199 two seconds later: the spread of latencies is the spread of due times.
    assert first.max is not None and first.quantile(0.0) is not None
    # A quantile is within 1 % of the latency, which is that of a slow first batch, too.
    assert first.max - first.quantile(0.0) == pytest.approx(1.99, abs=0.02 * first.max)
    assert first.max < ended - start_us / 1e6
    for record in records:
        farm = next(stats for stats in record.operators if stats.name == "slow")
        assert (farm.rows_in, farm.rows_out, farm.calls, farm.width) == (200, 100, 4, 2)
        assert farm.service.n == 4
        assert farm.service.mean >= 0.01
        assert farm.busy_s == pytest.approx(4 * farm.service.mean)
        assert set(record.parts) >= {"spark", "log", "plan", "run", "manifest", "sink", "control", "wait"}
        assert record.parts["run"] >= 0.02


def test_what_a_replay_only_publishes_has_waited_since_its_cut(spark: SparkSession, tmp_path: Path) -> None:
    """The fault comes after batch 1 was computed; its rows are counted, and the time until they are visible."""
    flow = ps.Flow("published")
    flow.read(stream(spark, 1500)).write("memory", name="out")
    job = flow.start(spark, str(tmp_path), available_now=True, crash=CrashPlan({1: "manifest"}))
    assert job.await_end(120)
    job.stop()
    records = list(read(telemetry_dir(tmp_path)))
    assert [(record.batch, record.replayed, record.rows_in) for record in records] == [
        (0, False, 500),
        (1, True, 500),
        (2, False, 500),
    ]
    again = records[1]
    assert again.latency["out"].count == 500
    waited = again.latency["out"].mean
    assert waited is not None and waited > again.visible - again.started, "from the first cut, not from the second"


def test_telemetry_can_be_off_and_latency_counts_from_the_cut_without_arrival(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = ps.Flow("quiet")
    flow.read(stream(spark, 400, per_batch=200).drop("scheduled")).write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "on"), available_now=True)
    assert job.await_end(60)
    job.stop()
    records = list(read(telemetry_dir(tmp_path / "on")))
    assert {record.latency_from for record in records} == {"cut"}
    assert sum(record.latency["out"].count for record in records) == 400
    off = flow.start(spark, str(tmp_path / "off"), available_now=True, telemetry=False)
    assert off.await_end(60)
    off.stop()
    assert list(read(telemetry_dir(tmp_path / "off"))) == []


def test_the_batch_lifetime_spaces_the_cuts(spark: SparkSession, tmp_path: Path) -> None:
    starts: list[Any] = []
    flow = ps.Flow("spaced")
    flow.read(stream(spark, 4000, per_batch=10)).write("memory", name="out")
    job = flow.start(spark, str(tmp_path), lifetime=0.4)
    gaps: list[float] = []
    job.on_batch(lambda record: (starts.append(record.started), gaps.append(record.parts["spark"])))
    while len(starts) < 4:
        assert not job.await_end(0.05)
    before = time.monotonic()
    job.host.decision = ps.Decision({}, lifetime_s=60.0)
    time.sleep(0.6)  # now it waits a minute, unless stop() ends the wait
    job.stop()
    assert time.monotonic() - before < 30
    assert np.diff(starts).min() >= 0.4 - max(gaps), "what Spark takes is part of it, as far as it is known before"


def test_the_time_of_an_idle_stream_follows_no_clock_that_is_set() -> None:
    """
    rows, cut at 100 s   3 s later, the clock is an hour ahead   10 s later, it is right again
    --------|-------------------------|----------------------------------|------------------>
    latest event 30 s        idle: 30 + 3 (+ 1)                    idle: 30 + 10
    """
    windows = {
        "w": Window("w", (), {}, spec=ps.Time("10 s"), time="ts"),
        "counted": Window("c", (), {}, spec=ps.Count(3)),
    }
    real, second = RealTime(), 1_000_000
    before = {"w": {"max_event": 30 * second, "watermark": None, "anchor": 100 * second}}
    real.watermarks(windows, {}, 100 * second, False, 7.0)
    found = [
        real.watermarks(windows, before, cut * second, True, 7.0 + now_s) for cut, now_s in ((3703, 3.0), (110, 10.0))
    ]
    assert found == [{"w": 34 * second, "counted": None}, {"w": 40 * second, "counted": None}]


def test_window_clock() -> None:
    spec = ps.Time("10 s", lateness="1 s")
    first = after({}, None, [{"max_event": 5_000_000, "first": [[0], [70]]}], spec, cut_us=100)
    assert (first["max_event"], first["watermark"], first["anchor"]) == (5_000_000, None, 100)
    assert in_force(first, spec, 200, idle=False) == 4_000_000
    assert in_force(first, spec, 100 + 8_000_000, idle=True) == 12_000_000
    later = after(
        first,
        4_000_000,
        [{"max_event": None}, {"max_event": 31_000_000, "first": [[3, 2], [90, 80]]}],
        spec,
        cut_us=300,
    )
    assert (later["max_event"], later["anchor"]) == (31_000_000, 300)
    assert later["firsts"] == [(0, 70), (2, 80), (3, 90)]
    # A window that ends at 10 s is complete at 11 s, inside pane 1: the first row surely past it is in pane 2.
    assert completed_at(later, spec, np.array([10_000_000, 40_000_000]), otherwise=1).tolist() == [80, 1]
    assert completed_at({}, spec, np.array([10_000_000]), otherwise=7).tolist() == [7]
    assert after(later, 30_000_000, [], spec, cut_us=400)["firsts"] == [(3, 90)]
    assert in_force({"max_event": 5, "watermark": 50}, ps.Time("10 us"), 0, idle=False) == 50, "never back"


def test_concurrency_counts_tasks_at_work() -> None:
    waiting = [{"started": 0, "ended": 9, "slot_from": a, "slot_to": a + 1} for a in (1, 2, 2.5, 6)]
    assert concurrency(waiting) == 2
