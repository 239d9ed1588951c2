"""Running streaming queries under a stop-watch: what Spark says of each trigger, and what our own records say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import penstock as ps
from penstock.engine.spark.job import Job
from penstock.observe.record import BatchRecord

PARQUET_SCHEMA = "i bigint, k bigint, v double"
KEYS = 10_000


@dataclass(frozen=True)
class Bench:
    """What every case needs: a session, a folder for itself, how many runs, and where to say how it goes."""

    spark: SparkSession
    folder: Path
    runs: int
    say: Callable[[str], None]


@dataclass(frozen=True)
class Trigger:
    """One micro-batch as Spark reports it; durations in milliseconds by Spark's names."""

    batch: int
    rows: int
    durations: dict[str, float]

    @property
    def ms(self) -> float:
        """The whole trigger."""
        return self.durations["triggerExecution"]


def triggers(query: StreamingQuery) -> dict[int, Trigger]:
    """The batches of a query that Spark still remembers, by id (it keeps the last 100 progress reports)."""
    found = {}
    for progress in query.recentProgress:
        durations = {name: float(value) for name, value in progress.durationMs.items()}
        if "addBatch" in durations:  # else nothing was to be done
            found[progress.batchId] = Trigger(progress.batchId, progress.numInputRows, durations)
    return found


@dataclass
class Segment:
    """A stretch of steady state: Spark's triggers and our records of the same batches."""

    triggers: list[Trigger] = field(default_factory=list)
    records: list[BatchRecord] = field(default_factory=list)
    seconds: float = 0.0


def steady(
    flow: ps.Flow, spark: SparkSession, checkpoint: Path, settle: float, seconds: float, **options: Any
) -> Segment:
    """Start a flow, let it settle after its first batch, watch it for some seconds, stop it."""
    records: list[BatchRecord] = []
    job: Job = flow.start(spark, checkpoint=str(checkpoint), **options)
    try:
        job.on_batch(records.append)
        while not records:
            _still_there(job)
        _sleep(job, settle)
        begin = time.time()
        _sleep(job, seconds)
        end = time.time()
        assert job._query is not None
        seen = triggers(job._query)
    finally:
        job.stop()
    inside = [
        record for record in records if begin <= record.started and record.visible <= end and record.batch in seen
    ]
    return Segment([seen[record.batch] for record in inside], inside, end - begin)


def _sleep(job: Job, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        _still_there(job, min(0.1, max(0.0, deadline - time.monotonic())))


def _still_there(job: Job, wait: float = 0.02) -> None:
    if job.await_end(wait):
        raise RuntimeError(f"flow '{job.flow.name}' ended while it was measured: {job.faults}")


def to_the_end(flow: ps.Flow, spark: SparkSession, checkpoint: Path, **options: Any) -> list[Trigger]:
    """Run a flow over what is there now; return its triggers."""
    job: Job = flow.start(spark, checkpoint=str(checkpoint), available_now=True, **options)
    try:
        if not job.await_end(300):
            raise RuntimeError(f"flow '{flow.name}' did not end within 300 s")
        if job.faults:
            raise RuntimeError(f"flow '{flow.name}' was restarted while it was measured: {job.faults}")
        assert job._query is not None
        return list(triggers(job._query).values())
    finally:
        job.stop()


def bare_to_the_end(
    frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], None], mode: str = "append"
) -> list[Trigger]:
    """Run a plain foreachBatch query over what is there now; return its triggers."""
    writer = frame.writeStream.outputMode(mode).foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(triggers(query).values())


def rate(found: Sequence[Trigger], rows: int) -> float:
    """Rows per second of trigger time; refuses a run that did not see all its rows."""
    seen = sum(trigger.rows for trigger in found)
    if seen != rows:
        raise RuntimeError(f"{rows} rows were written, the triggers report {seen}")
    return rows / (sum(trigger.ms for trigger in found) / 1000.0)


def write_parquet(folder: Path, files: int, rows_per_file: int) -> int:
    """Write three columns (i, k of 10 000 keys, v) in several files; return the number of rows."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(11)
    for number in range(files):
        index = np.arange(number * rows_per_file, (number + 1) * rows_per_file)
        columns = {"i": index, "k": random.integers(0, KEYS, rows_per_file), "v": random.random(rows_per_file)}
        # Several row groups, so that both cores can read one file.
        pq.write_table(pa.table(columns), folder / f"{number:04d}.parquet", row_group_size=max(1, rows_per_file // 4))
    return files * rows_per_file


def parquet_stream(spark: SparkSession, folder: Path, files_per_batch: int) -> DataFrame:
    """The files as a stream, so many per micro-batch."""
    return spark.readStream.schema(PARQUET_SCHEMA).option("maxFilesPerTrigger", files_per_batch).parquet(str(folder))
