"""Time windows on a stream equal the sequential oracle: disorder, late rows, widths that change (crashes: kinds)."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock import sources
from penstock.control.decision import Decision
from penstock.engine.spark import framer, frames, host, map_side
from penstock.engine.spark.kept_plan import KeptPlan
from penstock.engine.spark.logs import MAX_SEGMENTS
from penstock.observe.record import BatchRecord
from penstock.windows.aggregates import bind
from penstock.windows.oracle import Oracle
from tests.engine.test_chaining import same
from tests.engine.tools import START_US, Changing, static, stream

SECOND = 1_000_000


def disordered(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """Event times 10 ms apart, shifted back by up to 12 s; every 50th value is null."""
    event = START_US + index * 10_000 - random.integers(0, 12 * SECOND, len(index))
    value = np.where(index % 50 == 0, np.nan, index % 31)
    return {"i": index, "event": event, "v": value}


def read(spark: SparkSession, flow: ps.Flow, total: int, per_batch: int) -> ps.Stream:
    frame = sources.replay(
        spark, disordered, schema="i bigint, event bigint, v double", keys={"k": sources.zipf(7, 1.059)},
        schedule=sources.constant(1000), total=total, start=START_US, max_rows=per_batch,
    )  # fmt: skip
    stream = flow.read(frame, name="rows").sql(
        lambda d: d.select("i", "k", F.timestamp_micros("event").alias("ts"), F.nanvl("v", F.lit(None)).alias("v")),
        name="timed",
    )
    stream.time = "ts"
    return stream


def rows_of(spark: SparkSession, total: int) -> list[dict[str, Any]]:
    frame = sources.replay_batch(
        spark, disordered, schema="i bigint, event bigint, v double", keys={"k": sources.zipf(7, 1.059)},
        schedule=sources.constant(1000), total=total, start=START_US,
    )  # fmt: skip
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["i"])


SPECS = {
    "sliding": ps.Time("4 s", slide="1 s", lateness="1 s"),
    "gaps": ps.Time("2 s", slide="3 s"),
    "tumbling": ps.Time("3 s", lateness="2 s"),
    "pairs": ps.Time("2500 ms", slide="900 ms", lateness="500 ms"),
}
NAMED = {"total": ps.sum("v"), "n": ps.count(), "some": ps.count("v"), "avg": ps.mean("v")}


def test_stream_equals_oracle(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batches take the map side of Spark's aggregation alone, as with many panes."""
    halves: list[Any] = []

    def noted(*arguments: Any) -> Any:
        halves.append(map_side.map_side(*arguments))
        return halves[-1]

    monkeypatch.setattr(frames, "map_side", noted)
    monkeypatch.setattr(framer, "MANY_PANES", 60)
    total, per_batch = 2400, 480
    flow = ps.Flow("windows")
    rows = read(spark, flow, total, per_batch)
    for name, spec in SPECS.items():
        rows.window(spec, key="k", name=name).aggregate(**NAMED).write("memory", name=f"to_{name}")
    job = flow.start(spark, str(tmp_path), Changing(), available_now=True)
    assert job.await_end(600)
    job.stop()
    assert sum(half is not None for half in halves) > 4
    given = rows_of(spark, total)
    for name, spec in SPECS.items():
        check(job.memory(f"to_{name}").to_pylist(), spec, given, per_batch)


class Alternating:
    """One width and the other, the keys' tasks as they are by default."""

    def decide(self, observed: Any, current: Decision) -> Decision:
        return replace(current, widths={name: 3 - width for name, width in current.widths.items()})


def test_a_plan_is_kept_for_each_width_and_gives_what_planning_anew_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framer, "MANY_PANES", 10)
    monkeypatch.setattr(framer, "FEW_ROWS", 1)
    over: list[Any] = []
    original = KeptPlan.over

    def noted(self: KeptPlan, batch: Any) -> Any:
        over.append(original(self, batch))
        return over[-1]

    monkeypatch.setattr(KeptPlan, "over", noted)
    named = {"total": ps.sum("v"), "high": ps.max("v"), "n": ps.count(), "avg": ps.mean("v")}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, frame in (("stream", stream(spark, 4000, per_batch=500)), ("batch", static(spark, 4000))):
        flow = ps.Flow("kept")
        window = flow.read(frame, time="scheduled").window(
            ps.Time("100 ms", slide="20 ms"), key="k", replicas=ps.elastic(1, 2), name="bars"
        )
        bars = window.aggregate(**named)
        if name == "batch":
            found[name] = bars.to_df().toArrow().to_pylist()
            continue
        bars.write("memory", name="out")
        job = flow.start(spark, str(tmp_path), Alternating(), available_now=True)
        assert job.await_end(120)
        job.stop(flush=True)
        found[name] = job.memory("out").to_pylist()
    key = lambda row: (row["k"], row["window"]["start"])  # noqa: E731
    assert len(found["stream"]) > 1000
    assert sorted(found["stream"], key=key) == sorted(found["batch"], key=key)
    assert sum(planned is not None for planned in over) >= 6, "all but the first batch of either width"


def test_a_log_that_tasks_append_to_is_written_anew_when_it_is_long(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No window ends, so nothing but their number makes one of many segments."""
    monkeypatch.setattr(framer, "MANY_PANES", 0)
    flow = ps.Flow("appended")
    read = flow.read(stream(spark, 3500, per_batch=50), time="scheduled")
    bars = read.window(ps.Time("1 h"), key="k", replicas=2, name="bars").aggregate(n=ps.count(), total=ps.sum("v"))
    bars.write("memory", name="out")
    segments: list[int] = []
    job = flow.start(spark, str(tmp_path), available_now=True)
    job.on_batch(lambda record: segments.append(len(job.host.ledger.before(record.batch + 1)["state"]["bars"])))
    assert job.await_end(120)
    job.stop(flush=True)
    assert segments[20] > 20, "each batch adds its own"
    assert max(segments) <= 2 * MAX_SEGMENTS + 4 and segments[-1] < len(segments)
    rows = static(spark, 3500).toArrow().to_pylist()
    assert sum(job.memory("out").column("n").to_pylist()) == 3500
    assert sum(job.memory("out").column("total").to_pylist()) == sum(row["v"] for row in rows)


def test_a_plan_that_does_not_begin_with_a_batch_is_not_kept(spark: SparkSession) -> None:
    numbers = spark.range(10)
    assert KeptPlan.of(numbers, numbers.selectExpr("id + 1")) is None


@pytest.mark.parametrize("replicas", [2, 1])
def test_the_exchange_of_a_farm_is_not_taken_for_that_of_the_panes(
    spark: SparkSession, tmp_path: Path, replicas: int
) -> None:
    """Behind a farm of one task panes need no exchange; the farm's own carries as many columns as panes would have."""
    flow = ps.Flow("behind")
    farm = flow.read(stream(spark, 3000, per_batch=1500), time="scheduled").map(same, name="farm", replicas=replicas)
    bars = farm.window(ps.Time("1 s"), key="k", name="bars").aggregate(n=ps.count())
    bars.write("memory", name="out")
    job = flow.start(spark, str(tmp_path), available_now=True)
    assert job.await_end(120)
    job.stop(flush=True)
    found = job.memory("out").to_pylist()
    assert {row["window"]["start"].timestamp() for row in found} == {START_US / 1e6 + n for n in range(3)}
    assert sum(row["n"] for row in found) == 3000


def check(found: list[dict[str, Any]], spec: ps.Time, rows: list[dict[str, Any]], per_batch: int) -> None:
    """Compare the windows that came out of the stream with those of the oracle, fed by the same batches."""
    oracle = Oracle(spec, bind(NAMED, {"v": "double"}))
    expected = []
    for at in range(0, len(rows), per_batch):
        expected += oracle.batch(
            {"key": row["k"], "time": row["event"], "v": None if np.isnan(row["v"]) else row["v"]}
            for row in rows[at : at + per_batch]
        )
    got = {(row["k"], micros(row["window"]["start"]), micros(row["window"]["end"])): row for row in found}
    want = {(row["key"], row["start"], row["end"]): row for row in expected}
    assert len(found) == len(want) == len(got) > 20
    assert len(oracle.late) > 20
    assert set(got) == set(want)
    for key, row in want.items():
        for name in ("total", "n", "some", "avg"):
            assert got[key][name] == pytest.approx(row[name]), (key, name)


def micros(moment: Any) -> int:
    return round(moment.timestamp() * 1e6)


def test_batch_equals_sparks_own_window(spark: SparkSession) -> None:
    frame = sources.replay_batch(
        spark, disordered, schema="i bigint, event bigint, v double", keys={"k": sources.uniform(5)},
        schedule=sources.constant(1000), total=2000, start=START_US,
    ).select("k", F.timestamp_micros("event").alias("ts"), F.nanvl("v", F.lit(None)).alias("v"))  # fmt: skip
    flow = ps.Flow("batch")
    ours = flow.read(frame, time="ts").window(ps.Time("4 s", slide="1500 ms"), key="k")
    mine = ours.aggregate(s=ps.sum("v"), n=ps.count()).to_df()
    native = frame.groupBy("k", F.window("ts", "4 seconds", "1500 milliseconds")).agg(
        F.sum("v").alias("s"), F.count("*").alias("n")
    )
    assert [(f.name, f.dataType) for f in mine.schema] == [(f.name, f.dataType) for f in native.schema]
    key = lambda row: (row["k"], row["window"]["start"])  # noqa: E731
    a, b = sorted(mine.collect(), key=key), sorted(native.collect(), key=key)
    assert len(a) == len(b) > 50
    for left, right in zip(a, b, strict=True):
        assert left == right


def test_an_idle_stream_closes_its_windows(spark: SparkSession, tmp_path: Path) -> None:
    """All rows come at once and then nothing: the tick moves the clock on, and the last window comes out."""

    def few(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
        return {"i": index}

    frame = sources.replay(spark, few, schema="i bigint", schedule=sources.constant(1000), total=500)
    flow = ps.Flow("idle")
    flow.read(frame, time="scheduled").window(ps.Time("1 s")).aggregate(n=ps.count()).write("memory", name="out")
    job = flow.start(spark, str(tmp_path))
    deadline = time.monotonic() + 40
    counts: dict[Any, int] = defaultdict(int)
    while sum(counts.values()) < 500 and time.monotonic() < deadline:
        assert not job.await_end(0.3)
        counts = defaultdict(int, {row["window"]["start"]: row["n"] for row in job.memory("out").to_pylist()})
    job.stop()
    assert sum(counts.values()) == 500


def test_a_long_log_is_closed_by_more_tasks_than_slots_and_rows_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "HELD_ROWS", 80)
    records: list[BatchRecord] = []
    for number in range(3):
        ids = np.arange(number * 400, (number + 1) * 400)
        stamps = pa.array(START_US + ids * 10_000).cast(pa.timestamp("us", "UTC"))
        (tmp_path / "in").mkdir(exist_ok=True)
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"ts": stamps, "k": ids % 40}), file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of their times
    stream = spark.readStream.schema("ts timestamp, k bigint").option("maxFilesPerTrigger", 1)
    flow = ps.Flow("long")
    rows = flow.read(stream.parquet(str(tmp_path / "in")), time="ts")
    rows.window(ps.Time("2 s", slide="500 ms"), key="k", name="bars").aggregate(n=ps.count()).write(
        "memory", name="out"
    )
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    job.on_batch(records.append)
    assert job.await_end(120)
    job.stop(flush=True)
    assert sum(job.memory("out").column("n").to_pylist()) == 4 * 1200  # each row is in four windows
    seen = [record for record in records if record.rows_in]
    assert [record.rows_in for record in seen] == [400, 400, 400], "rows, not the panes that Spark made of them"
    widths = [record.operators[0].width for record in seen]
    assert widths[0] <= 4 < widths[2] <= 64, "as many tasks as the log's rows ask for, once windows close"
