"""Real SIGKILLs: of the whole driver tree, and of a Python worker at work. Nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench import torture
from tests.engine import tools


@pytest.mark.slow
def test_three_kills_of_the_driver_tree_lose_and_double_nothing() -> None:
    chance = random.Random()
    seed = chance.randrange(2**32)  # another moment in every run; printed, so that a failure can be repeated
    print(f"seed {seed}")
    chance.seed(seed)
    kills = [torture.Kill("progress", after=chance.uniform(0.0, 1.0)) for _ in range(3)]

    outcomes = torture.run(kills, batches=7, first_shape=seed)

    assert [outcome.checks for outcome in outcomes] == [{"sums": "", "bars": "", "state": ""}] * len(outcomes)
    assert sum(outcome.kills for outcome in outcomes) == 3


def marked(folder: Path, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, but a file with the worker's process id is there while it runs, which takes at least 30 ms."""

    def inside(*arguments: Any) -> Any:
        mark = folder / str(os.getpid())
        mark.touch()
        time.sleep(0.03)
        given = fn(*arguments)
        mark.unlink()
        return given

    inside.__name__ = fn.__name__
    return inside


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "v", pa.array(batch.column("v").to_numpy() * 2.0))


def kill_one(folder: Path, deadline_s: float = 60.0) -> int:
    """SIGKILL a worker that is inside the user's function, known by the mark it made itself."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        for mark in folder.iterdir():
            worker = psutil.Process(int(mark.name))
            assert os.getpid() in [parent.pid for parent in worker.parents()]
            os.kill(worker.pid, signal.SIGKILL)
            return worker.pid
        time.sleep(0.001)
    raise AssertionError("no worker was seen at work")


def test_a_killed_worker_is_replaced_and_the_result_is_the_sequential_one(spark: SparkSession, tmp_path: Path) -> None:
    """One that keeps state; of a farm: tests/engine/test_faults_under_control.py."""
    marks = tmp_path / "marks"
    marks.mkdir()
    sum_fn = marked(marks, tools.running_sum)
    flow = ps.Flow("kill")
    farm = flow.read(tools.stream(spark, 7_000)).map(double, replicas=ps.elastic(1, 4), chunk=100, name="farm")
    farm.stateful(sum_fn, **tools.RUNNING, name="sums").write("parquet", path=str(tmp_path / "out"))
    job = flow.start(spark, checkpoint=str(tmp_path / "ckpt"), policy=tools.Changing((1, 3, 2, 4)), available_now=True)
    widths: set[int] = set()
    job.on_batch(lambda record: widths.update(record.decision["widths"].values()))
    killed = {kill_one(marks)}
    while job.host.finished < 6:  # and another one in a later batch
        assert not job.await_end(0.05)
    for mark in marks.iterdir():  # of those that died
        if int(mark.name) in killed:
            mark.unlink()
    killed.add(kill_one(marks))

    assert job.await_end(120)
    job.stop()

    plain = tools.static(spark, 7_000).toArrow()
    after, state = tools.expected_sums(double(plain))
    out = tools.parquet(tmp_path / "out").to_pylist()
    assert len(killed) == 2
    assert len(out) == len(after)
    assert {row["i"]: row["so_far"] for row in out} == after
    assert {row["k"]: (row["total"], row["n"]) for row in job.state("sums").to_pylist()} == state
    assert widths == {1, 2, 3, 4}
