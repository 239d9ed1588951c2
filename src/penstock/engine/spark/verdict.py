"""Whether what a flow requires can be kept here, said before it starts: from telemetry of an earlier run.

The records of the run go through the controller once more, under what is required now. Two policies watch them:
`Adaptive` as it would decide, whose outlook says what is feasible and at what least, and the same with everything
switched off, which predicts each batch as it was in fact cut; that prediction is held against what was measured. The
records then carry the notes that a live job writes, and `observe.promise` judges them as it does those of a live job.

A load that changes is judged at its heaviest: of the batches whose rate is within a tenth of the 95th percentile, the
newer half (a job gets faster as it warms up), and of those the one of median least latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from typing import Any

from penstock.control.decision import Decision
from penstock.control.policies.adaptive import Adaptive
from penstock.engine.spark.controller import Controller
from penstock.engine.spark.stages import cut
from penstock.errors import FlowError
from penstock.flow.flow import Flow
from penstock.flow.requirements import Latency
from penstock.observe.load_limit import FAR, highest_rate, highest_served
from penstock.observe.promise import PromiseReport, promises
from penstock.observe.record import PARTS, BatchRecord
from penstock.observe.render import number, promise_lines

LEAST_BATCHES = 8  # with rows; the first two tell nothing, and a model's error takes four
_MOST_BATCHES = 1000  # of a long run, the last ones
_SETTLED = 4  # verdicts of a run that are left out
_HEAVY = 0.9  # batches of so much of the heaviest rate count for it


@dataclass(frozen=True)
class Verdict:
    """What an earlier run says about what is required now; `str` gives the text of `explain`."""

    origin: str  # where the records come from
    batches: int
    seconds: float
    rate_per_s: float  # the load that it was judged at
    promises: tuple[PromiseReport, ...]
    highest_per_s: float | None  # the load up to which the governing bound is feasible; None: not known
    expected_ms: Mapping[str, float]  # mean, p95 and p99 under the plan that `Adaptive` would choose, as modelled
    parts_ms: Mapping[str, float]  # a batch's time, measured
    notes: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool | None:
        """Whether everything required can be kept; None if that is not known."""
        known = [promise.feasible for promise in self.promises]
        return False if False in known else None if not known or None in known else True

    def __str__(self) -> str:
        told = f"from {self.origin}: {self.batches} batches, {self.seconds:.0f} s, measured"
        if self.feasible is None:
            return "\n".join([f"what is required, {told}", *(f"  {note}" for note in self.notes)])
        word = "feasible" if self.feasible else "NOT FEASIBLE"
        lines = [f"what is required is {word} here at {number(self.rate_per_s)} rows/s, {told}"]
        lines += [f"  {line}" for line in promise_lines(self.promises)]
        if self.expected_ms:
            kinds = ", ".join(f"{kind} {ms:.0f} ms" for kind, ms in self.expected_ms.items())
            lines.append(f"  expected under the plan that would be chosen, as modelled: {kinds}")
        parts = sorted(self.parts_ms.items(), key=lambda item: -item[1])
        lines.append("  a batch's time, measured: " + ", ".join(f"{n} {ms:.0f} ms" for n, ms in parts if ms >= 0.5))
        lines += [f"  {line}" for line in self._load()]
        return "\n".join(lines + [f"  {note}" for note in self.notes])

    def _load(self) -> list[str]:
        if self.highest_per_s is None:
            return []
        if self.highest_per_s <= 0.0:
            return ["as modelled it is not feasible at any load: the fixed cost of a batch alone takes more"]
        if self.highest_per_s >= FAR * self.rate_per_s:
            return [f"as modelled it is feasible up to {FAR:g} times this load, and perhaps beyond"]
        return [f"as modelled it is feasible up to about {number(self.highest_per_s)} rows/s"]


def verdict(flow: Flow, records: Iterable[BatchRecord], slots: int, origin: str, *, cold: int = 0) -> Verdict:
    """Judge the newest run that is long enough among some records by what the flow requires now.

    The first `cold` batches teach, but what was measured in them is not counted.
    """
    check_requires(flow)
    run = newest_run(records)
    if not run:
        raise FlowError("explain", f"{origin} has no telemetry", "let it run first, with telemetry on")
    told = judged(flow, run, slots)
    heavy = heaviest(told)
    seconds = run[-1].visible - run[0].started
    if heavy is None:
        few = f"{with_rows(run)} batches had rows, and {LEAST_BATCHES} are needed: let it run longer"
        why = errors(told) or [f"no verdict: {few}"]
        return Verdict(origin, len(run), seconds, 0.0, (), None, {}, {}, tuple(why))
    note = heavy.control
    # `promises` takes the last verdict for the one that stands: here the one of the heaviest load does.
    last = replace(told[-1], control={**told[-1].control, "verdict": note["verdict"]})
    return Verdict(
        origin,
        len(run),
        seconds,
        note["inputs"]["rate_per_s"],
        promises([*told[cold:-1], last]),
        highest_rate(note["inputs"], note["verdict"], slots),
        {kind.removesuffix("_s"): 1e3 * value for kind, value in note.get("predicted_s", {}).items()},
        parts_of(run),
        (*overload(note, slots), *other_machine(run, slots), *from_cut(run), *errors(told)),
    )


def check_requires(flow: Flow) -> None:
    """Refuse a flow of which no latency is required."""
    if not any(isinstance(requirement, Latency) for requirement in flow.requirements):
        rule = "no latency is required of it, so there is nothing to judge"
        raise FlowError(f"flow '{flow.name}'", rule, "flow.require(ps.Latency(...)) first")


def newest_run(records: Iterable[BatchRecord]) -> list[BatchRecord]:
    """The last run that has enough batches, else the last; at most its last 1,000 batches, each by its last record."""
    kept = [record for record in records if not record.superseded]
    runs = [list(group) for _, group in groupby(kept, key=lambda record: record.run)]
    found = next((run for run in reversed(runs) if with_rows(run) >= LEAST_BATCHES), runs[-1] if runs else [])
    return found[-_MOST_BATCHES:]


def with_rows(records: Iterable[BatchRecord]) -> int:
    """How many batches had rows."""
    return sum(record.rows_in > 0 for record in records)


def judged(flow: Flow, run: Sequence[BatchRecord], slots: int) -> list[BatchRecord]:
    """The records with the notes that a controller makes of them under what is required now."""
    plan = cut(flow)
    free = Controller(flow, plan, Adaptive(), slots)
    still = Adaptive(batching=False, scaling=False, routing=False, chaining=False)
    as_it_was = Controller(flow, plan, still, slots)
    found = []
    for record, following in zip_longest(run, run[1:]):
        work = sum(seconds for part, seconds in record.parts.items() if part not in ("spark", "wait"))
        now_s = record.started + work
        next_cut_s = max(now_s, following.started) if following is not None else now_s
        times = (record.started, now_s, next_cut_s, due_by(now_s, record, following))
        current = decision_of(record, free.widths)
        _, note = free.after_batch(record, *times, current)
        _, held = as_it_was.after_batch(record, *times, current)
        note = {key: value for key, value in note.items() if key not in ("outcome", "reason")}
        if "outcome" in held:
            note["outcome"] = held["outcome"]
        found.append(replace(record, control=note))
    return found


def due_by(now_s: float, record: BatchRecord, following: BatchRecord | None) -> int | None:
    """Rows that had fallen due at a time between two cuts; None where the source does not say.

    >>> due_by(11.0, BatchRecord(1, started=10.0, due=100), BatchRecord(2, started=12.0, due=200))
    150
    """
    if record.due is None or following is None or following.due is None or following.started <= record.started:
        return record.due
    share = (now_s - record.started) / (following.started - record.started)
    return round(record.due + min(max(share, 0.0), 1.0) * (following.due - record.due))


def decision_of(record: BatchRecord, limits: Mapping[str, tuple[int, int]]) -> Decision:
    """What a batch ran with, as far as the flow of today knows its operators.

    >>> decision_of(BatchRecord(1, decision={"widths": {"score": 3, "gone": 2}, "lifetime_s": 0.5}), {"score": (1, 8)})
    Decision(widths={'score': 3}, lifetime_s=0.5, ...)
    """
    known = record.decision
    widths = {name: int(known.get("widths", {}).get(name, lo)) for name, (lo, _) in limits.items()}
    chains = tuple(tuple(chain) for chain in known.get("chains", ()))
    return Decision(widths, float(known.get("lifetime_s", 0.0)), known.get("row_cap"), chains=chains)


def heaviest(told: Sequence[BatchRecord]) -> BatchRecord | None:
    """The batch whose verdict stands for the run (see the module's text); None if too few have one."""
    settled = [r for r in told if "verdict" in r.control and "inputs" in r.control][_SETTLED:]
    if not settled or with_rows(told) < LEAST_BATCHES:
        return None
    rates = sorted(record.control["inputs"]["rate_per_s"] for record in settled)
    heavy = _HEAVY * rates[math.ceil(0.95 * len(rates)) - 1]
    candidates = [record for record in settled if record.control["inputs"]["rate_per_s"] >= heavy]
    newer = candidates[len(candidates) // 2 :]
    by_least = sorted(newer, key=lambda record: _least_s(record.control["verdict"]))
    return by_least[len(by_least) // 2]


def _least_s(found: Mapping[str, Any]) -> float:
    return math.inf if found["least_s"] is None else float(found["least_s"])


def parts_of(run: Sequence[BatchRecord]) -> dict[str, float]:
    """The mean time of each part of a batch with rows, in milliseconds, without the wait and the first batches."""
    timed = [record for record in run if record.rows_in > 0 and record.parts]
    timed = timed[min(_SETTLED, len(timed) - 1) :]
    names = [part for part in PARTS if part != "wait"]
    return {n: 1e3 * sum(r.parts.get(n, 0.0) for r in timed) / len(timed) for n in names} if timed else {}


def overload(note: Mapping[str, Any], slots: int) -> list[str]:
    """A note on what could be served, where the load could not."""
    if note["verdict"]["least_s"] is not None:
        return []
    served = highest_served(note["inputs"], slots)
    return [f"as modelled the operators keep up with at most {number(served)} rows/s at their widest"]


def other_machine(run: Sequence[BatchRecord], slots: int) -> list[str]:
    """A note where the run had other slots than there are here."""
    said = [record.control["inputs"]["slots"] for record in run if "slots" in record.control.get("inputs", {})]
    return [f"that run had {said[-1]} slots, this session has {slots}"] if said and said[-1] != slots else []


def from_cut(run: Sequence[BatchRecord]) -> list[str]:
    """A note where latency was measured from the cut."""
    if {record.latency_from for record in run if record.latency} != {"cut"}:
        return []
    return ["latency was measured from the cut of a batch: what a row waited before is in the model, not in the figure"]


def errors(told: Sequence[BatchRecord]) -> list[str]:
    """What the policy raised on these records, once each."""
    return [
        f"the policy raised {text}" for text in dict.fromkeys(r.control["error"] for r in told if "error" in r.control)
    ]
