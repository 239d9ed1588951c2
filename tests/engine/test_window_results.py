"""What windows compute, against Spark's own window() and plain Python: aggregates, chains, details, late rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import UserFunctionError
from penstock.windows.content import Window
from tests.engine.test_farm import note, notes
from tests.engine.test_window_kinds import make_batches, read, write
from tests.engine.tools import Changing


def agreed(ours: pa.Table, theirs: pa.Table) -> None:
    """The same rows and columns: floats within 1e-9 of their size, all else exactly."""
    assert ours.schema.names == theirs.schema.names
    assert [str(f.type) for f in ours.schema] == [str(f.type) for f in theirs.schema]
    key = lambda row: repr([row[name] for name in row if name in ("case", "k", "window")])  # noqa: E731
    left, right = sorted(ours.to_pylist(), key=key), sorted(theirs.to_pylist(), key=key)
    assert len(left) == len(right) > 50
    for mine, other in zip(left, right, strict=True):
        for name, value in other.items():
            if isinstance(value, float):
                assert mine[name] == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), (name, mine, other)
            else:
                assert mine[name] == value, (name, mine, other)


def natives(frame: DataFrame, key: list[str], unit: str = "microseconds") -> DataFrame:
    return frame.groupBy(*key, F.window("ts", f"30 {unit}", f"7 {unit}")).agg(
        F.sum("d").alias("total"), F.sum("i").alias("ids"), F.count("*").alias("n"), F.avg("d").alias("avg"),
        F.min("d").alias("least"), F.max("ts").alias("newest"), F.max("k").alias("name"),
        F.var_samp("d").alias("var"), F.stddev_samp("d").alias("std"), F.covar_samp("d", "i").alias("cov"),
    )  # fmt: skip


def ours(rows: ps.Stream, key: tuple[str, ...], **options: Any) -> ps.Stream:
    unit = options.pop("unit", "us")
    spec = ps.Time(f"30 {unit}", slide=f"7 {unit}", lateness=options.pop("lateness", "0 s"))
    windows = rows.window(spec, key=key, **options)
    return windows.aggregate(
        total=ps.sum("d"), ids=ps.sum("i"), n=ps.count(), avg=ps.mean("d"), least=ps.min("d"), newest=ps.max("ts"),
        name=ps.max("k"), var=ps.var("d"), std=ps.std("d"), cov=ps.covariance("d", "i"),
    )  # fmt: skip


@pytest.mark.parametrize("pattern", ["pane", "key"])
def test_aggregates_on_a_batch_equal_sparks(spark: SparkSession, tmp_path: Path, pattern: str) -> None:
    batches = make_batches(21)
    frame = spark.read.parquet(write([[row for batch in batches for row in batch]], tmp_path / "in"))
    frame = frame.where("k is not null")
    mine = ours(ps.Flow("batch").read(frame, time="ts"), ("case", "k"), pattern=pattern).to_df()
    assert [(f.name, f.dataType) for f in mine.schema] == [
        (f.name, f.dataType) for f in natives(frame, ["case", "k"]).schema
    ]
    agreed(mine.toArrow(), natives(frame.where("ts is not null"), ["case", "k"]).toArrow())


def test_aggregates_on_a_stream_equal_sparks_under_its_watermark(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(22, disorder=70)  # late rows by the dozen
    for row in (row for batch in batches for row in batch if row["ts"] is not None):
        row["ts"] = row["ts"] * 1000 + 10**9  # its watermark counts in milliseconds and begins with the year 1970
    folder = write(batches, tmp_path / "in")
    flow = ps.Flow("stream")
    ours(flow.read(read(spark, folder), time="ts"), ("case",), lateness="5 ms", unit="ms").write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "mine"), Changing((1, 3, 2)), available_now=True)
    assert job.await_end(600)
    job.stop()
    frame = natives(read(spark, folder).withWatermark("ts", "5 milliseconds"), ["case"], "milliseconds")
    query = frame.writeStream.format("memory").queryName("theirs").outputMode("append")
    query = query.option("checkpointLocation", str(tmp_path / "theirs")).trigger(availableNow=True).start()
    query.awaitTermination()
    # Spark runs one batch more than there are files, in which the last watermark closes windows; a flush of ours would
    # close all, so compare what both have seen closed by the watermark of the batches before the last.
    theirs, mine = spark.table("theirs").toArrow(), job.memory("out")
    last = max(row["end"] for row in mine.column("window").to_pylist())
    agreed(mine, theirs.filter(pa.array([row["end"] <= last for row in theirs.column("window").to_pylist()])))
    dropped = [json.loads(p.json)["stateOperators"][0]["numRowsDroppedByWatermark"] for p in query.recentProgress]
    assert dropped[: len(batches)] == missed_groups(batches, ps.Time("30 ms", slide="7 ms", lateness="5 ms"))


def missed_groups(batches: list[list[dict[str, Any]]], spec: ps.Time) -> list[int]:
    """How many pairs of a case and a window were missed in each batch: what Spark counts as dropped."""
    found, closed, watermark = [], -1, -1
    for batch in batches:
        times = [(row["case"], row["ts"]) for row in batch if row["ts"] is not None]
        holds = {(case, k) for case, t in times for k in range(spec.first_window(t), spec.last_window(t) + 1)}
        found.append(sum(spec.end_of(k) <= closed for _, k in holds))
        closed, watermark = watermark, max(watermark, *(t - spec.lateness_us for _, t in times))
    assert sum(found) > 20
    return found


def test_chains_late_rows_of_native_panes_and_the_cost_of_sparse_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Sums per key and 10 us, then the greatest of these sums over all keys and 20 us; late rows are given out.

    With a row's number as the key, every key has one row: it is lifted once, and one pane of it is written, once.
    """
    batches, calls = make_batches(24, disorder=70), tmp_path / "calls"
    calls.mkdir()

    def lift(columns: Any) -> Any:
        note(str(calls), {"lifted": len(columns["i"])})
        return columns["i"]

    flow = ps.Flow("chain")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")), time="ts")
    bars = rows.window(ps.Time("10 us", lateness="70 us"), key=("case", "k"), name="bars").aggregate(n=ps.count())
    bars.window(ps.Time("20 us"), key="case", name="peaks").aggregate(peak=ps.max("n"), bars=ps.count()).write(
        "memory", name="out"
    )
    spec = ps.Time("10 us", slide="4 us")
    windows = rows.window(spec, key="case", name="strict").aggregate(n=ps.count())
    windows.late.write("memory", name="late")
    own = ps.Aggregate(lift, lambda a, b: np.bitwise_xor(a[0], b[0]), lambda s: s[0], columns="i", result="bigint")
    sparse = rows.window(ps.Time("25 us", slide="10 us", lateness="70 us"), key="i", name="sparse")
    sparse.aggregate(xor=own).write("memory", name="xors")
    written: list[int] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 3, 2)), available_now=True)
    job.on_batch(lambda record: written.extend(s.state_rows for s in record.operators if s.name == "sparse"))
    assert job.await_end(600)
    job.stop(flush=True)
    timed = [row for batch in batches for row in batch if row["ts"] is not None]
    assert sum(n["lifted"] for n in notes(calls)) == len(timed)
    assert 0 < sum(written) <= len(timed)
    assert Counter(zip(*job.memory("xors").select(["i", "xor"]).to_pydict().values(), strict=True)) == Counter(
        {(row["i"], row["i"]): len(range(*window_range(row["ts"]))) for row in timed}
    )
    counts: dict[Any, int] = {}
    for row in timed:
        key = (row["case"], row["k"], row["ts"] // 10 * 10)
        counts[key] = counts.get(key, 0) + 1
    want: dict[Any, list[int]] = {}
    for (case, _, start), n in counts.items():
        want.setdefault((case, start // 20 * 20), []).append(n)
    got = {
        (row["case"], round(row["window"]["start"].timestamp() * 1e6)): (row["peak"], row["bars"])
        for row in job.memory("out").to_pylist()
    }
    assert got == {key: (max(found), len(found)) for key, found in want.items()}
    assert job.memory("out").num_rows == len(got)
    late, closed, watermark = [], None, None
    for batch in batches:
        for row in batch:
            time = row["ts"]
            if time is None or (closed is not None and spec.has_missed(np.array([time]), closed)[0]):
                late.append(row["i"])
        seen = [row["ts"] for row in batch if row["ts"] is not None]
        closed, watermark = watermark, max([*seen, *([watermark] if watermark is not None else [])])
    assert sorted(job.memory("late").column("i").to_pylist()) == sorted(late)
    nulls = sum(map(len, batches)) - len(timed)  # late for "bars" and "sparse", too
    assert job.report().to_json()["late"] == len(late) + 2 * nulls
    assert len(late) > nulls + 20


def window_range(time: int) -> tuple[int, int]:
    """The numbers of the windows of 25 us that slide by 10 us and hold a time, by definition."""
    inside = [k for k in range(-100, 100) if 10 * k <= time < 10 * k + 25]
    return inside[0], inside[-1] + 1


def fails_on_seven(window: Window) -> dict[str, Any]:
    if 7 in window["i"]:
        raise ValueError("seven")
    return {"n": len(window)}


def test_a_window_function_that_raises_names_key_and_window(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(26, disorder=0, count=1)
    flow = ps.Flow("raises")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")))
    rows.window(ps.Count(2), key="case", name="pairs").apply(fails_on_seven, "n int").write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    with pytest.raises(UserFunctionError) as caught:
        job.await_end(60)
    job.stop()
    text = str(caught.value)
    for part in ("operator 'pairs'", "ValueError: seven", "key {'case': 0}", "window 7 .. 8", "fails_on_seven"):
        assert part in text, text
