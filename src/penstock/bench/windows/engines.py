"""The same window query in each engine: sum and maximum of v per key and window.

Each engine is a function of (a shape, so many rows of it, where results go) that returns seconds. Seconds of the two
streams on Spark are trigger time (start of the query excluded; file listing, logs, commits and state included).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.bench.functions import nothing
from penstock.bench.rates import to_noop
from penstock.bench.streams import Trigger, bare_to_the_end, to_the_end
from penstock.bench.windows.data import SCHEMA, Events


@dataclass(frozen=True)
class Shape:
    """A window over a stream of events.

    >>> shape = Shape("sweep", Events(100, 1000), size_ms=60_000, slide_ms=500)
    >>> shape.overlap, shape.label
    (120, 'sweep, 60 s by 0.5 s')
    """

    case: str
    events: Events
    size_ms: int
    slide_ms: int

    @property
    def overlap(self) -> int:
        """In how many windows an event lies."""
        return self.size_ms // self.slide_ms

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.case}, {self.size_ms / 1000:g} s by {self.slide_ms / 1000:g} s"

    @property
    def least_rows(self) -> int:
        """The shortest prefix that closes a window: a little more than a slide, and at least a tenth of a window.

        >>> Shape("dense", Events(1000, 100_000), size_ms=10_000, slide_ms=10).least_rows
        100000
        """
        return int(self.events.per_second * max(self.size_ms / 10, 1.2 * self.slide_ms) / 1000)


@dataclass(frozen=True)
class Files:
    """Parquet files of a shape's events, one per micro-batch, and a tail that closes the windows of the last one."""

    folder: Path
    rows: int
    tail: int = 1

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files as a stream."""
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder))

    def frame(self, spark: SparkSession) -> DataFrame:
        """The files as a batch DataFrame."""
        return spark.read.schema(SCHEMA).parquet(str(self.folder))


class Inputs:
    """Writes the files of an input when it is first asked for."""

    def __init__(self, folder: Path, per_batch: int) -> None:
        self.folder, self.per_batch = folder, per_batch
        self._known: dict[tuple[Events, int, int, int], Files] = {}

    def of(self, events: Events, rows: int, tail: int = 1, per_batch: int | None = None) -> Files:
        """The first `rows` events, in files of so many rows."""
        size = per_batch or self.per_batch
        known = (events, rows, tail, size)
        if known not in self._known:
            folder = (
                self.folder
                / f"events-{events.keys}-{'m' if events.mixed else 'r'}-{events.per_second}-{rows}-{tail}-{size}"
            )
            self._known[known] = Files(events.write(folder, rows, size, tail), rows, tail)
        return self._known[known]


Runner = Callable[[Files, Path, Path | None], float]
"""Run a query over files, with a fresh folder for its checkpoint, results to nowhere or to a folder: seconds."""


def penstock_windows(spark: SparkSession, shape: Shape) -> Runner:
    """Penstock's time window over a stream."""

    def run(files: Files, checkpoint: Path, out: Path | None) -> float:
        flow = ps.Flow("windows")
        read = flow.read(files.stream(spark), time="ts")
        result = read.window(_time(shape), key="k").aggregate(total=ps.sum("v"), top=ps.max("v"))
        if out is None:
            result.write("function", fn=nothing)
        else:
            result.write("parquet", path=str(out))
        return seconds_of(to_the_end(flow, spark, checkpoint), files)

    return run


def spark_windows(spark: SparkSession, shape: Shape) -> Runner:
    """Spark's own `window()` over the same stream."""

    def run(files: Files, checkpoint: Path, out: Path | None) -> float:
        def each(frame: DataFrame, batch: int) -> None:
            if out is None:
                to_noop(frame, batch)
            else:
                frame.write.mode("append").parquet(str(out))

        timed = files.stream(spark).withWatermark("ts", "0 seconds")
        return seconds_of(bare_to_the_end(_grouped(timed, shape), checkpoint, each), files)

    return run


def penstock_frame(spark: SparkSession, shape: Shape) -> Runner:
    """Penstock's window over a batch DataFrame; planning counts, as it does for DuckDB."""

    def run(files: Files, checkpoint: Path, out: Path | None) -> float:
        flow = ps.Flow("windows")
        read = flow.read(files.frame(spark), time="ts")
        frame = read.window(_time(shape), key="k").aggregate(total=ps.sum("v"), top=ps.max("v")).to_df(spark)
        return timed(lambda: save(frame, out))

    return run


def duckdb_panes(shape: Shape, threads: int = 2) -> Runner:
    """The query that a person who knows panes writes by hand in DuckDB: partials per pane, then frames over panes."""
    import duckdb  # noqa: PLC0415 - a development dependency, wanted by this peer alone

    def run(files: Files, checkpoint: Path, out: Path | None) -> float:
        with duckdb.connect(config={"threads": threads}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            query = pane_query(shape, f"{files.folder}/*.parquet")
            if out is None:
                return timed(lambda: connection.execute(f"CREATE TEMP TABLE results AS {query}"))
            out.mkdir(parents=True)
            return timed(lambda: connection.execute(f"COPY ({query}) TO '{out}/results.parquet' (FORMAT parquet)"))

    return run


def pane_query(shape: Shape, files: str) -> str:
    """Sum and maximum by panes, in SQL; windows that hold no event are left out, as in the others."""
    slide, before = shape.slide_ms, shape.overlap - 1
    return f"""
        WITH panes AS (
            SELECT k, epoch_ms(ts) // {slide} AS p, sum(v) AS s, max(v) AS m FROM read_parquet('{files}') GROUP BY ALL),
        bounds AS (SELECT min(p) AS lo, max(p) + {before} AS hi FROM panes),
        grid AS (SELECT k, p FROM (SELECT DISTINCT k FROM panes), (SELECT unnest(range(lo, hi + 1)) AS p FROM bounds)),
        slid AS (
            SELECT k, p, sum(s) OVER w AS total, max(m) OVER w AS top FROM grid LEFT JOIN panes USING (k, p)
            WINDOW w AS (PARTITION BY k ORDER BY p ROWS BETWEEN {before} PRECEDING AND CURRENT ROW))
        SELECT k, (p - {before}) * {slide} AS start_ms, total, top FROM slid WHERE total IS NOT NULL"""


# -- small parts ------------------------------------------------------------------------------------------------------


def _time(shape: Shape) -> ps.Time:
    return ps.Time(f"{shape.size_ms} ms", slide=f"{shape.slide_ms} ms")


def _grouped(frame: DataFrame, shape: Shape) -> DataFrame:
    window = F.window("ts", f"{shape.size_ms} milliseconds", f"{shape.slide_ms} milliseconds")
    return frame.groupBy("k", window).agg(F.sum("v").alias("total"), F.max("v").alias("top"))


def seconds_of(found: list[Trigger], files: Files) -> float:
    """Trigger time in seconds; refuses a run that did not see all its rows."""
    seen = sum(trigger.rows for trigger in found)
    if seen != files.rows + files.tail:
        raise RuntimeError(f"{files.rows + files.tail} rows were written, the triggers report {seen}")
    return sum(trigger.ms for trigger in found) / 1000.0


def save(frame: DataFrame, out: Path | None) -> None:
    """Compute a DataFrame, to nowhere or to Parquet."""
    if out is None:
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.parquet(str(out))


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    before = time.perf_counter()
    work()
    return time.perf_counter() - before
