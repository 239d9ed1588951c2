"""Case a: F, the fixed cost of a batch, and the replay reader at full rate. Live streams, cases in rotation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.bench.figures import Figure, Target, median, plain, quantile
from penstock.bench.functions import SUM_SCHEMA, SUM_STATE, keyed_sum, nothing, rows, same
from penstock.bench.streams import Bench, Segment, steady
from penstock.control.histogram import LogHistogram

CASE = "a. fixed cost of a batch"
SPARK_PARTS = (
    "latestOffset",
    "getOffset",
    "queryPlanning",
    "getBatch",
    "walCommit",
    "addBatch",
    "commitOffsets",
    "commitBatch",
)
OUR_PARTS = ("log", "plan", "run", "manifest", "sink", "control")  # within Spark's addBatch
FULL_RATE = 1_000_000
FULL_CAP = 500_000  # rows per batch at that rate: a reader that falls behind shows its speed, not one endless batch


@dataclass(frozen=True)
class Live:
    """A live flow to measure: how it is built, and what its trigger may take."""

    name: str
    build: Callable[[SparkSession, Path], ps.Flow]
    target: Target | None
    rate: int
    max_rows: int | None = None


def source(spark: SparkSession, per_second: int = 1000, keys: bool = False) -> DataFrame:
    """A replay at a constant rate."""
    mix = {"k": ps.sources.uniform(100)} if keys else None
    schedule = ps.sources.constant(per_second)
    return ps.sources.replay(spark, rows, schema="i bigint, v double", keys=mix, schedule=schedule)


def one_stage(spark: SparkSession, out: Path) -> ps.Flow:
    """An identity map into a function sink."""
    flow = ps.Flow("one-stage")
    flow.read(source(spark)).map(same).write("function", fn=nothing)
    return flow


def one_stage_parquet(spark: SparkSession, out: Path) -> ps.Flow:
    """An identity map into a Parquet sink."""
    flow = ps.Flow("one-stage-parquet")
    flow.read(source(spark)).map(same).write("parquet", path=str(out))
    return flow


def windowed_slice(spark: SparkSession, out: Path) -> ps.Flow:
    """Keyed running sums and a sliding window on one read, a function sink each."""
    flow = ps.Flow("windowed-slice")
    read = flow.read(source(spark, keys=True), time="scheduled")
    read.stateful(keyed_sum, SUM_SCHEMA, SUM_STATE, key="k").write("function", fn=nothing, name="sums")
    bars = read.window(ps.Time("2 s", slide="1 s"), key="k").aggregate(total=ps.sum("v"), n=ps.count())
    bars.write("function", fn=nothing, name="bars")
    return flow


def replay_only(spark: SparkSession, out: Path) -> ps.Flow:
    """The bare read at a million rows a second."""
    flow = ps.Flow("replay")
    flow.read(source(spark, FULL_RATE)).write("function", fn=nothing)
    return flow


LIVES = (
    Live("identity map, function sink", one_stage, Target("<=", 120.0), 1000),
    Live("identity map, Parquet sink", one_stage_parquet, Target("<=", 250.0), 1000),
    Live("windowed slice, 2 function sinks", windowed_slice, Target("<=", 250.0), 1000),
    Live("replay reader alone", replay_only, None, FULL_RATE, FULL_CAP),
)


def measure(bench: Bench, warm_up: float, seconds: float) -> list[Figure]:
    """Run every live flow in turn, `runs` times, after one long warm-up of each."""
    spark, folder, runs, say = bench.spark, bench.folder, bench.runs, bench.say
    for live in LIVES:
        say(f"  warm-up: {live.name}, {warm_up:.0f} s")
        _segment(live, spark, folder / f"warm-{live.build.__name__}", 0.0, warm_up)
    segments: dict[str, list[Segment]] = {live.name: [] for live in LIVES}
    for run in range(runs):
        # Every other run backwards, so that no case always follows the same one.
        for live in LIVES if run % 2 == 0 else reversed(LIVES):
            segment = _segment(live, spark, folder / f"{run}-{live.build.__name__}", 1.5, seconds)
            segments[live.name].append(segment)
            middle = median([trigger.ms for trigger in segment.triggers])
            say(f"  run {run + 1}/{runs}: {live.name}: {middle:.0f} ms over {len(segment.triggers)} batches")
    return [figure for live in LIVES for figure in figures(live, segments[live.name])]


def _segment(live: Live, spark: SparkSession, folder: Path, settle: float, seconds: float) -> Segment:
    return steady(
        live.build(spark, folder / "out"), spark, folder / "checkpoint", settle, seconds, max_rows=live.max_rows
    )


def figures(live: Live, segments: list[Segment]) -> list[Figure]:
    """What the segments of one flow say."""
    every = [trigger for segment in segments for trigger in segment.triggers]
    records = [record for segment in segments for record in segment.records]
    latency = LogHistogram.total(h for record in records for h in record.latency.values())
    detail: dict[str, Any] = {
        "batches": len(every),
        "trigger_ms_p95": plain(quantile([trigger.ms for trigger in every], 0.95)),
        "spark_ms_median": {
            name: plain(median([trigger.durations[name] for trigger in every if name in trigger.durations]))
            for name in SPARK_PARTS
            if any(name in trigger.durations for trigger in every)
        },
        "penstock_ms_median": {
            name: plain(1000.0 * median([record.parts.get(name, 0.0) for record in records])) for name in OUR_PARTS
        },
        "latency_ms": {f"p{p}": _ms(latency.quantile(p / 100)) for p in (50, 99)},
        "latency_from": sorted({record.latency_from for record in records}),
    }
    note = (
        f"{len(every)} batches at {live.rate} rows/s; trigger p95 {detail['trigger_ms_p95']} ms; end to end p50 "
        f"{detail['latency_ms']['p50']} ms, p99 {detail['latency_ms']['p99']} ms. Spark, median ms: "
        f"{_listed(detail['spark_ms_median'])}. Within addBatch, ours: {_listed(detail['penstock_ms_median'])}"
    )
    medians = [median([trigger.ms for trigger in segment.triggers]) for segment in segments]
    found = [Figure(CASE, live.name, "ms trigger", medians, live.target, note, detail)]
    if live.rate == FULL_RATE:
        effective = [_effective(segment) for segment in segments]
        note = f"rows read per second while {live.rate} came due, at most {live.max_rows} per batch; one segment a run"
        found.append(Figure("a. replay reader", live.name, "rows/s", effective, None, note))
        found.append(Figure("a. replay reader", "trigger time per row", "ns", [_ns_per_row(s) for s in segments]))
    return found


def _effective(segment: Segment) -> float:
    """Rows per second from the first to the last cut of a segment."""
    if len(segment.records) < 2:
        return float("nan")
    first, last = segment.records[0], segment.records[-1]
    return sum(record.rows_in for record in segment.records[1:]) / (last.started - first.started)


def _ns_per_row(segment: Segment) -> float:
    read = sum(record.rows_in for record in segment.records)
    return 1e6 * sum(trigger.ms for trigger in segment.triggers) / read if read else float("nan")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else plain(1000.0 * seconds)


def _listed(parts: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in parts.items() if value is not None and value >= 0.5)
