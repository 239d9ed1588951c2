"""`penstock bench adaptive`: live runs, ours against static set-ups, plain settings and the theses' policies.

For each scenario, in one session: F is measured (a warm-up, then the flow at its low rate, width 1, triggered at once),
the bound is 4 F (mean) or 6 F (p95), the static set-up is the cheapest pair of a grid (width, trigger) that holds the
bound at the peak, and then the policies run in turn. Each finished run is kept in the results file; a run that was cut
goes on from there.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.adaptive.live import OVER_S, Fixed, Outcome, Spans, run, wilson
from penstock.bench.adaptive.scenarios import SCENARIOS, Scenario
from penstock.bench.figures import machine, plain
from penstock.control.histogram import LogHistogram

POLICIES = ("adaptive", "static", "at-once", "elastic", "spar-latency")
TIMES_F = {"mean": 4.0, "p95": 6.0}
WARM_UP_S, CALIBRATION_S, PROBE_S = 25.0, 16.0, 16.0
SHARES = (0.75, 0.5, 0.25, 0.0)  # of the bound: the triggers of the grid


class Results:
    """Finished pieces by name, in a JSON file that is written whole after each."""

    def __init__(self, path: Path | None, about: dict[str, Any], fresh: bool) -> None:
        self.path, self.about = path, about
        self.pieces: dict[str, Any] = {}
        if path is not None and path.exists() and not fresh:
            known = json.loads(path.read_text())
            if known.get("about") == json.loads(json.dumps(about)):
                self.pieces = known["pieces"]

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """A finished piece, or what `make` gives, which is kept."""
        if name not in self.pieces:
            self.pieces[name] = make()
            self.write()
        return self.pieces[name]

    def write(self, rows: list[dict[str, Any]] | None = None) -> None:
        """Write all of it, atomically."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {"how": "measured", "about": self.about, "rows": rows or [], "pieces": self.pieces}
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps(document, indent=1) + "\n")
        draft.replace(self.path)


def main(
    json_path: str | None = None,
    only: str | None = None,
    policies: str | None = None,
    runs: int = 3,
    fresh: bool = False,
) -> int:
    """Measure, print a table, write JSON; the exit code is 1 if our policy missed a target."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    names = tuple(only.split(",")) if only else tuple(SCENARIOS)
    wanted = tuple(policies.split(",")) if policies else POLICIES
    unknown = [name for name in names if name not in SCENARIOS] + [name for name in wanted if name not in POLICIES]
    if unknown:
        print(f"there is no {', '.join(unknown)}; scenarios: {', '.join(SCENARIOS)}; policies: {', '.join(POLICIES)}")
        return 2
    rows: list[dict[str, Any]] = []
    results: Results | None = None
    for name in names:
        scenario = SCENARIOS[name]
        spark = ps.local_session(scenario.master, app="penstock-bench-adaptive")
        try:
            about = machine(spark)
            for changing in ("load_at_start", "master"):
                about.pop(changing)
            if results is None:
                results = Results(None if json_path is None else Path(json_path), about, fresh)
            rows += measured(spark, scenario, wanted, runs, results, say)
        finally:
            spark.stop()
    assert results is not None
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
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """All rows of one scenario."""
    low = ps.sources.constant(scenario.low)
    if any(f"{scenario.name}/{policy}/{n}" not in results.pieces for policy in policies for n in range(runs)):
        say(f"{scenario.name}: warm-up")
        run(spark, scenario, Fixed("", 1, 0.0), 1.0, load=low, seconds=WARM_UP_S, requires=False)
    fixed = results.piece(f"{scenario.name}/F", lambda: fixed_cost(spark, scenario))
    bound = TIMES_F[scenario.statistic] * fixed
    say(f"{scenario.name}: F {fixed * 1e3:.0f} ms, bound {bound * 1e3:.0f} ms ({scenario.statistic})")
    grid = results.piece(f"{scenario.name}/static", lambda: static_pair(spark, scenario, bound, say))
    say(f"{scenario.name}: static set-up is width {grid['width']}, trigger {grid['lifetime_s'] * 1e3:.0f} ms")
    operator = scenario.build(spark, low).operator
    chosen: dict[str, Any] = {
        "adaptive": None,
        "static": Fixed(operator, grid["width"], grid["lifetime_s"]),
        "at-once": Fixed(operator, grid["width"], 0.0),
        "elastic": "elastic",
        "spar-latency": "spar-latency",
    }
    pooled: dict[str, list[Outcome]] = {}
    for number in range(runs):
        for policy in policies:
            made = results.piece(
                f"{scenario.name}/{policy}/{number}",
                lambda policy=policy: run(spark, scenario, chosen[policy], bound).to_json(),  # type: ignore[misc]
            )
            outcome = Outcome.from_json(made)
            pooled.setdefault(policy, []).append(outcome)
            share = sum(outcome.spans.fulfilled) / max(1, len(outcome.spans.fulfilled))
            say(
                f"{scenario.name}, run {number + 1}/{runs}, {policy}: {share:.0%} of {len(outcome.spans.fulfilled)}"
                f" spans, CPU {outcome.cpu_seconds:.0f} s, width x time {outcome.width_seconds:.0f} s"
            )
    return [row(scenario, policy, found, bound, fixed) for policy, found in pooled.items()]


def fixed_cost(spark: SparkSession, scenario: Scenario) -> float:
    """F: the median work of a batch at the low rate, triggered at once, at the least width."""
    low = ps.sources.constant(scenario.low)
    built = scenario.build(spark, low)
    work: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        job = built.flow.start(spark, checkpoint=folder, policy=Fixed(built.operator, 1, 0.0))
        try:
            job.await_end(CALIBRATION_S / 2)
            job.on_batch(lambda record: work.append(record.work_s) if record.rows_in else None)
            job.await_end(CALIBRATION_S / 2)
        finally:
            job.stop()
    return median(work)


def static_pair(spark: SparkSession, scenario: Scenario, bound: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The cheapest pair of the grid that holds the bound at the peak: least width first, longest trigger first."""
    operator = scenario.build(spark, ps.sources.constant(scenario.low)).operator
    tried = []
    for width in scenario.widths:
        for share in SHARES:
            pair = Fixed(operator, width, share * bound)
            found = run(
                spark, scenario, pair, bound, load=ps.sources.constant(scenario.peak), seconds=PROBE_S, requires=False
            )
            holds = len(found.spans.fulfilled) > 0 and all(found.spans.fulfilled)
            tried.append({"width": width, "lifetime_s": share * bound, "holds": holds})
            mean = found.latency.mean
            shown = "nothing" if mean is None else f"mean {mean * 1e3:.0f} ms"
            say(f"  static width {width}, trigger {share * bound * 1e3:.0f} ms: {shown}, {'holds' if holds else 'no'}")
            if holds:
                return {"width": width, "lifetime_s": share * bound, "tried": tried}
            if mean is not None and mean > 4.0 * bound:
                break  # too narrow: a shorter trigger does not help
    return {"width": scenario.widths[-1], "lifetime_s": 0.0, "tried": tried}


def row(scenario: Scenario, policy: str, outcomes: list[Outcome], bound: float, fixed: float) -> dict[str, Any]:
    """What a policy showed over its runs, pooled."""
    spans = Spans()
    for outcome in outcomes:
        spans.add(outcome.spans)
    latency = LogHistogram.total(outcome.latency for outcome in outcomes)
    errors = [outcome.model_error for outcome in outcomes if outcome.model_error is not None]
    uneven = sorted(value for outcome in outcomes for value in outcome.uneven)
    kept = sum(spans.fulfilled)

    def ms(value: float | None) -> float | None:
        return None if value is None else plain(value * 1e3)

    return {
        "scenario": scenario.name,
        "policy": policy,
        "fulfilled": plain(kept / len(spans.fulfilled)) if spans.fulfilled else None,
        "fulfilled_settled": plain(sum(spans.settled) / len(spans.settled)) if spans.settled else None,
        "ci95": [plain(edge) for edge in wilson(kept, len(spans.fulfilled))],
        "intervals": len(spans.fulfilled),
        "runs": len(outcomes),
        "cpu_seconds": plain(sum(outcome.cpu_seconds for outcome in outcomes)),
        "width_seconds": plain(sum(outcome.width_seconds for outcome in outcomes)),
        "p50_ms": ms(latency.quantile(0.5)),
        "p95_ms": ms(latency.quantile(0.95)),
        "p99_ms": ms(latency.quantile(0.99)),
        "mean_ms": ms(latency.mean),
        "bound_ms": plain(bound * 1e3),
        "statistic": scenario.statistic,
        "F_ms": plain(fixed * 1e3),
        "reconfigurations": sum(outcome.reconfigurations for outcome in outcomes),
        "model_mae": plain(sum(errors) / len(errors)) if errors else None,
        "unevenness": plain(median(uneven)) if uneven else None,
        "over_s": OVER_S,
        "pays_for": scenario.pays_for,
    }


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """The targets that our policy missed."""
    found = []
    for ours in (row for row in rows if row["policy"] == "adaptive"):
        name = ours["scenario"]
        static = next((row for row in rows if row["scenario"] == name and row["policy"] == "static"), None)
        if (ours["fulfilled"] or 0.0) < 0.95:
            found.append(f"{name}: {ours['fulfilled']:.1%} of the intervals, at least 95 % wanted")
        if ours["fulfilled_settled"] is not None and ours["fulfilled_settled"] < 0.98:
            found.append(f"{name}: {ours['fulfilled_settled']:.1%} of the settled intervals, at least 98 % wanted")
        if static is not None:
            cost = "width_seconds" if ours["pays_for"] == "width" else "cpu_seconds"
            share = ours[cost] / static[cost]
            if share > 0.8:
                found.append(f"{name}: {share:.2f} of the static set-up's {cost}, at most 0.8 wanted")
        if ours["model_mae"] is not None and ours["model_mae"] > 0.2:
            found.append(f"{name}: the model is off by {ours['model_mae']:.0%}, at most 20 % wanted")
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    head = (
        "scenario",
        "policy",
        "fulfilled",
        "settled",
        "95 % CI",
        "mean/p95 ms",
        "bound ms",
        "CPU s",
        "width s",
        "off by",
    )
    lines = [head]
    for found in rows:
        lines.append(
            (
                found["scenario"],
                found["policy"],
                _percent(found["fulfilled"]),
                _percent(found["fulfilled_settled"]),
                f"{found['ci95'][0]:.2f}..{found['ci95'][1]:.2f}",
                f"{found['mean_ms'] or 0:.0f}/{found['p95_ms'] or 0:.0f}",
                f"{found['bound_ms']:.0f} {found['statistic']}",
                f"{found['cpu_seconds']:.0f}",
                f"{found['width_seconds']:.0f}",
                _percent(found["model_mae"]),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
