"""From the records of batches to what a policy sees (thesis 001, section 4.4: reporters, then one summary an interval).

A batch's work is taken apart into what rows, tasks and a batch as such cost (`observe.fixed_cost`):

    w = F + t x tasks + b n + sum over stages of the busiest task's time in the operators' own code

What rows cost outside operators cannot be widened; it is shown as a view of its own, `ROWS`. Rates are what was
offered: rows due between two looks, where the source says what is due, else rows read per cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from penstock.control.histogram import LogHistogram
from penstock.control.models.batch_service import launches, worth_tasks
from penstock.control.moments import Moments
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.observe.fixed_cost import FixedCost
from penstock.observe.record import BatchRecord, OperatorStats

ROWS = "(rows)"
"""The view of what rows cost outside of operators; no operator can have this name."""


@dataclass(frozen=True)
class Offered:
    """Rows that came: in all up to a time, or unknown."""

    at_s: float
    rows: int | None


class Observer:
    """Keeps what the last batches showed, and sums up those since the last look.

    `limits` has the least and most width of every operator that has one, by name; `pipelines` the runs of operators
    that can be chained. Chained or not, each of them is a view of its own. `tasks_each` says of which operators several
    tasks are started for each replica, and how many at most.
    """

    def __init__(
        self,
        limits: Mapping[str, tuple[int, int]],
        slots: int,
        pipelines: tuple[tuple[str, ...], ...] = (),
        tasks_each: Mapping[str, int] | None = None,
    ) -> None:
        self.limits, self.slots, self.pipelines = dict(limits), slots, pipelines
        self.tasks_each = dict(tasks_each or {})
        self.fixed = FixedCost()
        self._since: list[BatchRecord] = []
        self._offered: Offered | None = None
        self._cut_s = self._first_cut_s = 0.0  # of the last batch, and of the first since the last look
        self._widths: Any = None
        self._before_s: float | None = None  # the cut before the batches since the last look

    def add(self, record: BatchRecord, cut_s: float) -> None:
        """Take in the record of a batch and when it was cut; the wait for its lifetime may still be missing.

        Times are of a clock that never jumps, not the records' own.
        """
        widths, self._widths = self._widths, record.decision.get("widths")
        # The first batch at a new width starts workers: what it costs is no batch's usual cost.
        if record.rows_in > 0 and not record.replayed and widths in (None, self._widths):
            stages = stages_of(record)
            tasks = sum(self._launched(stage) for stage in stages if self._can_be_wider(stage.name))
            self.fixed.add(record.rows_in, tasks, record.work_s - sum(stage.busiest_s for stage in stages))
        if self._before_s is None:  # the first batch ever: its rows came in about as long as it took
            self._before_s = cut_s - max(record.cycle_s, 1e-6)
        if not self._since:
            self._first_cut_s = cut_s
        self._since.append(record)
        self._cut_s = cut_s

    def look(
        self,
        now_s: float,
        next_cut_s: float,
        arrived: int | None,
        bounds: tuple[Bound, ...],
        sinks: Mapping[str, tuple[str, ...]],
        targets: Mapping[str, float],
    ) -> Observation | None:
        """What happened since the last look; None if there was no batch.

        `next_cut_s` is when the next batch would be cut as things stand, `arrived` the rows that have fallen due by
        now, `sinks` where each bound's latency is measured.
        """
        records, self._since = self._since, []
        if not records:
            return None
        last, began = records[-1], self._before_s or 0.0
        self._before_s = self._cut_s
        span = max(self._cut_s - began, 1e-6)  # the time in which these batches' rows arrived
        rows = sum(record.rows_in for record in records)
        rate = self._rate(now_s, arrived, rows / span)
        waiting = self._waiting(last, arrived, rate, next_cut_s, now_s)
        # A rate that is required is what batches did in their own time; latencies are planned by what came meanwhile.
        over = span if bounds else max(next_cut_s - self._first_cut_s, 1e-6)
        fixed_s, per_row, per_task = self.fixed.fit()
        views = {}
        if rows > 0:
            views[ROWS] = _rows_view(rate, rows / span, per_row)
            for stage in merged_stages(records, self.limits):
                each = self._tasks_each(stage, stage.busy_s / len(records))
                views[stage.name] = self._view(stage, rows, rate, over if stage.name in targets else span, each)
        usual = [record for record in records if not record.replayed]  # how long an outage was says nothing of the next
        latency = {bound.name: found for bound in bounds if (found := measured(usual, sinks[bound.name])) is not None}
        return Observation(
            now_s=now_s,
            interval_s=max(next_cut_s - self._cut_s, 1e-6) if len(records) == 1 else span,
            operators=views,
            bounds=bounds,
            latency=latency,
            target_per_s=dict(targets),
            backlog_items=waiting,
            fixed_s=fixed_s,
            task_s=per_task,
            micro_batch=True,
            parallelism=self.slots,
            pipelines=self.pipelines,
        )

    def _can_be_wider(self, name: str) -> bool:
        lo, hi = self.limits.get(name, (1, 1))
        return lo < hi

    def _launched(self, stage: StageStats) -> int:
        several = stage.width > 1 and stage.name in self.tasks_each
        return stage.tasks + 1 if several else launches(stage.width)

    def _tasks_each(self, stage: StageStats, busy_s: float) -> int:
        """Tasks for each of several replicas, in batches like these."""
        worth = worth_tasks(busy_s) // max(stage.width, 2)
        return max(1, min(self.tasks_each.get(stage.name, 1), worth))

    def _rate(self, now_s: float, arrived: int | None, read_per_s: float) -> float:
        before, self._offered = self._offered, Offered(now_s, arrived)
        if arrived is None or before is None or before.rows is None or now_s - before.at_s < 1e-3:
            return read_per_s
        return max(0.0, (arrived - before.rows) / (now_s - before.at_s))

    def _waiting(self, last: BatchRecord, arrived: int | None, rate: float, next_cut_s: float, now_s: float) -> float:
        """Rows that the next batch will find."""
        if arrived is not None and last.due is not None:
            read = last.due - (last.backlog or 0)
            return max(0.0, arrived - read + rate * max(0.0, next_cut_s - now_s))
        return rate * max(0.0, next_cut_s - self._cut_s)

    def _view(self, stage: StageStats, rows: int, rate: float, span: float, tasks_each: int) -> OperatorView:
        lo, hi = self.limits.get(stage.name, (stage.width, stage.width))
        share = stage.rows / rows  # rows of this stage per row read
        service_s = stage.busy_s / stage.rows if stage.rows else 0.0
        return OperatorView(
            name=stage.name,
            width=stage.width,
            lo=lo,
            hi=hi,
            arrivals_per_s=rate * share,
            completed_per_s=stage.rows / span,
            service_s=service_s,
            service_cv=stage.service.cv or 0.0,
            interarrival_s=stage.width / (rate * share) if rate * share > 0.0 else 0.0,
            arrival_cv=1.0,
            wait_s=0.0,
            batch_wait_s=0.0,
            queue_items=0.0,
            utilisation=stage.busy_s / (stage.width * span),
            skew=stage.skew,
            groups=stage.groups,
            tasks_each=tasks_each,
        )


@dataclass
class StageStats:
    """The operators that share tasks, over some batches; named by the operator that begins them."""

    name: str
    width: int
    rows: int
    busy_s: float
    busiest_s: float  # the busiest task of each batch, summed
    service: Moments  # seconds per call of the operator that begins the stage
    groups: tuple[float, ...] = ()  # rows per key group
    tasks: int = 0

    @property
    def skew(self) -> float:
        """The busiest task's share of the work times the width: 1 if all were alike."""
        return min(max(self.busiest_s * self.width / self.busy_s, 1.0), float(self.width)) if self.busy_s > 0.0 else 1.0


def stages_of(record: BatchRecord, apart: Collection[str] = ()) -> list[StageStats]:
    """What the stages of one batch did; operators named in `apart` count for themselves, even if chained to another.

    >>> a = OperatorStats("score", stage="score", width=2, tasks=2, rows_in=10, busy_s=0.5, busy_max_s=0.3)
    >>> b = OperatorStats("keep", stage="score", tasks=2, rows_in=10, busy_s=0.1, busy_max_s=0.05)
    >>> [(s.name, s.width, round(s.busiest_s, 2)) for s in stages_of(BatchRecord(1, operators=(a, b)))]
    [('score', 2, 0.35)]
    >>> [s.name for s in stages_of(BatchRecord(1, operators=(a, b)), apart={"score", "keep"})]
    ['score', 'keep']
    """
    found = []
    teams: dict[tuple[str, str], list[OperatorStats]] = {}
    for stage, group in groupby(record.operators, key=lambda stats: stats.stage):
        first = ""
        for stats in group:
            first = stats.name if not first or stats.name in apart else first
            teams.setdefault((stage, first), []).append(stats)
    for members in teams.values():
        head = members[0]
        width = max(head.width or head.tasks, 1)
        busy = sum(stats.busy_s for stats in members)
        # More tasks than replicas (on demand): the busiest replica worked through several of them.
        busiest = max(sum(stats.busy_max_s for stats in members), busy / width)
        found.append(StageStats(head.name, width, head.rows_in, busy, busiest, head.service, head.groups, head.tasks))
    return found


def merged_stages(records: list[BatchRecord], apart: Collection[str] = ()) -> list[StageStats]:
    """The stages of some batches, each as one, at the width of the last batch; those that saw no row are left out."""
    total: dict[str, StageStats] = {}
    for record in records:
        for stage in stages_of(record, apart):
            known = total.get(stage.name)
            if known is None:
                total[stage.name] = stage
                continue
            known.rows += stage.rows
            known.busy_s += stage.busy_s
            known.busiest_s += stage.busiest_s
            known.service = known.service.merge(stage.service)
            known.width = stage.width
            if len(known.groups) == len(stage.groups):
                known.groups = tuple(a + b for a, b in zip(known.groups, stage.groups, strict=True))
            else:
                known.groups = stage.groups
    return [stage for stage in total.values() if stage.rows > 0]


def measured(records: list[BatchRecord], sinks: tuple[str, ...]) -> tuple[float, float, float, float] | None:
    """Mean, p95, p99 and maximum of the latency at some sinks; None if nothing became visible there."""
    histogram = LogHistogram.total(r.latency[sink] for r in records for sink in sinks if sink in r.latency)
    values = (histogram.mean, histogram.quantile(0.95), histogram.quantile(0.99), histogram.max)
    if any(value is None for value in values):
        return None
    mean, p95, p99, most = (float(value) for value in values if value is not None)
    return mean, p95, p99, most


def _rows_view(rate: float, completed: float, per_row: float) -> OperatorView:
    return OperatorView(
        name=ROWS,
        width=1,
        lo=1,
        hi=1,
        arrivals_per_s=rate,
        completed_per_s=completed,
        service_s=per_row,
        service_cv=0.0,
        interarrival_s=1.0 / rate if rate > 0.0 else 0.0,
        arrival_cv=1.0,
        wait_s=0.0,
        batch_wait_s=0.0,
        queue_items=0.0,
        utilisation=min(1.0, rate * per_row),
    )
