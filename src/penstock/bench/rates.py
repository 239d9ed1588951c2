"""Cases b, c and d: rows per second over Parquet files, against plain Spark in the same run, in turn.

Rates of streams are rows per second of Spark's trigger time (start of the query excluded, file listing, logs and
commits included), for both sides alike.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.bench.figures import Figure, Target, median
from penstock.bench.functions import SUM_SCHEMA, SUM_STATE, KeyedSum, keyed_sum, nothing, same, same_all
from penstock.bench.streams import PARQUET_SCHEMA, Bench, bare_to_the_end, parquet_stream, rate, to_the_end
from penstock.engine.spark.session import settings

# What transformWithStateInPandas needs: RocksDB, which in turn refuses the raw file system of `local_session`, so this
# query gets Spark's stock one (with checksum files), not from the cache where the raw one is.
STOCK_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


@dataclass
class Input:
    """Parquet files and how many of them make a batch."""

    folder: Path
    rows: int
    files_per_batch: int
    rows_per_batch: int

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files as a stream."""
        return parquet_stream(spark, self.folder, self.files_per_batch)


class Contest:
    """Named variants, measured in turn; the order turns round at every run, ratios are formed within a run."""

    def __init__(self, say: Callable[[str], None], label: str) -> None:
        self.say, self.label = say, label
        self.variants: dict[str, Callable[[Path], float]] = {}
        self.results: dict[str, list[float]] = {}

    def add(self, name: str, run: Callable[[Path], float]) -> None:
        """Add a variant: a function of a fresh folder that returns its rate."""
        self.variants[name] = run

    def run(self, folder: Path, runs: int) -> None:
        """One round to warm up, which is dropped, then `runs` rounds."""
        self.results = {name: [] for name in self.variants}
        for number in range(runs + 1):
            names: Iterable[str] = self.variants if number % 2 else reversed(self.variants)
            found = {name: self.variants[name](folder / f"{number}-{place}") for place, name in enumerate(names)}
            shown = ", ".join(f"{name} {found[name] / 1e6:.3g} M rows/s" for name in self.variants)
            self.say(f"  {self.label}, {f'run {number}/{runs}' if number else 'warm-up'}: {shown}")
            if number:
                for name, value in found.items():
                    self.results[name].append(value)

    def ratios(self, above: str, below: str) -> list[float]:
        """The ratio of two variants in each run; none if one of them was not measured."""
        if not {above, below} <= self.results.keys():
            return []
        return [a / b for a, b in zip(self.results[above], self.results[below], strict=True)]


# -- b: the identity map ---------------------------------------------------------------------------------------------

MAP, BARE = "Penstock map", "bare mapInArrow"
MAP_DF, BARE_DF = "Penstock map, batch DataFrame", "bare mapInArrow, batch DataFrame"
CROSSING = (
    "function sink: the output is materialised in Arrow files and handed to the sink as a table; the bare query sends "
    "it back to the JVM into Spark's noop writer: neither side's output is free, and the two are not the same work"
)


def _identity_flow(spark: SparkSession, data: Input, *, required: bool = False) -> ps.Flow:
    flow = ps.Flow("identity")
    read = flow.read(data.stream(spark))
    mapped = read.map(same)
    mapped.write("function", fn=nothing)
    return flow.require(ps.Latency(read, mapped, mean="1 s")) if required else flow


def identity(bench: Bench, data: Input) -> list[Figure]:
    """An identity map of three columns, streaming and batch."""
    spark = bench.spark

    def each(frame: DataFrame, batch: int) -> None:
        frame.mapInArrow(same_all, PARQUET_SCHEMA).write.format("noop").mode("overwrite").save()

    streams = Contest(bench.say, "b identity map")
    streams.add(MAP, lambda at: rate(to_the_end(_identity_flow(spark, data), spark, at), data.rows))
    streams.add(BARE, lambda at: rate(bare_to_the_end(data.stream(spark), at, each), data.rows))
    streams.run(bench.folder / "identity", bench.runs)

    def timed(frame: DataFrame) -> float:
        before = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return data.rows / (time.perf_counter() - before)

    def mapped() -> DataFrame:
        return (
            ps.Flow("identity").read(spark.read.schema(PARQUET_SCHEMA).parquet(str(data.folder))).map(same).to_df(spark)
        )

    def bare() -> DataFrame:
        return spark.read.schema(PARQUET_SCHEMA).parquet(str(data.folder)).mapInArrow(same_all, PARQUET_SCHEMA)

    frames = Contest(bench.say, "b identity map, batch")
    frames.add(MAP_DF, lambda _: timed(mapped()))
    frames.add(BARE_DF, lambda _: timed(bare()))
    frames.run(bench.folder / "frames", bench.runs)

    case, size = "b. identity map, 3 columns", f"{data.rows} rows, {data.rows_per_batch} per batch"
    return [
        Figure(case, MAP, "rows/s", streams.results[MAP], Target(">=", 2e6), f"{size}; {CROSSING}"),
        Figure(case, BARE, "rows/s", streams.results[BARE], None, "foreachBatch, mapInArrow, noop write; same session"),
        Figure(case, "Penstock / bare, stream", "ratio", streams.ratios(MAP, BARE), Target(">=", 0.85)),
        Figure(case, MAP_DF, "rows/s", frames.results[MAP_DF], None, "to_df, then a noop write; planning not timed"),
        Figure(case, BARE_DF, "rows/s", frames.results[BARE_DF], None, "mapInArrow, then a noop write"),
        Figure(case, "Penstock / bare, batch DataFrame", "ratio", frames.ratios(MAP_DF, BARE_DF), Target(">=", 0.9)),
    ]


# -- d: telemetry and control ----------------------------------------------------------------------------------------

ON, OFF, CONTROLLED = "telemetry on", "telemetry off", "telemetry and control"


def telemetry(bench: Bench, data: Input) -> list[Figure]:
    """The same map with telemetry and without, over many batches: a few per cent do not show in a few long ones.

    Once more with a latency required: each batch is observed, modelled and decided on, and the decision is logged. All
    rows are there from the start and are drained, so that a lifetime is decided and never waited out.
    """
    spark = bench.spark

    def typical(at: Path, on: bool, required: bool = False) -> float:
        found = to_the_end(_identity_flow(spark, data, required=required), spark, at, telemetry=on)
        rate(found, data.rows)  # it has seen every row
        return data.rows_per_batch / (median([trigger.ms for trigger in found[1:]]) / 1000.0)

    contest = Contest(bench.say, "d telemetry")
    contest.add(ON, lambda at: typical(at, True))
    contest.add(OFF, lambda at: typical(at, False))
    contest.add(CONTROLLED, lambda at: typical(at, True, required=True))
    contest.run(bench.folder / "telemetry", 2 * bench.runs)
    size = f"identity map, {data.rows_per_batch} rows per batch; rows per median trigger, the first one dropped"
    return [
        Figure("d. telemetry", ON, "rows/s", contest.results[ON], None, size),
        Figure("d. telemetry", OFF, "rows/s", contest.results[OFF], None, size),
        Figure("d. telemetry", CONTROLLED, "rows/s", contest.results[CONTROLLED], None, size),
        Figure("d. telemetry", "on / off", "ratio", contest.ratios(ON, OFF), Target(">=", 0.97), "within a run"),
        Figure(
            "d. telemetry",
            "and control / off",
            "ratio",
            contest.ratios(CONTROLLED, OFF),
            Target(">=", 0.95),
            "within a run",
        ),
    ]


# -- c: keyed state --------------------------------------------------------------------------------------------------

OURS, THEIRS = "Penstock stateful", "transformWithStateInPandas"
NO_PROTOBUF = "it needs the package protobuf, which is not installed"


def keyed(bench: Bench, data: Input, prefix: Input) -> list[Figure]:
    """A sum per key for 10 000 keys, one row out per key and batch, against Spark's own state on a prefix."""
    spark = bench.spark

    def ours(at: Path) -> float:
        flow = ps.Flow("keyed")
        summed = flow.read(data.stream(spark)).stateful(keyed_sum, SUM_SCHEMA, SUM_STATE, key="k")
        summed.write("function", fn=nothing)
        return rate(to_the_end(flow, spark, at), data.rows)

    def theirs(at: Path) -> float:
        with settings(spark, STOCK_STATE):
            grouped = prefix.stream(spark).groupBy("k")
            summed = grouped.transformWithStateInPandas(KeyedSum(), SUM_SCHEMA, outputMode="Update", timeMode="None")
            return rate(bare_to_the_end(summed, at, to_noop, mode="update"), prefix.rows)

    contest = Contest(bench.say, "c keyed sum")
    contest.add(OURS, ours)
    if has_protobuf():
        contest.add(THEIRS, theirs)
    else:
        bench.say(f"  c: {THEIRS} is NOT measured: {NO_PROTOBUF}")
    contest.run(bench.folder / "keyed", bench.runs)
    case = "c. keyed sum, 10 000 keys"
    size = f"{data.rows} rows, {data.rows_per_batch} per batch; one row out per key and batch"
    rival = f"{prefix.rows} rows, {prefix.rows_per_batch} per batch; RocksDB, stock file system, same output"
    if THEIRS not in contest.results:
        rival = f"not measured: {NO_PROTOBUF}"
    return [
        Figure(case, OURS, "rows/s", contest.results[OURS], Target(">=", 1e6), size),
        Figure(case, THEIRS, "rows/s", contest.results.get(THEIRS, []), None, rival),
        Figure(case, "Penstock / Spark", "ratio", contest.ratios(OURS, THEIRS), Target(">=", 5.0)),
    ]


def has_protobuf() -> bool:
    """Whether the package is there that Spark's Python state API imports in its workers, and does not install."""
    try:
        return importlib.util.find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        return False


def to_noop(frame: DataFrame, batch: int) -> None:
    """Compute a batch and throw it away."""
    frame.write.format("noop").mode("overwrite").save()
