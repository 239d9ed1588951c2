"""The rate finder at work: `penstock bench rate`. A flow runs behind a replay of a constant rate, its backlog watched.

The backlog of a trial is sampled when a batch becomes visible: rows that were left at its cut, and those that came due
since. Without the second part a batch that simply takes all there is would never show a backlog, however long it took.
"""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.figures import machine, plain
from penstock.bench.functions import SUM_SCHEMA, SUM_STATE, keyed_sum, nothing, rows, same
from penstock.bench.rate_finder import Found, Growth, Search, Trial, Verdict, find, growth, judge
from penstock.engine.spark.job import Job
from penstock.observe.record import BatchRecord

FlowAt = Callable[[SparkSession, int], ps.Flow]
"""Makes a flow whose replay source gives so many rows per second; a fresh one for every trial."""


def backlog_samples(records: list[BatchRecord], rate: float) -> tuple[list[float], list[float]]:
    """When batches became visible, and the rows that were due and not processed at that moment.

    >>> backlog_samples([BatchRecord(1, started=10.0, visible=10.5, backlog=40)], rate=1000.0)
    ([10.5], [540.0])
    """
    known = [record for record in records if record.backlog is not None]
    lags = [float(record.backlog or 0) + rate * (record.visible - record.started) for record in known]
    return [record.visible for record in known], lags


class LiveTrial:
    """Tries one rate after another, each on a checkpoint of its own.

    `settle` seconds after the first batch are not looked at; then the backlog is judged every `seconds`, up to `most`
    seconds, until the verdict is sure. `batch_seconds` caps a batch in seconds of schedule, which keeps the batches of
    an overloaded flow alike.
    """

    def __init__(
        self,
        spark: SparkSession,
        flow_at: FlowAt,
        folder: Path,
        *,
        seconds: float = 10.0,
        most: float = 40.0,
        settle: float = 5.0,
        batch_seconds: float = 1.0,
        tolerance: float = 0.01,
    ) -> None:
        self.spark, self.flow_at, self.folder = spark, flow_at, folder
        self.seconds, self.most, self.settle = seconds, most, settle
        self.batch_seconds, self.tolerance = batch_seconds, tolerance
        self._count = 0

    def __call__(self, rate: float) -> Trial:
        """Run the flow at a rate and judge the growth of its backlog."""
        self._count += 1
        checkpoint = self.folder / f"trial-{self._count:03d}"
        per_second = max(1, round(rate))
        records: list[BatchRecord] = []
        job: Job = self.flow_at(self.spark, per_second).start(
            self.spark, checkpoint=str(checkpoint), max_seconds=self.batch_seconds
        )
        try:
            job.on_batch(records.append)
            while not records:  # a cold session takes its time over the first batch: the clock starts after it
                self._watch(job, 0.05)
            self._watch(job, self.settle)
            return self._judged(job, records, rate)
        finally:
            job.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _judged(self, job: Job, records: list[BatchRecord], rate: float) -> Trial:
        began, first = time.monotonic(), len(records)
        while True:
            self._watch(job, self.seconds)
            times, lags = backlog_samples(records[first:], rate)
            if records[first:] and not times:
                raise ps.PenstockError("the flow's source does not say what is due. Remedy: read from sources.replay.")
            found = growth(times, lags)
            verdict, spent = judge(found, rate, self.tolerance), time.monotonic() - began
            if verdict is not Verdict.UNSURE or spent >= self.most:
                return Trial(rate, verdict, found, spent)

    def _watch(self, job: Job, seconds: float) -> None:
        if job.await_end(seconds):
            raise RuntimeError(f"flow '{job.flow.name}' ended while its rate was searched: {job.faults}")


# -- flows ------------------------------------------------------------------------------------------------------------


def _source(spark: SparkSession, per_second: int) -> Any:
    mix = {"k": ps.sources.uniform(1000)}
    return ps.sources.replay(
        spark, rows, schema="i bigint, v double", keys=mix, schedule=ps.sources.constant(per_second)
    )


def map_flow(spark: SparkSession, per_second: int) -> ps.Flow:
    """An identity map."""
    flow = ps.Flow("rate-map")
    flow.read(_source(spark, per_second)).map(same).write("function", fn=nothing)
    return flow


def keyed_flow(spark: SparkSession, per_second: int) -> ps.Flow:
    """A sum per key."""
    flow = ps.Flow("rate-keyed")
    read = flow.read(_source(spark, per_second))
    read.stateful(keyed_sum, SUM_SCHEMA, SUM_STATE, key="k").write("function", fn=nothing)
    return flow


def window_flow(spark: SparkSession, per_second: int) -> ps.Flow:
    """A sum over a sliding time window per key."""
    flow = ps.Flow("rate-window")
    read = flow.read(_source(spark, per_second), time="scheduled")
    windowed = read.window(ps.Time("2 s", slide="200 ms"), key="k")
    windowed.aggregate(total=ps.sum("v"), n=ps.count()).write("function", fn=nothing)
    return flow


FLOWS: dict[str, FlowAt] = {"map": map_flow, "keyed": keyed_flow, "window": window_flow}


def flow_named(name: str) -> FlowAt:
    """One of `FLOWS`, or `module:function`, a function of (session, rows per second) that returns a flow.

    >>> flow_named("map").__name__, flow_named("penstock.bench.rate_live:keyed_flow").__name__
    ('map_flow', 'keyed_flow')
    >>> flow_named("trading")
    Traceback (most recent call last):
    ...
    penstock.errors.PenstockError: flow 'trading' is not known. Remedy: name one of map, keyed, window, or \
module:function, a function of (session, rows per second).
    """
    if name in FLOWS:
        return FLOWS[name]
    module, _, function = name.partition(":")
    remedy = f"Remedy: name one of {', '.join(FLOWS)}, or module:function, a function of (session, rows per second)."
    if not function:
        raise ps.PenstockError(f"flow '{name}' is not known. {remedy}")
    try:
        found: FlowAt = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ps.PenstockError(f"flow '{name}' cannot be loaded ({error}). {remedy}") from error
    return found


# -- the command ------------------------------------------------------------------------------------------------------


def main(
    flow: str = "window",
    start: float = 20_000.0,
    resolution: float = 0.05,
    seconds: float = 10.0,
    settle: float = 5.0,
    batch_seconds: float = 1.0,
    most_rate: float = 10_000_000.0,
    json_path: str | None = None,
) -> int:
    """Find the highest rate a flow sustains, print it, write JSON; the exit code is 1 if no rate was sustained."""
    if not (0 < resolution < 1 and 1 <= start <= most_rate and seconds > 0 and settle >= 0 and batch_seconds > 0):
        rule = "start is from 1 to the greatest rate, resolution between 0 and 1, and times are positive"
        raise ps.PenstockError(f"rate finder: {rule}. Remedy: leave the options out.")
    flow_at = flow_named(flow)
    spark = ps.local_session("local[2,4]", app="penstock-rate")
    try:
        about = machine(spark)
        print("rate finder, measured on " + ", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        with tempfile.TemporaryDirectory(prefix="penstock-rate-") as name:
            trial = LiveTrial(
                spark,
                flow_at,
                Path(name),
                seconds=seconds,
                most=4 * seconds,
                settle=settle,
                batch_seconds=batch_seconds,
            )
            trial(start)  # a cold session is slow, and would refuse a rate that a warm one sustains
            search = Search(start=start, resolution=resolution, most=most_rate)
            found = find(trial, search, lambda text: print(text, flush=True))
    finally:
        spark.stop()
    print(f"flow '{flow}', measured here: {found.text}")
    if json_path is not None:
        write(Path(json_path), flow, about, found)
    return 0 if found.sustained else 1


def write(path: Path, flow: str, about: dict[str, Any], found: Found) -> None:
    """Write what was found as JSON."""

    def growth_json(value: Growth) -> dict[str, Any]:
        return {name: None if value.samples < 4 else plain(number) for name, number in asdict(value).items()}

    document = {
        "how": "measured",
        "machine": about,
        "flow": flow,
        "sustained_rows_per_s": plain(found.sustained),
        "refused_rows_per_s": None if found.refused == float("inf") else plain(found.refused),
        "confirmed": found.confirmed,
        "trials": [
            {
                "rows_per_s": plain(trial.rate),
                "verdict": trial.verdict.value,
                "seconds": plain(trial.seconds),
                "backlog_growth": growth_json(trial.growth),
            }
            for trial in found.trials
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
