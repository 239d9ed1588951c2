"""Faults while a bound is kept: results stay those of the sequential run, decisions stay sane, the bound recovers.

Each job is live: rows fall due by the clock, a latency is required, the default policy decides. A test goes on until
what it waits for has happened, at most so many batches; what came out is then compared with the sequential run over
the rows that were read.
"""

from __future__ import annotations

import functools
import math
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock import sources
from penstock.engine.spark.files import Folder
from penstock.observe.record import BatchRecord
from penstock.sources.generate import BLOCK
from tests.engine.tools import RUNNING, expected_sums, parquet, rows, running_sum, static

BOUND_S = 1.0
PER_SECOND = 400.0
WIDEST = 4
BAR = 25  # rows of a count window
LOOKS = 9000  # of 20 ms: how long a test waits at most
HOUR_S = 3600.0

Action = Callable[[], None]


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Live:
    """A farm and keyed state under a bound, and a window beside them, on rows that fall due by the clock."""

    def __init__(
        self, spark: SparkSession, folder: Path, *, source: Any = rows, farm: Any = same, sums: Any = running_sum
    ) -> None:
        self.spark, self.folder = spark, folder
        flow = ps.Flow("bounded")
        frame = sources.replay(
            spark, source, schema="i bigint, v double", keys={"k": sources.uniform(20)},
            schedule=sources.constant(PER_SECOND),
        )  # fmt: skip
        read = flow.read(frame, name="quotes")
        elastic = ps.elastic(1, WIDEST)
        summed = read.map(farm, replicas=elastic, chunk=32, name="farm").stateful(
            sums, name="sums", replicas=elastic, **RUNNING
        )
        summed.write("parquet", path=str(folder / "out"), name="out")
        bars = read.window(ps.Count(BAR), key="k", name="bars").aggregate(total=ps.sum("v"), n=ps.count())
        bars.write("parquet", path=str(folder / "bars"), name="to_bars")
        flow.require(ps.Latency(read, summed, p95=f"{BOUND_S * 1e3:.0f} ms", over="2 s"))
        self.records: list[BatchRecord] = []
        self.job = flow.start(spark, str(folder / "ckpt"))
        self.job.on_batch(self.records.append)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.job.stop()

    def until(self, holds: Callable[[], bool], batches: int = 40) -> None:
        """Go on until something holds; patience is counted in batches, for a machine may be slow."""
        last = len(self.records) + batches
        for _ in range(LOOKS):
            if holds():
                return
            assert len(self.records) <= last, f"not in {batches} batches: p95 {self.p95_s()[-batches:]}"
            assert not self.job.await_end(0.02)
        raise AssertionError(f"only {len(self.records)} batches; faults {self.job.faults}")

    def more(self, batches: int) -> None:
        """Go on for some batches."""
        enough = len(self.records) + batches
        self.until(lambda: len(self.records) >= enough)

    def recover(self, fault: int) -> None:
        """Go on until two batches in a row have kept the bound.

        On a machine that is too busy for the bound the job runs as fast as it can: then until they are about as fast
        as those before the batch with the fault, but for the first.
        """
        reached, since = max(BOUND_S, 2.0 * float(np.median(self.p95_s()[1:fault]))), len(self.records)
        self.until(lambda: len(self.records) >= since + 2 and max(self.p95_s()[-2:]) <= reached)

    def p95_s(self) -> list[float]:
        """The latency of each batch so far, as the bound counts it."""
        found = [record.latency["out"].quantile(0.95) for record in list(self.records) if "out" in record.latency]
        return [value for value in found if value is not None]

    def end(self) -> int:
        """Stop, and compare all that came out with the sequential run; the number of rows."""
        self.job.stop()
        newest = self.job.ledger.newest()
        total: int = self.job.ledger.manifest(newest)["offsets"][0]["row"]
        truth = static(self.spark, total).toArrow()
        after, state = expected_sums(truth)
        written = parquet(self.folder / "out").to_pylist()
        assert Counter(row["i"] for row in written) == Counter(range(total)), "each row once"
        assert {row["i"]: row["so_far"] for row in written} == after, "in the order of each key"
        assert {row["k"]: (row["total"], row["n"]) for row in self.job.state("sums").to_pylist()} == state
        assert Counter(map(bar, parquet(self.folder / "bars").to_pylist())) == expected_bars(truth)
        self.check_decisions()
        return total

    def check_decisions(self) -> None:
        """The policy never failed, and nothing it decided or was shown is absurd."""
        assert [record.control["error"] for record in self.records if "error" in record.control] == []
        for record in self.records:
            assert 0.0 <= record.decision["lifetime_s"] <= 2.0 * BOUND_S
            assert all(1 <= record.decision["widths"][name] <= WIDEST for name in ("farm", "sums"))
            assert all(math.isfinite(value) for value in record.control.get("predicted_s", {}).values())
        assert "verdict" in self.records[-1].control, "the bound is judged to the end"


def bar(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["k"], row["window"]["start"], row["window"]["end"], row["total"], row["n"]


def expected_bars(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The count windows of each key, one row after the other."""
    seen: dict[int, list[float]] = {}
    found: Counter[tuple[Any, ...]] = Counter()
    for row in sorted(table.to_pylist(), key=lambda row: row["i"]):
        values = seen.setdefault(row["k"], [])
        values.append(row["v"])
        if len(values) % BAR == 0:
            end = len(values)
            found[row["k"], end - BAR + 1, end, sum(values[-BAR:]), BAR] += 1
    return found


# -- what makes a task fail: runs in the worker ----------------------------------------------------------------------


def first_times(marks: Path, what: str, times: int = 1) -> bool:
    """Whether this is one of the first so many times, over all processes."""
    for number in range(times):
        try:
            os.close(os.open(marks / f"{what}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def failing(fn: Callable[..., Any], marks: Path, action: Action, since: int, times: int = 1) -> Callable[..., Any]:
    """`fn`, but its first replica does something bad in its first calls from batch `since` on."""
    marks.mkdir(exist_ok=True)

    def inside(*arguments: Any) -> Any:
        here = ps.replica()
        if here.batch >= since and here.number == 0 and first_times(marks, fn.__name__, times):
            action()
        return fn(*arguments)

    return inside


def die() -> None:
    """As the kernel ends a process that has too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    """As a native library ends a process that it does not like."""
    os._exit(3)


def fill_the_disk() -> None:
    """Let this process write no more than 100 bytes to a file: the rest is an OSError of the system.

    The worker ends with its failed task, and the limit with it.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


# -- tests -----------------------------------------------------------------------------------------------------------


def test_killed_workers_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    farm, sums = failing(same, marks, die, since=4), failing(running_sum, marks, die, since=5)
    with Live(spark, tmp_path, farm=farm, sums=sums) as live:
        live.until(lambda: len(list(marks.iterdir())) == 2)
        live.recover(4)
        total = live.end()
    assert live.job.faults == [], "Spark starts the task again"
    rows_of_farm = sum(stats.rows_in for record in live.records for stats in record.operators if stats.name == "farm")
    assert rows_of_farm == total, "no attempt is counted twice"


def test_a_task_that_fails_is_tried_again_and_after_too_many_the_job_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def flaky(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
        if index[0] == BLOCK and first_times(marks, "source"):
            raise ConnectionResetError("the broker closed the connection")
        return rows(index, random)

    farm = failing(same, marks, leave, since=6, times=4)
    with Live(spark, tmp_path, source=flaky, farm=farm) as live:
        live.until(lambda: (marks / "source-0").exists() and (marks / "same-3").exists())
        live.recover(4)
        live.end()
    assert len(live.job.faults) == 1, "that the source failed once was a matter of Spark's"
    assert "crashed" in live.job.faults[0] or "exited" in live.job.faults[0]
    assert any(record.replayed for record in live.records)


def test_a_write_of_state_that_fails_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    """The system refuses the write in the middle of the file; the half file that is left counts for nothing."""
    marks = tmp_path / "marks"
    sums = failing(running_sum, marks, fill_the_disk, since=4)
    farm = failing(same, marks, fill_the_disk, since=5)  # it keeps no state: what fails is the report it leaves
    with Live(spark, tmp_path, farm=farm, sums=sums) as live:
        live.until(lambda: len(list(marks.iterdir())) == 2)
        live.recover(4)
        live.end()
        files = list((tmp_path / "ckpt/penstock/files").rglob("*"))
        torn = {file.name.split("-")[0] for file in files if file.is_file() and file.stat().st_size == 100}
    assert torn == {"state", "report"}
    assert live.job.faults == [], "half a file costs one task"


def slow_writes(flag: Path) -> None:
    """Let every file of a checkpoint that this process writes take 0.3 s longer, while the flag is there."""
    quick = getattr(Folder.write, "__wrapped__", Folder.write)

    @functools.wraps(quick)
    def write(self: Folder, relative: str, data: pa.Buffer | bytes) -> None:
        if flag.exists():
            time.sleep(0.3)
        quick(self, relative, data)

    Folder.write = write  # type: ignore[method-assign]


def test_after_a_slow_disk_the_bound_is_kept_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "slow"

    def sums(batch: pa.RecordBatch, state: ps.KeyedState) -> Any:
        slow_writes(flag)
        return running_sum(batch, state)

    monkeypatch.setattr(Folder, "write", Folder.write)  # puts it back
    slow_writes(flag)
    with Live(spark, tmp_path, sums=sums) as live:
        live.more(5)
        flag.touch()
        live.more(3)
        flag.unlink()
        live.recover(5)
        live.end()
    assert min(live.p95_s()[6:8]) > BOUND_S, "four writes, one after the other, before a result is seen"
    assert live.job.faults == []


def test_a_clock_that_jumps_changes_no_result_and_no_decision_stays_wrong(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's clock is set an hour ahead, then an hour back; rows keep being stamped by the right one."""
    right, ahead_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s[0])
    with Live(spark, tmp_path) as live:
        live.more(5)
        for ahead_s[0] in (HOUR_S, -HOUR_S):
            live.more(3)
        ahead_s[0] = 0.0
        live.more(1)  # in which it is set right
        live.recover(5)
        live.end()
    assert live.job.faults == []
    fixed = [record.control["inputs"]["fixed_ms"] for record in live.records if "inputs" in record.control]
    assert max(fixed) < 60e3
    assert max(abs(record.parts["spark"]) for record in live.records) < 60
