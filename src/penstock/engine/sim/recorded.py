"""A run taken apart by its telemetry, so that it can be run again in virtual time under another policy.

Of every batch i its record says when it began and when its results were visible, the rows it read (or that had fallen
due), and what its stages did. Its work is

    w_i = F_i + b n_i + t p_i + sum over stages of rows x service x skew(width) / width

with n rows and p tasks; b and t (what a row and a task cost outside of the operators) are fitted over the whole run,
and F_i is what is left: it holds the batch's share of all that the model does not know, so it is the noise as well.
Times are seconds since the first row arrived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.control.decision import Decision
from penstock.control.observation import Bound
from penstock.engine.sim.batch_costs import LEAST_BATCHES, BatchCost, costs_of, early_of, outside_s, slopes, tasks_of
from penstock.errors import FlowError
from penstock.observe.observer import ROWS, stages_of
from penstock.observe.record import BatchRecord

Floats = NDArray[np.float64]

_LONGEST_LEAD_S = 600.0  # rows that waited longer for the first batch are taken to have come within this time
_LEAST_WINDOWS = 10  # batches that closed one window, from which the phase of the ends is told
_TOGETHER = 0.5  # how far their moments must agree: 1 is entirely, 0 is not at all
_LAGS = (0, 1, 2)  # results can come with a later batch than their rows: a window closes in the batch after


@dataclass(frozen=True)
class Ends:
    """When windows are complete: the rows that complete them arrive at `phase_s`, and every `every_s` from then on."""

    every_s: float
    phase_s: float  # in [0, every_s)

    def within(self, after_s: float, until_s: float) -> Floats:
        """The moments in (after_s, until_s].

        >>> Ends(every_s=2.0, phase_s=0.5).within(0.5, 4.5).tolist()
        [2.5, 4.5]
        """
        numbers = np.arange(self._number(after_s) + 1, self._number(until_s) + 1, dtype=np.float64)
        return self.phase_s + self.every_s * numbers

    def after(self, at_s: float) -> float:
        """The first moment after this one.

        >>> Ends(every_s=2.0, phase_s=0.5).after(0.5)
        2.5
        """
        return self.phase_s + self.every_s * (self._number(at_s) + 1)

    def _number(self, at_s: float) -> int:
        """Of the last end up to this moment."""
        return math.floor((at_s - self.phase_s) / self.every_s)


@dataclass(frozen=True)
class Sink:
    """How the latency at a sink follows from arrivals and batches, found by comparing with what was measured.

    latency = visible time of batch i - arrivals of the rows of batch i - lag + offset_s

    Where `ends` is known, the sink shows windows: those complete by the cut of batch i - lag, not by the one before it,
    are closed by batch i, and count from when they were complete.
    """

    lag: int
    offset_s: float  # a batch is cut a little before it begins
    error_s: float  # median distance of the mean latency of a batch from what was measured
    ends: Ends | None = None


@dataclass(frozen=True)
class Recorded:
    """A run as `recorded` rebuilds it."""

    run: str
    policy: str  # the class of the policy that ran
    records: tuple[BatchRecord, ...]  # all of it, batches without rows, too
    began: float  # epoch seconds at which the first row arrived: time 0
    at_s: Floats  # the load: by these times ...
    came: Floats  # ... so many rows had come
    costs: tuple[BatchCost, ...]
    row_s: float  # b
    task_s: float  # t
    least_s: float  # no batch makes results visible sooner, its stages aside: half of what the fastest took
    early_s: float  # how much earlier than its lifetime a cycle ends (so that cuts are a lifetime apart)
    sinks: Mapping[str, Sink]
    from_cut: bool  # latency was measured from the cut, not from arrival
    due_known: bool  # the source says what has fallen due
    start: Decision
    static: bool  # it was never changed, the first batches aside
    limits: Mapping[str, tuple[int, int]]
    slots: int
    bounds: tuple[tuple[Bound, tuple[str, ...]], ...]  # each with the sinks where it is measured
    notes: tuple[str, ...] = field(default=())

    @property
    def duration_s(self) -> float:
        """From the first row's arrival to the last batch's beginning."""
        return float(self.at_s[-1])


def recorded(
    records: Sequence[BatchRecord], *, bound_ms: float | None = None, over_s: float | None = None, where: str = "run"
) -> Recorded:
    """Rebuild the last run among some records; `bound_ms` and `over_s` replace what the run itself required."""
    run = records[-1].run if records else ""
    whole = [r for r in records if r.run == run and not r.superseded]
    kept = [r for r in whole if r.rows_in > 0]
    if len(kept) < LEAST_BATCHES:
        rule = f"its last run has {len(kept)} batches with rows; a replay needs {LEAST_BATCHES}"
        raise FlowError(where, rule, "let the job run longer, with telemetry on")
    notes = []
    if any(r.run != run for r in records):
        notes.append("the checkpoint has earlier runs, which are left out")
    if len({tasks_of(r) for r in kept[len(kept) // 10 :]}) == 1:
        notes.append("the run had one width: what another task costs is not known, and taken to be nothing")
    began = _first_arrival(kept[0])
    at_s, came = _load(kept, began)
    row_s, task_s = slopes(kept)
    origin = {r.latency_from for r in kept if r.latency}
    bounds, changed = _bounds(kept, bound_ms, over_s, where)
    sinks = _sinks(kept, began, at_s, came, from_cut=origin == {"cut"})
    for name, every_s in _slides(bounds).items():
        if name in sinks and "arrival" in origin:
            sinks[name] = _window_sink(kept, began, name, every_s) or sinks[name]
    if changed:
        notes.append("what was required changed during the run; both are judged by the last")
    return Recorded(
        run=run,
        policy=next((r.control["policy"] for r in reversed(kept) if "policy" in r.control), ""),
        records=tuple(whole),
        began=began,
        at_s=at_s,
        came=came,
        costs=costs_of(kept, began, row_s, task_s),
        row_s=row_s,
        task_s=task_s,
        least_s=0.5 * float(np.quantile([outside_s(r) for r in kept], 0.05)),
        early_s=early_of(kept),
        sinks=sinks,
        from_cut=origin == {"cut"},
        due_known=all(r.due is not None for r in kept),
        start=_start(kept),
        static=_stayed(kept),
        limits=_limits(kept),
        slots=_slots(kept),
        bounds=bounds,
        notes=tuple(notes),
    )


# -- the load ------------------------------------------------------------------------------------------------------


def _first_arrival(first: BatchRecord) -> float:
    """When the first row arrived, in epoch seconds: as long before the first results as the oldest row waited."""
    waited = max((h.max for h in first.latency.values() if h.max is not None), default=0.0)
    least = first.started - max(first.cycle_s, 0.01) if first.latency_from == "cut" else first.started - 0.01
    return max(min(first.visible - waited, least), first.started - _LONGEST_LEAD_S)


def _load(records: Sequence[BatchRecord], began: float) -> tuple[Floats, Floats]:
    """How many rows had come by when: what was due at each batch, else what it read."""
    times, rows, so_far = [0.0], [0.0], 0.0
    before = _read_before(records[0])
    for record in records:
        so_far += record.rows_in
        known = so_far if record.due is None else float(record.due - before)
        times.append(max(record.started - began, times[-1] + 1e-6))
        rows.append(max(known, so_far, rows[-1]))
    return np.array(times), np.array(rows)


def _read_before(first: BatchRecord) -> int:
    """Rows that had been read before a batch, where the source says what is due."""
    return 0 if first.due is None else first.due - (first.backlog or 0) - first.rows_in


# -- latency -------------------------------------------------------------------------------------------------------


def _sinks(
    records: Sequence[BatchRecord], began: float, at_s: Floats, came: Floats, *, from_cut: bool
) -> dict[str, Sink]:
    arrived = _mean_arrivals(records, began, at_s, came, from_cut=from_cut)
    found: dict[str, Sink] = {}
    for name in dict.fromkeys(sink for record in records for sink in record.latency):
        options = []
        for lag in _LAGS[:1] if from_cut else _LAGS:
            off = [
                record.latency[name].mean - (record.visible - began - arrived[i - lag])  # type: ignore[operator]
                for i, record in enumerate(records)
                if i >= lag and name in record.latency and record.latency[name].mean is not None
            ]
            if off:
                middle = float(np.median(off))
                error = float(np.median(np.abs(np.array(off) - middle)))
                doubt = 1.0 if lag == 0 else 1.5  # a lag must explain clearly more
                options.append((doubt * (error + abs(middle)), Sink(lag, middle, error)))
        if options:
            found[name] = min(options, key=lambda option: option[0])[1]
    return found


def _slides(bounds: Sequence[tuple[Bound, tuple[str, ...]]]) -> dict[str, float]:
    """How often a window ends, by the sink that shows its results."""
    return {sink: bound.every_s for bound, sinks in bounds if bound.every_s is not None for sink in sinks}


def _window_sink(records: Sequence[BatchRecord], began: float, name: str, every_s: float) -> Sink | None:
    """A sink that shows windows; None if their ends cannot be told from the latencies.

    All results of a window count from one moment, so a batch that closes one window says when that was: the circular
    mean of those moments modulo `every_s` is the phase.
    """
    closed = [r for r in records if name in r.latency and r.latency[name].counts]
    single = [r for r in closed if (r.latency[name].max or 0.0) - (r.latency[name].mean or 0.0) < every_s / 8.0]
    since = np.array([r.visible - began - (r.latency[name].mean or 0.0) for r in single])
    turns = np.exp(2j * np.pi * since / every_s)
    if len(single) < _LEAST_WINDOWS or abs(turns.mean()) < _TOGETHER:
        return None
    ends = Ends(every_s, float(np.angle(turns.mean()) / (2.0 * np.pi) % 1.0 * every_s))
    cuts = [r.started - began for r in records]
    options = []
    for lag in (0, 1):  # with which batch they come: the one that reads past their end, or the next
        off, missing = [], 0
        for i in range(lag + 1, len(records)):
            due, seen = ends.within(cuts[i - lag - 1], cuts[i - lag]), records[i].latency.get(name)
            if len(due) and seen is not None and seen.mean is not None:
                off.append(abs(seen.mean - (records[i].visible - began - float(due.mean()))))
            missing += len(due) > 0 and (seen is None or seen.mean is None)
        error_s = float(np.median(off)) if off else math.inf
        options.append(((missing, error_s), Sink(lag, 0.0, error_s, ends)))
    return min(options, key=lambda option: option[0])[1]


def _mean_arrivals(
    records: Sequence[BatchRecord], began: float, at_s: Floats, came: Floats, *, from_cut: bool
) -> list[float]:
    """When the rows of each batch arrived, on average; batches take them oldest first."""
    if from_cut:
        return [record.started - began for record in records]
    rising = came + np.arange(len(came)) * 1e-6  # where no row came, any time would do: let it be the last
    found, read = [], 0.0
    for record in records:
        taken = read + (np.arange(32) + 0.5) / 32.0 * record.rows_in
        found.append(float(np.interp(taken, rising, at_s).mean()))
        read += record.rows_in
    return found


# -- what was decided, allowed and required --------------------------------------------------------------------------


def _start(records: Sequence[BatchRecord]) -> Decision:
    """What the run began with, or, if it stayed with something from its third batch on, that.

    A cap of the source itself shows where batches of one size leave rows behind.
    """
    decision = (records[2] if _stayed(records) else records[0]).decision
    cap = decision.get("row_cap")
    left_some = {record.rows_in for record in records if record.backlog}
    if cap is None and len(left_some) == 1 and max(r.rows_in for r in records) in left_some:
        cap = left_some.pop()
    return Decision(dict(decision.get("widths", {})), float(decision.get("lifetime_s", 0.0)), cap)


def _stayed(records: Sequence[BatchRecord]) -> bool:
    """Whether one decision held all the time: a static set-up, whatever its policy is called."""
    return all(record.decision == records[2].decision for record in records[2:])


def _noted(records: Sequence[BatchRecord]) -> list[Mapping[str, Any]]:
    return [record.control["inputs"] for record in records if "inputs" in record.control]


def _slots(records: Sequence[BatchRecord]) -> int:
    """The machine's slots as the policy was told; older telemetry does not say: then the most tasks seen at once."""
    said = [int(note["slots"]) for note in _noted(records) if "slots" in note]
    return said[-1] if said else max((s.concurrency for r in records for s in r.operators), default=0)


def _limits(records: Sequence[BatchRecord]) -> dict[str, tuple[int, int]]:
    """The least and most width of each operator as the policy was told; else 1 to the most seen or the slots."""
    slots = _slots(records)
    limits: dict[str, tuple[int, int]] = {}
    for name in records[-1].decision.get("widths", {}):
        widest = max(r.decision.get("widths", {}).get(name, 1) for r in records)
        limits[name] = (1, max(widest, slots))
    for note in _noted(records):
        for name, view in note.get("operators", {}).items():
            if name in limits and "hi" in view:
                limits[name] = (int(view["lo"]), int(view["hi"]))
    return limits


def _bounds(
    records: Sequence[BatchRecord], bound_ms: float | None, over_s: float | None, where: str
) -> tuple[tuple[tuple[Bound, tuple[str, ...]], ...], bool]:
    """The latencies required at the end of the run, and whether they had been others before."""
    said = [record.control["bounds"] for record in records if record.control.get("bounds")]
    sinks = tuple(dict.fromkeys(sink for record in records for sink in record.latency))
    path = (ROWS, *dict.fromkeys(stage.name for record in records for stage in stages_of(record)))
    if bound_ms is not None:
        return ((Bound("bound", path, mean_s=bound_ms / 1e3, over_s=over_s or 5.0), sinks),), False
    if said:
        found = []
        for one in said[-1]:
            limits = {kind: one.get(kind) for kind in ("mean_s", "p95_s", "p99_s")}
            span = over_s or float(one.get("over_s", 5.0))
            path_of = tuple(one.get("operators") or path)
            bound = Bound(one["name"], path_of, over_s=span, every_s=one.get("every_s"), **limits)
            found.append((bound, tuple(one.get("sinks") or sinks)))
        return tuple(found), any(one != said[-1] for one in said)
    verdicts = [r.control["verdict"] for r in records if r.control.get("verdict")]
    if verdicts:
        limit: dict[str, Any] = {f"{verdicts[-1]['kind']}_s": float(verdicts[-1]["bound_s"])}
        other = any(v["bound_s"] != verdicts[-1]["bound_s"] for v in verdicts)
        return ((Bound("bound", path, over_s=over_s or 5.0, **limit), sinks),), other
    raise FlowError(where, "it required no latency, so there is nothing to judge a policy by", "pass --bound MS")
