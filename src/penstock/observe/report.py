"""Telemetry summed up: rates, latency, where a batch's time goes, and what each operator did.

How the figures are made, so that they can be checked:
- A batch that was replayed counts once, by its last record.
- Rates leave the first batch of each run out and let it start the clock: what it reads had piled up before. The
  effective rate is the rows of the other batches over the time from the first to the last moment of visibility; the
  attempted rate is the rows that fell due from the first cut to the last, over the time between the two. Time when the
  job was down counts in neither. If no run has two batches, the rate is rows over the batches' own time.
- Quantiles are nearest-rank; those of latency are within 1 % (`LogHistogram`), maximum and mean are exact.
- Utilisation is busy / (width x time of the batches), thesis 001's rho over the whole span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from rich.console import Group

from penstock.control.histogram import LogHistogram
from penstock.control.moments import Moments
from penstock.observe.adaptation import TimeShares
from penstock.observe.promise import PromiseReport, promises
from penstock.observe.record import PARTS, BatchRecord, OperatorStats, mark_superseded
from penstock.observe.render import render, to_text


@dataclass(frozen=True)
class LatencyReport:
    """Latency at one sink, or at all of them; milliseconds, None where nothing was measured.

    >>> LatencyReport.of("out", LogHistogram.of([0.5])).p99_ms
    500.0
    """

    sink: str
    rows: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None

    @staticmethod
    def of(sink: str, histogram: LogHistogram) -> LatencyReport:
        """The usual quantiles of a histogram.

        >>> LatencyReport.of("out", LogHistogram()).p50_ms is None
        True
        """
        seconds = (histogram.mean, *(histogram.quantile(q) for q in (0.5, 0.95, 0.99)), histogram.max)
        return LatencyReport(sink, histogram.count, *(None if s is None else s * 1e3 for s in seconds))


@dataclass(frozen=True)
class PartReport:
    """One part of the batches' time: milliseconds per batch, and its share (0 to 1) of the whole.

    >>> Report.of([BatchRecord(1, parts={"run": 0.75, "wait": 0.25})]).parts[3]
    PartReport(part='run', mean_ms=750.0, share=0.75)
    """

    part: str
    mean_ms: float
    share: float | None


@dataclass(frozen=True)
class OperatorReport:
    """What one operator did over all batches; rates in rows per second, None where not known.

    >>> Report.of([BatchRecord(1, operators=(OperatorStats("f", width=2), ))]).operators[0].width_now
    2
    """

    name: str
    kind: str
    rows_in: int
    rows_out: int
    rows_in_per_s: float | None
    rows_out_per_s: float | None
    width_now: int
    width_min: int
    width_max: int
    width_changes: int
    service_mean_ms: float | None
    service_cv: float | None
    arrivals_mean_ms: float | None
    arrivals_cv: float | None
    utilisation: float | None
    busy_s: float
    wait_s: float
    idle_s: float
    task_max_s: float
    calls: int
    skipped: int
    concurrency_max: int
    congested: int
    setups: int
    teardowns: int
    state_rows: int
    state_bytes: int


@dataclass(frozen=True)
class Report:
    """A job's telemetry in figures. `str(report)` is text, `report.to_json()` a dict with these fields as keys.

    >>> report = Report.of([BatchRecord(1, run="a", visible=1.0), BatchRecord(2, run="a", visible=3.0, rows_in=10)])
    >>> report.effective_rows_per_s
    5.0
    >>> print(Report.of([]))
    Penstock report: nothing measured yet (no batch has ended, or none in the time asked for).
    """

    basis: str  # always "measured"
    batches: int
    runs: int
    replays: int  # batches that were a second attempt
    superseded: int  # earlier records of the same batches, not counted
    duration_s: float  # from the start of the first batch to the last visibility, down time included
    rows_in: int
    rows_out: int
    late: int  # rows that missed a window
    dead: int  # rows set aside
    attempted_rows_per_s: float | None
    effective_rows_per_s: float | None
    backlog_now: int | None  # rows
    backlog_max: int | None  # rows
    cycle_median_ms: float | None  # trigger time: the whole cycle of a batch
    cycle_p95_ms: float | None
    work_median_ms: float | None  # the cycle without the wait for its lifetime
    work_p95_ms: float | None
    latency_from: str  # "arrival", "cut", "mixed" or "" (no latency measured)
    latency: LatencyReport  # all sinks
    sinks: tuple[LatencyReport, ...]
    parts: tuple[PartReport, ...]
    operators: tuple[OperatorReport, ...]
    width_changes: int
    promises: tuple[PromiseReport, ...] = ()  # what was required, and whether it was kept
    time_shares: TimeShares | None = None  # starting, changing widths, computing
    policy_errors: int = 0  # times the policy raised, and the last decision stayed

    @staticmethod
    def of(records: Iterable[BatchRecord], last: float | None = None) -> Report:
        """Sum up records given in the order written; `last`: only what became visible in the last so many seconds.

        >>> Report.of([BatchRecord(1, visible=1.0), BatchRecord(2, visible=9.0)], last=5.0).batches
        1
        """
        everything = mark_superseded(records)
        if last is not None:
            end = max((r.visible for r in everything), default=0.0)
            everything = [r for r in everything if r.visible >= end - last]
        counted = [r for r in everything if not r.superseded]
        runs = [list(group) for _, group in groupby(counted, key=lambda r: r.run)]
        measured = [r for r in counted if any(h.count for h in r.latency.values())]
        origins = {r.latency_from for r in measured}
        by_sink: dict[str, list[LogHistogram]] = {}
        for record in measured:
            for sink, histogram in record.latency.items():
                by_sink.setdefault(sink, []).append(histogram)
        sinks = {sink: LogHistogram.total(histograms) for sink, histograms in by_sink.items()}
        backlogs = [r.backlog for r in counted if r.backlog is not None]
        cycles = [r.cycle_s for r in counted if r.parts]
        works = [r.work_s for r in counted if r.parts]
        operators = _operators(counted, runs)
        return Report(
            basis="measured",
            batches=len(counted),
            runs=len({r.run for r in counted}),
            replays=sum(r.replayed for r in counted),
            superseded=len(everything) - len(counted),
            duration_s=max(r.visible for r in counted) - min(r.started for r in counted) if counted else 0.0,
            rows_in=sum(r.rows_in for r in counted),
            rows_out=sum(r.rows_out for r in counted),
            late=sum(r.late for r in counted),
            dead=sum(r.dead for r in counted),
            attempted_rows_per_s=_attempted(runs),
            effective_rows_per_s=_rate(runs, lambda r: r.rows_in),
            backlog_now=counted[-1].backlog if counted else None,
            backlog_max=max(backlogs, default=None),
            cycle_median_ms=_quantile_ms(cycles, 0.5),
            cycle_p95_ms=_quantile_ms(cycles, 0.95),
            work_median_ms=_quantile_ms(works, 0.5),
            work_p95_ms=_quantile_ms(works, 0.95),
            latency_from=origins.pop() if len(origins) == 1 else "mixed" if origins else "",
            latency=LatencyReport.of("all sinks", LogHistogram.total(sinks.values())),
            sinks=tuple(LatencyReport.of(sink, histogram) for sink, histogram in sinks.items()),
            parts=_parts(counted),
            operators=operators,
            width_changes=sum(o.width_changes for o in operators),
            promises=promises(counted),
            time_shares=TimeShares.of(runs),
            policy_errors=sum("error" in r.control for r in counted),
        )

    def to_json(self) -> dict[str, Any]:
        """A plain dict with the fields of this class as keys; the unit is in the name, bare counts are rows or batches.

        Nested: `latency` and each of `sinks` as `LatencyReport`, `parts` as `PartReport`, `operators` as
        `OperatorReport`, `time_shares` as `TimeShares`.

        >>> Report.of([]).to_json()["basis"]
        'measured'
        """
        return asdict(self)

    def text(self, width: int = 116) -> str:
        """The report as plain text without colour codes, `width` columns wide.

        >>> Report.of([BatchRecord(1)]).text().splitlines()[0]
        'Penstock report: measured, 1 batch of 1 run, 0.0 s'
        """
        return to_text(self, width)

    def __str__(self) -> str:
        return self.text()

    def __rich__(self) -> Group:
        return render(self)


def _rate(runs: list[list[BatchRecord]], rows: Callable[[BatchRecord], int]) -> float | None:
    """Rows per second, the first batch of each run only starting the clock (see the module's text)."""
    pairs = [(run[-1].visible - run[0].visible, sum(rows(r) for r in run[1:])) for run in runs if len(run) > 1]
    seconds = sum(span for span, _ in pairs)
    if not pairs:
        seconds, pairs = sum(r.cycle_s for run in runs for r in run), [(0.0, rows(r)) for run in runs for r in run]
    return sum(count for _, count in pairs) / seconds if seconds > 0.0 else None


def _attempted(runs: list[list[BatchRecord]]) -> float | None:
    """Rows that fell due per second, from the first cut of each run to its last."""
    seconds, rows = 0.0, 0
    for run in runs:
        told = [(r.started, r.due) for r in run if r.due is not None]
        if len(told) > 1:
            seconds += told[-1][0] - told[0][0]
            rows += told[-1][1] - told[0][1]
    return rows / seconds if seconds > 0.0 else None


def _quantile_ms(seconds: list[float], q: float) -> float | None:
    return float(np.quantile(seconds, q, method="inverted_cdf")) * 1e3 if seconds else None


def _parts(records: list[BatchRecord]) -> tuple[PartReport, ...]:
    """Every part in the fixed order, then those of a later version."""
    timed = [r for r in records if r.parts]
    if not timed:
        return ()
    sums = dict.fromkeys(PARTS, 0.0)
    for record in timed:
        for part, seconds in record.parts.items():
            sums[part] = sums.get(part, 0.0) + seconds
    whole = sum(sums.values())
    return tuple(PartReport(part, s / len(timed) * 1e3, s / whole if whole > 0.0 else None) for part, s in sums.items())


def _operators(counted: list[BatchRecord], runs: list[list[BatchRecord]]) -> tuple[OperatorReport, ...]:
    """One report per operator name, in order of first appearance."""
    seen: dict[str, list[tuple[OperatorStats, float]]] = {}
    for record in counted:
        for stats in record.operators:
            seen.setdefault(stats.name, []).append((stats, record.cycle_s))
    return tuple(_operator(name, found, runs) for name, found in seen.items())


def _operator(name: str, found: list[tuple[OperatorStats, float]], runs: list[list[BatchRecord]]) -> OperatorReport:
    all_stats = [stats for stats, _ in found]
    widths = [s.width for s in all_stats if s.width > 0]  # 0: the host did not say
    slot_seconds = sum(s.width * cycle for s, cycle in found)
    busy = sum(s.busy_s for s in all_stats)
    service, arrivals = Moments(), Moments()
    for stats in all_stats:
        service, arrivals = service.merge(stats.service), arrivals.merge(stats.arrivals)

    def rate(rows: Callable[[OperatorStats], int]) -> float | None:
        return _rate(runs, lambda record: sum(rows(s) for s in record.operators if s.name == name))

    return OperatorReport(
        name=name,
        kind=all_stats[-1].kind,
        rows_in=sum(s.rows_in for s in all_stats),
        rows_out=sum(s.rows_out for s in all_stats),
        rows_in_per_s=rate(lambda s: s.rows_in),
        rows_out_per_s=rate(lambda s: s.rows_out),
        width_now=widths[-1] if widths else 0,
        width_min=min(widths, default=0),
        width_max=max(widths, default=0),
        width_changes=sum(a != b for a, b in pairwise(widths)),
        service_mean_ms=service.mean * 1e3 if service.n else None,
        service_cv=service.cv,
        arrivals_mean_ms=arrivals.mean * 1e3 if arrivals.n else None,
        arrivals_cv=arrivals.cv,
        utilisation=busy / slot_seconds if slot_seconds > 0.0 else None,
        busy_s=busy,
        wait_s=sum(s.wait_s for s in all_stats),
        idle_s=sum(s.idle_s for s in all_stats),
        task_max_s=max(s.task_max_s for s in all_stats),
        calls=sum(s.calls for s in all_stats),
        skipped=sum(s.skipped for s in all_stats),
        concurrency_max=max(s.concurrency for s in all_stats),
        congested=sum(s.congested for s in all_stats),
        setups=sum(s.setups for s in all_stats),
        teardowns=sum(s.teardowns for s in all_stats),
        state_rows=all_stats[-1].state_rows,
        state_bytes=all_stats[-1].state_bytes,
    )
