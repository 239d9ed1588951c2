"""The demonstration's verdict: right output passes, a lost, doubled or changed row does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.apps import demo

TOTAL = 4000


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, dict[int, int]]:
    """The demonstration's flow over a few quotes, in two batches."""
    folder, written = tmp_path_factory.mktemp("demo"), dict[int, int]()
    stream = ps.sources.replay(
        spark, demo.quotes, schema="id bigint, price double", keys={"symbol": demo.SYMBOLS}, total=TOTAL, start=0,
        schedule=ps.sources.constant(demo.RATE), max_rows=2000,
    )  # fmt: skip
    job = demo.build(stream, folder, written).start(spark, str(folder / "checkpoint"), available_now=True)
    assert job.await_end(120)
    job.stop(flush=True)
    return stream, folder, written


def test_right_output_passes(run: tuple[Any, Path, dict[int, int]]) -> None:
    stream, folder, written = run
    right, line = demo.verdict(stream, TOTAL, folder, written)
    assert right, line
    assert line.startswith("RIGHT: 4,000 quotes in, ")
    assert sorted(written) == [0, 1, 2]  # the last one closes the windows
    assert written[2] == 0


def test_wrong_output_is_found(run: tuple[Any, Path, dict[int, int]], tmp_path: Path) -> None:
    stream, folder, written = run

    def verdict_after(change: Any, count: int = 0) -> str:
        shutil.rmtree(tmp_path / "totals", ignore_errors=True)
        shutil.copytree(folder / "totals", tmp_path / "totals")
        change(sorted((tmp_path / "totals").iterdir()))
        right, line = demo.verdict(stream, TOTAL, tmp_path, {0: sum(written.values()) + count})
        assert not right
        return line

    def add_a_cent(files: list[Path]) -> None:
        table = pq.read_table(files[1])
        changed = pc.add(table["total"], 0.01)
        pq.write_table(table.set_column(table.column_names.index("total"), "total", changed), files[1])

    lost, twice = -written[0], written[0]
    assert "lost or doubled" in verdict_after(lambda files: os.unlink(files[0]), lost)
    assert "lost or doubled" in verdict_after(lambda files: shutil.copy(files[0], f"{files[0]}.2.parquet"), twice)
    assert "totals differ" in verdict_after(add_a_cent)
    shutil.copytree(folder / "bars", tmp_path / "bars")
    written_bars = list((tmp_path / "bars").iterdir())
    pq.write_table(pq.read_table(written_bars[0]).slice(1), written_bars[0])
    assert "windows hold" in verdict_after(lambda files: None)
    for file in written_bars:
        os.unlink(file)
    assert "windows hold 0 quotes" in verdict_after(lambda files: None)
    assert demo.verdict(stream, 0, folder, written) == (False, "WRONG: nothing was processed")


def test_the_rate_steps_up_and_down() -> None:
    rows = [int(demo.load(7.0).count_us(second * 1_000_000)) for second in range(30)]
    per_s = np.diff(rows)
    assert [per_s[3], per_s[10], per_s[20], per_s[28]] == pytest.approx([4000, 8000, 2000, 2000], abs=2)


def test_what_it_costs_is_read_from_the_fourth_batch_on() -> None:
    meter = demo.Meter()
    meter.points = [(0.0, 0.0), (1.0, 50.0), (2.0, 60.0), (3.0, 61.0)]
    assert np.isnan(meter.rate), "nothing is known yet"
    meter.points += [(4.0, 61.5), (7.0, 63.0)]
    assert meter.rate == pytest.approx(0.5)
