"""Farms in a row that share their tasks, or do not: the same chunks, the same results, whatever is decided when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.decision import Decision
from penstock.engine.spark.crash import CrashPlan
from penstock.engine.spark.stages import cut, pipelines, waves
from penstock.observe.observer import stages_of
from penstock.observe.record import BatchRecord
from tests.engine.tools import RUNNING, Changing, parquet, running_sum, stream

TOTAL, CHUNK = 2500, 64
WAYS: tuple[tuple[tuple[str, ...], ...], ...] = ((), (("a", "b"),), (("a", "b", "c"),), (("b", "c"),))


def sized(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Note how many rows the call got, and the first of them: what a chunk is shows in the result."""
    first = np.full(batch.num_rows, batch.column("i")[0].as_py())
    rows = np.full(batch.num_rows, batch.num_rows)
    return batch.append_column(f"{name}_rows", pa.array(rows)).append_column(f"{name}_first", pa.array(first))


def a(batch: pa.RecordBatch) -> pa.RecordBatch:
    return sized("a", batch.select(["i", "v"]))


def b(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Two pieces for one chunk: the next farm gets them in one call."""
    made = sized("b", batch)
    yield made.slice(0, made.num_rows // 3)
    yield made.slice(made.num_rows // 3)


def c(batch: pa.RecordBatch) -> pa.RecordBatch:
    return sized("c", batch)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def no_sevens(batch: pa.RecordBatch) -> Any:
    return batch.column("i").to_numpy() % 7 != 0


def three_farms(spark: SparkSession, out: Path, **kind: Any) -> ps.Flow:
    flow = ps.Flow("chained")
    columns = "i bigint, v double, a_rows bigint, a_first bigint"
    first = flow.read(stream(spark, TOTAL)).map(a, columns, replicas=ps.elastic(1, 5), chunk=CHUNK, name="a", **kind)
    kept = first.filter(no_sevens, name="kept")
    columns += ", b_rows bigint, b_first bigint"
    second = kept.flat_map(b, columns, replicas=ps.elastic(1, 5), chunk=CHUNK, name="b", **kind)
    columns += ", c_rows bigint, c_first bigint"
    third = second.map(c, columns, replicas=ps.elastic(1, 4), chunk=CHUNK, name="c", **kind)
    third.write("parquet", path=str(out), name="out")
    return flow


def expected(per_batch: int = 500) -> list[dict[str, Any]]:
    """Chunk by chunk, what one call each of a, b and c gives: chunks are cut in the rows of a batch."""
    rows = []
    for base in range(0, TOTAL, per_batch):
        for begin in range(base, base + per_batch, CHUNK):
            chunk = range(begin, min(begin + CHUNK, base + per_batch))
            kept = [i for i in chunk if i % 7]
            calls = {"a": (len(chunk), chunk[0]), "b": (len(kept), kept[0]), "c": (len(kept), kept[0])}
            sizes = {
                f"{name}_{what}": value
                for name, call in calls.items()
                for what, value in zip(("rows", "first"), call, strict=True)
            }
            rows += [{"i": i, "v": float(i % 97), **sizes} for i in kept]
    return rows


class Rechaining(Changing):
    """Other widths and other chains in every batch."""

    def decide(self, observed: Any, current: Decision) -> Decision:
        return replace(super().decide(observed, current), chains=WAYS[self.calls % len(WAYS)])


class Chained:
    """The same chains in every batch."""

    def __init__(self, chains: tuple[tuple[str, ...], ...]) -> None:
        self.chains = chains

    def decide(self, observed: Any, current: Decision) -> Decision:
        return replace(current, widths=dict.fromkeys(current.widths, 2), chains=self.chains)


def started(flow: ps.Flow, spark: SparkSession, folder: Path, policy: Any, **options: Any) -> list[BatchRecord]:
    """Run a flow over all its rows; return the records of its batches."""
    records: list[BatchRecord] = []
    job = flow.start(spark, str(folder), policy, available_now=True, **options)
    job.on_batch(records.append)
    try:
        assert job.await_end(120)
    finally:
        job.stop()
    return records


def test_chains_change_in_every_batch_while_crash_points_fire(spark: SparkSession, tmp_path: Path) -> None:
    crash = CrashPlan({2: "output"})  # tests/engine/test_exactly_once.py has every point
    flow = three_farms(spark, tmp_path / "out", ordered=True)
    records = started(flow, spark, tmp_path / "ckpt", Rechaining(), crash=crash)
    assert crash.left == {}
    assert parquet(tmp_path / "out").to_pylist() == expected(), "in order, and every call got the same chunk"
    used = {tuple(map(tuple, record.decision["chains"])) for record in records}
    assert len(used) == len(WAYS), used


def test_a_chain_runs_in_the_tasks_of_its_first(spark: SparkSession, tmp_path: Path) -> None:
    flow = three_farms(spark, tmp_path / "out", scheduling="on_demand")
    record = started(flow, spark, tmp_path / "ckpt", Chained((("a", "b", "c"),)))[-1]
    assert {stats.name: stats.stage for stats in record.operators} == {"a": "a", "kept": "a", "b": "a", "c": "a"}
    calls = -(-500 // CHUNK)
    assert [stats.calls for stats in record.operators if stats.name in "abc"] == [calls] * 3
    assert sorted(parquet(tmp_path / "out").to_pylist(), key=lambda row: row["i"]) == expected()
    views = {stage.name: stage for stage in stages_of(record, apart={"a", "b", "c"})}
    assert set(views) == {"a", "b", "c"} and all(view.width == 2 for view in views.values())


def test_what_can_be_chained(spark: SparkSession) -> None:
    def names(flow: ps.Flow) -> tuple[tuple[str, ...], ...]:
        return pipelines(flow, cut(flow))

    wide: dict[str, Any] = {"replicas": ps.elastic(1, 4)}
    flow = ps.Flow("runs")
    read = flow.read(stream(spark))
    first = read.map(same, name="a", **wide).map(same, name="b", **wide)
    assert names(flow) == (("a", "b"),)
    by_key = first.map(same, name="keyed", partition="key", key="k", **wide)
    assert names(flow) == (("a", "b"),), "what is sent by key must be sent"
    by_key.map(same, name="d", **wide).filter(no_sevens, name="e").map(same, name="f", **wide)
    assert names(flow) == (("a", "b"), ("d", "f")), "steps between farms do not part them"
    read.map(same, name="g", **wide).map(same, name="h", ordered=True, **wide)
    assert names(flow) == (("a", "b"), ("d", "f")), "an ordered farm is not chained to one that is not"
    first.map(same, name="i", **wide)
    assert names(flow) == (("a", "b", "i"), ("d", "f")), "a farm by key does not count as a reader to chain"
    first.map(same, name="j", **wide)
    assert names(flow) == (("a", "b"), ("d", "f")), "of two that follow none is chained"


def test_waves_hold_jobs_that_need_nothing_of_each_other(spark: SparkSession) -> None:
    flow = ps.Flow("waves")
    read = flow.read(stream(spark), time="scheduled")
    sums = read.stateful(running_sum, name="sums", **RUNNING)
    read.window(ps.Time("1 s"), key="k", name="bars").aggregate(n=ps.count()).write("memory", name="bars_out")
    sums.map(same, replicas=2, name="after").write("memory", name="out")
    found = [[job.last.name for job in wave] for wave in waves(cut(flow), flow)]
    assert found == [["sums", "bars"], ["after"]]


def test_a_failure_beside_another_job_is_said_when_both_have_ended(spark: SparkSession, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(1.0)
        calls.touch()
        return batch

    def bad(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no such price")

    flow = ps.Flow("two")
    read = flow.read(stream(spark, 100))
    read.map(bad, replicas=1, name="bad").write("memory", name="one")
    read.map(slow, replicas=1, name="slow").write("memory", name="other")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    with pytest.raises(ps.UserFunctionError, match="no such price"):
        job.await_end(60)
    assert calls.exists(), "a batch that is tried again must not meet tasks of the attempt before"
