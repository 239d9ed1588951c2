"""What state costs: a batch that touches few of many keys, the memory of a window over a million keys, and a long run.

Sparse: windows of 20 panes over a million keys, none of which closes meanwhile. A *full* batch has rows of every key in
six panes, a *sparse* one of every hundredth key; both are warm. Memory: a pane of every key per batch and a window of
every key closed per batch, the log at its full length, while the resident memory of all Python workers is sampled.
Long: the same over fewer keys, for hundreds of batches, looked into now and then: what open windows need must not grow.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.bench.functions import nothing
from penstock.bench.overload import memory
from penstock.bench.streams import Trigger, to_the_end
from penstock.bench.windows.data import START_MS
from penstock.bench.windows.engines import Files
from penstock.bench.windows.journal import Row
from penstock.bench.windows.peers import Arena
from penstock.engine.spark.state_reader import describe
from penstock.observe.telemetry import read, telemetry_dir

PANES = 20
FULL_PANES = 6  # that a row of each key hits in a full batch
SPARSE = 100  # one key in so many
FULL_BATCHES, SPARSE_BATCHES = 3, 12
STEADY_BATCHES = 30
LONG_LOOKS, LONG_BATCHES = 4, 60  # how often a long run is looked into, after so many batches each


def sparse(arena: Arena, keys: int) -> list[Row]:
    """A batch that hits 1 % of the keys against one that hits all: bytes written and seconds."""
    folder = arena._fresh()
    lots = [np.arange(keys)] * FULL_BATCHES + [np.arange(0, keys, SPARSE)] * SPARSE_BATCHES
    for number, lot in enumerate(lots):
        _write(
            folder / "in" / f"{number:04d}.parquet",
            np.repeat(lot, FULL_PANES),
            np.tile(np.arange(FULL_PANES), len(lot)),
        )
    found, written = _run(arena, folder, ps.Time(f"{PANES} s", slide="1 s", lateness="1 hour"))
    rows = []
    for variant, batch in (("full batch", FULL_BATCHES - 1), ("1 % of the keys", len(lots) - 1)):
        seconds = [found[batch].ms / 1000]
        if variant != "full batch":
            seconds = [trigger.ms / 1000 for trigger in found[-SPARSE_BATCHES // 2 :]]  # their plan is warm by then
        note = f"{keys} keys, rows in {FULL_PANES} panes each, no window end passed; {written[batch]} bytes of state"
        count, facts = len(lots[batch]) * FULL_PANES, {"state_bytes": written[batch]}
        rows.append(
            Row.of("penstock", "state", seconds, rows=count, results=0, equal=None, variant=variant,
                   facts=facts, note=note)
        )  # fmt: skip
        arena.bench.say(f"  state, {variant}: {seconds} s, {written[batch]} bytes")
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def peak_memory(arena: Arena, keys: int) -> list[Row]:
    """The peak memory of all Python workers while a window of 20 panes per key slides pane by pane."""
    folder = arena._fresh()
    for number in range(STEADY_BATCHES):
        _write(folder / "in" / f"{number:04d}.parquet", np.arange(keys), np.full(keys, number))
    peak, done = [0.0], threading.Event()

    def sample() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], memory()["workers"])

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    try:
        found, written = _run(arena, folder, ps.Time(f"{PANES} s", slide="1 s"))
    finally:
        done.set()
        watcher.join()
    steady = [trigger.ms / 1000 for trigger in found[PANES + 2 :]]
    arena.bench.say(f"  state, {keys} keys x {PANES} panes: peak {peak[0]:.0f} MiB, batches of {steady} s")
    note = (
        f"peak resident memory of all Python workers {peak[0]:.0f} MiB; state written per batch at most {max(written)}"
    )
    shutil.rmtree(folder, ignore_errors=True)
    what = f"{keys} keys x {PANES} panes"
    return [
        Row.of("penstock", "memory", steady, rows=keys, results=keys, equal=None, variant=what,
               facts={"peak_rss_mib": peak[0]}, note=note)
    ]  # fmt: skip


def long_run(arena: Arena, keys: int, batches: int = LONG_BATCHES) -> list[Row]:
    """What a window of 20 panes per key remembers as the run goes on; every batch has one more pane of every key."""
    folder = arena._fresh()
    rows: list[Row] = []
    for look in range(1, LONG_LOOKS + 1):
        for number in range((look - 1) * batches, look * batches):
            _write(folder / "in" / f"{number:05d}.parquet", np.arange(keys), np.full(keys, number))
        found, _ = _run(arena, folder, ps.Time(f"{PANES} s", slide="1 s"))
        states = describe(str(folder / "checkpoint")).operators
        facts = {
            "state_rows": float(sum(state.rows for state in states)),
            "state_bytes": float(sum(state.bytes for state in states)),
            "per_pane": sum(state.rows for state in states) / (keys * PANES),
        }
        arena.bench.say(f"  state after {look * batches} batches: {facts}")
        seconds = [trigger.ms / 1000 for trigger in found]
        rows.append(
            Row.of("penstock", "long", seconds, rows=keys, results=keys, equal=None,
                   variant=f"after {look * batches} batches", facts=facts, note=f"{keys} keys x {PANES} panes")
        )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _write(path: Path, keys: np.ndarray, panes: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stamps = pa.array((START_MS + 1000 * panes.astype(np.int64)) * 1000).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"ts": stamps, "k": keys.astype(np.int64), "v": np.ones(len(keys))})
    pq.write_table(table, path, row_group_size=max(1, len(keys) // 8))


def _run(arena: Arena, folder: Path, kind: ps.Time) -> tuple[list[Trigger], list[int]]:
    """The batches of a window over the files, and the bytes of state that each wrote."""
    spark = arena.bench.spark
    stream = Files(folder / "in", rows=0).stream(spark)
    flow = ps.Flow("state")
    flow.read(stream, time="ts").window(kind, key="k").aggregate(total=ps.sum("v"), n=ps.count()).write(
        "function", fn=nothing
    )
    found = sorted(to_the_end(flow, spark, folder / "checkpoint"), key=lambda trigger: trigger.batch)
    records = {record.batch: record for record in read(telemetry_dir(folder / "checkpoint"))}
    written = [sum(operator.state_bytes for operator in records[trigger.batch].operators) for trigger in found]
    return found, written
