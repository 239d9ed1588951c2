"""What the batches of a recorded run cost: their stages, and what is left beside them (see `recorded`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.control.models.batch_service import launches
from penstock.control.moments import Moments
from penstock.observe.observer import stages_of
from penstock.observe.record import BatchRecord

LEAST_BATCHES = 20
"""A run of fewer batches says too little about what a batch costs."""

_WARM_S = 20.0  # a JVM gets faster in about this time


@dataclass(frozen=True)
class StageCost:
    """What one stage cost in one batch."""

    name: str
    width: int  # as it was
    share: float  # its rows per row read
    service_s: float
    hot: float  # share of its rows that one task must take alone: skew = 1 + hot (width - 1)
    fixed_s: float = 0.0  # what it cost whatever its rows: windows that were closed
    service: Moments = Moments()  # of its calls, as they were: policies look at how they vary

    def busy_s(self, rows: float) -> float:
        """Time of all its tasks together for so many rows read.

        >>> StageCost("bars", 2, share=0.5, service_s=0.001, hot=0.0, fixed_s=0.1).busy_s(1000)
        0.6
        """
        return self.fixed_s + rows * self.share * self.service_s

    def seconds(self, rows: float, width: int) -> float:
        """Time of its busiest task for so many rows read.

        >>> StageCost("score", 2, share=0.5, service_s=0.001, hot=0.2).seconds(1000, width=4)
        0.2
        """
        return self.busy_s(rows) * (1.0 + self.hot * (width - 1)) / width


@dataclass(frozen=True)
class BatchCost:
    """What one batch cost beside its stages. Seconds."""

    began_s: float
    gap_s: float  # before it, from the end of the batch before: Spark's own
    fixed_s: float  # F: from its beginning until its results were visible, without rows, tasks and stages
    tail_s: float  # from then to its end
    stages: tuple[StageCost, ...]


def _own_s(record: BatchRecord) -> float:
    """From a batch's beginning to its end, without the wait for its lifetime."""
    return sum(seconds for part, seconds in record.parts.items() if part not in ("spark", "wait"))


def outside_s(record: BatchRecord) -> float:
    """From a batch's beginning to its results being visible, without the stages' own time."""
    return max(record.visible - record.started - sum(stage.busiest_s for stage in stages_of(record)), 0.0)


def tasks_of(record: BatchRecord) -> int:
    """What the stages of a batch that can be widened started, in tasks."""
    widths = record.decision.get("widths", {})
    return sum(launches(stage.width) for stage in stages_of(record) if stage.name in widths)


def slopes(records: Sequence[BatchRecord]) -> tuple[float, float]:
    """Fit b and t: least squares over all batches without the slow first ones and the outliers; neither is below 0.

    A slope counts only where it explains something: where all batches are of one size, b cannot be told from F. A job
    gets faster as it warms up, and is often wide at first: a term that fades keeps the two apart.
    """
    usual = records[min(len(records) // 10, 10) :]
    rest = np.array([r.work_s - sum(s.busiest_s for s in stages_of(r)) for r in usual])
    rows = np.array([float(r.rows_in) for r in usual])
    tasks = np.array([float(tasks_of(r)) for r in usual])
    kept = np.abs(rest - np.median(rest)) <= 5.0 * max(float(np.median(np.abs(rest - np.median(rest)))), 1e-4)
    warm = np.exp(-np.array([r.started - records[0].started for r in usual]) / _WARM_S)
    columns = [c for c in (rows, tasks) if c[kept].std() > 0.1 * max(float(c[kept].mean()), 1e-9)]
    found = {id(rows): 0.0, id(tasks): 0.0}
    while columns:
        table = np.column_stack([np.ones(int(kept.sum())), warm[kept], *(c[kept] for c in columns)])
        steep = np.linalg.lstsq(table, rest[kept], rcond=None)[0][2:]
        if (steep >= 0.0).all():
            found.update({id(c): float(s) for c, s in zip(columns, steep, strict=True)})
            break
        columns.pop(int(np.argmin(steep)))
    return found[id(rows)], found[id(tasks)]


def costs_of(records: Sequence[BatchRecord], began: float, row_s: float, task_s: float) -> tuple[BatchCost, ...]:
    """What each batch cost, given what a row and a task cost beside the stages."""
    gaps = np.array([r.parts.get("spark", 0.0) for r in records])
    # A long gap is a stream that was idle: the time until rows come is not a cost.
    most = max(5.0 * float(np.median(gaps)), 0.25)
    hot, fixed = _usual_hot(records), _window_fixed(records)
    found = []
    for record, gap in zip(records, gaps, strict=True):
        visible = max(record.visible - record.started, 0.0)
        known = row_s * record.rows_in + task_s * tasks_of(record) + sum(s.busiest_s for s in stages_of(record))
        stages = []
        for stage in stages_of(record):
            closing_s = min(fixed.get(stage.name, 0.0), stage.busy_s)
            service_s = (stage.busy_s - closing_s) / stage.rows if stage.rows else 0.0
            alone = (stage.skew - 1.0) / (stage.width - 1.0) if stage.width > 1 else hot.get(stage.name, 0.0)
            share = stage.rows / record.rows_in
            stages.append(StageCost(stage.name, stage.width, share, service_s, alone, closing_s, stage.service))
        found.append(
            BatchCost(
                record.started - began,
                min(float(gap), most),
                visible - known,
                max(_own_s(record) - visible, 0.0),
                tuple(stages),
            )
        )
    return tuple(found)


def _window_fixed(records: Sequence[BatchRecord]) -> dict[str, float]:
    """What windows cost in a batch whatever rows it has, by stage: the batch that closes them is often a small one.

    busy = a + b n over all batches; all of it (infinity) where it does not grow with the rows.
    """
    names = {stats.name for record in records for stats in record.operators if stats.kind == "window"}
    found = {}
    for name in names:
        seen = [(s.rows, s.busy_s) for record in records for s in stages_of(record) if s.name == name]
        if len(seen) < LEAST_BATCHES:  # chained to another stage, mostly
            continue
        rows, busy = np.array(seen, dtype=np.float64).T
        slope = float(np.polyfit(rows, busy, 1)[0]) if np.ptp(rows) > 0.0 else 0.0
        found[name] = max(float(busy.mean() - slope * rows.mean()), 0.0) if slope > 0.0 else math.inf
    return found


def _usual_hot(records: Sequence[BatchRecord]) -> dict[str, float]:
    """The share of the hottest key by stage, for batches in which one task took all and nothing can be told."""
    seen: dict[str, list[float]] = {}
    for record in records:
        for stage in stages_of(record):
            if stage.width > 1:
                seen.setdefault(stage.name, []).append((stage.skew - 1.0) / (stage.width - 1.0))
    return {name: float(np.median(values)) for name, values in seen.items()}


def early_of(records: Sequence[BatchRecord]) -> float:
    """By how much a cycle that waits is shorter than the lifetime that was decided at its end.

    Some are shorter because enough rows waited; those that were not are the ones that tell.
    """
    early = [
        float(following.decision.get("lifetime_s", 0.0)) - (_own_s(record) + record.parts.get("wait", 0.0))
        for record, following in pairwise(records)
        if record.parts.get("wait", 0.0) > 0.005 and following.batch == record.batch + 1
    ]
    return float(np.quantile(early, 0.25)) if early else 0.0
