"""Windows closed ahead, by tasks that do not know all rows of the batch yet: it counts only where no row lies in them.

batch        0     1     2     3     4     5     6     7     8     9     10    11
rows         in order          back  in order          back  in order
width        1     4     2     1     4     2     1     4     2     1     4     2   two or three tasks read rows
closed       -     ahead ahead both  tick  ahead ahead both  tick  both  ahead ahead

Ahead is tried where the batch before was in order. Where the window is wider than tasks read rows, others help; in
batch 9 they do not come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.engine.spark import framer
from penstock.engine.spark.crash import CrashPlan
from penstock.engine.spark.kept_plan import in_partitions
from penstock.engine.spark.ticks import Ticks
from tests.engine.test_chaining import same
from tests.engine.test_window_kinds import expected, make_batches, numbers, read, write
from tests.engine.tools import Changing

BACK = (3, 7)
SHORT = 9  # a batch with fewer tasks than the driver counts on
FILES = 3  # of a batch: more than one task
SPECS = {
    "plain": ps.Time("37 us", slide="10 us"),
    "patient": ps.Time("30 us", slide="5 us", lateness="25 us"),
}
NAMED = {"total": ps.sum("i"), "n": ps.count()}


def test_what_was_closed_ahead_counts_only_where_no_row_of_the_batch_lies_in_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framer, "MANY_PANES", 0)
    random = np.random.default_rng(3)
    batches = make_batches(21, disorder=0, count=12, most=12)
    for number in BACK:
        for row in batches[number]:
            row["ts"] = None if row["ts"] is None else row["ts"] - int(random.integers(0, 70))
    settled: list[tuple[int, str, bool]] = []
    tasks: dict[int, int] = {}
    settle, ahead = Ticks.settle, Ticks.ahead

    def noted(self: Ticks, entry: dict[str, Any], clocks: dict[str, Any], reports: Any) -> None:
        before = [name for name in entry["appends"] if name in reports and clocks[name]["ahead"]]
        settle(self, entry, clocks, reports)
        tasks.setdefault(entry["id"], len(reports["plain"]) if "plain" in reports else 0)
        settled.extend((entry["id"], name, name not in entry["appends"]) for name in before)

    def too_many(self: Ticks, plan: Any, before: Any, entry: dict[str, Any], tasks_of: Any) -> dict[str, int]:
        shares = ahead(self, plan, before, entry, tasks_of)
        monkeypatch.setattr(framer, "in_partitions", not_more if entry["id"] == SHORT else in_partitions)
        return {name: share + 3 for name, share in shares.items()} if entry["id"] == SHORT else shares

    def not_more(batch: DataFrame, least: int) -> DataFrame:
        assert least > 2
        return batch

    monkeypatch.setattr(Ticks, "settle", noted)
    monkeypatch.setattr(Ticks, "ahead", too_many)
    folder = write([batch[n::FILES] for batch in batches for n in range(FILES)], tmp_path / "in")
    flow = ps.Flow("ahead")
    rows = flow.read(read(spark, folder, FILES), time="ts")
    for name, spec in SPECS.items():
        windows = rows.window(spec, key=("case", "k"), name=name).aggregate(**NAMED)
        windows.write("memory", name=f"to_{name}")
    stepped = rows.window(SPECS["plain"], key=("case", "k"), name="stepped").aggregate(**NAMED)
    stepped.map(same, name="step").write("memory", name="to_stepped")
    behind = rows.window(ps.Time("10 us"), key=("case", "k"), name="first").aggregate(**NAMED)
    again = behind.window(ps.Time("100 us"), key=("case", "k"), name="second")
    again.aggregate(n=ps.sum("n")).write("memory", name="to_second")
    crash = CrashPlan({2: "state", 5: "output"})
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 4, 2)), available_now=True, crash=crash)
    assert job.await_end(600)
    job.stop(flush=True)
    assert crash.left == {} and len(job.faults) == 2
    for name, spec in SPECS.items():
        want, _ = expected(spec, batches, True, flush=True)
        assert len(want) > 500, name
        assert numbers(job.memory(f"to_{name}")) == [(*w[:4], sum(w[4]), len(w[4]), None) for w in want], name
    assert numbers(job.memory("to_stepped")) == numbers(job.memory("to_plain"))
    want, _ = expected(ps.Time("10 us"), batches, True, flush=True)
    assert sum(job.memory("to_second").column("n").to_pylist()) == sum(len(w[4]) for w in want) > 0

    plain = {batch: counts for batch, name, counts in settled if name == "plain"}
    assert {batch for batch, counts in plain.items() if counts} == {1, 2, 5, 6, 10, 11}
    assert {batch for batch, counts in plain.items() if not counts} == {*BACK, SHORT}, "tried, and taken back"
    assert tasks[1] == tasks[10] == 4 > tasks[2], "tasks without rows help only a window that is wider"
    assert any(counts for _, name, counts in settled if name == "patient")
    assert {name for _, name, _ in settled} == {*SPECS, "first", "second"}, (
        "a step behind a window could not be taken back"
    )
