"""What the policies showed over their runs, as rows, as text, and as the targets that were missed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from penstock.bench.adaptive.description import OVER_S, TIMES_F, Scenario
from penstock.bench.adaptive.judging import Spans, wilson
from penstock.bench.adaptive.live import Outcome
from penstock.bench.figures import plain
from penstock.control.histogram import LogHistogram

Row = dict[str, Any]


def row(scenario: Scenario, policy: str, outcomes: Sequence[Outcome]) -> Row:
    """What a policy showed over its runs, pooled: F and the bound are the medians; `each` says those of each run."""
    times_f = TIMES_F[scenario.statistic]
    bounds = [outcome.bound_s for outcome in outcomes]
    is_rate = "rates_per_s" in outcomes[0].more
    spans = pooled(outcome.spans for outcome in outcomes)
    latency = LogHistogram.total(outcome.latency for outcome in outcomes)
    errors = [outcome.model_error for outcome in outcomes if outcome.model_error is not None]
    again = [found for outcome in outcomes if (found := outcome.more.get("replayed")) is not None]
    uneven = sorted(value for outcome in outcomes for value in outcome.uneven)
    return {
        "scenario": scenario.name,
        "policy": policy,
        **shares(spans),
        "ci95": [plain(edge) for edge in wilson(sum(spans.fulfilled), len(spans.fulfilled))],
        "intervals": len(spans.fulfilled),
        "runs": len(outcomes),
        "cpu_seconds": plain(sum(outcome.cpu_seconds for outcome in outcomes)),
        "width_seconds": plain(sum(outcome.width_seconds for outcome in outcomes)),
        **quantiles(latency),
        "bound_ms": None if is_rate else plain(median(bounds) * 1e3),
        "statistic": "rate" if is_rate else scenario.statistic,
        "F_ms": plain(median(bounds) / times_f * 1e3),
        "each": [
            {
                "F_ms": plain(outcome.bound_s / times_f * 1e3),
                **shares(outcome.spans),
                "cpu_seconds": plain(outcome.cpu_seconds),
                "width_seconds": plain(outcome.width_seconds),
            }
            for outcome in outcomes
        ],
        "reconfigurations": sum(outcome.reconfigurations for outcome in outcomes),
        "model_mae": plain(sum(errors) / len(errors)) if errors else None,
        "replayed": plain(sum(again) / len(again)) if again else None,
        "unevenness": plain(median(uneven)) if uneven else None,
        "over_s": OVER_S,
        "pays_for": scenario.pays_for,
        **further(scenario, outcomes),
    }


def pooled(found: Any) -> Spans:
    """Spans of several runs as one."""
    total = Spans()
    for spans in found:
        total.add(spans)
    return total


def shares(spans: Spans) -> Row:
    """The shares of spans that kept what was required; None if none was judged."""
    return {
        "fulfilled": plain(sum(spans.fulfilled) / len(spans.fulfilled)) if spans.fulfilled else None,
        "fulfilled_settled": plain(sum(spans.settled) / len(spans.settled)) if spans.settled else None,
    }


def quantiles(latency: LogHistogram) -> Row:
    """A histogram of seconds in milliseconds."""
    values = {f"p{round(100 * share)}_ms": latency.quantile(share) for share in (0.5, 0.95, 0.99)}
    values["mean_ms"] = latency.mean
    return {name: None if value is None else plain(value * 1e3) for name, value in values.items()}


def further(scenario: Scenario, outcomes: Sequence[Outcome]) -> Row:
    """What only some scenarios show: each latency of several, how a target was met, how often a chain was fused."""
    first = outcomes[0]
    if first.each:
        bound = median(outcome.bound_s for outcome in outcomes)
        promises = []
        for sink, statistic in first.more["statistics"].items():
            latency = LogHistogram.total(LogHistogram.from_json(outcome.more["latency"][sink]) for outcome in outcomes)
            promises.append(
                {
                    "sink": sink,
                    "statistic": statistic,
                    "bound_ms": plain(bound * TIMES_F[statistic] / TIMES_F[scenario.statistic] * 1e3),
                    **shares(pooled(outcome.each[sink] for outcome in outcomes)),
                    **quantiles(latency),
                }
            )
        return {"promises": promises}
    if "rates_per_s" in first.more:
        after = [outcome.more["least_width_after_s"] for outcome in outcomes]
        return {
            "target_per_s": first.more["target_per_s"],
            "rates_per_s": [rate for outcome in outcomes for rate in outcome.more["rates_per_s"]],
            "least_width_after_s": None if None in after else plain(max(after)),
        }
    if "chained" in first.more:
        return {"chained": plain(sum(outcome.more["chained"] for outcome in outcomes) / len(outcomes))}
    return {}


def misses(rows: Sequence[Row]) -> list[str]:
    """The targets that were missed: our policy's, and that a fused chain is cheaper and faster than a split one."""
    found = []
    by_name = {(row["scenario"], row["policy"]): row for row in rows}
    for (name, policy), ours in by_name.items():
        again, live = ours.get("replayed"), ours["fulfilled"] or 0.0
        if again is not None and abs(again - live) > 0.05:
            found.append(f"{name}: {policy} keeps {live:.1%}, replayed {again:.1%}: at most 5 points apart wanted")
        if policy == "adaptive":
            found += _own(name, ours)
            found += _against(name, ours, by_name.get((name, "static")), by_name.get((name, "at-once")))
        split = by_name.get((name, "split"))
        if policy == "fused" and split is not None:
            for figure in ("cpu_seconds", "p50_ms", "p95_ms"):
                if ours[figure] >= split[figure]:
                    found.append(f"{name}: fused {figure} {ours[figure]:.4g}, split {split[figure]:.4g}: less wanted")
    return found


def _own(name: str, ours: Row) -> list[str]:
    """Targets that need no other row."""
    found = []
    if (ours["fulfilled"] or 0.0) < 0.95:
        found.append(f"{name}: {ours['fulfilled'] or 0.0:.1%} of the intervals, at least 95 % wanted")
    if ours["fulfilled_settled"] is not None and ours["fulfilled_settled"] < 0.98:
        found.append(f"{name}: {ours['fulfilled_settled']:.1%} of the settled intervals, at least 98 % wanted")
    if name == "hotkey" and ours["unevenness"] is not None and ours["unevenness"] >= 1.5:
        found.append(f"{name}: the busiest task has {ours['unevenness']:.2f} times the mean, below 1.5 wanted")
    if ours["model_mae"] is not None and ours["model_mae"] > 0.2:
        found.append(f"{name}: the model is off by {ours['model_mae']:.0%}, at most 20 % wanted")
    if "target_per_s" in ours and ours["least_width_after_s"] is None:
        found.append(f"{name}: without a target the width did not fall to the least")
    return found


def _against(name: str, ours: Row, static: Row | None, at_once: Row | None) -> list[str]:
    """What it may cost: 0.8 of a static set-up; at low load half of batches that never wait."""
    cost = "width_seconds" if ours["pays_for"] == "width" else "cpu_seconds"
    limits = [(static, 0.8, "the static set-up's")]
    if name == "low-load":
        limits.append((at_once, 0.5, "trigger-at-once's"))
    return [
        f"{name}: {ours[cost] / other[cost]:.2f} of {what} {cost}, at most {most:g} wanted"
        for other, most, what in limits
        if other is not None and ours[cost] > most * other[cost]
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    lines = [
        (
            "scenario", "policy", "fulfilled", "settled", "95 % CI", "mean/p95 ms", "required", "CPU s", "width s",
            "off by", "replayed",
        )
    ]  # fmt: skip
    for found in rows:
        lines.append(
            (
                found["scenario"],
                found["policy"],
                _percent(found["fulfilled"]),
                _percent(found["fulfilled_settled"]),
                f"{found['ci95'][0]:.2f}..{found['ci95'][1]:.2f}",
                f"{found['mean_ms'] or 0:.0f}/{found['p95_ms'] or 0:.0f}",
                _required(found),
                f"{found['cpu_seconds']:.0f}",
                f"{found['width_seconds']:.0f}",
                _percent(found["model_mae"]),
                _percent(found["replayed"]),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _required(found: Row) -> str:
    if "target_per_s" in found:
        return f"{found['target_per_s']:g} rows/s"
    ratios = [run["F_ms"] / found["F_ms"] for run in found["each"]]

    def of_runs(bound_ms: float) -> str:
        least, most = (f"{bound_ms * ratio:.0f}" for ratio in (min(ratios), max(ratios)))
        return least if least == most else f"{least}-{most}"

    promises = found.get("promises", [found])
    return ", ".join(f"{of_runs(promise['bound_ms'])} ms {promise['statistic']}" for promise in promises)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
