"""Exactly once: every named crash point, widths changing all the while, against the sequential run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark.crash import POINTS, CrashPlan
from tests.engine.tools import RUNNING, Changing, expected_sums, parquet, running_sum, static, stream

TOTAL = 4000


def start(spark: SparkSession, folder: Path, crash: CrashPlan | None = None, total: int = TOTAL) -> ps.Flow:
    """A farm, keyed state and two file sinks on one stream; run until drained."""
    flow = ps.Flow("crashing")
    read = flow.read(stream(spark, total), time="scheduled")
    scored = read.map(lambda batch: batch, replicas=ps.elastic(1, 5), chunk=64, name="farm")
    sums = scored.stateful(running_sum, name="sums", replicas=ps.elastic(1, 5), **RUNNING)
    sums.write("parquet", path=str(folder / "sums"), name="to_sums")
    read.filter(lambda batch: batch.column("v").to_numpy() > 50, name="high").write(
        "parquet", path=str(folder / "high"), name="to_high"
    )
    job = flow.start(spark, str(folder / "ckpt"), Changing(), available_now=True, crash=crash)
    try:
        assert job.await_end(120)
    finally:
        job.stop()
    return job


def check(spark: SparkSession, folder: Path, job: ps.Flow, total: int = TOTAL) -> None:
    truth = static(spark, total).toArrow()
    after, state = expected_sums(truth)
    rows = parquet(folder / "sums").to_pylist()
    assert Counter(row["i"] for row in rows) == Counter(range(total))
    assert {row["i"]: row["so_far"] for row in rows} == after
    assert {row["k"]: (row["total"], row["n"]) for row in job.state("sums").to_pylist()} == state
    high = [row["i"] for row in truth.to_pylist() if row["v"] > 50]
    assert sorted(parquet(folder / "high").column("i").to_pylist()) == high


def test_every_crash_point_in_one_run(spark: SparkSession, tmp_path: Path) -> None:
    plan = CrashPlan(dict(enumerate(POINTS, start=1)))
    job = start(spark, tmp_path, plan)
    assert plan.left == {}, "every point was reached"
    assert len(job.faults) == len(POINTS)
    check(spark, tmp_path, job)


@pytest.mark.parametrize("point", ["state", "manifest"])
def test_crash_in_the_first_batch(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """The first batch has no manifest before it."""
    job = start(spark, tmp_path, CrashPlan({0: point}), total=1000)
    assert len(job.faults) == 1
    check(spark, tmp_path, job, total=1000)


def test_a_new_job_goes_on_where_the_last_stopped(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("again")
    read = flow.read(stream(spark, TOTAL))
    read.stateful(running_sum, name="sums", **RUNNING).write("parquet", path=str(tmp_path / "sums"), name="out")
    first = flow.start(spark, str(tmp_path / "ckpt"), lifetime=0.3)
    while first.host.finished < 2:
        assert not first.await_end(0.05)
    first.stop()
    done = first.host.finished
    assert 2 <= done < 7
    second = flow.start(spark, str(tmp_path / "ckpt"), Changing(), available_now=True)
    assert second.await_end(60)
    second.stop()
    after, state = expected_sums(static(spark, TOTAL).toArrow())
    rows = parquet(tmp_path / "sums").to_pylist()
    assert {row["i"]: row["so_far"] for row in rows} == after
    assert len(rows) == TOTAL
    assert {row["k"]: (row["total"], row["n"]) for row in second.state("sums").to_pylist()} == state
