"""Options of reads, steps, sinks and jobs that no other test needs, each on a running job."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.observation import Observation
from penstock.engine.spark.state import GROUPS
from penstock.observe.record import BatchRecord
from penstock.sources.limits import write_limits
from tests.engine.test_requirements import Watching, live, until
from tests.engine.tools import RATE, RUNNING, START_US, Changing, running_sum, static, stream
from tests.observe.tools import run


def to_the_end(flow: ps.Flow, spark: SparkSession, folder: Path, **options: Any) -> list[BatchRecord]:
    records: list[BatchRecord] = []
    job = flow.start(spark, str(folder), available_now=True, **options)
    job.on_batch(records.append)
    assert job.await_end(120)
    job.stop()
    return records


# --- the job ----------------------------------------------------------------------------------------------------------


def test_an_interval_is_the_least_time_between_two_decisions(spark: SparkSession, tmp_path: Path) -> None:
    flow, *_ = live(spark, 200)
    policy, records = Watching(), list[BatchRecord]()
    job = flow.start(spark, str(tmp_path / "ckpt"), policy, lifetime=0.05, interval="700 ms")
    try:
        job.on_batch(records.append)
        until(job, records, 12)
    finally:
        job.stop()
    asked = [observed.now_s for observed in policy.seen]
    assert len(asked) >= 2
    assert len(asked) < len(records)
    assert np.diff(asked).min() >= 0.7


def test_max_seconds_caps_a_batch_by_the_schedule(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("capped")
    flow.read(stream(spark, 3000, per_batch=10**6)).write("memory", name="out")
    records = to_the_end(flow, spark, tmp_path / "ckpt", max_seconds=0.5)
    assert max(record.rows_in for record in records) == 0.5 * RATE
    assert sum(record.rows_in for record in records) == 3000


class Capping:
    """Decides one row cap after the other, and then none."""

    def __init__(self, *caps: int | None) -> None:
        self.caps = list(caps)

    def decide(self, observed: Observation | None, current: ps.Decision) -> ps.Decision:
        return ps.Decision(current.widths, row_cap=self.caps.pop(0) if self.caps else None)


def test_a_policy_may_cap_a_batch_but_never_above_what_the_user_said(spark: SparkSession, tmp_path: Path) -> None:
    """The caps that an earlier job left behind are not this job's."""
    left = tmp_path / "ckpt" / "penstock" / "control-rows.json"
    write_limits(left, max_rows=7)
    flow = ps.Flow("capped")
    flow.read(stream(spark, 3000, per_batch=10**6), name="rows").write("memory", name="out")
    records = to_the_end(flow, spark, tmp_path / "ckpt", policy=Capping(200, None, 900), max_rows=500)
    assert [record.rows_in for record in records] == [500, 200, 500, 500, 500, 500, 300]
    assert json.loads(left.read_bytes())["max_rows"] == 500


def test_a_job_says_whether_it_runs_and_shows_memory_sinks_and_its_last_seconds(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, *_ = live(spark, 300)
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), lifetime=0.2)
    try:
        job.on_batch(records.append)
        until(job, records, 6)
        assert job.is_active
    finally:
        job.stop()
    assert not job.is_active
    assert job.table("out").count() == job.memory("out").num_rows > 0
    assert 1 <= job.report(last=0.5).batches < job.report().batches


def test_the_first_requirement_of_a_running_job_brings_adaptive(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is required at first, so batches follow one another at once; a generous bound lets them live longer."""
    flow, read, farm = live(spark, 300)
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"))
    try:
        job.on_batch(records.append)
        until(job, records, 3)
        assert all(record.decision["lifetime_s"] == 0.0 for record in records)
        job.require(ps.Latency(read, farm, p99="3 s", over="2 s"))
        end = time.monotonic() + 60.0
        while time.monotonic() < end and not records[-1].decision["lifetime_s"] > 0.0:
            assert not job.await_end(0.05)
    finally:
        job.stop()
    assert records[-1].decision["lifetime_s"] > 0.0
    assert records[-1].control["bounds"][0]["p99_s"] == 3.0


def test_the_cost_caps_the_first_batch_too(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("cheap")
    flow.read(stream(spark, 1500)).stateful(running_sum, **RUNNING, name="sums").write("memory", name="out")
    flow.require(ps.Cost(max_width=1))
    records = to_the_end(flow, spark, tmp_path / "ckpt")
    assert [record.decision["widths"]["sums"] for record in records] == [1] * len(records)


def test_a_throughput_is_reached_by_the_default_policy(spark: SparkSession, tmp_path: Path) -> None:
    """A row waits 0.5 ms, so one replica does less than 2000 a second; there are always more rows."""
    flow, _, farm = live(spark, 50_000)
    flow.require(ps.Throughput(farm, at_least=2200.0))
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), max_rows=1500)
    try:
        job.on_batch(records.append)
        end = time.monotonic() + 60.0
        while time.monotonic() < end and not any(record.decision["widths"]["farm"] > 1 for record in list(records)):
            assert not job.await_end(0.05)
    finally:
        job.stop()
    assert records[0].decision["widths"]["farm"] == 1
    assert any(record.decision["widths"]["farm"] > 1 for record in records)
    assert any("farm 1 -> " in record.control.get("reason", "") for record in records)


def test_routes_are_logged_with_the_batch_that_they_governed(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("routed")
    flow.read(stream(spark, 2500)).stateful(running_sum, **RUNNING, name="sums").write("memory", name="out")
    to_the_end(flow, spark, tmp_path / "ckpt", policy=Changing())
    logged = [json.loads(path.read_text().splitlines()[-1]) for path in (tmp_path / "ckpt/penstock/log").iterdir()]
    entries = sorted((entry.get("document", entry) for entry in logged), key=lambda entry: entry["id"])
    assert entries[0]["routes"] == {}
    for entry in entries[1:]:
        assert len(entry["routes"]["sums"]) == GROUPS
        assert max(entry["routes"]["sums"]) < entry["widths"]["sums"]


# --- reads and steps --------------------------------------------------------------------------------------------------


def test_the_column_of_scheduled_times_has_any_name(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("named")
    flow.read(stream(spark, 500, scheduled="due")).write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    assert job.await_end(60)
    due = job.memory("out").sort_by("i").column("due").cast(pa.int64()).to_pylist()
    assert due == [START_US + number * 1_000_000 // RATE for number in range(500)]


def test_latency_counts_from_a_column_of_arrival_times(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of a file stream that say they came an hour ago are an hour late."""
    folder = tmp_path / "rows"
    came = F.timestamp_micros(F.lit(int((time.time() - 3600.0) * 1e6)))
    static(spark, 300).drop("scheduled").withColumn("came", came).coalesce(1).write.parquet(str(folder))
    frame = spark.readStream.schema("i bigint, v double, k bigint, came timestamp").parquet(str(folder))
    flow = ps.Flow("arrivals")
    flow.read(frame, arrival="came").write("memory", name="out")
    records = to_the_end(flow, spark, tmp_path / "ckpt")
    mean = records[0].latency["out"].mean
    assert mean is not None
    assert mean == pytest.approx(3600.0, rel=0.05)


def raises_on_sevens(batch: pa.RecordBatch) -> pa.Array:
    if pc.any(pc.equal(batch.column("v"), 7.0)).as_py():
        raise ValueError("seven")
    return pc.less(batch.column("v"), 50.0)


def test_a_predicate_that_raises_skips_its_batch_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("skipping")
    read = flow.read(stream(spark, 1000, per_batch=50))
    read.filter(raises_on_sevens, on_error="skip", name="some").write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    assert job.await_end(120)
    kept = set(job.memory("out").column("i").to_pylist())
    small = {i for i in range(1000) if i % 97 < 50}
    assert kept < small, "what was kept is right, and something was skipped"
    assert not any(i % 97 == 7 for i in kept)


def test_a_window_has_the_replicas_that_it_was_given(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("wide")
    read = flow.read(stream(spark, 3000), time="scheduled")
    read.window(ps.Time("1 s"), key="k", replicas=3, name="bars").aggregate(n=ps.count()).write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    records: list[BatchRecord] = []
    job.on_batch(records.append)
    assert job.await_end(120)
    job.stop()
    assert {record.decision["widths"]["bars"] for record in records} == {3}
    assert sum(job.memory("out").column("n").to_pylist()) == 2000, "the third second is still open"


# --- sinks ------------------------------------------------------------------------------------------------------------


def test_a_compressed_text_file_says_so_in_its_name(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("packed")
    flow.read(stream(spark, 1000)).write("json", path=str(tmp_path / "j"), name="j", compression="gzip")
    to_the_end(flow, spark, tmp_path / "ckpt")
    files = sorted(path for path in (tmp_path / "j").iterdir() if path.name.startswith("part-"))
    assert len(files) == 2
    assert all(path.name.endswith(".json.gz") for path in files)
    assert len(gzip.decompress(files[0].read_bytes()).splitlines()) == 500
    assert spark.read.json(str(tmp_path / "j")).count() == 1000


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({"compression": "zstd", "compression_level": 5}, lambda column: column.compression == "ZSTD"),
        ({"use_dictionary": False}, lambda column: not column.has_dictionary_page),
    ],
)
def test_options_of_a_parquet_sink_reach_its_writer(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], check: Callable[[Any], bool]
) -> None:
    flow = ps.Flow("parquet")
    sized = {**options, "row_group_size": 100, "data_page_size": 4096}
    flow.read(stream(spark, 500)).write("parquet", path=str(tmp_path / "p"), **sized)
    to_the_end(flow, spark, tmp_path / "ckpt")
    [file] = (path for path in (tmp_path / "p").iterdir() if path.name.startswith("part-"))
    found = pq.read_metadata(file)
    assert found.num_row_groups == 5
    assert check(found.row_group(0).column(0))


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_state_of_a_checkpoint_on_the_command_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow, checkpoint = ps.Flow("summed"), str(tmp_path / "ckpt")
    flow.read(stream(spark, 2000, keys=7)).stateful(running_sum, **RUNNING, name="sums").write("memory", name="out")
    to_the_end(flow, spark, tmp_path / "ckpt")
    capsys.readouterr()
    assert run("state", checkpoint) == 0
    assert "sums" in capsys.readouterr().out
    assert run("state", checkpoint, "--json", "--version", "1") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["version"] == 1
    assert run("state", checkpoint, "sums", "--rows", "3", "--json") == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 3
    assert "3 of 7 rows" in captured.err
    assert run("state", checkpoint, "--back-to", "1") == 0
    assert "forgotten: 2 later batches" in capsys.readouterr().out
    assert run("state", str(tmp_path / "none")) == 2
