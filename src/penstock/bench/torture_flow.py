"""The flow that torture kills, and what it must give.

A farm, keyed state, a window, two file sinks, widths that never rest; the expectation is computed by plain sequential
code that shares nothing with the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, LongType, StructType

import penstock as ps
from penstock.control.decision import Decision
from penstock.engine.spark.state import GROUPS
from penstock.sources.api import build_spec
from penstock.sources.limits import Limits
from penstock.windows.aggregates import bind, count, sum
from penstock.windows.oracle import Oracle
from penstock.windows.time import Time

START_US = 1_700_000_000_000_000  # long ago: every row is due, so the row cap alone cuts the batches
RATE = 1000
KEYS = 20
SCHEMA = StructType().add("i", LongType()).add("v", DoubleType())  # as DDL it would need a session
WINDOW = Time("2 s", slide="1 s")
SIZE_US = 2_000_000
FOLDERS = ("sums", "bars")
SHAPES = ("tapped", "streamed")


@dataclass(frozen=True)
class Task:
    """What one tortured job has to do: `total` rows, `per_batch` at a time, in one of two plan shapes.

    `tapped`: the farm feeds both keyed operators, so its rows are kept in files between two Spark jobs. `streamed`:
    the farm streams on into the keyed state inside one job, and the window reads the source beside it.

    >>> Task.of(batches=10, shape="tapped").total
    5000
    """

    total: int
    per_batch: int
    shape: str

    @staticmethod
    def of(batches: int, shape: str, per_batch: int = 500) -> Task:
        """A task of so many batches."""
        return Task(batches * per_batch, per_batch, shape)

    @property
    def last_us(self) -> int:
        """The event time of the last row."""
        return START_US + (self.total - 1) * 1_000_000 // RATE

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that make the source, of the stream and of the oracle alike."""
        return {
            "schema": SCHEMA,
            "keys": {"k": ps.sources.zipf(KEYS)},
            "schedule": ps.sources.constant(RATE),
            "seed": 7,
            "total": self.total,
            "start": START_US,
            "partitions": 2,
            "split_rows": 256,
        }


def rows(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """Whole numbers as doubles, so that sums are exact in any order."""
    return {"i": index, "v": (index % 97).astype(np.float64)}


def work(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop every tenth row, give every tenth twice, and double the value."""
    index = batch.column("i").to_numpy()
    doubled = batch.set_column(1, "v", pa.array(batch.column("v").to_numpy() * 2.0))
    return doubled.take(pa.array(np.repeat(np.arange(len(index)), copies(index))))


def copies(index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often `work` gives each row out.

    >>> copies(np.array([3, 7, 8]))
    array([0, 2, 1])
    """
    return np.where(index % 10 == 3, 0, np.where(index % 10 == 7, 2, 1))


def running(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """Per key the sum so far after each row; state is the sum and the number of rows."""
    values, slots = batch.column("v").to_numpy(), state.slots
    totals, so_far = state["total"].copy(), np.empty(len(values))
    for row, (slot, value) in enumerate(zip(slots.tolist(), values.tolist(), strict=True)):
        totals[slot] += value
        so_far[row] = totals[slot]
    out = pa.RecordBatch.from_arrays([batch.column("i"), batch.column("k"), pa.array(so_far)], ["i", "k", "so_far"])
    return out, state.update(total=totals, n=state["n"] + np.bincount(slots, minlength=len(state)))


def build(spark: SparkSession, task: Task, out: Path) -> ps.Flow:
    """The flow of a task, its results under `out`."""
    flow = ps.Flow("torture")
    source = ps.sources.replay(spark, rows, max_rows=task.per_batch, **task.options)
    read = flow.read(source, time="scheduled", name="source")
    farm = read.map(work, replicas=ps.elastic(1, 5), chunk=64, name="farm")
    sums = farm.stateful(
        running, schema="i bigint, k bigint, so_far double", state_schema="total double, n bigint", key="k", name="sums"
    )
    sums.write("parquet", path=str(out / "sums"), name="to_sums")
    windowed = farm if task.shape == "tapped" else read
    bars = windowed.window(WINDOW, key="k", name="bars").aggregate(total=sum("v"), n=count())
    bars.write("parquet", path=str(out / "bars"), name="to_bars")
    return flow


class Changing:
    """Gives every operator other widths and its key groups other tasks in every batch; each life begins elsewhere."""

    def __init__(self, life: int = 0) -> None:
        self.calls = life

    def decide(self, observed: Any, current: Decision) -> Decision:
        """Return the next widths, neighbours different, and routes drawn by the number of the call."""
        self.calls += 1
        choice = (1, 4, 2, 5, 3)
        widths = {name: choice[(self.calls + i) % len(choice)] for i, name in enumerate(current.widths)}
        random = np.random.default_rng(self.calls)
        routes = {name: tuple(random.integers(0, width, GROUPS).tolist()) for name, width in widths.items()}
        return replace(current, widths=widths, routes=routes)


# -- what must come out ------------------------------------------------------------------------------------------


def source_rows(task: Task) -> list[dict[str, Any]]:
    """The rows of the source in their order, without Spark."""
    arguments = {**task.options, "repeat": False, "control": None, "limits": Limits(), "scheduled": "scheduled"}
    batches = list(build_spec(rows, **arguments).batches(0, task.total, START_US))
    table = pa.Table.from_batches(batches)
    micros = table.column("scheduled").cast(pa.int64()).to_pylist()
    return [{**row, "at": at} for row, at in zip(table.drop_columns(["scheduled"]).to_pylist(), micros, strict=True)]


@dataclass
class Results:
    """The outputs as multisets and the final state per key."""

    sums: Counter[tuple[Any, ...]]
    bars: Counter[tuple[Any, ...]]
    state: Mapping[int, tuple[float, int]]


def expected(task: Task) -> Results:
    """The sequential run: one row after the other."""
    state: dict[int, tuple[float, int]] = {}
    sums: Counter[tuple[Any, ...]] = Counter()
    worked, plain = [], source_rows(task)
    for row in plain:
        for _ in range(int(copies(np.array([row["i"]]))[0])):
            worked.append({**row, "v": row["v"] * 2.0})
            total, n = state.get(row["k"], (0.0, 0))
            state[row["k"]] = (total + row["v"] * 2.0, n + 1)
            sums[row["i"], row["k"], state[row["k"]][0]] += 1
    oracle = Oracle(WINDOW, bind({"total": sum("v"), "n": count()}, {"v": "double"}))
    seen = worked if task.shape == "tapped" else plain
    closed = oracle.batch([{"key": row["k"], "time": row["at"], "v": row["v"]} for row in seen]) + oracle.flush()
    bars = Counter((w["key"], w["start"], w["end"], w["total"], w["n"]) for w in closed)
    return Results(sums, bars, state)


def found(out: Path, state: Mapping[int, tuple[float, int]]) -> Results:
    """What the job left behind, as a plain reader sees it."""
    sums = pq.read_table(out / "sums")
    bars = pq.read_table(out / "bars").flatten()
    stamps = [bars.column(name).cast(pa.timestamp("us", tz="UTC")) for name in ("window.start", "window.end")]
    columns = [bars.column("k"), *(s.cast(pa.int64()) for s in stamps), bars.column("total"), bars.column("n")]
    return Results(
        Counter(zip(*(sums.column(name).to_pylist() for name in ("i", "k", "so_far")), strict=True)),
        Counter(zip(*(column.to_pylist() for column in columns), strict=True)),
        state,
    )


def differences(got: Results, want: Results) -> dict[str, str]:
    """What is wrong, by name of the check; an empty text = equal.

    >>> same = Results(Counter(), Counter(), {})
    >>> differences(same, same)
    {'sums': '', 'bars': '', 'state': ''}
    """
    texts = {}
    for name in FOLDERS:
        have, need = getattr(got, name), getattr(want, name)
        lost, extra = need - have, have - need
        texts[name] = ""
        if lost or extra:
            texts[name] = f"{lost.total()} of {need.total()} rows lost, {extra.total()} too many; e.g. lost " + (
                f"{list(lost)[:3]}, too many {list(extra)[:3]}"
            )
    wrong = {key: (got.state.get(key), want.state.get(key)) for key in {*got.state, *want.state}}
    wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
    texts["state"] = f"{len(wrong)} keys differ, e.g. {list(wrong.items())[:3]}" if wrong else ""
    return texts
