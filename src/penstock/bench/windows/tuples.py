"""Count windows and Python functions: cases whose size is not in seconds, or whose peer is Spark's own state.

Count windows are measured after the first one is full, so that every tuple that slides one in slides one out: the
batches before are dropped, as a warm-up. Their streams have no event time, so order is that of the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.bench.figures import median
from penstock.bench.functions import nothing
from penstock.bench.rates import STOCK_STATE, to_noop
from penstock.bench.streams import Trigger, bare_to_the_end, to_the_end
from penstock.bench.windows import functions, truth
from penstock.bench.windows.data import Events
from penstock.bench.windows.engines import Files, Shape, seconds_of
from penstock.bench.windows.journal import Row
from penstock.bench.windows.peers import Arena, sized
from penstock.engine.spark.session import settings

Floats = npt.NDArray[np.float64]

COUNT_SIZES = (1_000, 10_000, 100_000, 1_000_000)
COUNT_EVENTS = Events(keys=2, per_second=1000)
REFERENCE_EVENTS = Events(keys=1000, per_second=1000)
REFERENCE_SIZE, REFERENCE_SLIDE = 1000, 200
REFERENCE_ROWS, REFERENCE_BATCH = 1_000_000, 500_000
PYTHON_SHAPE = Shape("python", Events(keys=10_000, per_second=100_000, mixed=False), size_ms=10_000, slide_ms=5_000)


# -- tuple by tuple ---------------------------------------------------------------------------------------------------


def count_windows(arena: Arena, sizes: Sequence[int] = COUNT_SIZES) -> list[Row]:
    """Sum and maximum of the last `size` tuples of a key, at every tuple; the sizes in turn."""
    fill = int(1.05 * COUNT_EVENTS.keys * max(sizes))  # keys are not quite equally frequent
    files = arena.inputs.of(COUNT_EVENTS, fill + arena.effort.rows)

    def window(size: int) -> Callable[[Any], Any]:
        kind = ps.Count(size, slide=1)
        return lambda stream: stream.window(kind, key="k").aggregate(total=ps.sum("v"), top=ps.max("v"))

    checks = {
        size: _checked(arena, files, window(size), partial(last_tuples_equal, files=files, size=size)) for size in sizes
    }
    runs: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(arena.effort.runs):
        for size in sizes if number % 2 == 0 else reversed(sizes):
            runs[size].append(_steady(arena, files, window(size), fill))
            arena.bench.say(f"  count, {size} tuples, run {number + 1}: {runs[size][-1]:.2f} s")
    return [
        Row.of("penstock", "count", runs[size], rows=arena.effort.rows, results=arena.effort.rows, equal=checks[size],
               variant=f"{size} tuples", note="Count(size, slide=1), sum and max, 2 keys, measured once full")
        for size in sizes
    ]  # fmt: skip


def last_tuples_equal(found: pa.Table, files: Files, size: int) -> bool:
    """Whether these are, per key, sum and maximum of tuples e - size + 1 .. e for each e from `size` on."""
    rows = pq.read_table(files.folder, columns=["k", "v"])
    found = found.sort_by([("k", "ascending"), ("end", "ascending")])
    key, values = rows.column("k").to_numpy(), rows.column("v").to_numpy()
    wanted: list[tuple[int, Floats, Floats]] = []
    for each in np.unique(key):
        mine = values[key == each]
        running = np.concatenate([[0.0], np.cumsum(mine)])
        if len(mine) >= size:
            wanted.append((int(each), running[size:] - running[:-size], _sliding_max(mine, size)))
    if found.num_rows != sum(len(total) for _, total, _ in wanted):
        return False
    offset = 0
    for each, total, top in wanted:
        mine = found.slice(offset, len(total))
        offset += len(total)
        ends = np.arange(size, size + len(total))
        facts = (
            ("k", np.full(len(total), each)),
            ("end", ends),
            ("start", ends - size + 1),
            ("total", total),
            ("top", top),
        )
        if not all(np.array_equal(mine.column(name).to_numpy(), values) for name, values in facts):
            return False
    return True


def _sliding_max(values: Floats, size: int) -> Floats:
    """The maximum of each run of `size` values.

    >>> _sliding_max(np.array([3.0, 1.0, 2.0, 5.0]), 2)
    array([3., 2., 5.])
    """
    return truth.sliding_max(values[None, :], size)[0, size - 1 : len(values)]


# -- thesis 000's reference window ------------------------------------------------------------------------------------


def reference(arena: Arena) -> list[Row]:
    """<1000, 200> over 1000 keys: panes computed once against whole windows, in turn."""
    fill = int(1.2 * REFERENCE_EVENTS.keys * REFERENCE_SIZE)
    rows = min(arena.effort.rows, REFERENCE_ROWS)  # whole windows at this price take a minute for a million rows
    files = arena.inputs.of(REFERENCE_EVENTS, fill + rows, per_batch=REFERENCE_BATCH)
    kind = ps.Count(REFERENCE_SIZE, slide=REFERENCE_SLIDE)
    points = functions.points_here()  # a quicker machine gets more to do: what a pane costs is part of the case
    whole, part = partial(functions.whole, points=points), partial(functions.part, points=points)

    def by_key(stream: Any) -> Any:
        return stream.window(kind, key="k", pattern="key").apply(whole, functions.STATISTIC)

    def by_pane(stream: Any) -> Any:
        windowed = stream.window(kind, key="k", pattern="pane")
        return windowed.apply(pane=part, combine=functions.together, schema=functions.STATISTIC)

    patterns = {"pane farming": by_pane, "key partitioning": by_key}
    checks = {
        name: _checked(arena, files, window, partial(statistic_equal, files=files, points=points))
        for name, window in patterns.items()
    }
    runs: dict[str, list[float]] = {name: [] for name in patterns}
    for number in range(arena.effort.runs):
        for name in patterns if number % 2 == 0 else reversed(patterns):
            runs[name].append(_steady(arena, files, patterns[name], fill, rows))
            arena.bench.say(f"  reference, {name}, run {number + 1}: {runs[name][-1]:.2f} s")
    results = rows // REFERENCE_SLIDE
    speeds = [rows / seconds for seconds in runs["pane farming"]]
    return [
        Row.of("penstock", "reference", runs[name], rows=rows, results=results, equal=checks[name],
               variant=name, beside=speeds if name == "key partitioning" else [],
               note="thesis 000's <1000, 200>, 1000 keys, G about 1500 us per 200 tuples; equal within 1e-9",
               facts={"points": points})
        for name in patterns
    ]  # fmt: skip


def statistic_equal(found: pa.Table, files: Files, points: int = functions.POINTS) -> bool:
    """Whether these are the statistics of tuples 200 (i - 1) + 1 .. 200 (i - 1) + 1000 of each key, to 1e-9."""
    rows = pq.read_table(files.folder, columns=["k", "v"])
    key, values = rows.column("k").to_numpy(), rows.column("v").to_numpy()
    turned = np.zeros(len(values))
    for point in range(points):
        turned += np.arctan(values + point)
    wanted: dict[tuple[int, int], float] = {}
    for each in np.unique(key):
        running = np.concatenate([[0.0], np.cumsum(turned[key == each])])
        for end in range(REFERENCE_SIZE, len(running), REFERENCE_SLIDE):
            wanted[int(each), end] = float(running[end] - running[end - REFERENCE_SIZE])
    columns = zip(*(found.column(name).to_pylist() for name in ("k", "end", "statistic")), strict=True)
    given = {(k, end): value for k, end, value in columns}
    return (
        len(given) == found.num_rows
        and given.keys() == wanted.keys()
        and all(abs(given[which] - value) <= 1e-9 * max(1.0, abs(value)) for which, value in wanted.items())
    )


# -- a Python function per window -------------------------------------------------------------------------------------


def python_windows(arena: Arena, with_spark: bool = True) -> list[Row]:
    """A Python function over time windows of 10 000 keys, against transformWithStateInPandas doing the same."""
    shape, total = PYTHON_SHAPE, arena.effort.rows
    note = "10 000 keys, 10 s by 5 s, sum and max by a Python function"
    ours = _python_check(arena, _penstock_python, total, "penstock")
    if not with_spark:
        runs = [_python_time(arena, _penstock_python, total) for _ in range(arena.effort.runs)]
        return [_python_row("penstock", ours, runs, note)]
    _python_time(arena, _spark_python, shape.least_rows)  # a cold engine would look slow
    rows = sized(lambda n: _python_time(arena, _spark_python, n), shape.least_rows, total, arena.effort.at_least_s)
    theirs = _python_check(arena, _spark_python, rows, "spark")
    runs_ours, runs_theirs = list[float](), list[float]()
    for _ in range(1 if theirs[3] >= arena.effort.at_least_s / 2 else arena.effort.runs):
        runs_ours.append(_python_time(arena, _penstock_python, total))
        runs_theirs.append(_python_time(arena, _spark_python, rows))
        arena.bench.say(f"  python: penstock {total / runs_ours[-1]:.4g}, Spark {rows / runs_theirs[-1]:.4g} rows/s")
    beside = [total / seconds for seconds in runs_ours]
    rival = "transformWithStateInPandas, RocksDB, one value state of two NumPy buffers per key, no timers"
    return [_python_row("penstock", ours, runs_ours, note), _python_row("spark", theirs, runs_theirs, rival, beside)]


Python = Callable[[Arena, Files, Path, Path | None], list[Trigger]]


def _penstock_python(arena: Arena, files: Files, at: Path, out: Path | None) -> list[Trigger]:
    shape, spark = PYTHON_SHAPE, arena.bench.spark
    flow = ps.Flow("functions")
    windowed = flow.read(files.stream(spark), time="ts").window(
        ps.Time(f"{shape.size_ms} ms", slide=f"{shape.slide_ms} ms"), key="k"
    )
    result = windowed.apply(functions.sum_and_top, functions.RESULT)
    result.write("function", fn=nothing) if out is None else result.write("parquet", path=str(out))
    return to_the_end(flow, spark, at)


def _spark_python(arena: Arena, files: Files, at: Path, out: Path | None) -> list[Trigger]:
    shape, spark = PYTHON_SHAPE, arena.bench.spark

    def each(frame: DataFrame, batch: int) -> None:
        to_noop(frame, batch) if out is None else frame.write.mode("append").parquet(str(out))

    with settings(spark, STOCK_STATE):
        stream = files.stream(spark).withWatermark("ts", "0 seconds").withColumn("t_ms", F.unix_millis("ts"))
        processor = functions.WindowedSum(shape.size_ms, shape.slide_ms)
        result = stream.groupBy("k").transformWithStateInPandas(
            processor, functions.PROCESSOR_RESULT, outputMode="Append", timeMode="EventTime"
        )
        return bare_to_the_end(result, at, each)


def _python_files(arena: Arena, rows: int) -> Files:
    return arena.inputs.of(PYTHON_SHAPE.events, rows, tail=PYTHON_SHAPE.events.keys)


def _python_time(arena: Arena, python: Python, rows: int) -> float:
    folder, files = arena._fresh(), _python_files(arena, rows)
    seconds = seconds_of(python(arena, files, folder / "checkpoint", None), files)
    shutil.rmtree(folder, ignore_errors=True)
    return seconds


def _python_check(arena: Arena, python: Python, rows: int, engine: str) -> tuple[int, int, bool, float]:
    """(rows, results, equal, seconds) of a run that is compared."""
    folder, files, shape = arena._fresh(), _python_files(arena, rows), PYTHON_SHAPE
    seconds = seconds_of(python(arena, files, folder / "checkpoint", folder / "results"), files)
    table = pq.read_table(folder / "results")
    found = table if "start_ms" in table.column_names else truth.parquet_results(folder / "results")
    limit = shape.events.closed_by(rows)
    wanted = truth.expected(shape.events, rows, shape.size_ms, shape.slide_ms, limit)
    if not wanted.num_rows:
        raise RuntimeError(f"python: {rows} rows close no window, so nothing was compared")
    equal = truth.same_rows(found, wanted, shape.size_ms, limit)
    shutil.rmtree(folder, ignore_errors=True)
    arena.bench.say(f"  python, {engine}, checked: {rows} rows, {found.num_rows} results, equal {equal}")
    return rows, found.num_rows, equal, seconds


def _python_row(
    engine: str, checked: tuple[int, int, bool, float], runs: list[float], note: str, beside: Sequence[float] = ()
) -> Row:
    rows, results, equal, _ = checked
    size, slide = PYTHON_SHAPE.size_ms / 1000, PYTHON_SHAPE.slide_ms / 1000
    return Row.of(
        engine, "python", runs, rows=rows, results=results, equal=equal, size_s=size, slide_s=slide,
        beside=list(beside), note=note,
    )  # fmt: skip


# -- small parts ------------------------------------------------------------------------------------------------------


def _checked(arena: Arena, files: Files, window: Callable[[Any], Any], equal: Callable[[pa.Table], bool]) -> bool:
    """One run over all rows, its results compared."""
    folder = arena._fresh()
    flow = ps.Flow("tuples")
    window(flow.read(files.stream(arena.bench.spark))).write("parquet", path=str(folder / "results"))
    to_the_end(flow, arena.bench.spark, folder / "checkpoint")
    table = pq.read_table(folder / "results")
    positions = table.column("window").combine_chunks()
    for name in ("start", "end"):
        table = table.append_column(name, pc.struct_field(positions, name))
    found = equal(table.drop_columns(["window"]))
    shutil.rmtree(folder, ignore_errors=True)
    arena.bench.say(f"  checked: {table.num_rows} results, {'equal' if found else 'NOT EQUAL'} to the truth")
    return found


def _steady(arena: Arena, files: Files, window: Callable[[Any], Any], fill: int, rows: int | None = None) -> float:
    """Seconds for the rows after the first `fill`, per so many rows (as the effort says, if left out)."""
    folder = arena._fresh()
    flow = ps.Flow("tuples")
    window(flow.read(files.stream(arena.bench.spark))).write("function", fn=nothing)
    found = sorted(to_the_end(flow, arena.bench.spark, folder / "checkpoint"), key=lambda trigger: trigger.batch)
    shutil.rmtree(folder, ignore_errors=True)
    return steady_seconds(found, fill, rows or arena.effort.rows)


def steady_seconds(found: Sequence[Trigger], fill: int, rows: int) -> float:
    """Seconds for `rows` rows at the pace of the batches that begin after the first `fill` rows.

    >>> batches = [Trigger(0, 100, {"triggerExecution": 9000.0}), Trigger(1, 50, {"triggerExecution": 1000.0}),
    ...     Trigger(2, 50, {"triggerExecution": 1000.0}), Trigger(3, 1, {"triggerExecution": 70.0})]
    >>> steady_seconds(batches, fill=100, rows=200)
    4.0
    """
    before, kept = 0, list[Trigger]()
    largest = max(trigger.rows for trigger in found)
    for trigger in found:
        if before >= fill and trigger.rows * 2 >= largest:  # the tail is a batch of next to nothing
            kept.append(trigger)
        before += trigger.rows
    if not kept:
        raise RuntimeError(f"no batch begins after {fill} rows; smaller batches, or more rows")
    return median([trigger.ms / 1000 / trigger.rows for trigger in kept]) * rows
