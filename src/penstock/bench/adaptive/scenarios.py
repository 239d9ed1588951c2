"""The loads and flows of the live runs. A scenario is a flow, a load over time, and what may be chosen about it.

Rates are set so that the peak needs several replicas (waiting stages, `local[16,4]`) or most of two cores (computing
stages, `local[2,4]`), and the low level a fraction of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.functions import nothing
from penstock.flow.stream import Stream
from penstock.sources.schedule import Schedule

WAITS, COMPUTES = "local[16,4]", "local[2,4]"
ROW_WAITS_S = 0.0004
HOT_MOVES_S = 20.0


def rows(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """Cheap rows that are a function of their index."""
    return {"i": index, "price": 100.0 + (index % 97).astype(np.float64)}


def call_outside(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A stage that waits for something outside: 0.4 ms for each row."""
    time.sleep(ROW_WAITS_S * batch.num_rows)
    return batch


def keyed_call(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """A running sum per key whose every row waits outside: a hot key makes its task late."""
    time.sleep(ROW_WAITS_S * batch.num_rows)
    total = state["total"] + np.bincount(state.slots, weights=np.asarray(batch.column("price")), minlength=len(state))
    return pa.record_batch({"k": batch.column("k"), "so_far": total[state.slots]}), state.update(total=total)


@dataclass(frozen=True)
class Built:
    """A flow, the ends of the latency that is required of it, and the operator whose width is chosen."""

    flow: ps.Flow
    start: Stream
    end: Stream
    operator: str


@dataclass(frozen=True)
class Scenario:
    """One load on one flow. `steps_s` are the moments at which the rate (or the cost) jumps."""

    name: str
    master: str
    load: Schedule
    seconds: float
    steps_s: tuple[float, ...]
    low: float
    peak: float
    build: Callable[[SparkSession, Schedule], Built]
    widths: tuple[int, ...]  # the grid of the static set-up
    statistic: str = "mean"  # or "p95"
    pays_for: str = "width"  # what it costs: "width" (waiting stages) or "cpu"


def waiting(spark: SparkSession, load: Schedule) -> Built:
    """A farm that waits outside for every row (PrimeTest's shape, thesis 001: source, farm, sink)."""
    flow = ps.Flow("waiting")
    source = flow.read(ps.sources.replay(spark, rows, schema="i bigint, price double", schedule=load))
    farm = source.map(call_outside, replicas=ps.elastic(1, 12), chunk=32, name="farm")
    farm.write("function", fn=nothing, name="out")
    return Built(flow, source, farm, "farm")


def quotes(spark: SparkSession, load: Schedule) -> Built:
    """Windows over quotes with a hot symbol that moves (thesis 000): sums, highs and counts per symbol."""
    flow = ps.Flow("trading")
    keys = {"k": ps.sources.hot(1000, share=0.3, every_s=HOT_MOVES_S)}
    read = ps.sources.replay(spark, rows, schema="i bigint, price double", keys=keys, schedule=load)
    source = flow.read(read, time="scheduled")
    bars = source.window(ps.Time("4 s", slide="1 s"), key="k", replicas=ps.elastic(1, 2), name="bars")
    out = bars.aggregate(total=ps.sum("price"), high=ps.max("price"), n=ps.count())
    out.write("function", fn=nothing, name="out")
    return Built(flow, source, out, "bars")


def keyed(spark: SparkSession, load: Schedule) -> Built:
    """Keyed state behind a hot key that moves: every row waits outside, so an uneven route shows."""
    flow = ps.Flow("keyed")
    keys = {"k": ps.sources.hot(200, share=0.25, every_s=HOT_MOVES_S)}
    source = flow.read(ps.sources.replay(spark, rows, schema="i bigint, price double", keys=keys, schedule=load))
    sums = source.stateful(
        keyed_call, "k bigint, so_far double", "total double", key="k", replicas=ps.elastic(1, 12), name="sums"
    )
    sums.write("function", fn=nothing, name="out")
    return Built(flow, source, sums, "sums")


def staircase() -> Scenario:
    """Up and down in steps (001, section 5.1.2)."""
    load = ps.sources.staircase(300, 3000, steps=3, step_seconds=15)
    return Scenario(
        "staircase",
        WAITS,
        load,
        105.0,
        tuple(15.0 * n for n in range(1, 7)),
        300,
        3000,
        waiting,
        (1, 2, 3, 4, 6, 8, 12),
    )


def burst() -> Scenario:
    """A quiet load with bursts of six seconds every thirty."""
    load = ps.sources.burst(500, 2500, length=6, every=30, seconds=105)
    steps = tuple(t for n in range(4) for t in (24.0 + 30.0 * n, 30.0 + 30.0 * n) if t < 105.0)
    return Scenario("burst", WAITS, load, 105.0, steps, 500, 2500, waiting, (1, 2, 3, 4, 6, 8, 12))


def trading() -> Scenario:
    """Quotes whose rate steps up and down, with a hot symbol that moves."""
    load = ps.sources.staircase(5_000, 60_000, steps=2, step_seconds=21)
    return Scenario(
        "trading", COMPUTES, load, 105.0, (21.0, 42.0, 63.0, 84.0), 5_000, 60_000, quotes, (1, 2), "p95", "cpu"
    )


def hotkey() -> Scenario:
    """A steady load whose hot key moves every twenty seconds."""
    steps = tuple(HOT_MOVES_S * n for n in range(1, 4))
    return Scenario("hotkey", WAITS, ps.sources.constant(2500, 75), 75.0, steps, 2500, 2500, keyed, (2, 3, 4, 6, 8))


SCENARIOS = {made.name: made for made in (staircase(), trading(), burst(), hotkey())}
