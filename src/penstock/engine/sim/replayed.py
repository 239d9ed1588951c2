"""A recorded run once more, in virtual time, under any policy: its load and its costs, other decisions.

The micro-batch host of `engine.sim`, with what a live job has besides: Spark's own time between two batches, the part
of a batch after its results are visible, and a lifetime that counts from the decision at a batch's end. It makes the
same records as a live job and hands them to the same observer and limiter, so the policy sees what it would see there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from penstock.control.decision import Decision, Policy
from penstock.control.histogram import LogHistogram
from penstock.control.limiter import Limiter
from penstock.control.models.batch_service import launches, worth_waiting_s
from penstock.engine.sim.batch import BatchHost
from penstock.engine.sim.batch_costs import BatchCost
from penstock.engine.sim.loads import Floats, Load
from penstock.engine.sim.recorded import Recorded
from penstock.observe.observer import Observer
from penstock.observe.record import BatchRecord, OperatorStats

_GRID_S = 0.02  # rows arrive evenly within so much time
_NEIGHBOURS = 8  # batches of the run from which costs are drawn where it had none of its own to give
_LEAST_S = 0.001  # no batch is faster
_AT_ONCE = ("adaptive", "static")  # decide after every batch; other policies by name once in the bound's span


class ReplayHost(BatchHost):
    """The host; `batch` runs one micro-batch and gives its record, or None once the load is over."""

    def __init__(self, model: Recorded, *, seed: int) -> None:
        load = Load("replay", model.duration_s, lambda t: _rate(model, t))
        super().__init__([], load, fixed_s=0.0, seed=seed)
        self.model = model
        self.began_s = 0.0  # of the last batch
        self._cuts = (0.0, 0.0)  # the beginnings of the two batches before it, the earlier first
        self._begins = np.array([cost.began_s for cost in model.costs])
        self._given = -1  # the run's last batch whose costs were used
        self._count = 0
        self._lately: deque[tuple[Floats, Floats]] = deque(maxlen=3)  # rows and arrivals of the last batches

    def batch(self, decision: Decision) -> BatchRecord | None:
        """Wait the lifetime out, cut, work: one cycle of a live job, up to the end of the batch's work."""
        cost = self._cost()
        if self._count == 0:
            self._pass(cost.began_s)
        else:
            self._pass(self._ends(decision) + cost.gap_s)
        while not self.waiting[:, 1].any() and not self.finished:
            self._pass(self.now + _GRID_S)
        if self.finished and self._count > 0:
            return None
        self._cuts, self.began_s = (self._cuts[1], self.began_s), self.now
        due = self.came
        rows, arrivals = self._cut(decision.row_cap)
        stats = self._stages(cost, float(rows.sum()), decision)
        count = float(rows.sum())
        tasks = sum(launches(s.width) for s in stats if s.name in decision.widths)
        outside = cost.fixed_s + self.model.row_s * count + self.model.task_s * tasks
        visible = self.now + max(outside, self.model.least_s, _LEAST_S) + sum(s.busy_max_s for s in stats)
        self._lately.append((rows, arrivals))
        self._pass(visible)
        self.left += count
        self.spent += float((rows * (visible - arrivals)).sum())
        self._pass(visible + cost.tail_s)
        record = BatchRecord(
            self._count,
            run="replay",
            started=self.began_s,
            visible=visible,
            rows_in=int(count),
            due=int(due) if self.model.due_known else None,
            backlog=int(due - self.left) if self.model.due_known else None,
            parts={"spark": cost.gap_s, "run": self.now - self.began_s},
            operators=stats,
            latency=self._latency(visible),
            latency_from="cut" if self.model.from_cut else "arrival",
            decision={
                "widths": dict(decision.widths),
                "lifetime_s": decision.lifetime_s,
                "row_cap": decision.row_cap,
                "cut_rows": decision.cut_rows,
                "at_ends": decision.at_ends,
            },
        )
        self._count += 1
        return record

    def arrived(self) -> int | None:
        """Rows that have come by now, if the source of the run could say so."""
        return int(self.came) if self.model.due_known else None

    def _ends(self, decision: Decision) -> float:
        """When the wait after a batch is over: its lifetime has passed, enough rows wait, or a window does."""
        ends, held_from = self.began_s + decision.lifetime_s - self.model.early_s, np.inf
        if decision.at_ends:
            awaited = self._awaited()
            ends = min(ends, awaited)
            every_s = min((s.ends.every_s for s in self.model.sinks.values() if s.ends is not None), default=0.0)
            within_s = worth_waiting_s(self.now - self.began_s, decision.lifetime_s, every_s)
            if awaited - max(self.now, ends) < within_s:
                ends, held_from = awaited, awaited - within_s  # one at work when a window ends would make it wait
        if decision.cut_rows is not None and self.model.due_known:
            enough = int(np.searchsorted(self.model.came, self.left + decision.cut_rows))
            if enough < len(self.model.came):
                moment = float(np.interp(self.left + decision.cut_rows, self.model.came, self.model.at_s))
                ends = min(ends, moment) if moment < held_from else ends
        return max(self.now, ends)

    def _awaited(self) -> float:
        """When a batch is cut for a window's sake: now if one waits to be closed, else when the next is complete."""
        known = [(sink.ends, sink.lag) for sink in self.model.sinks.values() if sink.ends is not None]
        if any(lag > 0 and len(ends.within(self._cuts[1], self.began_s)) for ends, lag in known):
            return self.now
        return min((ends.after(self.began_s) for ends, _ in known), default=np.inf)

    def _cost(self) -> BatchCost:
        """What a batch that begins about now costs: as the run's own batch of that time, each taken once.

        Where there are more batches than the run had, one of those that followed is drawn.
        """
        costs = self.model.costs
        near = int(np.abs(self._begins - self.now).argmin()) if self._count else 0
        if near <= self._given:
            first = min(self._given + 1, len(costs) - _NEIGHBOURS)
            return costs[int(self.rng.integers(first, min(first + _NEIGHBOURS, len(costs))))]
        self._given = near
        return costs[near]

    def _stages(self, cost: BatchCost, rows: float, decision: Decision) -> tuple[OperatorStats, ...]:
        found = []
        for stage in cost.stages:
            width = int(decision.widths.get(stage.name, stage.width))
            at_once = min(width, self.model.slots) if self.model.slots and stage.name in decision.widths else width
            items = rows * stage.share
            found.append(
                OperatorStats(
                    stage.name,
                    stage=stage.name,
                    width=width,
                    tasks=width,
                    rows_in=round(items),
                    busy_s=stage.busy_s(rows),
                    busy_max_s=stage.seconds(rows, at_once),
                    service=stage.service,
                )
            )
        return tuple(found)

    def _latency(self, visible: float) -> dict[str, LogHistogram]:
        found = {}
        for name, sink in self.model.sinks.items():
            if sink.ends is not None:
                begun = (*self._cuts, self.began_s)
                if len(closed := sink.ends.within(*begun[1 - sink.lag : 3 - sink.lag])):
                    found[name] = LogHistogram.of(visible - closed)
                continue
            rows, arrivals = self._lately[-1 - min(sink.lag, len(self._lately) - 1)]
            since = np.full_like(arrivals, self.began_s) if self.model.from_cut else arrivals
            values = np.maximum(visible - since + sink.offset_s, 0.0)
            found[name] = LogHistogram.of(values[rows > 0.0], rows[rows > 0.0])
        return found

    def _pass(self, until: float) -> None:
        """Let time pass; who is inside stays inside."""
        if until > self.now:
            self.area += (self.came - self.left) * (until - self.now)
            self._arrive(until)
            self.now = until

    def _arrive(self, until: float) -> None:
        """The run's own rows: whole ones, as many as had come by then."""
        steps = max(int(np.ceil((until - self.now) / _GRID_S)), 1)
        edges = np.linspace(self.now, until, steps + 1)
        rows = np.diff(np.floor(np.interp(edges, self.model.at_s, self.model.came) + 1e-6))
        at = (edges[1:] + edges[:-1]) / 2.0
        self.came += float(rows.sum())
        self.area += float((rows * (until - at)).sum())
        self.waiting = np.concatenate([self.waiting, np.column_stack([at, rows])[rows > 0.0]])


def replayed(model: Recorded, policy: Policy, *, seed: int, interval_s: float = 0.0) -> list[BatchRecord]:
    """Run a policy on a recorded run's load; the records of its batches, in the run's own time.

    So whatever judges the run by its records can judge the replay. The books are checked at the end.
    """
    host, observer, limiter = ReplayHost(model, seed=seed), Observer(model.limits, model.slots), Limiter()
    bounds = tuple(bound for bound, _ in model.bounds)
    sinks = {bound.name: names for bound, names in model.bounds}
    decision = model.start
    looked_s: float | None = None
    records: list[BatchRecord] = []
    while (record := host.batch(decision)) is not None:
        records.append(record)
        observer.add(record, host.began_s)
        if looked_s is not None and host.now - looked_s < interval_s:
            continue
        looked_s = host.now
        coming = max(host.now + record.parts["spark"], host.began_s + decision.lifetime_s)
        seen = observer.look(host.now, coming, host.arrived(), bounds, sinks, {})
        wanted = policy.decide(seen, decision)
        widths = {
            name: min(max(int(wanted.widths.get(name, now)), model.limits[name][0]), model.limits[name][1])
            for name, now in decision.widths.items()
        }
        wanted = replace(wanted, widths=widths, lifetime_s=max(wanted.lifetime_s, 0.0))
        decision = limiter.admit(wanted, decision, seen)
    host.check()
    return [replace(r, started=r.started + model.began, visible=r.visible + model.began) for r in records]


def interval_of(name: str, model: Recorded) -> float:
    """How often a policy decides on a live job when it is given by name."""
    return 0.0 if name in _AT_ONCE else min(bound.over_s for bound, _ in model.bounds)


def _rate(model: Recorded, t: Floats) -> Floats:
    """Rows per second: the slope of the rows that came."""
    after = np.clip(np.searchsorted(model.at_s, t, side="right"), 1, len(model.at_s) - 1)
    rows = model.came[after] - model.came[after - 1]
    return np.asarray(rows / (model.at_s[after] - model.at_s[after - 1]))
