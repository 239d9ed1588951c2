"""Memory under overload: `python -m penstock.bench.overload --seconds 600`.

A flow with keyed state and a window gets about twice the rows it can process, its batches capped. Rows that wait
stay in the source, so memory must not grow with the backlog. Prints JSON; every figure in it is measured, in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.figures import machine, plain
from penstock.bench.functions import SUM_SCHEMA, SUM_STATE, keyed_sum, nothing, rows, same
from penstock.engine.spark.job import Job
from penstock.observe.record import BatchRecord

MAX_ROWS = 200_000
FLOOD = 5_000_000  # rows/s that nothing here sustains: for the calibration
CALIBRATION_BATCHES = 20  # cold batches are slow, and a rate taken from them would be no overload later


def flow_at(spark: SparkSession, per_second: int) -> ps.Flow:
    """A map, a keyed sum and a window behind a replay of so many rows per second."""
    flow = ps.Flow("overload")
    mix, schedule = {"k": ps.sources.uniform(10_000)}, ps.sources.constant(per_second)
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", keys=mix, schedule=schedule)
    read = flow.read(source, time="scheduled").map(same)
    read.stateful(keyed_sum, SUM_SCHEMA, SUM_STATE, key="k").write("function", fn=nothing, name="sums")
    bars = read.window(ps.Time("2 s", slide="1 s"), key="k").aggregate(total=ps.sum("v"), n=ps.count())
    bars.write("function", fn=nothing, name="bars")
    return flow


def memory() -> dict[str, float]:
    """Resident memory in MiB of the driver, the JVM and the Python workers; pages that workers share count in each."""
    driver = psutil.Process(os.getpid())
    found = {"driver": driver.memory_info().rss, "jvm": 0, "workers": 0}
    for process in driver.children(recursive=True):
        try:
            found["jvm" if process.name() == "java" else "workers"] += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return {name: round(value / 2**20, 1) for name, value in found.items()}


def overload(
    seconds: float, *, calibrate: float = 20.0, every: float = 5.0, spark: SparkSession | None = None
) -> dict[str, Any]:
    """Run the overload and return what was measured."""
    session = spark or ps.local_session("local[2,4]", app="penstock-overload")
    with tempfile.TemporaryDirectory(prefix="penstock-overload-") as name:
        flood, _ = _run(session, Path(name) / "calibrate", FLOOD, calibrate, every, least=CALIBRATION_BATCHES)
        sustained = _effective(flood[len(flood) // 2 :])
        attempted = max(1000, int(2 * sustained))
        records, samples = _run(session, Path(name) / "overload", attempted, seconds, every)
    fifth = next(sample for sample in samples if sample["at_s"] >= 0.2 * samples[-1]["at_s"])
    last = samples[-1]
    begin, end = records[len(records) // 5], records[-1]
    growth = ((end.backlog or 0) - (begin.backlog or 0)) / max(1e-9, end.started - begin.started)
    return {
        "how": "measured, 1 run",
        "overloaded": growth > 0.1 * attempted,  # if not, the rest says nothing about overload
        "machine": machine(session),
        "seconds": plain(seconds),
        "max_rows": MAX_ROWS,
        "batches": len(records),
        "sustained_rows_per_s": plain(sustained),
        "attempted_rows_per_s": attempted,
        "effective_rows_per_s": plain(_effective(records[len(records) // 5 :])),
        "backlog_rows": end.backlog,
        "backlog_growth_rows_per_s": plain(growth),
        "rss_mib_at_20_percent": fifth,
        "rss_mib_at_end": last,
        "rss_ratio": plain(last["total"] / fifth["total"]),
        "samples": samples,
    }


def _run(
    spark: SparkSession, folder: Path, per_second: int, seconds: float, every: float, *, least: int = 0
) -> tuple[list[BatchRecord], list[dict[str, float]]]:
    records: list[BatchRecord] = []
    samples: list[dict[str, float]] = []
    job: Job = flow_at(spark, per_second).start(spark, checkpoint=str(folder), max_rows=MAX_ROWS)
    try:
        job.on_batch(records.append)
        while not records:  # a cold session takes its time over the first batch: the clock starts after it
            _watch(job, 0.1)
        began = time.monotonic()
        while time.monotonic() - began < seconds or len(records) < least:
            _watch(job, min(every, seconds))
            sizes = memory()
            sample = {"at_s": round(time.monotonic() - began, 1), **sizes, "total": round(sum(sizes.values()), 1)}
            samples.append(sample)
            rows_so_far = records[-1].backlog if records else None
            print(f"{sample} backlog {rows_so_far}, {len(records)} batches", file=sys.stderr, flush=True)
    finally:
        job.stop()
    return records, samples


def _watch(job: Job, seconds: float) -> None:
    if job.await_end(seconds):
        raise RuntimeError(f"the job ended under overload: {job.faults}")


def _effective(records: list[BatchRecord]) -> float:
    """Rows per second between the first and the last of some batches."""
    if len(records) < 2:
        raise RuntimeError("too few batches to measure; run longer")
    return sum(record.rows_in for record in records[:-1]) / (records[-1].started - records[0].started)


def main(arguments: list[str]) -> int:
    """The command line; the exit code is 1 if the flow kept up after all, so that nothing was shown."""
    parser = argparse.ArgumentParser(prog="python -m penstock.bench.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--calibrate", type=float, default=20.0, help="seconds of the run that finds the sustained rate"
    )
    chosen = parser.parse_args(arguments)
    result = overload(chosen.seconds, calibrate=chosen.calibrate)
    print(json.dumps(result, indent=2))
    return 0 if result["overloaded"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
