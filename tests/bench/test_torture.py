"""Torture must notice what it is there to notice: lost rows, doubled rows, wrong state."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock.bench import torture
from penstock.bench.processes import Child
from penstock.bench.torture_flow import SHAPES, Results, Task, differences, expected
from penstock.engine.spark.crash import POINTS


def test_the_plan_aims_at_every_point_and_depends_on_the_seed_alone() -> None:
    chosen = torture.plan(50, seed=3)

    assert len(chosen) == 50
    assert {kill.point for kill in chosen if kill.since == "point"} == set(POINTS)
    assert {kill.since for kill in chosen} == {"point", "start", "progress"}
    assert torture.plan(50, seed=3) == chosen != torture.plan(50, seed=4)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_expectation_counts_every_row(shape: str) -> None:
    want = expected(Task.of(batches=4, shape=shape))

    assert want.sums.total() == 2000  # a tenth is dropped, a tenth doubled
    assert sum(n for _, n in want.state.values()) == 2000
    assert sum(bar[4] * times for bar, times in want.bars.items()) == 2 * 2000  # each row is in two windows
    assert {bar[2] - bar[1] for bar in want.bars} == {2_000_000}


def test_lost_doubled_and_wrong_are_told_apart() -> None:
    want = Results(Counter({("a",): 1, ("b",): 2}), Counter({("w",): 1}), {1: (2.0, 1)})

    lost = differences(Results(Counter({("a",): 1, ("b",): 1}), want.bars, want.state), want)
    doubled = differences(Results(want.sums, Counter({("w",): 2}), want.state), want)
    wrong = differences(Results(want.sums, want.bars, {1: (2.0, 2)}), want)

    assert "1 of 3 rows lost, 0 too many" in lost["sums"]
    assert "0 of 1 rows lost, 1 too many" in doubled["bars"]
    assert "1 keys differ" in wrong["state"]
    assert not any((lost["bars"], lost["state"], doubled["sums"], doubled["state"], wrong["sums"], wrong["bars"]))


def test_a_kill_reaches_processes_that_left_the_group(tmp_path: Path) -> None:
    leave = "import os, time; os.setpgid(0, 0); print('left', flush=True); time.sleep(60)"
    spawn = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {leave!r}])"
    child = Child([sys.executable, "-c", spawn], tmp_path / "log")
    while "left" not in child.tail():
        assert child.code is None

    assert child.kill() == 2
    assert child.members() == []
    assert child.code == -9
