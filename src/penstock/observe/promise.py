"""Whether what was required was kept: the share of intervals, the verdict, and where a row's time goes.

Everything is read from the batches' records: the controller writes the bounds in force, its verdict and its predictions
into each. An interval is a span of the bound's `over`, from the first batch on; one in which nothing became visible is
not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
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
    return tuple(_promise(*found) for found in judged(record for record in records if not record.superseded))


def judged(records: Iterable[BatchRecord]) -> Iterator[tuple[str, dict[str, Any], list[BatchRecord]]]:
    """Every limit, as its bound was last stated, with the batches under it: statistic, bound, batches."""
    told = in_force(records)
    for bound in {bound["name"]: bound for _, bounds in told for bound in bounds}.values():
        under = [record for record, bounds in told if bound in bounds]
        for statistic in ("mean", "p95", "p99"):
            if f"{statistic}_s" in bound:
                yield statistic, bound, under


def off_by(records: Sequence[BatchRecord], name: str | None = None) -> float | None:
    """Return the mean of |measured - predicted| / measured over batches, of one bound or of all; None if unknown.

    >>> seen = {"outcome": {"a": {"predicted_s": 0.75, "measured_s": 1.0}}}
    >>> off_by([BatchRecord(1, control=seen)]), off_by([BatchRecord(1, control=seen)], "b")
    (0.25, None)
    """
    if {record.latency_from for record in records if record.latency} == {"cut"}:
        return None  # what is predicted is the latency from arrival
    outcomes = [each for record in records for each in record.control.get("outcome", {}).items()]
    pairs = [(pair["predicted_s"], pair["measured_s"]) for bound, pair in outcomes if name in (None, bound)]
    errors = [abs(measured - predicted) / measured for predicted, measured in pairs if measured > 0.0]
    return sum(errors) / len(errors) if errors else None


def _promise(statistic: str, bound: dict[str, Any], records: list[BatchRecord]) -> PromiseReport:
    name, bound_s = bound["name"], bound[f"{statistic}_s"]
    values = [span.value_s for span in spans(statistic, bound, records)]
    verdict: dict[str, Any] = next((r.control["verdict"] for r in reversed(records) if "verdict" in r.control), {})
    # Of several limits the tightest governs, and the verdict is about that one: if it can be kept, so can the others.
    governs = verdict.get("kind", statistic) == statistic and verdict.get("bound_s", bound_s) == bound_s
    feasible = verdict.get("feasible") if governs or verdict.get("feasible") else None
    if not governs:
        verdict = {}
    everything = latency_s(statistic, records, bound["sinks"])
    parts = {part: seconds * 1e3 for part, seconds in verdict.get("parts_s", {}).items()}
    return PromiseReport(
        name=name,
        statistic=statistic,
        bound_ms=bound_s * 1e3,
        over_s=bound["over_s"],
        intervals=len(values),
        kept=sum(value <= bound_s for value in values) / len(values) if values else None,
        measured_ms=None if everything is None else everything * 1e3,
        predicted_off_by=off_by(records, name),
        feasible=feasible,
        least_ms=None if verdict.get("least_s") is None else verdict["least_s"] * 1e3,
        parts_ms=parts,
        advice=_advice(feasible, parts),
    )


@dataclass(frozen=True)
class Span:
    """One interval over which a bound is judged: its first and last batch, and the value."""

    first: BatchRecord
    last: BatchRecord
    value_s: float


def spans(statistic: str, bound: dict[str, Any], records: Sequence[BatchRecord]) -> list[Span]:
    """What a bound is judged by: its statistic over each span of its `over` in which something became visible.

    >>> bound = {"name": "a->b", "mean_s": 0.5, "over_s": 2.0, "sinks": ["out"]}
    >>> seen = {"out": LogHistogram.of([0.25])}
    >>> batches = [BatchRecord(n, visible=float(n), latency=seen) for n in range(4)]
    >>> [(span.first.batch, span.last.batch) for span in spans("mean", bound, batches)]
    [(0, 1), (2, 3)]
    """
    found: dict[int, list[BatchRecord]] = {}
    for record in records:
        found.setdefault(int((record.visible - records[0].visible) // bound["over_s"]), []).append(record)
    return [
        Span(group[0], group[-1], value)
        for group in found.values()
        if (value := latency_s(statistic, group, bound["sinks"])) is not None
    ]


def in_force(records: Iterable[BatchRecord]) -> list[tuple[BatchRecord, list[dict[str, Any]]]]:
    """Each batch with the bounds it was under: those stated in it, or before it in the same run.

    A policy that decides once in a while states them once in a while; they hold for the batches between, too.

    >>> bound = {"name": "a->b", "mean_s": 0.5, "over_s": 2.0, "sinks": ["out"]}
    >>> told = [BatchRecord(1, "a", control={"bounds": [bound]}), BatchRecord(2, "a"), BatchRecord(3, "b")]
    >>> [len(bounds) for _, bounds in in_force(told)]
    [1, 1, 0]
    """
    found: list[tuple[BatchRecord, list[dict[str, Any]]]] = []
    run, stated = None, list[dict[str, Any]]()
    for record in records:
        stated = record.control.get("bounds", stated if record.run == run else [])
        run = record.run
        found.append((record, stated))
    return found


def latency_s(statistic: str, records: Iterable[BatchRecord], sinks: Collection[str]) -> float | None:
    """Mean, p95 or p99 of all that became visible at some sinks; None if nothing did.

    >>> latency_s("mean", [BatchRecord(1, latency={"out": LogHistogram.of([0.25])})], ["out"])
    0.25
    """
    total = LogHistogram.total(r.latency[sink] for r in records for sink in sinks if sink in r.latency)
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
