"""The demonstration: market quotes whose rate doubles and falls again, with a hot symbol that moves, under a latency.

They are cleaned, scored by a farm, summed and averaged by windows; the latency is stated, and Penstock keeps it: it
shows rate, latency and every decision with its reason while the job runs, then the report; it checks every row of the
output against a plain NumPy computation of the same quotes, and at the end it runs the same load with a fixed set-up
for some seconds and says what each of them cost.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import penstock as ps
from penstock.observe.live import LiveView
from penstock.observe.processor import cpu_seconds
from penstock.observe.record import BatchRecord
from penstock.sources.schedule import Schedule

RATE = 4000  # quotes per second in the first third; twice that in the second, half in the last
BOUND = "2 s"  # from a quote's arrival to its total being visible, on average over any five seconds
BOUND_P95 = "3 s"  # from the arrival of the quote that completes a window to its mean price being visible
SYMBOLS = ps.sources.hot(500, share=0.3, every_s=8.0)
WINDOWS_PER_QUOTE = 10  # size / slide of the window
OUTCOMES = np.exp(np.linspace(-0.5, 0.5, 256))  # by what a price is multiplied in a year ...
CHANCES = np.hanning(256) / np.hanning(256).sum()  # ... and how likely that is


def quotes(index: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
    """Prices that wander, a function of the row's number; 2 % are bad: zero or not a number."""
    price = 100 + 20 * np.sin(index / 5000) + np.cumsum(random.normal(0, 0.05, len(index)))
    luck = random.random(len(index))
    return {"id": index, "price": np.where(luck < 0.01, 0.0, np.where(luck < 0.02, np.nan, price))}


def usable(batch: pa.RecordBatch) -> np.ndarray:
    """Whether a quote has a price above zero; not a number has not."""
    return batch.column("price").to_numpy() > 0


def score(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What the right to buy at 100 in a year is worth: the mean gain over 256 outcomes."""
    gains = np.maximum(np.outer(batch.column("price").to_numpy(), OUTCOMES) - 100.0, 0.0)
    return batch.select(["id", "symbol"]).append_column("score", pa.array((gains * CHANCES).sum(axis=1)))


def add_up(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """Per symbol the sum of its scores up to each quote; the state is the sum and the number of quotes."""
    scores = pd.Series(batch.column("score").to_numpy())
    so_far = state["total"][state.slots] + scores.groupby(state.slots).cumsum().to_numpy()
    total = state["total"] + np.bincount(state.slots, scores, minlength=len(state))
    n = state["n"] + np.bincount(state.slots, minlength=len(state))
    return batch.append_column("total", pa.array(so_far)), state.update(total=total, n=n)


def build(stream: Any, folder: Path, written: dict[int, int]) -> ps.Flow:
    """The flow: read, clean, score, sum, write; and beside it the mean price over five seconds, twice a second."""
    flow = ps.Flow("demo")
    read = flow.read(stream, time="scheduled", name="quotes")
    marks = read.filter(usable).map(
        score, schema="id bigint, symbol bigint, score double", replicas=ps.elastic(1, 2), ordered=True
    )  # fmt: skip
    sums = marks.stateful(
        add_up, schema="id bigint, symbol bigint, score double, total double", state_schema="total double, n bigint",
        key="symbol",
    )  # fmt: skip
    sums.write("parquet", path=str(folder / "totals"))
    bars = read.filter("price > 0 and not isnan(price)").window(
        ps.Time("5 s", slide=f"{5000 // WINDOWS_PER_QUOTE} ms"), key="symbol", name="bars"
    )
    means = bars.aggregate(mean=ps.mean("price"), n=ps.count())
    means.write("parquet", path=str(folder / "bars"))
    sums.write("function", fn=lambda table, batch: written.update({batch: table.num_rows}))
    return flow.require(
        ps.Latency(read, sums, mean=BOUND, over="5 s"), ps.Latency(read, means, p95=BOUND_P95, over="5 s")
    )


def verdict(stream: Any, processed: int, folder: Path, written: dict[int, int]) -> tuple[bool, str]:
    """Compute the first `processed` quotes again, one after the other, and compare every row of the output."""
    if not processed:
        return False, "WRONG: nothing was processed"
    scored = []
    for batch in stream._penstock_replay.batches(0, processed, 0):
        good = batch.filter(pa.array(usable(batch)))
        scored += [score(good.slice(first, 1024)).to_pandas() for first in range(0, len(good), 1024)]
    right = pd.concat(scored, ignore_index=True)
    right["total"] = right.groupby("symbol")["score"].cumsum()
    found = pq.read_table(folder / "totals").to_pandas().sort_values("id", ignore_index=True)
    counts = f"{processed:,} quotes in, {len(right):,} usable, {len(found):,} rows written"
    if sum(written.values()) != len(found) or not found[["id", "symbol"]].equals(right[["id", "symbol"]]):
        return False, f"WRONG: {counts}, {sum(written.values()):,} given to the function sink: some are lost or doubled"
    if not np.allclose(found["total"], right["total"], rtol=1e-9):
        return False, f"WRONG: {counts}, but their totals differ from the NumPy computation"
    bars = pq.read_table(folder / "bars")  # without a column if no window was written
    in_windows = int(bars["n"].to_numpy().sum()) if bars.num_rows else 0
    if in_windows != WINDOWS_PER_QUOTE * len(right):
        return False, f"WRONG: {counts}, but the windows hold {in_windows:,} quotes instead of 10 times as many"
    return True, f"RIGHT: {counts}, each once; all running totals equal the NumPy computation; each is in 10 windows"


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Give the processes started meanwhile (Spark's) a file as standard error; show it if they fail."""
    kept, log = os.dup(2), os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 2)
    try:
        yield
    except BaseException:
        os.write(kept, path.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


def load(third: float) -> Schedule:
    """Quotes per second: the rate for a while, twice that, then half; a stream has no end, the job is stopped."""
    rising = ps.sources.constant(RATE, third).then(ps.sources.constant(2 * RATE, third))
    return rising.then(ps.sources.constant(RATE / 2))


class AtOnce:
    """A fixed set-up: as wide as the machine, and a batch as soon as the last one has ended."""

    def decide(self, observed: Any, current: ps.Decision) -> ps.Decision:
        """Always the same."""
        return ps.Decision(dict.fromkeys(current.widths, 2))


class Meter:
    """CPU seconds per second of a job, from its fourth batch on: the first ones start workers and compile code."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def read(self, record: BatchRecord) -> None:
        """Take a reading after a batch."""
        self.points.append((time.monotonic(), cpu_seconds()))

    @property
    def rate(self) -> float:
        """CPU seconds per second; NaN before there are enough batches."""
        if len(self.points) < 5:
            return float("nan")
        (begun, before), (ended, after) = self.points[3], self.points[-1]
        return (after - before) / (ended - begun)


def cost_against_fixed(flow: ps.Flow, spark: SparkSession, checkpoint: Path, seconds: float, ours: Meter) -> str:
    """Run the flow with a fixed set-up for some seconds; say what both cost."""
    fixed = Meter()
    job = flow.start(spark, str(checkpoint), AtOnce())
    job.on_batch(fixed.read)
    job.await_end(seconds)
    job.stop()
    return (
        f"cost: {ours.rate:.2f} CPU seconds per second; a fixed set-up (two tasks each, a batch as soon as the last "
        f"has ended) took {fixed.rate:.2f}, measured for {seconds:.0f} s: Penstock needed {ours.rate / fixed.rate:.0%}"
    )


def main(seconds: float = 21.0, out: str | None = None) -> int:
    """Run for about `seconds`, results under `out` (a temporary folder if left out); 0 if they are right."""
    began, code, written, ours = time.monotonic(), 0, dict[int, int](), Meter()
    print("starting Spark (about 10 s) ...", flush=True)
    os.makedirs(out or tempfile.gettempdir(), exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-", dir=out))  # a new one: an old checkpoint has its own clock
    with stderr_to(folder / "spark.log"):
        spark = ps.local_session(app="penstock-demo")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own would break the batch at work off
    columns: dict[str, Any] = {"schema": "id bigint, price double", "keys": {"symbol": SYMBOLS}}
    print("warming up: the same flow over 2,000 quotes, unmeasured ...", flush=True)
    few = ps.sources.replay(
        spark, quotes, **columns, schedule=ps.sources.constant(RATE), total=2000, start=0, max_rows=1000
    )
    warm = folder / "warm-up"  # one batch with one task each, one with two: Spark compiles code for both
    build(few, warm, {}).start(spark, str(warm / "checkpoint"), AtOnce(), available_now=True).await_end()
    third = seconds / 3
    stream = ps.sources.replay(spark, quotes, **columns, schedule=load(third), max_seconds=5.0)
    flow, due, processed = build(stream, folder, written), int((RATE + 2 * RATE + RATE / 2) * third), 0
    told = f"{RATE:,} quotes/s for {third:g} s, then {2 * RATE:,}, then {RATE // 2:,}"
    required = f"totals within {BOUND} on average and 95 % of the windows within {BOUND_P95} are required"
    print(f"\n{flow.explain()}\n\n{told}; {required}; Ctrl-C stops", flush=True)

    def watch(record: BatchRecord) -> None:
        nonlocal processed
        view.update(record)
        ours.read(record)
        processed = max(processed, (record.due or 0) - (record.backlog or 0))

    with LiveView(total_s=seconds) as view:
        job = flow.start(spark, str(folder / "checkpoint"))
        job.on_batch(watch)
        end = time.monotonic() + seconds + 10  # a machine that cannot keep up still comes to an end
        try:
            while job.is_active and processed < due and time.monotonic() < end:
                time.sleep(0.1)
        except KeyboardInterrupt:
            code = 130
        job.stop(flush=True)
    job.await_end(0)  # raises what ended the job, if something did
    right, line = verdict(stream, processed, folder, written)
    print(f"{job.report()}\n\n{line}", flush=True)
    if code == 0:
        half = seconds / 2  # the same load in half the time, so that both see the same rates
        same = ps.sources.replay(spark, quotes, **columns, schedule=load(half / 3))
        again = build(same, folder / "fixed", {})
        print(cost_against_fixed(again, spark, folder / "fixed" / "checkpoint", half, ours))
    print(f"results and checkpoint: {folder}   ({time.monotonic() - began:.0f} s in all)")
    print(f"look again: penstock report {folder / 'checkpoint'}")
    spark.stop()
    return code or (0 if right else 1)
