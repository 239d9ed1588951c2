"""A run over time, as curves that can be drawn: rates, backlog, latency against its bounds, widths, lifetimes.

Everything comes from the batches' records; `picture` draws it. Time is in seconds from the first batch on; time when
the job was down is left out, so that a restart a day later does not squeeze the rest. A point is a batch, or, in a long
run, some batches of one run in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from penstock.observe.promise import judged, latency_s, promises, spans
from penstock.observe.record import BatchRecord, mark_superseded

_MOST_POINTS = 400  # of a curve

Clock = Callable[[BatchRecord, float], float]
"""A batch and a time of the wall clock in, seconds of running out."""


@dataclass(frozen=True)
class Curve:
    """Values over time; a NaN breaks the line.

    >>> Curve("due", (1.0, 2.0), (10.0, 20.0)).label
    'due'
    """

    label: str
    at_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Timeline:
    """What a picture of a run shows; rates in rows per second, latencies and lifetimes in milliseconds.

    >>> Timeline.of([BatchRecord(1)]).batches
    1
    """

    title: str
    batches: int
    runs: int
    end_s: float
    rates: tuple[Curve, ...]  # each value holds for the time before it
    backlog: Curve | None  # rows; None: the source does not say
    latency: tuple[Curve, ...]
    latency_from: str  # "arrival", "cut", "mixed" or ""
    bounds: tuple[Curve, ...]  # each value holds for the time after it
    broken: tuple[tuple[float, float], ...]  # the spans in which a bound did not hold
    widths: tuple[Curve, ...]  # per operator; each value holds for the time after it
    lifetimes: tuple[Curve, ...]
    decisions: tuple[tuple[float, str], ...]  # when something was changed, and why
    restarts: tuple[float, ...]  # the job was started again, or a batch had to be done again

    @staticmethod
    def of(records: Iterable[BatchRecord], last: float | None = None) -> Timeline:
        """Put records, given in the order written, into curves; `last`: only the last so many seconds.

        >>> a = BatchRecord(1, run="a", started=10.0, visible=10.5, rows_in=5, parts={"run": 0.5})
        >>> b = BatchRecord(2, run="a", started=11.0, visible=11.5, rows_in=20, parts={"run": 0.5})
        >>> Timeline.of([a, b]).rates
        (Curve(label='processed', at_s=(0.5, 1.5), values=(nan, 20.0)),)
        """
        told = mark_superseded(records)
        end = max((record.visible for record in told), default=0.0)
        kept = [r for r in told if not r.superseded and (last is None or r.visible >= end - last)]
        runs = [list(group) for _, group in groupby(kept, key=lambda record: record.run)]
        clock = _running_clock(runs)
        points = _points(runs)
        origins = {record.latency_from for record in kept if any(h.count for h in record.latency.values())}
        return Timeline(
            title=_title(kept),
            batches=len(kept),
            runs=len(runs),
            end_s=max((clock(record, record.visible) for record in kept), default=0.0),
            rates=_rates(points, clock),
            backlog=_backlog(points, clock),
            latency=_latency(kept, points, clock),
            latency_from=origins.pop() if len(origins) == 1 else "mixed" if origins else "",
            bounds=_bounds(kept, clock),
            broken=_broken(kept, clock),
            widths=_widths(kept, clock),
            lifetimes=_lifetimes(points, clock),
            decisions=tuple((clock(r, r.visible), r.control["reason"]) for r in kept if r.control.get("reason")),
            restarts=_restarts(runs, clock),
        )


def _running_clock(runs: Sequence[Sequence[BatchRecord]]) -> Clock:
    """Seconds since the first batch began, without the time between two runs."""
    if not runs:
        return lambda record, at: 0.0
    zero = {runs[0][0].run: runs[0][0].started}
    for before, after in pairwise(runs):
        down_s = max(0.0, after[0].started - before[-1].visible)
        zero[after[0].run] = zero[before[0].run] + down_s
    return lambda record, at: at - zero[record.run]


def _points(runs: Sequence[Sequence[BatchRecord]]) -> list[list[list[BatchRecord]]]:
    """Per run, the groups of batches that are one point each."""
    size = max(1, math.ceil(sum(len(run) for run in runs) / _MOST_POINTS))
    return [[list(run[at : at + size]) for at in range(0, len(run), size)] for run in runs]


def _curve(
    label: str,
    points: Sequence[Sequence[Sequence[BatchRecord]]],
    clock: Clock,
    value: Callable[[Sequence[BatchRecord]], float],
) -> Curve:
    """A value per point, at the moment its last batch became visible; the line breaks between runs."""
    at, values = list[float](), list[float]()
    for number, run in enumerate(points):
        if number and at:
            at.append(at[-1])
            values.append(math.nan)
        for group in run:
            at.append(clock(group[-1], group[-1].visible))
            values.append(value(group))
    return Curve(label, tuple(at), tuple(values))


def _rates(points: Sequence[Sequence[Sequence[BatchRecord]]], clock: Clock) -> tuple[Curve, ...]:
    """What fell due between two cuts, where the source says so, and what was processed between two visibilities.

    The first batch of a run only starts the clock: what it reads had piled up before.
    """
    before: dict[int, BatchRecord] = {}
    for run in points:
        for one, two in pairwise(run):
            before[id(two)] = one[-1]

    def due(group: Sequence[BatchRecord]) -> float:
        first, last = before.get(id(group)), group[-1]
        if first is None or first.due is None or last.due is None or last.started <= first.started:
            return math.nan
        return (last.due - first.due) / (last.started - first.started)

    def processed(group: Sequence[BatchRecord]) -> float:
        first = before.get(id(group))
        if first is None or group[-1].visible <= first.visible:
            return math.nan
        return sum(record.rows_in for record in group) / (group[-1].visible - first.visible)

    curves = (_curve("due", points, clock, due), _curve("processed", points, clock, processed))
    return tuple(curve for curve in curves if any(not math.isnan(value) for value in curve.values))


def _backlog(points: Sequence[Sequence[Sequence[BatchRecord]]], clock: Clock) -> Curve | None:
    def most(group: Sequence[BatchRecord]) -> float:
        return float(max((r.backlog for r in group if r.backlog is not None), default=math.nan))

    curve = _curve("backlog", points, clock, most)
    return curve if any(not math.isnan(value) for value in curve.values) else None


def _stated(records: Sequence[BatchRecord]) -> dict[str, dict[str, Any]]:
    """Every bound that was in force, by name, as it was last stated."""
    return {bound["name"]: bound for record in records for bound in record.control.get("bounds", ())}


def _latency(
    records: Sequence[BatchRecord], points: Sequence[Sequence[Sequence[BatchRecord]]], clock: Clock
) -> tuple[Curve, ...]:
    """Mean and p95 (and p99 where it is bounded), where each bound is measured; at all sinks if there is none."""
    stated = _stated(records)
    places: dict[tuple[str, ...], list[str]] = {}
    for name, bound in stated.items():
        places.setdefault(tuple(bound["sinks"]), []).append(name)
    every = tuple(dict.fromkeys(sink for record in records for sink in record.latency))
    if not any(histogram.count for record in records for histogram in record.latency.values()):
        return ()
    kinds = ["mean", "p95"] + (["p99"] if any("p99_s" in bound for bound in stated.values()) else [])
    curves = []
    for sinks, names in (places or {every: [""]}).items():
        prefix = f"{', '.join(names)} " if len(places) > 1 else ""
        for kind in kinds:
            curves.append(_curve(prefix + kind, points, clock, _statistic(kind, sinks)))
    return tuple(curves)


def _statistic(kind: str, sinks: Sequence[str]) -> Callable[[Sequence[BatchRecord]], float]:
    def value(group: Sequence[BatchRecord]) -> float:
        found = latency_s(kind, group, sinks)
        return math.nan if found is None else 1e3 * found

    return value


def _bounds(records: Sequence[BatchRecord], clock: Clock) -> tuple[Curve, ...]:
    """Each limit from the beginning on, with its changes: `job.require` may move it."""
    changes: dict[str, list[tuple[float, float]]] = {}
    several = len(_stated(records)) > 1
    for record in records:
        for bound in record.control.get("bounds", ()):
            for kind in ("mean", "p95", "p99"):
                if f"{kind}_s" in bound:
                    label = f"{bound['name']} {kind} at most" if several else f"{kind} at most"
                    known = changes.setdefault(label, [])
                    limit = 1e3 * bound[f"{kind}_s"]
                    if not known or known[-1][1] != limit:
                        known.append((clock(record, record.visible) if known else 0.0, limit))
    if not changes:
        return ()
    end = max(clock(record, record.visible) for record in records)
    curves = []
    for label, known in changes.items():
        at, limits = zip(*known, (end, known[-1][1]), strict=True)
        curves.append(Curve(label, tuple(at), tuple(limits)))
    return tuple(curves)


def _broken(records: Sequence[BatchRecord], clock: Clock) -> tuple[tuple[float, float], ...]:
    """The spans that `promises` counts as not kept, each once."""
    found = {
        (clock(span.first, span.first.started), clock(span.last, span.last.visible))
        for kind, bound, under in judged(records)
        for span in spans(kind, bound, under)
        if span.value_s > bound[f"{kind}_s"]
    }
    return tuple(sorted(found))


def _widths(records: Sequence[BatchRecord], clock: Clock) -> tuple[Curve, ...]:
    """Per operator its width where it changed; as decided, or, where telemetry has no decision, as it ran."""
    seen: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        widths = record.decision.get("widths") or {o.name: o.width for o in record.operators if o.width > 0}
        for name, width in widths.items():
            known = seen.setdefault(name, [])
            if not known or known[-1][1] != width:
                known.append((clock(record, record.started), float(width)))
    end = max((clock(record, record.visible) for record in records), default=0.0)
    curves = []
    for name, known in seen.items():
        at, values = zip(*known, (end, known[-1][1]), strict=True)
        curves.append(Curve(name, tuple(at), tuple(values)))
    return tuple(curves)


def _lifetimes(points: Sequence[Sequence[Sequence[BatchRecord]]], clock: Clock) -> tuple[Curve, ...]:
    """The time from cut to cut as decided, beside the cycles and the work in them as measured."""

    def mean(values: Sequence[float]) -> float:
        return 1e3 * sum(values) / len(values)

    return (
        _curve("lifetime", points, clock, lambda group: 1e3 * group[-1].decision.get("lifetime_s", 0.0)),
        _curve("cycle", points, clock, lambda group: mean([record.cycle_s for record in group])),
        _curve("work", points, clock, lambda group: mean([record.work_s for record in group])),
    )


def _restarts(runs: Sequence[Sequence[BatchRecord]], clock: Clock) -> tuple[float, ...]:
    """When a run began that was not the first, or a batch was attempted again."""
    again = [
        record
        for number, run in enumerate(runs)
        for place, record in enumerate(run)
        if (number and not place) or record.replayed
    ]
    return tuple(clock(record, record.started) for record in again)


def _title(records: Sequence[BatchRecord]) -> str:
    """What ran, and whether it kept what was required."""
    policy = next((r.control["policy"] for r in reversed(records) if "policy" in r.control), "")
    batches = f"{len(records):,} batch{'' if len(records) == 1 else 'es'}"
    lines = [f"{policy}, {batches}, measured" if policy else f"{batches}, measured"]
    lines += [promise.line() for promise in promises(records)]
    return "\n".join(lines)
