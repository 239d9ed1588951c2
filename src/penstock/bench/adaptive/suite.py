"""`penstock bench adaptive`: live runs, ours against static set-ups, plain settings and the theses' policies.

For each scenario, in one session, after a warm-up, round by round: F is measured (the flow at its low rate, width 1,
triggered at once), the bound of the round is 4 F (mean) or 6 F (p95), and the policies run in turn. The static set-up
is the cheapest pair of a grid (width, trigger) that holds the bound at the peak; it is chosen anew in a round whose F
moved, for then it is another machine in all but name. Each finished piece is kept in the results file; a benchmark
that was cut goes on from there.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.adaptive.description import OURS_AND_STATIC, POLICIES, TIMES_F, Built, Scenario
from penstock.bench.adaptive.live import Fixed, Outcome, run
from penstock.bench.adaptive.scenarios import SCENARIOS
from penstock.bench.adaptive.table import Row, misses, row, table
from penstock.bench.figures import machine, write_whole
from penstock.observe.record import BatchRecord

WARM_UP_S, CALIBRATION_S = 45.0, 16.0
PIECES = 3  # the kind of pieces that a results file holds: those of another kind are measured anew
USUAL_S = 0.1  # a usual lifetime, with which the cost of a row is measured
MOVED = 0.1  # of F: from here on the static set-up is chosen anew
SHARES = (0.75, 0.5, 0.25, 0.0)  # of the bound: the triggers of the grid
ALIKE = 0.5  # of the bound: the trigger with which variants of a flow are compared
Say = Callable[[str], None]


class Results:
    """Finished pieces by name, in a JSON file that is written whole after each."""

    def __init__(self, path: Path | None, about: dict[str, Any], fresh: bool) -> None:
        self.path, self.about = path, about
        self.pieces: dict[str, Any] = {}
        self.rows: list[Row] = []
        if path is not None and path.exists() and not fresh:
            known = json.loads(path.read_text())
            if known.get("about") == json.loads(json.dumps(about)):
                self.pieces, self.rows = known["pieces"], known["rows"]
            else:
                aside = path.replace(path.with_suffix(".old.json"))
                print(f"{path} was measured on another machine or with other versions: it is {aside} now", flush=True)

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """A finished piece, or what `make` gives, which is kept."""
        if name not in self.pieces:
            self.pieces[name] = make()
            self.write()
        return self.pieces[name]

    def write(self, rows: Sequence[Row] = ()) -> None:
        """Write all of it, atomically; rows take the place of earlier ones of the same scenario and policy."""
        of = {(row["scenario"], row["policy"]) for row in rows}
        self.rows = [row for row in self.rows if (row["scenario"], row["policy"]) not in of] + list(rows)
        if self.path is not None:
            document = {"how": "measured", "about": self.about, "rows": self.rows, "pieces": self.pieces}
            write_whole(self.path, document)


def main(
    json_path: str | None = None,
    only: str | None = None,
    policies: str | None = None,
    runs: int | None = None,
    fresh: bool = False,
    keep: str | None = None,
) -> int:
    """Measure, print a table, write JSON; the exit code is 1 if a target was missed.

    `runs` and `policies` left out are those of each scenario; policies that a scenario does not have are left out.
    `keep` is a folder for the telemetry of every run.
    """
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    known = tuple(dict.fromkeys([*POLICIES, *(policy for made in SCENARIOS.values() for policy in made.policies)]))
    names = tuple(only.split(",")) if only else tuple(SCENARIOS)
    wanted = tuple(policies.split(",")) if policies else known
    unknown = [name for name in names if name not in SCENARIOS] + [name for name in wanted if name not in known]
    if unknown:
        print(f"there is no {', '.join(unknown)}; scenarios: {', '.join(SCENARIOS)}; policies: {', '.join(known)}")
        return 2
    rows: list[Row] = []
    results: Results | None = None
    for name in names:
        scenario = SCENARIOS[name]
        chosen = tuple(policy for policy in scenario.policies if policy in wanted)
        if not chosen:
            say(f"{name}: none of its policies ({', '.join(scenario.policies)}) is wanted")
            continue
        spark = ps.local_session(scenario.master, app="penstock-bench-adaptive")
        try:
            about = {**machine(spark), "pieces": PIECES}
            for changing in ("load_at_start", "master"):
                about.pop(changing)
            if results is None:
                results = Results(None if json_path is None else Path(json_path), about, fresh)
            rows += measured(spark, scenario, chosen, runs or scenario.runs, results, say, keep)
        finally:
            spark.stop()
    if results is not None:
        results.write(rows)
    print(table(rows))
    missed = misses(rows)
    for text in missed:
        print("missed: " + text)
    return 1 if missed else 0


def measured(
    spark: SparkSession,
    scenario: Scenario,
    policies: tuple[str, ...],
    runs: int,
    results: Results,
    say: Say,
    keep: str | None = None,
) -> list[Row]:
    """All rows of one scenario."""
    low = ps.sources.constant(scenario.low)
    built = scenario.build(spark, low)
    wanted = [f"{scenario.name}/{policy}/{n}" for policy in policies for n in range(runs_of(policy, runs))]
    if any(piece not in results.pieces for piece in wanted):
        say(f"{scenario.name}: warm-up")  # at the peak, too: else the first run pays for compiling its code
        widest = Fixed(built.operator, scenario.widths[-1], 0.0)
        for pair, load in ((widest, ps.sources.constant(scenario.peak)), (Fixed("", 1, 0.0), low)):
            run(spark, scenario, pair, 1.0, load=load, seconds=WARM_UP_S)

    if scenario.sized is not None:
        row_s = results.piece(f"{scenario.name}/row", lambda: dearest_row(spark, scenario))
        scenario = scenario.sized(row_s)

    def in_round(policy: str, number: int, choice: Any, bound: float) -> dict[str, Any]:
        folder = None if keep is None else Path(keep) / f"{scenario.name}-{policy}-{number}"
        return run(spark, scenario, choice, bound, build=scenario.variants.get(policy), keep=folder).to_json()

    pooled: dict[str, list[Outcome]] = {}
    grid: dict[str, Any] = {"width": scenario.widths[0], "lifetime_s": 0.0, "F_s": math.inf}
    for number in range(runs):
        turn = [policy for policy in policies if number < runs_of(policy, runs)]
        if not turn:
            break
        fixed = results.piece(f"{scenario.name}/F/{number}", lambda: fixed_cost(spark, scenario))
        bound = TIMES_F[scenario.statistic] * fixed
        required = f"{built.target.per_s:g} rows/s" if built.target else f"{bound * 1e3:.0f} ms ({scenario.statistic})"
        say(f"{scenario.name}, run {number + 1}: F {fixed * 1e3:.0f} ms, required: {required}")
        is_held_against = "static" in scenario.policies and {"static", "at-once"} & set(turn)
        if is_held_against and not abs(fixed / grid["F_s"] - 1.0) <= MOVED:
            sought = partial(static_pair, spark, scenario, fixed, say)
            grid = results.piece(f"{scenario.name}/grid/{number}", sought)
            say(f"{scenario.name}: static set-up is width {grid['width']}, trigger {grid['lifetime_s'] * 1e3:.0f} ms")
        chosen: dict[str, Any] = {
            "adaptive": None,
            "static": Fixed(built.operator, grid["width"], grid["lifetime_s"]),
            "at-once": Fixed(built.operator, grid["width"], 0.0),
            "elastic": "elastic",
            "spar-latency": "spar-latency",
            "fused": Fixed(built.operator, 1, ALIKE * bound),
            "split": Fixed(built.operator, 1, ALIKE * bound),
        }
        for policy in turn if number % 2 == 0 else turn[::-1]:  # no policy always follows the same one
            live = partial(in_round, policy, number, chosen[policy], bound)
            made = results.piece(f"{scenario.name}/{policy}/{number}", live)
            outcome = Outcome.from_json(made)
            pooled.setdefault(policy, []).append(outcome)
            share = sum(outcome.spans.fulfilled) / max(1, len(outcome.spans.fulfilled))
            say(
                f"{scenario.name}, run {number + 1}/{runs_of(policy, runs)}, {policy}: {share:.0%} of"
                f" {len(outcome.spans.fulfilled)} spans, CPU {outcome.cpu_seconds:.0f} s,"
                f" width x time {outcome.width_seconds:.0f} s"
            )
    return [row(scenario, policy, found) for policy, found in pooled.items()]


def runs_of(policy: str, runs: int) -> int:
    """How often a policy runs: the two that are held against each other as often as was asked for, others once.

    >>> runs_of("adaptive", 3), runs_of("elastic", 3)
    (3, 1)
    """
    return runs if policy in OURS_AND_STATIC else 1


def fixed_cost(spark: SparkSession, scenario: Scenario) -> float:
    """F: the median work of a batch at the low rate, triggered at once, at the least width."""
    built = scenario.build(spark, ps.sources.constant(scenario.low))
    return median(record.work_s for record in calibrated(spark, built, 0.0))


def dearest_row(spark: SparkSession, scenario: Scenario) -> float:
    """How long a row takes at the peak, in the job: slower than alone, for Spark uses the machine, too."""
    built = (scenario.build_peak or scenario.build)(spark, ps.sources.constant(scenario.peak))
    seen = [stats for record in calibrated(spark, built, USUAL_S) for stats in record.operators]
    if not seen:
        raise RuntimeError(f"{scenario.name}: no batch had rows within {CALIBRATION_S:g} s: the machine is too slow")
    return sum(stats.busy_s for stats in seen) / sum(stats.rows_in for stats in seen)


def calibrated(spark: SparkSession, built: Built, lifetime_s: float) -> list[BatchRecord]:
    """The batches with rows of a short run at the least width, without those of its first half."""
    records: list[BatchRecord] = []
    with tempfile.TemporaryDirectory() as folder:
        job = built.flow.start(spark, checkpoint=folder, policy=Fixed(built.operator, 1, lifetime_s))
        try:
            job.await_end(CALIBRATION_S / 2)
            job.on_batch(records.append)
            job.await_end(CALIBRATION_S / 2)
        finally:
            job.stop()
    return [record for record in records if record.rows_in]


def static_pair(spark: SparkSession, scenario: Scenario, fixed: float, say: Say) -> dict[str, Any]:
    """The cheapest pair of the grid that holds what is required at the peak: least width, then longest trigger, first.

    Where a throughput is required, waiting between batches only takes from it: the trigger is at once.
    """
    bound = TIMES_F[scenario.statistic] * fixed
    built = scenario.build(spark, ps.sources.constant(scenario.low))
    shares = (0.0,) if built.target else SHARES
    tried = []
    for width in scenario.widths:
        for share in shares:
            pair = Fixed(built.operator, width, share * bound)
            found = run(
                spark,
                scenario,
                pair,
                bound,
                load=ps.sources.constant(scenario.peak),
                seconds=scenario.probe_s,
                build=scenario.build_peak,
            )
            holds = len(found.spans.fulfilled) > 0 and all(found.spans.fulfilled)
            tried.append({"width": width, "lifetime_s": share * bound, "holds": holds})
            mean = found.latency.mean
            shown = "nothing" if mean is None else f"mean {mean * 1e3:.0f} ms"
            shown = f"{found.more['rates_per_s']} rows/s" if "rates_per_s" in found.more else shown
            say(f"  static width {width}, trigger {share * bound * 1e3:.0f} ms: {shown}, {'holds' if holds else 'no'}")
            if holds:
                return {"width": width, "lifetime_s": share * bound, "F_s": fixed, "tried": tried}
            if mean is not None and mean > 4.0 * bound:
                break  # too narrow: a shorter trigger does not help
    return {"width": scenario.widths[-1], "lifetime_s": 0.0, "F_s": fixed, "tried": tried}
