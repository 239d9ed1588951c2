"""Every kind of window on a stream equals its sequential oracle: content, bounds, late rows, flush; cut at random.

Each test packs many random cases into one Spark run: the key is (case, k), so a case is a stream of its own except for
the watermark, which all share.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark.crash import CrashPlan
from penstock.windows.content import Window
from penstock.windows.oracle_kinds import CountOracle, DeltaOracle, EveryOracle
from penstock.windows.oracle_time import TimeOracle
from tests.engine.tools import Changing

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("case", pa.int64()),
        ("k", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("d", pa.float64()),
    ]
)
IDS = "ids array<bigint>"
CASES = 40
BATCHES = 4


def ids(window: Window) -> dict[str, Any]:
    """What a window holds, in order."""
    return {"ids": window["i"].tolist()}


def pane_ids(pane: Window) -> list[int]:
    return list(pane["i"].tolist())


def join_ids(panes: list[list[int]], window: Window) -> dict[str, Any]:
    return {"ids": [i for pane in panes for i in pane]}


def make_batches(seed: int, *, disorder: int = 15) -> list[list[dict[str, Any]]]:
    """Cases with 1 to 12 keys, uniform to very skewed; event times with ties, disorder and nulls; some null keys."""
    random = np.random.default_rng(seed)
    batches: list[list[dict[str, Any]]] = [[] for _ in range(BATCHES)]
    number = 0
    rising: dict[Any, float] = {}
    for case in range(CASES):
        keys = int(random.integers(1, 13))
        weights = 1.0 / np.arange(1, keys + 1) ** random.choice([0.0, 1.0, 3.0])
        for batch in range(BATCHES):
            for _ in range(int(random.integers(0, 40))):
                which = int(random.choice(keys, p=weights / weights.sum()))
                key = None if which == 11 else f"k{which}"
                time = batch * 40 + int(random.integers(0, 40)) - int(random.integers(0, disorder + 1))
                rising[(case, key)] = rising.get((case, key), 0.0) + float(random.choice([0, 0, 0.5, 1, 3]))
                row = {"i": number, "case": case, "k": key, "ts": time, "d": rising[(case, key)]}
                if random.random() < 0.02:
                    row["ts"] = None
                batches[batch].append(row)
                number += 1
    for batch in batches:
        order = random.permutation(len(batch)) if disorder else np.arange(len(batch))
        batch[:] = [batch[j] for j in order]
    return batches


def write(batches: list[list[dict[str, Any]]], folder: Path) -> str:
    folder.mkdir()
    for number, batch in enumerate(batches):
        pq.write_table(pa.Table.from_pylist(batch, SCHEMA), folder / f"{number:03d}.parquet")
    return str(folder)


def read(spark: SparkSession, folder: str) -> Any:
    schema = "i bigint, case bigint, k string, ts timestamp, d double"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)


def oracle_of(spec: Any, timed: bool) -> Any:
    if isinstance(spec, ps.Count):
        return CountOracle(spec, timed)
    if isinstance(spec, ps.Delta):
        return DeltaOracle(spec, timed)
    return EveryOracle(spec, timed) if spec.every else TimeOracle(spec)


def expected(
    spec: Any, batches: list[list[dict[str, Any]]], timed: bool, *, flush: bool
) -> tuple[list[Any], list[Any]]:
    """Run the oracle: (windows as (case, key, start, end, ids), ids of late rows)."""
    oracle = oracle_of(spec, timed)
    keys = {f"{row['case']} {row['k']}": (row["case"], row["k"]) for batch in batches for row in batch}
    found = []
    for batch in batches:
        rows = [{**row, "key": f"{row['case']} {row['k']}", "time": row["ts"]} for row in batch]
        found += oracle.batch([{n: row[n] for n in ("key", "time", "i", "d")} for row in rows])
    if flush:
        found += oracle.flush()
    windows = [(*keys[w.key], w.start, w.end, [row["i"] for row in w.rows]) for w in found]
    return sorted(windows, key=repr), sorted(row["i"] for row in oracle.late)


def bounds(value: Any) -> int:
    return value if isinstance(value, int) else round(value.timestamp() * 1e6)


def got(table: pa.Table, *, ordered: bool = True) -> list[Any]:
    rows = [
        (r["case"], r["k"], bounds(r["window"]["start"]), bounds(r["window"]["end"]), r["ids"])
        for r in table.to_pylist()
    ]
    return sorted(rows if ordered else [(*r[:4], sorted(r[4])) for r in rows], key=repr)


TIMED = {
    "count": ps.Count(5, slide=2, lateness="7 us"),
    "gaps": ps.Count(3, slide=5),
    "partial": ps.Count(6, slide=2, partial=True, lateness="20 us"),
    "every": ps.Time("30 us", every=3, lateness="10 us"),
    "delta": ps.Delta("i", 40, slide=9, lateness="15 us"),
    "sliding": ps.Time("30 us", slide="7 us", lateness="5 us"),
    "first": ps.Time("20 us", slide="6 us", lateness="9 us", origin="first"),
    "empty": ps.Time("5 us", lateness="4 us", empty=True),
    "sparse": ps.Time("6 us", slide="11 us"),
}


def by_time(batches: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Number the rows by event time: a Delta attribute must rise in the order in which rows are taken."""
    flat = [row for batch in batches for row in batch]
    for number, row in enumerate(sorted(flat, key=lambda row: (row["ts"] is None, row["ts"] or 0))):
        row["i"] = number
    return batches


def test_content_of_every_kind_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    batches = by_time(make_batches(7))
    crash = {1: "state", 3: "manifest"}  # every other point: test_exactly_once
    flow = ps.Flow("kinds")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")), time="ts")
    for name, spec in TIMED.items():
        windows = rows.window(spec, key=("case", "k"), name=name).apply(ids, IDS)
        windows.write("memory", name=f"to_{name}")
        windows.late.write("memory", name=f"late_{name}")
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 8, 2, 5)), available_now=True, crash=CrashPlan(crash))
    assert job.await_end(300)
    job.stop(flush=True)
    assert len(job.faults) == len(crash)
    for name, spec in TIMED.items():
        want, late = expected(spec, batches, True, flush=True)
        assert len(want) > 50, name
        assert got(job.memory(f"to_{name}")) == want, name
        assert sorted(job.memory(f"late_{name}").column("i").to_pylist()) == late, name


UNTIMED = {"count": ps.Count(5, slide=2), "gaps": ps.Count(2, slide=3), "delta": ps.Delta("d", 4.0, slide=1.5)}


def test_order_of_reading_where_there_is_no_event_time(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(5, disorder=0)
    flow = ps.Flow("untimed")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")))
    for name, spec in UNTIMED.items():
        rows.window(spec, key=("case", "k"), name=name).apply(ids, IDS).write("memory", name=f"to_{name}")
    rows.window(ps.Count(7, slide=7), name="unkeyed").apply(ids, IDS).write("memory", name="to_unkeyed")
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 8, 2, 5)), available_now=True)
    assert job.await_end(300)
    job.stop()
    for name, spec in UNTIMED.items():
        want, _ = expected(spec, batches, False, flush=False)
        assert len(want) > 50, name
        assert got(job.memory(f"to_{name}")) == want, name
    every = [row["i"] for batch in batches for row in batch]
    full = [every[at : at + 7] for at in range(0, len(every) - 6, 7)]
    assert sorted(job.memory("to_unkeyed").column("ids").to_pylist()) == sorted(full)


def test_batch_dataframes_emit_every_window(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(11)
    flat = by_time([[row for batch in batches for row in batch]])
    frame = spark.read.parquet(write(flat, tmp_path / "in"))
    for name, spec in TIMED.items():
        flow = ps.Flow("batch")
        table = flow.read(frame, time="ts").window(spec, key=("case", "k")).apply(ids, IDS).to_df().toArrow()
        want, _ = expected(spec, flat, True, flush=True)
        assert got(table) == want, name


PANED = {
    "count": ps.Count(6, slide=4, lateness="7 us"),
    "partial": ps.Count(6, slide=2, partial=True, lateness="20 us"),
    "sliding": ps.Time("30 us", slide="12 us", lateness="5 us"),
    "sparse": ps.Time("6 us", slide="10 us"),
}


def test_pane_and_combine_functions(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(13)
    flow = ps.Flow("panes")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")), time="ts")
    for name, spec in PANED.items():
        windows = rows.window(spec, key=("case", "k"), name=name)
        windows.apply(pane=pane_ids, combine=join_ids, schema=IDS).write("memory", name=f"to_{name}")
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 8, 2, 5)), available_now=True)
    assert job.await_end(300)
    job.stop(flush=True)
    for name, spec in PANED.items():
        want, _ = expected(spec, batches, True, flush=True)
        # rows that come late for a pane already computed are a second piece of it, so order inside a pane may differ
        assert got(job.memory(f"to_{name}"), ordered=False) == sorted(
            [(*w[:4], sorted(w[4])) for w in want], key=repr
        ), name
