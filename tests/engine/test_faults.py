"""Errors and faults: the user's are named and stop the job, others restart it; nothing is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark.crash import CrashPlan
from tests.engine.tools import RUNNING, Isolating, expected_sums, parquet, run, running_sum, static, stream

TOTAL = 2000


def fails_on(bad: set[int]) -> Any:
    def strict(batch: pa.RecordBatch) -> pa.RecordBatch:
        if bad & set(batch.column("i").to_pylist()):
            raise ValueError("cannot price this")
        return batch

    return strict


def test_a_function_that_raises_stops_the_job_and_a_cured_one_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    def build(bad: set[int]) -> ps.Flow:
        flow = ps.Flow("strict")
        farm = flow.read(stream(spark, TOTAL, per_batch=500)).map(fails_on(bad), replicas=2, chunk=64, name="strict")
        farm.stateful(running_sum, name="sums", **RUNNING).write("parquet", path=str(tmp_path / "out"), name="out")
        return flow

    with pytest.raises(ps.UserFunctionError) as raised:
        run(build({1234}), spark, tmp_path)
    text = str(raised.value)
    assert "operator 'strict'" in text and "batch 2" in text and "chunk 3" in text
    assert "first bad row 42" in text and "'i': 1234" in text  # 1234 = 2 * 500 + 3 * 64 + 42
    assert "ValueError: cannot price this" in text and "in strict" in text, "the user's own traceback"
    assert parquet(tmp_path / "out").num_rows == 1000, "batches before the bad one are there"
    job = run(build(set()), spark, tmp_path)
    after, _ = expected_sums(static(spark, TOTAL).toArrow())
    assert {row["i"]: row["so_far"] for row in parquet(tmp_path / "out").to_pylist()} == after
    assert job.faults == []


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_bad_rows_are_set_aside(spark: SparkSession, tmp_path: Path, on_error: str) -> None:
    bad = {3, 700, 701, 1999}
    flow = ps.Flow("lenient")
    mapped = flow.read(stream(spark, TOTAL, per_batch=1000)).map(fails_on(bad), on_error=on_error, name="strict")
    mapped.write("memory", name="good")
    if on_error == "dead_letter":
        mapped.dead_letter.write("memory", name="dead")
    job = run(flow, spark, tmp_path)
    assert sorted(job.memory("good").column("i").to_pylist()) == [i for i in range(TOTAL) if i not in bad]
    assert job.report().to_json()["dead"] == len(bad)
    if on_error == "dead_letter":
        dead = job.memory("dead").to_pylist()
        assert {row["i"] for row in dead} == bad
        assert {row["error"] for row in dead} == {"ValueError: cannot price this"}


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (lambda b: b.drop_columns(["v"]), "column 'v' is declared but missing"),
        (lambda b: b.append_column("extra", b.column("v")), "column 'extra' was returned but is not declared"),
        (
            lambda b: b.set_column(0, "i", pa.array(b.column("i").to_numpy().astype(float))),
            "column 'i' is declared int64",
        ),
        (lambda b: 7, "must return a pyarrow RecordBatch or Table, it returned int"),
    ],
)
def test_another_schema_than_declared_names_the_column(
    spark: SparkSession, tmp_path: Path, fn: Any, names: str
) -> None:
    flow = ps.Flow("schema")
    flow.read(stream(spark, 500)).map(fn, name="wrong").write("memory", name="out")
    with pytest.raises(ps.UserFunctionError, match=f"(?s)operator 'wrong'.*{names}"):
        run(flow, spark, tmp_path)


def test_a_stateful_function_that_raises_names_the_key(spark: SparkSession, tmp_path: Path) -> None:
    def picky(rows: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
        if 13 in state.keys.column("k").to_pylist():
            raise RuntimeError("unlucky")
        return running_sum(rows, state)

    flow = ps.Flow("picky")
    flow.read(stream(spark, 500)).stateful(picky, name="picky", **RUNNING).write("memory", name="out")
    with pytest.raises(ps.UserFunctionError, match=r"(?s)operator 'picky'.*unlucky.*first bad key \{'k': 13\}"):
        run(flow, spark, tmp_path)


def test_a_sink_function_that_raises_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    def refuse(table: pa.Table, batch: int) -> None:
        if batch == 1:
            raise OSError("no route to the database")

    flow = ps.Flow("refusing")
    flow.read(stream(spark, 1500)).write("function", fn=refuse, name="db")
    with pytest.raises(ps.UserFunctionError, match="sink 'db'.*no route to the database; batch 1"):
        run(flow, spark, tmp_path)


def test_faults_that_stay_end_the_job_after_a_limit(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("full")
    flow.read(stream(spark, 1000)).write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), restarts=1, lifetime=0.2)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    job.ledger.finish = full
    with pytest.raises(ps.JobFailed, match="failed 2 times in a row.*No space left on device"):
        job.await_end(60)
    job.stop()
    assert len(job.faults) == 2


def one_hot(batch: Any) -> Any:
    """Half of the rows get one key."""
    index, keys = batch.column("i").to_numpy(), batch.column("k").to_numpy()
    return batch.set_column(batch.schema.get_field_index("k"), "k", pa.array(np.where(index % 2 == 0, 7, keys)))


def test_faults_that_pass_are_survived_while_widths_routes_and_chains_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The hot key's group is alone on a task wherever there are several; crash points fire, and a disk fails."""
    total = 4500
    flow = ps.Flow("hiccup")
    elastic = ps.elastic(1, 5)
    hot = flow.read(stream(spark, total)).map(one_hot, replicas=elastic, chunk=64, name="hot")
    again = hot.map(lambda batch: batch, replicas=elastic, chunk=64, name="again")
    sums = again.stateful(running_sum, name="sums", replicas=elastic, **RUNNING)
    sums.write("parquet", path=str(tmp_path / "out"), name="out")
    flow.require(ps.Latency(hot, sums, mean="1 s"))
    policy, records = Isolating(chain=("hot", "again")), list[Any]()
    plan = CrashPlan({2: "state", 3: "output", 5: "sink"})  # tests/engine/test_exactly_once.py has every point
    job = flow.start(spark, str(tmp_path / "ckpt"), policy, lifetime=0.05, crash=plan)
    job.on_batch(records.append)
    finish, failures = job.ledger.finish, []

    def once(batch: int, manifest: dict[str, Any]) -> None:
        if not failures:
            failures.append(batch)
            raise OSError("disk went away")
        finish(batch, manifest)

    job.ledger.finish = once
    job.drain(120)
    job.stop()
    assert plan.left == {}
    assert len(failures) == 1
    assert len(job.faults) == 3 + 1
    assert policy.alone["sums"] >= 3
    assert {len(record.decision["chains"]) for record in records} == {0, 1}
    assert len({record.decision["widths"]["sums"] for record in records}) >= 3
    after, state = expected_sums(one_hot(static(spark, total).toArrow()))
    written = parquet(tmp_path / "out").to_pylist()
    assert len(written) == total
    assert {row["i"]: row["so_far"] for row in written} == after, "and in the order of each key"
    assert {row["k"]: (row["total"], row["n"]) for row in job.state("sums").to_pylist()} == state


def test_plain_readers_never_see_a_batch_twice_or_half(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flow = ps.Flow("readers")
    read = flow.read(stream(spark, 6000, per_batch=300))
    read.map(lambda b: b, replicas=4, chunk=20, name="farm").write("parquet", path=str(out), name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    looks: list[int] = []
    torn: list[Any] = []

    def look() -> None:
        while not job.await_end(0):
            rows = (
                ds.dataset(out, format="parquet").to_table().column("i").to_numpy()
                if any(out.glob("*.parquet"))
                else np.array([])
            )
            batches = np.bincount((rows // 300).astype(int)) if len(rows) else np.array([])
            looks.append(len(rows))
            if len(np.unique(rows)) != len(rows) or not set(batches.tolist()) <= {300}:
                torn.append(batches)
            time.sleep(0.01)

    reader = threading.Thread(target=look)
    reader.start()
    assert job.await_end(120)
    reader.join()
    job.stop()
    assert not torn
    assert len(set(looks)) > 3, "the reader looked in between"
    assert sorted(parquet(out).column("i").to_pylist()) == list(range(6000))


def test_overload_is_capped_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Far more is due than a batch may take: batches stay at the cap, and the backlog is told."""
    flow = ps.Flow("overload")
    flow.read(stream(spark, 5000, per_batch=5000)).write("function", fn=lambda table, batch: None, name="out")
    records: list[Any] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), max_rows=200, lifetime=0.05)
    job.on_batch(records.append)
    while len(records) < 6:
        assert not job.await_end(0.05)
    job.stop()
    assert {record.rows_in for record in records[:6]} == {200}
    assert [record.backlog for record in records[:3]] == [4800, 4600, 4400]
    assert all(record.due == 5000 for record in records)
    report = job.report().to_json()
    assert report["backlog_max"] == 4800
