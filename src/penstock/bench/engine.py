"""What Penstock costs per batch and per row against plain Spark: `penstock bench engine`, `make bench-engine`.

All variants of a case are measured in turn within each run, the order turning round from run to run; a figure is the
median of the runs, a ratio is formed within one run, the warm-up is dropped.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import penstock as ps
from penstock.bench import fixed, rates
from penstock.bench.figures import Figure, machine, table, write
from penstock.bench.streams import Bench, write_parquet

CASES = "abcd"


@dataclass(frozen=True)
class Effort:
    """How much is run."""

    runs: int
    warm_up_s: float  # of each live flow
    segment_s: float
    files: int
    rows_per_file: int
    map_files: int  # files per batch of the identity map
    keyed_files: int  # files per batch of the keyed sum, both sides
    prefix_files: int  # files that transformWithStateInPandas gets


FULL = Effort(7, 15.0, 4.5, files=16, rows_per_file=500_000, map_files=4, keyed_files=4, prefix_files=1)
QUICK = Effort(3, 4.0, 2.5, files=4, rows_per_file=250_000, map_files=4, keyed_files=2, prefix_files=1)


def main(json_path: str | None, quick: bool, cases: str = CASES) -> int:
    """Measure, print a table, write JSON; the exit code is 1 if a target was missed, and 0 under `quick`."""

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}" if text.startswith(" ") else text, flush=True)

    began = time.monotonic()
    spark = ps.local_session("local[2,4]", app="penstock-bench")
    try:
        about = machine(spark)
        say("engine benchmark, measured on " + ", ".join(f"{key} {value}" for key, value in about.items()))
        effort = QUICK if quick else FULL
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
            found = _measure(Bench(spark, Path(name), effort.runs, say), effort, cases)
    finally:
        spark.stop()
    kind = "quick, a check and not a figure" if quick else "the figures"
    say(f"\nmeasured here, median of {effort.runs} interleaved runs, warm-up dropped ({kind})\n")
    say(table(found))
    if json_path is not None:
        write(json_path, {**about, "quick": quick}, effort.runs, found)
    missed = [figure for figure in found if figure.target is not None and not figure.target.holds(figure.value)]
    say(f"{time.monotonic() - began:.0f} s in all; {len(missed)} targets missed")
    return 1 if missed and not quick else 0


def _measure(bench: Bench, effort: Effort, cases: str) -> list[Figure]:
    found: list[Figure] = []
    folder = bench.folder
    if set("bcd") & set(cases):
        rows = write_parquet(folder / "input", effort.files, effort.rows_per_file)
        first = write_parquet(folder / "prefix", effort.prefix_files, effort.rows_per_file)
        bench.say(f"  {rows} rows of Parquet written")
    if "a" in cases:
        found += fixed.measure(bench, effort.warm_up_s, effort.segment_s)
    if "b" in cases:
        per_batch = effort.map_files * effort.rows_per_file
        data = rates.Input(folder / "input", rows, effort.map_files, per_batch)
        found += rates.identity(bench, data)
    if "c" in cases:
        per_batch = effort.keyed_files * effort.rows_per_file
        data = rates.Input(folder / "input", rows, effort.keyed_files, per_batch)
        prefix = rates.Input(folder / "prefix", first, effort.keyed_files, min(first, per_batch))
        found += rates.keyed(bench, data, prefix)
    if "d" in cases:
        found += rates.telemetry(bench, rates.Input(folder / "input", rows, 1, effort.rows_per_file))
    return found
