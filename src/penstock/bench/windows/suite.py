"""Windows against their peers: `penstock bench windows`, `make bench-windows`.

One run, the same events for every engine, each engine's results compared with the truth row by row, the run that is
compared dropped as a warm-up. Units that are finished are in the results file and are not measured again.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import penstock as ps
from penstock.bench.figures import Figure, Target, machine, table
from penstock.bench.rates import NO_PROTOBUF, has_protobuf
from penstock.bench.streams import Bench
from penstock.bench.windows import peers, state, truth, tuples
from penstock.bench.windows.data import Events
from penstock.bench.windows.engines import Shape, duckdb_panes, penstock_frame, penstock_windows, spark_windows
from penstock.bench.windows.flink import NOTE as FLINK_NOTE
from penstock.bench.windows.flink import Flink
from penstock.bench.windows.journal import Journal, Row
from penstock.bench.windows.peers import Arena, Effort, Player

CASES = ("sweep", "dense", "python", "count", "batch", "reference", "state")
PEERS = ("spark", "flink", "duckdb")

FULL = Effort(rows=4_000_000, per_batch=1_000_000, batch_rows=16_000_000, at_least_s=60.0, runs=3)
QUICK = Effort(rows=1_200_000, per_batch=400_000, batch_rows=400_000, at_least_s=2.0, runs=1)

SWEEP = Events(keys=100, per_second=1000)
DENSE = Events(keys=1000, per_second=100_000)
SWEEP_SLIDES = (60_000, 30_000, 10_000, 5_000, 1_000, 500)
DENSE_SLIDES = (10_000, 1_000, 100, 10)
SIZES = {"sweep": 60_000, "dense": 10_000}
QUICK_COUNTS = (1_000, 10_000, 100_000)
STATE_KEYS, QUICK_STATE_KEYS = 1_000_000, 20_000


def shapes(case: str) -> list[Shape]:
    """The windows of a sweep, the tumbling one first.

    >>> [shape.overlap for shape in shapes("dense")]
    [1, 10, 100, 1000]
    """
    events, slides = (SWEEP, SWEEP_SLIDES) if case == "sweep" else (DENSE, DENSE_SLIDES)
    return [Shape(case, events, SIZES[case], slide) for slide in slides]


Unit = tuple[str, Callable[[], list[Row]]]


def main(
    json_path: str | None = None,
    quick: bool = False,
    only: str | None = None,
    against: str = ",".join(PEERS),
    fresh: bool = False,
) -> int:
    """Measure, print a table, write JSON; the exit code is 1 if a target was missed or a unit failed, 0 under `quick`.

    `only` names cases, joined by commas; `against` the peers to measure; `fresh` forgets what the results file has.
    """
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}" if text.startswith(" ") else text, flush=True)

    cases, rivals = chosen(only, CASES), chosen(against, PEERS)
    effort = QUICK if quick else FULL
    spark = ps.local_session("local[2,4]", app="penstock-bench-windows", spark__driver__memory="6g")
    failed: list[str] = []
    try:
        about = machine(spark)
        say("window benchmark, measured on " + ", ".join(f"{key} {value}" for key, value in about.items()))
        about.pop("load_at_start")  # another day's run on the same machine goes on
        journal = Journal(None if json_path is None else Path(json_path), {**about, **effort.to_json()}, say, fresh)
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
            folder = Path(name)
            with Flink(say, folder / "flink.log") as flink:
                arena = Arena(Bench(spark, folder, effort.runs, say), effort, flink)
                for unit, measure in units(arena, cases, rivals, quick):
                    if journal.has(unit):
                        say(f"  {unit}: kept")
                        continue
                    say(f"  {unit}")
                    try:
                        journal.add(unit, measure())
                    except Exception as error:  # one unit that fails must not cost the others
                        failed.append(unit)
                        say(f"  {unit} FAILED: {type(error).__name__}: {error}\n{traceback.format_exc()}")
    finally:
        spark.stop()
    found = figures(journal.rows(), cases)
    journal.write(found)
    kind = "quick, a check and not a figure" if quick else "the figures"
    say(f"\nmeasured here, medians, warm-up dropped ({kind})\n")
    say(rows_table(journal.rows()))
    say("\n" + table(found))
    missed = [figure for figure in found if figure.target is not None and not figure.target.holds(figure.value)]
    unequal = [row for row in journal.rows() if row.equal is False]
    say(f"{time.monotonic() - began:.0f} s in all; {len(missed)} targets missed, {len(unequal)} results differ")
    if failed:
        say(f"failed: {', '.join(failed)}; run again to measure what is missing")
    return 1 if unequal or failed or (missed and not quick) else 0


def chosen(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names in a list joined by commas, all if left out.

    >>> chosen("dense,sweep", CASES), chosen("", PEERS)
    (('sweep', 'dense'), ())
    """
    if text is None:
        return known
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ps.PenstockError(f"{', '.join(unknown)}: not known. Remedy: name some of {', '.join(known)}.")
    return tuple(name for name in known if name in wanted)


def units(arena: Arena, cases: tuple[str, ...], rivals: tuple[str, ...], quick: bool) -> Iterator[Unit]:
    """What is measured, in order, as named units that each stand alone."""
    if "state" in cases:  # first: workers that other cases leave behind would count in its memory
        keys = QUICK_STATE_KEYS if quick else STATE_KEYS
        yield "state-memory", lambda: state.peak_memory(arena, keys)
        yield "state-sparse", lambda: state.sparse(arena, keys)
        yield "state-long", lambda: state.long_run(arena, keys // 100, 25 if quick else state.LONG_BATCHES)
    for case in ("sweep", "dense"):
        if case in cases:
            yield from _sweep(arena, case, rivals)
    if "python" in cases:
        with_spark = "spark" in rivals and has_protobuf()
        if "spark" in rivals and not with_spark:
            arena.bench.say(f"  transformWithStateInPandas is NOT measured: {NO_PROTOBUF}")
        yield "python", lambda: tuples.python_windows(arena, with_spark)
    if "count" in cases:
        yield "count", lambda: tuples.count_windows(arena, QUICK_COUNTS if quick else tuples.COUNT_SIZES)
    if "batch" in cases:
        if "duckdb" in rivals and importlib.util.find_spec("duckdb") is not None:
            shape = Shape("batch", SWEEP, 60_000, 600)
            yield "batch", lambda: peers.frames(arena, _frame(arena, shape), _duckdb(shape))
        else:
            arena.bench.say("  the batch case is NOT measured: its peer needs the package duckdb")
    if "reference" in cases:
        yield "reference", lambda: tuples.reference(arena)


def _sweep(arena: Arena, case: str, rivals: tuple[str, ...]) -> Iterator[Unit]:
    every = shapes(case)
    ours = [_penstock(arena, shape) for shape in every]
    for player in ours:
        shape, slide = player.shape, f"{player.shape.slide_ms / 1000:g}"
        if "spark" in rivals and shape.overlap > 1:  # the tumbling one is in the unit below
            rival = _spark(arena, shape)
            yield f"{case}-{slide}-spark", lambda a=player, b=rival: peers.beside(arena, a, b)  # type: ignore[misc]
        if "flink" in rivals:
            other = _flink(arena, shape)
            yield f"{case}-{slide}-flink", lambda a=player, b=other: peers.beside(arena, a, b)  # type: ignore[misc]
    # Last, for all slides must be equally warm: the JVM is long in compiling what small ones need.
    yield f"{case}-flat", lambda: peers.flat(arena, ours, _spark(arena, every[0]))


def _penstock(arena: Arena, shape: Shape) -> Player:
    return Player("penstock", shape, penstock_windows(arena.bench.spark, shape), truth.parquet_results)


def _spark(arena: Arena, shape: Shape) -> Player:
    note = "Spark's streaming window(), append mode, its default state store"
    return Player("spark", shape, spark_windows(arena.bench.spark, shape), truth.parquet_results, note)


def _flink(arena: Arena, shape: Shape) -> Player:
    assert arena.flink is not None
    return Player("flink", shape, peers.flink_runner(arena.flink, shape), truth.csv_results, FLINK_NOTE)


def _frame(arena: Arena, shape: Shape) -> Player:
    return Player("penstock", shape, penstock_frame(arena.bench.spark, shape), truth.parquet_results, "to_df()")


def _duckdb(shape: Shape) -> Player:
    return Player("duckdb", shape, duckdb_panes(shape), peers.plain_parquet, "panes by hand in SQL, 2 threads")


# -- what the rows say ------------------------------------------------------------------------------------------------


def figures(rows: list[Row], cases: tuple[str, ...] = CASES) -> list[Figure]:
    """The figures that have targets, from the rows; a figure without its rows has no value, and misses."""
    found: list[Figure] = []
    for case in ("sweep", "dense"):
        if case in cases:
            found += _sweep_figures(case, rows)
    if "python" in cases:
        name = "a Python function per window, 10 000 keys"
        ratios = _ratios(rows, "spark", "python")
        found.append(Figure(name, "Penstock / transformWithStateInPandas", "ratio", ratios, Target(">=", 10.0)))
    if "count" in cases:
        pace = [min(row.runs) / row.rows for row in rows if row.case == "count" and row.runs]
        spread = [max(pace) / min(pace)] if len(pace) > 1 else []
        found.append(Figure("tuple by tuple, 1 k to 1 M", "dearest / cheapest size, per tuple", "ratio", spread,
                            Target("<=", 1.5)))  # fmt: skip
    if "batch" in cases:
        slower = [1 / ratio for ratio in _ratios(rows, "duckdb", "batch")]
        found.append(Figure("batch, size/slide 100", "seconds, Penstock / DuckDB", "ratio", slower, Target("<=", 3.0)))
    if "reference" in cases:
        ratios = [
            r for row in rows if row.case == "reference" and row.variant == "key partitioning" for r in row.ratios
        ]
        found.append(Figure("reference <1000, 200>", "pane farming / key partitioning", "ratio", ratios,
                            Target(">=", 4.0)))  # fmt: skip
    if "state" in cases:
        found += _state_figures(rows)
    return found


def _state_figures(rows: list[Row]) -> list[Figure]:
    mine = {row.variant: row for row in rows if row.case == "state"}
    sparse, full = mine.get("1 % of the keys"), mine.get("full batch")
    some, share = list[float](), list[float]()
    if sparse is not None and full is not None and full.seconds:
        some = [sparse.facts["state_bytes"] / full.facts["state_bytes"]]
        share = [seconds / full.seconds for seconds in sparse.runs]
    kept = [row.facts["state_rows"] for row in rows if row.case == "long"]
    peaks = [row.facts["peak_rss_mib"] for row in rows if row.case == "memory"]
    return [
        Figure("state", "bytes written, 1 % of the keys / all", "ratio", some, Target("<=", 0.03)),
        Figure("state", "seconds, 1 % of the keys / all", "ratio", share, Target("<=", 0.05)),
        Figure("state", "peak memory of the Python workers", "MiB", peaks, Target("<=", 2048.0)),
        Figure(
            "state",
            "rows kept, later in a long run / early",
            "ratio",
            [later / kept[0] for later in kept[1:]],
            Target("<=", 1.2),
        ),
    ]


def _sweep_figures(case: str, rows: list[Row]) -> list[Figure]:
    every = shapes(case)
    size = every[0].size_ms / 1000
    mine = {row.slide_s: row for row in rows if row.case == case and row.engine == "penstock"}
    found = []
    for shape in every[1:]:
        slide, label = shape.slide_ms / 1000, f"size/{shape.overlap}"
        work = rate = list[float]()
        if size in mine and slide in mine:
            work, rate = _flatness(mine[slide], mine[size])
        held = case == "sweep" and shape.overlap == 120
        found.append(
            Figure(case, f"(rows + results)/s, {label} / tumbling", "ratio", work, Target(">=", 0.8) if held else None)
        )
        found.append(Figure(case, f"rows/s, {label} / tumbling", "ratio", rate, Target(">=", 0.6) if held else None))
    bounds = {("sweep", "spark", 120): 20.0, ("sweep", "flink", 120): 10.0, ("dense", "spark", 1000): 100.0}
    for shape in every:
        for engine in ("spark", "flink"):
            bound = 0.8 if (engine, shape.overlap) == ("spark", 1) else bounds.get((case, engine, shape.overlap))
            ratios = _ratios(rows, engine, case, shape.slide_ms / 1000)
            if ratios or bound is not None:
                variant = (
                    f"rows/s, Penstock / {engine}, {'tumbling' if shape.overlap == 1 else f'size/{shape.overlap}'}"
                )
                found.append(Figure(case, variant, "ratio", ratios, None if bound is None else Target(">=", bound)))
    return found


def _flatness(fine: Row, tumbling: Row) -> tuple[list[float], list[float]]:
    """Per round: (rows + results)/s and rows/s of a small slide over those of the tumbling window."""
    pairs = list(zip(fine.runs, tumbling.runs, strict=True))
    work = [((fine.rows + fine.results) / a) / ((tumbling.rows + tumbling.results) / b) for a, b in pairs]
    return work, [(fine.rows / a) / (tumbling.rows / b) for a, b in pairs]


def _ratios(rows: list[Row], engine: str, case: str, slide_s: float | None = None) -> list[float]:
    chosen_rows = [row for row in rows if row.engine == engine and row.case == case]
    return [ratio for row in chosen_rows if slide_s is None or row.slide_s == slide_s for ratio in row.ratios]


def rows_table(rows: list[Row]) -> str:
    """The rows as aligned text.

    >>> print(rows_table([Row.of("spark", "sweep", [2.0], rows=4000, results=9, equal=True, size_s=60, slide_s=0.5)]))
    case   engine  window       rows  results  seconds  rows/s  equal
    sweep  spark   60 by 0.5 s  4000  9        2        2000    yes
    """
    lines = [("case", "engine", "window", "rows", "results", "seconds", "rows/s", "equal")]
    for row in rows:
        window = row.variant or f"{row.size_s:g} by {row.slide_s:g} s"
        equal = {True: "yes", False: "NO", None: "-"}[row.equal]
        speed = "-" if row.rows_per_s is None else f"{row.rows_per_s:.0f}"
        seconds = "-" if row.seconds is None else f"{row.seconds:.3g}"
        lines.append((row.case, row.engine, window, str(row.rows), str(row.results), seconds, speed, equal))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
