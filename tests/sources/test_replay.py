"""The replay on Spark: restarts, limits, triggers and partitions."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.sources import constant, poisson, replay, replay_batch, write_limits, zipf
from penstock.sources.schedule import Schedule

LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = "id bigint, x double"
MICROS = "unix_micros(scheduled) as us"


def rows(index: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
    return {"id": index, "x": random.random(len(index))}


def run(frame: DataFrame, checkpoint: Path, after: Any = None) -> dict[int, list[Any]]:
    """What is available now, by batch id, in the order of (partition, position)."""
    batches: dict[int, list[Any]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = batch.selectExpr("id", "x", "key", MICROS).collect()
        if after:
            after(number)

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(120), "availableNow must end"
    return batches


def stream(spark: SparkSession, schedule: Schedule, **given: Any) -> DataFrame:
    return replay(spark, rows, schema=SCHEMA, keys={"key": zipf(20)}, schedule=schedule, **given)


def sizes(batches: dict[int, list[Any]]) -> list[int]:
    return [len(batches[number]) for number in sorted(batches)]


def test_a_restart_keeps_the_start_and_neither_loses_nor_repeats(spark: SparkSession, tmp_path: Path) -> None:
    schedule = constant(1000)
    first = run(stream(spark, schedule), tmp_path)
    time.sleep(0.5)
    # The checkpoint's start instant wins over an explicit one, and the rows of the pause are due at once.
    second = run(stream(spark, schedule, start=LONG_AGO), tmp_path)
    assert min(second) == max(first) + 1
    everything = [row for batches in (first, second) for number in sorted(batches) for row in batches[number]]
    assert [row.id for row in everything] == list(range(len(everything)))
    assert len(everything) >= 500
    start = everything[0].us
    assert [row.us - start for row in everything] == [1000 * number for number in range(len(everything))]
    assert abs(start / 1e6 - time.time()) < 120


def test_a_batch_that_was_not_committed_is_replayed_alike(spark: SparkSession, tmp_path: Path) -> None:
    frame = stream(spark, constant(1000))
    first = run(frame, tmp_path)
    (tmp_path / "commits" / "0").unlink()  # as after a crash; Spark then asks for the initial offset again
    assert run(frame, tmp_path)[0] == first[0]
    logged = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1])
    assert logged == {"row": 1, "start_us": first[0][0].us}


@pytest.mark.parametrize(
    ("limit", "expected"), [({"max_rows": 3000}, [3000, 3000, 2000]), ({"max_seconds": 2.5}, [2500, 2500, 2500, 500])]
)
def test_limits_cut_the_batches(spark: SparkSession, tmp_path: Path, limit: Any, expected: list[int]) -> None:
    batches = run(stream(spark, constant(1000), total=8000, start=LONG_AGO, **limit), tmp_path)
    assert sizes(batches) == expected


def test_limits_change_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    control = tmp_path / "limits.json"

    def turn(number: int) -> None:
        if number == 1:
            write_limits(control, max_rows=100)
        elif number == 3:
            write_limits(control, max_seconds=0.7)
        elif number == 4:
            control.unlink()

    frame = stream(spark, constant(1000), total=4000, start=LONG_AGO, max_rows=1000, control=control)
    assert sizes(run(frame, tmp_path / "checkpoint", turn)) == [1000, 1000, 100, 100, 700, 1000, 100]


def test_batches_and_partitions_do_not_change_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    given = {"total": 50_000, "start": LONG_AGO, "seed": 3}
    schedule = poisson(1000, seed=1)
    whole = replay_batch(spark, rows, schema=SCHEMA, keys={"key": zipf(20)}, schedule=schedule, partitions=1, **given)
    assert whole.rdd.getNumPartitions() == 1
    oracle = whole.selectExpr("id", "x", "key", MICROS).collect()
    assert [row.id for row in oracle] == list(range(50_000))
    batches = run(stream(spark, schedule, max_rows=17_001, partitions=4, split_rows=2000, **given), tmp_path)
    assert sizes(batches) == [17_001, 17_001, 15_998]
    assert [row for number in sorted(batches) for row in batches[number]] == oracle


def test_the_frame_carries_its_spec(spark: SparkSession) -> None:
    frame = stream(spark, constant(10), total=5, control="limits.json")
    spec = frame._penstock_replay
    assert (spec.total, spec.scheduled, spec.schedule) == (5, "scheduled", constant(10))
    assert frame.isStreaming and frame.columns == ["id", "x", "key", "scheduled"]
    assert getattr(frame.where("id > 0"), "_penstock_replay", None) is None


def test_a_trigger_that_wants_everything_gets_it(spark: SparkSession, tmp_path: Path) -> None:
    counts: list[int] = []
    frame = stream(spark, constant(1000), total=5000, start=LONG_AGO, max_rows=1000)
    query = frame.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
    running = query.option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    assert running.awaitTermination(120)
    assert counts == [5000]
