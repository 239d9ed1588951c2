"""Every kind of window on a stream equals its sequential oracle: content, bounds, late rows, flush; cut at random.

Each test packs many random cases into one Spark run: the key is (case, k), so a case is a stream of its own except for
the watermark, which all share. The first runs all kinds by all paths while the job dies at every point there is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark import framer
from penstock.engine.spark.crash import POINTS, CrashPlan
from penstock.windows.aggregates import bind
from penstock.windows.content import Window
from penstock.windows.oracle_aggregates import evaluate
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


PRIME = 1_000_003
# A product modulo a prime: Spark has no such aggregate, and one row too many or too few shows.
PRODUCT = ps.Aggregate(
    lift=lambda c: c["i"] % 1009 + 1,
    combine=lambda a, b: a[0] * b[0] % PRIME,
    lower=lambda s: s[0],
    columns="i",
    result="bigint",
    name="product",
)


def product(numbers: list[int]) -> int:
    found = 1
    for i in numbers:
        found = found * (i % 1009 + 1) % PRIME
    return found


def make_batches(seed: int, *, disorder: int = 15, count: int = BATCHES, most: int = 40) -> list[list[dict[str, Any]]]:
    """Cases with 1 to 12 keys, uniform to very skewed; event times with ties, disorder and nulls; some null keys."""
    random = np.random.default_rng(seed)
    batches: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    number = 0
    rising: dict[Any, float] = {}
    for case in range(CASES):
        keys = int(random.integers(1, 13))
        weights = 1.0 / np.arange(1, keys + 1) ** random.choice([0.0, 1.0, 3.0])
        for batch in range(count):
            for _ in range(int(random.integers(0, most))):
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
        file = folder / f"{number:03d}.parquet"
        pq.write_table(pa.Table.from_pylist(batch, SCHEMA), file)
        os.utime(file, (number, number))  # a stream of files reads the oldest first
    return str(folder)


def read(spark: SparkSession, folder: str, files: int = 1) -> Any:
    schema = "i bigint, case bigint, k string, ts timestamp, d double"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(folder)


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


PANED = {
    "paned_count": ps.Count(6, slide=4, partial=True, lateness="20 us"),
    "paned_time": ps.Time("30 us", slide="12 us", lateness="5 us"),
}
LIFTED = {  # sizes that are no multiple of the slide: panes of unequal length
    "lifted": ps.Time("30 us", slide="7 us", lateness="5 us"),
    "lifted_gaps": ps.Time("6 us", slide="10 us"),
}
NATIVE = {"native": ps.Time("37 us", slide="10 us", lateness="3 us")}
ON_A_STREAM = {name: spec for name, spec in TIMED.items() if name not in ("gaps", "partial", "sparse")}


@pytest.mark.parametrize(
    ("at_once", "many_panes"), [(False, framer.MANY_PANES), (False, 0), (True, framer.MANY_PANES), (True, 0)]
)
def test_every_kind_with_crashes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool, many_panes: int
) -> None:
    """Where a latency is required, windows close as if a batch without rows came after each: Spark's own rule, too."""
    monkeypatch.setattr(framer, "MANY_PANES", many_panes)
    batches = by_time(make_batches(7, disorder=70, count=1 + len(POINTS), most=24))
    # Once before and once after what a batch did counts; tests/engine/test_exactly_once.py has every point.
    points = ["state", "manifest"]
    crash = CrashPlan(dict(enumerate(points, start=1)))
    flow = ps.Flow("kinds")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")), time="ts")
    results: dict[str, ps.Stream] = {}
    for name, spec in ON_A_STREAM.items():
        windows = results[name] = rows.window(spec, key=("case", "k"), name=name).apply(ids, IDS)
        windows.late.write("memory", name=f"late_{name}")
    for name, spec in PANED.items():
        paned = rows.window(spec, key=("case", "k"), name=name)
        results[name] = paned.apply(pane=pane_ids, combine=join_ids, schema=IDS)
    for name, spec in (LIFTED | NATIVE).items():
        named = {"total": ps.sum("i"), "n": ps.count()} | ({"product": PRODUCT} if name in LIFTED else {})
        windows = results[name] = rows.window(spec, key=("case", "k"), name=name).aggregate(**named)
        windows.late.write("memory", name=f"late_{name}")
    for name, windows in results.items():
        windows.write("memory", name=f"to_{name}")
        if at_once:
            flow.require(ps.Latency(rows, windows, mean="1 h"))
    paths = {"native": "pane farming", "lifted": "pane farming in Python", "sliding": "key partitioning"}
    for name, path in paths.items():
        assert f"  {name} [window, 1..64 replicas, key case, k, {path}, Time(" in flow.explain()
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 4, 2)), available_now=True, crash=crash)
    assert job.await_end(600)
    job.stop(flush=True)
    assert crash.left == {} and len(job.faults) == len(points), "every point was reached"
    assert job.host.controller.at_once == (results.keys() if at_once else set())
    nulls = sum(row["ts"] is None for batch in batches for row in batch)
    if at_once:
        batches = [each for batch in batches for each in (batch, [])]
    for name, spec in (ON_A_STREAM | PANED | LIFTED | NATIVE).items():
        want, late = expected(spec, batches, True, flush=True)
        assert len(want) > 50, name
        found = job.memory(f"to_{name}")
        if name in ON_A_STREAM:
            assert got(found) == want, name
        elif name in PANED:
            # rows that come late for a pane already computed are a second piece of it: order inside a pane may differ
            assert got(found, ordered=False) == sorted([(*w[:4], sorted(w[4])) for w in want], key=repr), name
        else:
            own = product if name in LIFTED else lambda _: None
            assert numbers(found) == [(*w[:4], sum(w[4]), len(w[4]), own(w[4])) for w in want], name
        if name not in PANED:
            assert sorted(job.memory(f"late_{name}").column("i").to_pylist()) == late, name
            assert len(late) > nulls + 20, name


def numbers(table: pa.Table) -> list[Any]:
    """The results of aggregates; native ones have no product."""
    whose = [(r["case"], r["k"], *map(bounds, r["window"].values())) for r in table.to_pylist()]
    what = [(r["total"], r["n"], r.get("product")) for r in table.to_pylist()]
    return sorted(((*a, *b) for a, b in zip(whose, what, strict=True)), key=repr)


UNTIMED = {"count": ps.Count(5, slide=2), "gaps": ps.Count(2, slide=3), "delta": ps.Delta("d", 4.0, slide=1.5)}


AGGREGATES = {
    "total": ps.sum("d"), "mean": ps.mean("d"), "least": ps.min("d"), "most": ps.max("i"), "var": ps.var("d"),
    "first": ps.first("i"), "last": ps.last("i"), "best": ps.arg_max("i", "d"), "half": ps.quantile("d", 0.5),
    "kinds": ps.distinct("d"), "top": ps.topk("i", 2), "cov": ps.covariance("i", "d"),
    "bins": ps.histogram("d", [0.0, 5.0, 20.0]),
}  # fmt: skip


def test_order_of_reading_where_there_is_no_event_time(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(5, disorder=0)
    flow = ps.Flow("untimed")
    rows = flow.read(read(spark, write(batches, tmp_path / "in")))
    for name, spec in UNTIMED.items():
        rows.window(spec, key=("case", "k"), name=name).apply(ids, IDS).write("memory", name=f"to_{name}")
    rows.window(ps.Count(7, slide=7), name="unkeyed").apply(ids, IDS).write("memory", name="to_unkeyed")
    counted = rows.window(ps.Count(7, slide=3), key=("case", "k"), name="counted", details=True)
    counted.aggregate(**AGGREGATES).write("memory", name="to_counted")
    job = flow.start(spark, str(tmp_path / "ckpt"), Changing((1, 4, 2)), available_now=True)
    assert job.await_end(600)
    job.stop()
    for name, spec in UNTIMED.items():
        want, _ = expected(spec, batches, False, flush=False)
        assert len(want) > 50, name
        assert got(job.memory(f"to_{name}")) == want, name
    every = [row["i"] for batch in batches for row in batch]
    full = [every[at : at + 7] for at in range(0, len(every) - 6, 7)]
    assert sorted(job.memory("to_unkeyed").column("ids").to_pylist()) == sorted(full)
    check_aggregates(job.memory("to_counted").to_pylist(), batches)


def check_aggregates(found: list[dict[str, Any]], batches: list[list[dict[str, Any]]]) -> None:
    """Every aggregate of every window of seven tuples is what plain Python makes of the oracle's rows."""
    oracle = CountOracle(ps.Count(7, slide=3), ordered_by_time=False)
    outputs = bind(AGGREGATES, {"d": pa.float64(), "i": pa.int64()})
    want = {}
    for batch in batches:
        for window in oracle.batch([{**row, "key": f"{row['case']} {row['k']}", "time": None} for row in batch]):
            want[window.key, window.start] = {output.name: evaluate(output, window.rows) for output in outputs}
    by_window = {(f"{row['case']} {row['k']}", row["window"]["start"]): row for row in found}
    assert by_window.keys() == want.keys()
    assert len(found) == len(want) > 100
    for key, row in want.items():
        assert by_window[key]["details"]["rows"] == 7
        for name, value in row.items():
            if isinstance(value, float):
                assert by_window[key][name] == pytest.approx(value, rel=1e-9, nan_ok=True), (key, name)
            else:
                assert by_window[key][name] == value, (key, name)


def test_batch_dataframes_emit_every_window(spark: SparkSession, tmp_path: Path) -> None:
    batches = make_batches(11)
    flat = by_time([[row for batch in batches for row in batch]])
    frame = spark.read.parquet(write(flat, tmp_path / "in"))
    for name, spec in TIMED.items():
        flow = ps.Flow("batch")
        table = flow.read(frame, time="ts").window(spec, key=("case", "k")).apply(ids, IDS).to_df().toArrow()
        want, _ = expected(spec, flat, True, flush=True)
        assert got(table) == want, name
