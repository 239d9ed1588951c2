"""The farm on a stream: widths that change, chunks, order, scheduling, partitioning, setup and teardown."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.observe.record import BatchRecord
from tests.engine.test_chaining import same
from tests.engine.tools import RUNNING, Changing, running_sum, stream

TOTAL = 2000


def note(folder: str, what: dict[str, Any]) -> None:
    """Append a line about a call to a file of this process."""
    with open(f"{folder}/{os.getpid()}", "a") as file:
        file.write(json.dumps(what) + "\n")


def notes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]


def drain(flow: ps.Flow, spark: SparkSession, folder: Path, policy: Any = None) -> tuple[Any, list[BatchRecord]]:
    records: list[BatchRecord] = []
    job = flow.start(spark, str(folder / "ckpt"), policy, available_now=True)
    job.on_batch(records.append)
    try:
        assert job.await_end(120)
    finally:
        job.stop()
    return job, records


def test_ordered_farm_keeps_order_while_its_width_changes(spark: SparkSession, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()

    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        note(str(calls), {"first": batch.column("i")[0].as_py(), "rows": batch.num_rows})
        kept = batch.filter(pa.array([i % 3 != 0 for i in batch.column("i").to_pylist()]))
        return pa.Table.from_batches([kept, kept]).take(sorted([*range(kept.num_rows)] * 2))

    flow = ps.Flow("ordered")
    farm = flow.read(stream(spark, TOTAL, per_batch=500)).map(
        twice, replicas=ps.elastic(1, 6), ordered=True, chunk=30, name="farm"
    )
    farm.write("memory", name="out")
    job, records = drain(flow, spark, tmp_path, Changing())
    wanted = [i for i in range(TOTAL) if i % 3 for _ in (0, 1)]
    assert job.memory("out").column("i").to_pylist() == wanted
    # one call per chunk of 30 consecutive rows, in every batch, whatever the width
    seen = sorted((call["first"], call["rows"]) for call in notes(calls))
    assert seen == [(b + c, min(30, 500 - c)) for b in range(0, TOTAL, 500) for c in range(0, 500, 30)]
    widths = [record.operators[-1].width for record in records]
    assert len(set(widths)) > 2, widths
    assert all(record.operators[-1].tasks <= record.operators[-1].width for record in records)


def test_on_demand_has_more_tasks_than_replicas_and_never_more_at_once(spark: SparkSession, tmp_path: Path) -> None:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.02)
        return batch

    flow = ps.Flow("demand")
    read = flow.read(stream(spark, 1000, per_batch=500))
    read.map(slow, replicas=2, scheduling="on_demand", chunk=50, name="slow").write("memory", name="out")
    job, records = drain(flow, spark, tmp_path)
    farms = [stats for record in records for stats in record.operators if stats.name == "slow"]
    assert Counter(job.memory("out").column("i").to_pylist()) == Counter(range(1000))
    assert all(stats.tasks > stats.width == 2 for stats in farms)
    assert all(1 <= stats.concurrency <= 2 for stats in farms)
    assert sum(stats.calls for stats in farms) == 20


@pytest.mark.parametrize(("replicas", "tasks"), [(1, [1, 1, 1]), (2, [8, 2, 2])])
def test_on_demand_has_no_more_tasks_than_replicas_where_there_is_little_to_share(
    spark: SparkSession, tmp_path: Path, replicas: int, tasks: list[int]
) -> None:
    """One replica has no one to share with. Of the work of the first batch nothing is known."""
    flow = ps.Flow("quick")
    read = flow.read(stream(spark, 1500, per_batch=500))
    read.map(same, replicas=replicas, scheduling="on_demand", chunk=50, name="same").write("memory", name="out")
    job, records = drain(flow, spark, tmp_path)
    farms = [stats for record in records for stats in record.operators if stats.name == "same"]
    assert Counter(job.memory("out").column("i").to_pylist()) == Counter(range(1500))
    assert [stats.tasks for stats in farms] == tasks
    assert sum(stats.calls for stats in farms) == 30


@pytest.mark.parametrize("partition", ["key", "broadcast"])
def test_partition(spark: SparkSession, tmp_path: Path, partition: str) -> None:
    def who(batch: pa.RecordBatch) -> pa.RecordBatch:
        here = pa.array([ps.replica().number] * batch.num_rows, pa.int64())
        return pa.RecordBatch.from_arrays([batch.column("i"), batch.column("k"), here], names=["i", "k", "replica"])

    flow = ps.Flow("partitioned")
    by = {"key": "k"} if partition == "key" else {}
    read = flow.read(stream(spark, 1000, per_batch=500))
    read.map(who, "i bigint, k bigint, replica bigint", replicas=3, partition=partition, name="who", **by).write(
        "memory", name="out"
    )
    job, _ = drain(flow, spark, tmp_path)
    rows = job.memory("out").to_pylist()
    if partition == "broadcast":
        assert Counter((row["i"], row["replica"]) for row in rows) == Counter(
            (i, r) for i in range(1000) for r in range(3)
        )
    else:
        assert sorted(row["i"] for row in rows) == list(range(1000))
        homes: dict[int, set[int]] = {}
        for row in rows:
            homes.setdefault(row["k"], set()).add(row["replica"])
        assert all(len(replicas) == 1 for replicas in homes.values())
        assert len(set().union(*homes.values())) > 1


def test_setup_once_per_process_and_teardown_gives_back(spark: SparkSession, tmp_path: Path) -> None:
    up, down = tmp_path / "up", tmp_path / "down"
    up.mkdir()
    down.mkdir()

    def setup() -> dict[str, int]:
        note(str(up), {"pid": os.getpid()})
        return {"pid": os.getpid()}

    def use(batch: pa.RecordBatch, resource: dict[str, int]) -> pa.RecordBatch:
        assert resource["pid"] == os.getpid()
        return batch

    flow = ps.Flow("resources")
    read = flow.read(stream(spark, 1500, per_batch=500))
    read.map(use, replicas=2, chunk=100, setup=setup, teardown=lambda r: note(str(down), r), name="use").write(
        "memory", name="out"
    )
    job, records = drain(flow, spark, tmp_path)
    made, given = notes(up), notes(down)
    assert job.memory("out").num_rows == 1500
    assert max(Counter(n["pid"] for n in made).values()) == 1, "once per worker process"
    assert sum(stats.setups for record in records for stats in record.operators) == len(made)
    assert sorted(n["pid"] for n in given) == sorted(n["pid"] for n in made)
    assert job.teardowns == len(given)


def test_a_narrow_operator_behind_a_farm_leaves_the_farm_its_width(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("narrow")
    read = flow.read(stream(spark, 1000, per_batch=500))
    farm = read.map(lambda b: b, replicas=3, chunk=50, name="farm")
    farm.stateful(running_sum, name="sums", replicas=1, **RUNNING).write("memory", name="out")
    job, records = drain(flow, spark, tmp_path)
    assert job.memory("out").num_rows == 1000
    for record in records:
        stats = {entry.name: entry for entry in record.operators}
        assert (stats["farm"].tasks, stats["farm"].rows_in, stats["farm"].calls) == (3, 500, 10)
        assert (stats["sums"].tasks, stats["sums"].rows_in, stats["sums"].calls) == (1, 500, 1)


def test_static_width_from_the_environment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_REPLICAS", "3")
    flow = ps.Flow("static")
    read = flow.read(stream(spark, 1000, per_batch=500))
    read.map(lambda b: b, replicas=ps.elastic(1, 8), chunk=50, name="farm").write("memory", name="out")
    _, records = drain(flow, spark, tmp_path, Changing())
    assert {record.operators[-1].width for record in records} == {3}
