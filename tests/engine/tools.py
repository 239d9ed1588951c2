"""Small flows and helpers that the engine tests share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import sources
from penstock.control.decision import Decision
from penstock.engine.spark.state import GROUPS

START_US = 1_700_000_000_000_000
RATE = 1000


def rows(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """Rows whose content is a function of their index alone."""
    return {"i": index, "v": (index % 97).astype(np.float64)}


def stream(
    spark: SparkSession, total: int = 6000, *, keys: int = 20, per_batch: int = 500, **options: Any
) -> DataFrame:
    """A replay whose rows were all due long ago: batches are cut by the row cap alone, hence the same in every run."""
    return sources.replay(
        spark, rows, schema="i bigint, v double", keys={"k": sources.uniform(keys)}, schedule=sources.constant(RATE),
        total=total, start=START_US, max_rows=per_batch, **options,
    )  # fmt: skip


def static(spark: SparkSession, total: int = 6000, *, keys: int = 20) -> DataFrame:
    """The same rows as a batch DataFrame."""
    return sources.replay_batch(
        spark, rows, schema="i bigint, v double", keys={"k": sources.uniform(keys)}, schedule=sources.constant(RATE),
        total=total, start=START_US,
    )  # fmt: skip


def running_sum(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """Per key the sum so far after each row, in order; state is the sum and the number of rows."""
    values = batch.column("v").to_numpy()
    order = np.argsort(state.slots, kind="stable")
    slots, sums = state.slots[order], np.cumsum(values[order])
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    base = np.repeat(sums[starts] - values[order][starts], np.diff(np.append(starts, len(slots))))
    so_far = np.empty(len(values))
    so_far[order] = sums - base + state["total"][slots]
    out = pa.RecordBatch.from_arrays(
        [batch.column("i"), batch.column("k"), pa.array(so_far)], names=["i", "k", "so_far"]
    )
    totals = state["total"] + np.bincount(state.slots, values, minlength=len(state))
    counts = state["n"] + np.bincount(state.slots, minlength=len(state))
    return out, state.update(total=totals, n=counts)


RUNNING = {"schema": "i bigint, k bigint, so_far double", "state_schema": "total double, n bigint", "key": "k"}


def expected_sums(table: pa.Table) -> tuple[dict[int, float], dict[int, tuple[float, int]]]:
    """The sequential, obviously right running sum: (sum after row i, final state per key)."""
    after: dict[int, float] = {}
    state: dict[int, tuple[float, int]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: row["i"]):
        total, count = state.get(row["k"], (0.0, 0))
        state[row["k"]] = (total + row["v"], count + 1)
        after[row["i"]] = total + row["v"]
    return after, state


class Changing:
    """A policy that gives every operator another width, and its key groups other tasks, in every batch."""

    def __init__(self, widths: tuple[int, ...] = (1, 3, 2, 5, 4)) -> None:
        self.widths, self.calls = widths, 0

    def decide(self, observed: Any, current: Decision) -> Decision:
        self.calls += 1
        width = self.widths[self.calls % len(self.widths)]
        random = np.random.default_rng(self.calls)
        routes = {name: tuple(random.integers(0, width, GROUPS).tolist()) for name in current.widths}
        return replace(current, widths=dict.fromkeys(current.widths, width), routes=routes)


class Isolating(Changing):
    """The same, and where there is more than one task the group that had most rows has one for itself.

    The farms named in `chain` share tasks in every other pair of batches.
    """

    def __init__(self, chain: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.chain = chain
        self.alone: dict[str, int] = {}  # how often a group of an operator was put on a task of its own

    def decide(self, observed: Any, current: Decision) -> Decision:
        decided = super().decide(observed, current)
        routes = dict(decided.routes)
        for name, view in observed.operators.items():
            tasks = decided.widths.get(name, 1)
            if view.groups and tasks > 1:
                others = [task % (tasks - 1) for task in routes[name]]
                others[int(np.argmax(view.groups))] = tasks - 1
                routes[name] = tuple(others)
                self.alone[name] = self.alone.get(name, 0) + 1
        chains = (self.chain,) if self.chain and self.calls % 4 < 2 else ()
        return replace(decided, routes=routes, chains=chains)


def parquet(path: str | Path) -> pa.Table:
    """All rows of a file sink, as a plain reader sees them."""
    return pq.read_table(path)


def run(flow: ps.Flow, spark: SparkSession, folder: Path, **options: Any) -> Any:
    """Run a flow until what is there now is processed; return its job."""
    job = flow.start(spark, str(folder / "ckpt"), available_now=True, **options)
    try:
        assert job.await_end(120)
    finally:
        job.stop()
    return job
