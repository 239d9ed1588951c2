"""From the tasks' reports of a batch to its telemetry record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.control.decision import Decision
from penstock.control.histogram import LogHistogram
from penstock.control.moments import Moments
from penstock.engine.spark.stages import Plan, Stage
from penstock.engine.spark.watermarks import after, completed_at
from penstock.flow import operators as op
from penstock.flow.flow import Flow
from penstock.observe.record import PARTS, BatchRecord, OperatorStats
from penstock.sources.spec import due


@dataclass
class Measured:
    """What is noted down while a batch runs."""

    number: int
    run: str
    entered: float
    spark_s: float
    replayed: bool = False
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    entry: dict[str, Any] = field(default_factory=dict)
    windows_before: dict[str, Any] = field(default_factory=dict)
    visible: dict[str, float] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    decision: Decision = field(default_factory=Decision)
    parts: dict[str, float] = field(default_factory=dict)
    control: dict[str, Any] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time spent inside under one part of the batch."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - before


def batch_record(flow: Flow, plan: Plan, measured: Measured) -> BatchRecord:
    """Return the telemetry record of a batch."""
    parts = {name: measured.parts.get(name, 0.0) for name in PARTS}
    parts["spark"] = measured.spark_s
    operators = tuple(stats for stage in plan.stages for stats in stage_stats(stage, measured))
    visible = max(measured.visible.values(), default=time.time())
    rows, backlog, scheduled = source_rows(flow, plan, measured)
    latency, origin = latencies(flow, measured)
    watermarks = [w for w in measured.entry.get("watermarks", {}).values() if w is not None]
    return BatchRecord(
        batch=measured.number,
        run=measured.run,
        started=measured.entered,
        visible=visible,
        rows_in=rows,
        rows_out=sum(measured.rows_out.values()),
        due=scheduled,
        backlog=backlog,
        parts=parts,
        operators=operators,
        latency=latency,
        latency_from=origin,
        decision={
            "widths": dict(measured.decision.widths),
            "lifetime_s": measured.decision.lifetime_s,
            "row_cap": measured.decision.row_cap,
            "cut_rows": measured.decision.cut_rows,
            "at_ends": measured.decision.at_ends,
            "chains": [list(chain) for chain in measured.decision.chains],
        },
        watermark=min(watermarks, default=None),
        replayed=measured.replayed,
        late=sum(seen.get("late", 0) for seen in all_seen(measured)),
        dead=sum(stats.skipped for stats in operators),
    )


def all_seen(measured: Measured) -> Iterator[dict[str, Any]]:
    """Yield what window tasks saw of their rows."""
    for found in measured.reports.values():
        for report in found:
            yield from report.get("seen", {}).values()


def source_rows(flow: Flow, plan: Plan, measured: Measured) -> tuple[int, int | None, int | None]:
    """Return rows read, backlog and rows due: from the offsets of replay sources, else from the first stages."""
    cut_us = measured.entry.get("cut_us", int(measured.entered * 1e6))
    offsets, before = measured.entry.get("offsets", []), measured.entry.get("offsets_before") or []
    wanted = arrived_by(flow, offsets, cut_us)
    if wanted is not None:
        ends = [offset["row"] for offset in offsets]
        starts = [offset["row"] for offset in before] if before else [0] * len(ends)
        return sum(ends) - sum(starts), max(0, wanted - sum(ends)), wanted
    roots: dict[str, int] = {}
    for job in plan.jobs:
        first = job.stages[0]
        if first.root in plan.native:
            reports, head = measured.reports.get(first.name, []), first.head
            if isinstance(head, op.Window) and head.path == "native":  # its tasks read panes, which count their rows
                read = sum(report["ops"][head.name]["rows_in"] for report in reports if head.name in report["ops"])
            else:
                read = sum(report["rows_read"] for report in reports)
            roots[first.root] = max(read, roots.get(first.root, 0))
    return max(roots.values(), default=0), None, None


def arrived_by(flow: Flow, offsets: list[Any], now_us: int) -> int | None:
    """Return how many rows have fallen due up to now, if every source says so."""
    specs = [spec for read in flow.reads if (spec := getattr(read.frame, "_penstock_replay", None)) is not None]
    if not len(specs) == len(flow.reads) == len(offsets):
        return None
    return sum(due(spec, offset["start_us"], now_us) for spec, offset in zip(specs, offsets, strict=True))


def stage_stats(stage: Stage, measured: Measured) -> Iterator[OperatorStats]:
    """Merge the reports of a stage's tasks, operator by operator."""
    reports = measured.reports.get(stage.name, [])
    if not reports:
        return
    nodes: list[op.Operator] = ([stage.head] if stage.head is not None else []) + stage.steps
    wall = max(report["ended"] for report in reports) - min(report["started"] for report in reports)
    decided = measured.decision.widths.get(stage.name, 0)  # 0: fused with its source, no width of its own
    slots = decided or len(reports)
    counted = [report["groups"] for report in reports if report["groups"]]
    groups = tuple(sum(column) for column in zip(*counted, strict=True)) if counted else ()
    for node in nodes:
        mine = [report["ops"][node.name] for report in reports if node.name in report["ops"]]
        busy = sum(entry["busy"] for entry in mine)
        service, arrivals = Moments(), Moments()
        for entry in mine:
            service = service.merge(Moments.from_json(entry["service"]))
            arrivals = arrivals.merge(Moments.from_json(entry["arrivals"]))
        total = {
            key: sum(entry[key] for entry in mine)
            for key in ("rows_in", "rows_out", "calls", "skipped", "setups", "state_rows", "state_bytes")
        }
        yield OperatorStats(
            name=node.name,
            kind=node.kind,
            width=decided,
            tasks=len(reports),
            stage=stage.name,
            busy_s=busy,
            groups=groups if node is nodes[0] else (),
            replicas=per_replica(node.name, reports, decided) if node is nodes[0] else (),
            busy_max_s=max((entry["busy"] for entry in mine), default=0.0),
            wait_s=sum(report["waited"] + report["slot_wait"] for report in reports) if node is nodes[0] else 0.0,
            idle_s=max(0.0, slots * wall - busy) if node is nodes[0] else 0.0,
            service=service,
            arrivals=arrivals,
            concurrency=concurrency(reports),
            task_max_s=max(report["ended"] - report["started"] for report in reports),
            congested=int(measured.decision.row_cap is not None and total["rows_in"] >= measured.decision.row_cap),
            **total,
        )


def per_replica(name: str, reports: list[dict[str, Any]], width: int) -> tuple[tuple[int, int], ...]:
    """Return the rows in and out of each of several replicas; of one there is nothing to tell.

    >>> told = [{"partition": n, "ops": {"a": {"rows_in": 10 * n, "rows_out": n}}} for n in range(3)]
    >>> per_replica("a", told, width=2), per_replica("a", told, width=1)
    (((20, 2), (10, 1)), ())
    """
    if width < 2:
        return ()
    found = [[0, 0] for _ in range(width)]
    for report in reports:
        entry = report["ops"].get(name)
        if entry is not None:
            replica = found[report["partition"] % width]
            replica[0] += entry["rows_in"]
            replica[1] += entry["rows_out"]
    return tuple((rows_in, rows_out) for rows_in, rows_out in found)


def concurrency(reports: list[dict[str, Any]]) -> int:
    """Return the most tasks that were at work at one time; tasks that wait for a slot do not count.

    >>> concurrency([{"started": 0, "ended": 2}, {"started": 1, "ended": 3}, {"started": 2.5, "ended": 4}])
    2
    """
    events = []
    for report in reports:
        events += [(report.get("slot_from", report["started"]), 1), (report.get("slot_to", report["ended"]), -1)]
    now = most = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


def latencies(flow: Flow, measured: Measured) -> tuple[dict[str, LogHistogram], str]:
    """Return per sink the time from a row's arrival to its result being visible, and what arrival means here.

    Without an arrival column a row counts from the cut of its batch. A window result counts from the
    arrival of the row (or tick) that completed it.
    """
    points: dict[str, list[tuple[list[int], list[int]]]] = {}
    for found in measured.reports.values():
        per_stage: dict[str, list[tuple[list[int], list[int]]]] = {}
        for report in found:
            summary = report["arrivals"]
            if summary:
                per_stage.setdefault(summary["source"], []).append((summary["points"], summary["weights"]))
        for source, entries in per_stage.items():
            points.setdefault(source, entries)  # two jobs may read one source: count its rows once
    cut_us = measured.entry.get("cut_us", int(measured.entered * 1e6))
    result: dict[str, LogHistogram] = {}
    origin = "cut"
    for name, seen_at in measured.visible.items():
        upstream = flow.ancestors(flow.sinks[name].port)
        window = nearest_window(flow, flow.sinks[name].port)
        micros = seen_at * 1e6
        if window is not None and window.time is not None:
            histogram, from_arrival = _window_latency(window, measured, micros, cut_us)
        else:
            entries = [entry for source in upstream for entry in points.get(source, [])]
            from_arrival = bool(entries)
            if entries:
                values = np.concatenate([np.maximum(0.0, micros - np.array(arrived)) / 1e6 for arrived, _ in entries])
                histogram = LogHistogram.of(values, np.concatenate([np.array(weights) for _, weights in entries]))
            elif measured.rows_out.get(name):
                histogram = LogHistogram.of(
                    np.array([max(0.0, micros - cut_us) / 1e6]), np.array([measured.rows_out[name]])
                )
            else:
                histogram = LogHistogram()
        if from_arrival:
            origin = "arrival"
        result[name] = histogram
    return result, origin


def nearest_window(flow: Flow, port: str) -> op.Window | None:
    """Return the window whose results a port's rows are; None if they are not results of one."""
    node = flow.operators[op.owner(port)]
    while not isinstance(node, op.Window):
        if not node.inputs or isinstance(node, op.Late):
            return None
        node = flow.operators[op.owner(node.inputs[0])]
    return node


def _window_latency(node: op.Window, measured: Measured, visible_us: float, cut_us: int) -> tuple[LogHistogram, bool]:
    before = measured.windows_before.get(node.name, {})
    reports = [report for found in measured.reports.values() for report in found]
    closed = [report["closed"][node.name] for report in reports if node.name in report.get("closed", {})]
    if not closed:
        return LogHistogram(), False
    if node.name in measured.entry.get("at_once", []):  # rows of this very batch may have completed them
        seen = [report["seen"][node.name] for report in reports if node.name in report.get("seen", {})]
        before = after(before, None, seen, node.spec, cut_us)
    ends, rows = (np.concatenate([np.array(one[part], dtype=np.int64) for one in closed]) for part in (0, 1))
    waited = np.maximum(0.0, visible_us - completed_at(before, node.spec, ends, cut_us)) / 1e6
    return LogHistogram.of(waited, rows), bool(before.get("firsts"))
