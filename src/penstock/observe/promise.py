"""Whether what was required was kept: the share of intervals, the verdict, and where a row's time goes.

Everything is read from the batches' records: the controller writes the bounds in force, its verdict and its predictions
into each. An interval is a span of the bound's `over`, from the first batch on; one in which nothing became visible is
not judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.control.histogram import LogHistogram
from penstock.observe.observer import ROWS
from penstock.observe.record import BatchRecord

_QUANTILES = {"p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class PromiseReport:
    """One bound of one statistic over the time it was in force; milliseconds, shares from 0 to 1."""

    name: str  # "quotes->bars"
    statistic: str  # "mean", "p95" or "p99"
    bound_ms: float
    over_s: float
    intervals: int
    kept: float | None  # share of the intervals
    measured_ms: float | None  # over all of them
    predicted_off_by: float | None  # mean of |measured - predicted| / measured, of the mean
    feasible: bool | None  # whether the last plan keeps it; None: the policy does not say
    least_ms: float | None  # the least that can be had here
    parts_ms: dict[str, float]  # where the mean goes, as modelled
    advice: str

    def line(self) -> str:
        """One line for people.

        >>> PromiseReport("a->b", "mean", 800.0, 5.0, 20, 0.95, 700.0, 0.08, None, None, {}, "").line()
        'a->b: mean 700 ms, at most 800 ms required; kept in 95.0 % of 20 intervals of 5 s'
        """
        measured = "-" if self.measured_ms is None else f"{self.measured_ms:.0f} ms"
        kept = "-" if self.kept is None else f"{100.0 * self.kept:.1f} %"
        verdict = ""
        if self.feasible is not None:
            least = "" if self.least_ms is None else f" (least {self.least_ms:.0f} ms)"
            verdict = f"; {'feasible here' if self.feasible else 'NOT FEASIBLE here'}{least}"
        required = f"{self.name}: {self.statistic} {measured}, at most {self.bound_ms:.0f} ms required"
        return f"{required}; kept in {kept} of {self.intervals} intervals of {self.over_s:g} s{verdict}"


def promises(records: Iterable[BatchRecord]) -> tuple[PromiseReport, ...]:
    """Every bound that was in force, each as it was last stated.

    >>> promises([BatchRecord(1)])
    ()
    """
    told = [record for record in records if not record.superseded]
    stated = {bound["name"]: bound for record in told for bound in record.control.get("bounds", ())}
    found = []
    for bound in stated.values():
        under = [record for record in told if bound in record.control.get("bounds", ())]
        for statistic in ("mean", "p95", "p99"):
            if f"{statistic}_s" in bound:
                found.append(_promise(statistic, bound, under))
    return tuple(found)


def _promise(statistic: str, bound: dict[str, Any], records: list[BatchRecord]) -> PromiseReport:
    name, bound_s, over_s, sinks = bound["name"], bound[f"{statistic}_s"], bound["over_s"], bound["sinks"]
    spans: dict[int, list[LogHistogram]] = {}
    for record in records:
        seen = [record.latency[sink] for sink in sinks if sink in record.latency]
        spans.setdefault(int((record.visible - records[0].visible) // over_s), []).extend(seen)
    values = [value for found in spans.values() if (value := _value(found, statistic)) is not None]
    verdict: dict[str, Any] = next((r.control["verdict"] for r in reversed(records) if "verdict" in r.control), {})
    pairs = [r.control["outcome"][name] for r in records if name in r.control.get("outcome", {})]
    errors = [abs(p["measured_s"] - p["predicted_s"]) / p["measured_s"] for p in pairs if p["measured_s"] > 0.0]
    everything = _value([histogram for found in spans.values() for histogram in found], statistic)
    parts = {part: seconds * 1e3 for part, seconds in verdict.get("parts_s", {}).items()}
    return PromiseReport(
        name=name,
        statistic=statistic,
        bound_ms=bound_s * 1e3,
        over_s=over_s,
        intervals=len(values),
        kept=sum(value <= bound_s for value in values) / len(values) if values else None,
        measured_ms=None if everything is None else everything * 1e3,
        predicted_off_by=sum(errors) / len(errors) if errors else None,
        feasible=verdict.get("feasible"),
        least_ms=None if verdict.get("least_s") is None else verdict["least_s"] * 1e3,
        parts_ms=parts,
        advice=_advice(verdict.get("feasible"), parts),
    )


def _value(histograms: list[LogHistogram], statistic: str) -> float | None:
    total = LogHistogram.total(histograms)
    return total.mean if statistic == "mean" else total.quantile(_QUANTILES[statistic])


def _advice(feasible: bool | None, parts: dict[str, float]) -> str:
    """What would help, where the bound cannot be kept.

    >>> _advice(False, {"wait": 50.0, "fixed": 300.0, "score": 20.0})
    'most of it is the fixed cost of a batch: fewer stages, sinks or tasks would help'
    >>> _advice(True, {"fixed": 1.0})
    ''
    """
    if feasible is not False:
        return ""
    if not parts:
        return "the rate is more than the operators can serve at their widest: allow more replicas, or make them faster"
    most = max((part for part in parts if part != "wait"), key=lambda part: parts[part], default="fixed")
    if most == "fixed":
        return "most of it is the fixed cost of a batch: fewer stages, sinks or tasks would help"
    if most == ROWS:
        return "most of it is reading rows and handing them to Python: fewer columns, or native steps (sql), would help"
    return f"most of it is operator '{most}': more replicas or cores, or a faster function, would help"
