"""The loop around a policy (design, section 6): collect, sum up, decide, limit, and say why.

After each batch the host hands over its record; every interval the policy sees an `Observation` and its decision, as
far as the limiter lets it through, takes effect at the next batch. What was seen, decided and expected goes into the
batch's record with the reason; the next record has what then happened. A policy that raises changes nothing: the
last decision stays, and the error is said.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.control.decision import Decision, Policy, Static
from penstock.control.limiter import Limiter
from penstock.control.observation import Bound, Observation
from penstock.engine.spark.stages import Plan, Stage, pipelines
from penstock.flow import operators as op
from penstock.flow.flow import Flow
from penstock.flow.requirements import Cost, Latency, Requirement, Throughput, check, merged
from penstock.observe.observer import ROWS, Observer
from penstock.observe.record import BatchRecord
from penstock.windows.time import Time

log = logging.getLogger("penstock")

_SURE = 3  # verdicts in a row after which it is said that a bound cannot be kept, or can again


class Controller:
    """One per job. `interval_s` 0: the policy is asked after every batch."""

    def __init__(self, flow: Flow, plan: Plan, policy: Policy, slots: int, interval_s: float = 0.0) -> None:
        self.flow, self.plan, self.policy, self.interval_s = flow, plan, policy, interval_s
        self.requirements: tuple[Requirement, ...] = flow.requirements
        self.limiter = Limiter()
        self.errors = 0  # times the policy raised
        limits = {n.name: (n.width.lo, n.width.hi) for n in flow.operators.values() if getattr(n, "width", None)}  # type: ignore[attr-defined]
        self.widths: dict[str, tuple[int, int]] = limits
        self.pipelines = pipelines(flow, plan)
        each = {n.name: n.tasks_each for n in flow.operators.values() if isinstance(n, op.Map) and n.tasks_each > 1}
        self.observer = Observer(limits, slots, self.pipelines, each)
        self._looked_s: float | None = None
        self._said: set[str] = set()
        self._expected: dict[str, float] = {}
        self._verdicts: list[bool] = []  # the last ones that agree: whether what is required can be kept
        self._said_feasible = True
        self._stating = threading.RLock()  # users state requirements from threads of their own
        self._accepted(self.requirements)
        self._restate()

    def _accepted(self, requirements: Sequence[Requirement]) -> None:
        """Let the policy refuse bounds that it cannot work on, before a job runs with them."""
        accept = getattr(self.policy, "accept", None)
        if accept is not None:
            bounds = [self._bound(requirement) for requirement in requirements if isinstance(requirement, Latency)]
            accept(bounds, {name for bound in bounds for name in bound.operators})

    def require(self, *requirements: Requirement) -> None:
        """Change what is required, from the next batch on."""
        wanted = self.requirements
        for requirement in requirements:
            wanted = merged(wanted, check(self.flow, requirement))
        with self._stating:
            self._accepted(wanted)
            self.requirements = wanted
            self._verdicts, self._said_feasible = [], True  # of other bounds
            self._restate()

    def _restate(self) -> None:
        """Work out once what the requirements mean to a policy; it changes only with them."""
        most = min((r.max_width for r in self.requirements if isinstance(r, Cost)), default=None)
        self.observer.limits = {
            name: (lo, hi) if most is None else (lo, max(lo, min(hi, most))) for name, (lo, hi) in self.widths.items()
        }
        latencies = [requirement for requirement in self.requirements if isinstance(requirement, Latency)]
        self.bounds = tuple(self._bound(requirement) for requirement in latencies)
        # A latency is measured at the sinks of its last stream, or else at those behind it.
        self.sinks = {requirement.name: self.flow.sinks_behind(requirement.end.port) for requirement in latencies}
        # The windows for whose sake batches may be cut: those that a latency counts on; where none is required, all. Of
        # those whose ends only their rows tell, none: there is no moment to wait for.
        alone = [found[0] for one in latencies if len(found := self._windows_between(one)) == 1]
        windows = [n for n in self.flow.operators.values() if isinstance(n, op.Window) and n.time]
        self.awaited = frozenset(n.name for n in (alone if latencies else windows) if slide_s(n) is not None)
        # Windows that a latency counts on are closed by the batch whose rows complete them.
        self.at_once = frozenset(n.name for one in latencies for n in self._windows_between(one))
        self.targets = self._targets()

    # -- one batch -------------------------------------------------------------------------------

    def after_batch(
        self, record: BatchRecord, cut_s: float, now_s: float, next_cut_s: float, arrived: int | None, current: Decision
    ) -> tuple[Decision, dict[str, Any]]:
        """Take a batch in; what the next one runs with, and the note for the record."""
        if isinstance(self.policy, Static) and not self.requirements:  # nothing to decide, nothing to judge
            return current, {}
        self.observer.add(record, cut_s)
        note = self._outcome(record)
        if self._looked_s is not None and now_s - self._looked_s < self.interval_s:
            return current, note
        self._looked_s = now_s
        with self._stating:
            try:
                seen = self.observer.look(now_s, next_cut_s, arrived, self.bounds, self.sinks, self.targets)
                wanted = self.policy.decide(seen, current)
                decided = self._limited(wanted, current, seen)
            except Exception as error:
                return current, {**note, **self._failed(error)}
            note |= self._note(seen, decided, current)
        return decided, note

    def _limited(self, wanted: Decision, current: Decision, seen: Observation | None) -> Decision:
        """Bounds of the operators, of what is allowed to cost, and the limiter's."""
        widths = {}
        for name, now in current.widths.items():
            lo, hi = self.observer.limits[name]
            widths[name] = min(max(int(wanted.widths.get(name, now)), lo), hi)
        # Policies made for other hosts may chain what cannot be chained here.
        chains = tuple(chain for chain in wanted.chains if any(_within(chain, run) for run in self.pipelines))
        known = replace(wanted, widths=widths, lifetime_s=max(0.0, wanted.lifetime_s), chains=chains)
        return self.limiter.admit(known, current, seen)

    def _bound(self, requirement: Latency) -> Bound:
        """A latency as policies know it: a path of stages, from the source on."""
        limits = {"mean_s": requirement.mean_s, "p95_s": requirement.p95_s, "p99_s": requirement.p99_s}
        path, windows = self._path(requirement), self._windows_between(requirement)
        every_s = slide_s(windows[0]) if len(windows) == 1 else None
        return Bound(requirement.name, path, over_s=requirement.over_s, every_s=every_s, **limits)

    def _windows_between(self, requirement: Latency) -> list[op.Window]:
        """The windows over event time that rows pass between the two streams of a latency."""
        behind, first = self.flow.ancestors(requirement.end.port), op.owner(requirement.start.port)
        windows = [n for n in self.flow.operators.values() if isinstance(n, op.Window) and n.time]
        return [n for n in windows if n.name in behind and first in self.flow.ancestors(n.name)]

    def _targets(self) -> dict[str, float]:
        """The rates to reach, by the operator that begins the stage of the one required."""
        found: dict[str, float] = {}
        for requirement in self.requirements:
            if isinstance(requirement, Throughput):
                owner = op.owner(requirement.stream.port)
                stage = next((label(s) for s in self.plan.stages if owner in members(s)), owner)
                found[stage] = max(found.get(stage, 0.0), requirement.at_least)
        return found

    def _path(self, requirement: Latency) -> tuple[str, ...]:
        behind = self.flow.ancestors(requirement.end.port)
        first = op.owner(requirement.start.port)
        on_path = [s for s in self.plan.stages if members(s) and any(name in behind for name in members(s))]
        stages = [label(s) for s in on_path if first in self.flow.ancestors(label(s)) or first in members(s)]
        return (ROWS, *stages)

    # -- what is said ----------------------------------------------------------------------------

    def say_verdict(self, note: dict[str, Any]) -> None:
        """Say in the log that a bound cannot be kept, or can again; once, and not of a batch or two."""
        verdict = note.get("verdict")
        if verdict is None:
            return
        feasible = bool(verdict["feasible"])
        self._verdicts = [*self._verdicts, feasible][-_SURE:] if feasible in self._verdicts else [feasible]
        if len(self._verdicts) < _SURE or feasible == self._said_feasible:
            return
        self._said_feasible = feasible
        bound = f"flow '{self.flow.name}': a {verdict['kind']} of {_ms(verdict['bound_s'])}"
        if feasible:
            log.warning("%s can be kept again", bound)
            return
        least = f"the least here is {_ms(verdict['least_s'])}" if verdict["least_s"] else "the rate cannot be served"
        remedy = "job.report() says what would help"
        log.warning("%s is not feasible: %s; the job runs as fast as it can. Remedy: %s", bound, least, remedy)

    def expect_nothing(self) -> None:
        """Take back what was expected of the next batch: it is cut when a user wants it, not when it was planned."""
        self._expected = {}

    def _outcome(self, record: BatchRecord) -> dict[str, Any]:
        """What was expected of this batch, beside what happened."""
        expected, self._expected = self._expected, {}
        outcome = {}
        for name, predicted in expected.items():
            seen = [record.latency[sink] for sink in self.sinks.get(name, ()) if sink in record.latency]
            mean = next((histogram.mean for histogram in seen if histogram.mean is not None), None)
            if mean is not None and not record.replayed:
                outcome[name] = {"predicted_s": predicted, "measured_s": mean}
        return {"outcome": outcome} if outcome else {}

    def _note(self, seen: Observation | None, decided: Decision, current: Decision) -> dict[str, Any]:
        note: dict[str, Any] = {"policy": type(self.policy).__name__}
        if seen is not None and ROWS in seen.operators:
            note["inputs"] = inputs(seen)
            note["bounds"] = [stated(bound, self.sinks.get(bound.name, ())) for bound in seen.bounds]
        outlook = getattr(getattr(self.policy, "batches", None), "outlook", None)
        if outlook is not None and seen is not None and seen.bounds:
            expected = outlook.predicted_s.get("mean_s")
            self._expected = {
                b.name: expected
                for b in seen.bounds
                if expected is not None and ((b.every_s or 0.0) == outlook.every_s or not decided.at_ends)
            }
            note["predicted_s"] = dict(outlook.predicted_s)
            note["verdict"] = {
                "kind": outlook.kind.removesuffix("_s"),
                "bound_s": outlook.bound_s,
                "least_s": outlook.least_s,
                "feasible": outlook.feasible,
                "parts_s": dict(outlook.parts_s),
            }
        reason = why(decided, current, seen)
        if reason:
            note["reason"] = reason
        return note

    def _failed(self, error: Exception) -> dict[str, Any]:
        self.errors += 1
        text = f"{type(error).__name__}: {error}"
        if text not in self._said:
            self._said.add(text)
            log.warning("policy %s raised; the last decision stays: %s", type(self.policy).__name__, text)
        return {"policy": type(self.policy).__name__, "error": text}


def slide_s(node: op.Window) -> float | None:
    """How often windows of an operator end; None where only their rows tell."""
    spec = node.spec
    if not isinstance(spec, Time) or spec.every is not None or spec.from_first or node.waits:
        return None
    return spec.slide_us / 1e6


def label(stage: Stage) -> str:
    """What policies call a stage: the operator that begins it."""
    return stage.head.name if stage.head is not None else stage.steps[0].name


def members(stage: Stage) -> list[str]:
    """The operators that run in a stage."""
    return [node.name for node in ([stage.head] if stage.head is not None else []) + stage.steps]


def _within(chain: tuple[str, ...], run: tuple[str, ...]) -> bool:
    """Whether a chain is a stretch of a run."""
    return any(run[at : at + len(chain)] == chain for at in range(len(run)))


def inputs(seen: Observation) -> dict[str, Any]:
    """What a decision was made from, in few words: it is written with every batch."""
    rows = seen.operators[ROWS]
    views = {
        name: {
            "width": view.width,
            "lo": view.lo,
            "hi": view.hi,
            "arrivals_per_s": round(view.arrivals_per_s, 3),
            "service_us": round(view.service_s * 1e6, 3),
            "utilisation": round(view.utilisation, 4),
            "skew": round(view.skew, 3),
            "tasks_each": view.tasks_each,
        }
        for name, view in seen.operators.items()
        if name != ROWS
    }
    return {
        "rate_per_s": round(rows.arrivals_per_s, 3),
        "fixed_ms": round(seen.fixed_s * 1e3, 3),
        "row_us": round(rows.service_s * 1e6, 4),
        "task_ms": round(seen.task_s * 1e3, 3),
        "backlog": round(seen.backlog_items),
        "slots": seen.parallelism,
        "operators": views,
    }


def stated(bound: Bound, sinks: tuple[str, ...]) -> dict[str, Any]:
    """What was required, and where it is measured: `penstock simulate replay` judges by it.

    >>> stated(Bound("a->b", ("a", "b"), p95_s=1.5), ("out",))
    {'name': 'a->b', 'operators': ['a', 'b'], 'p95_s': 1.5, 'over_s': 5.0, 'sinks': ['out']}
    """
    limits = {"mean_s": bound.mean_s, "p95_s": bound.p95_s, "p99_s": bound.p99_s}
    return {
        "name": bound.name,
        "operators": list(bound.operators),
        **{kind: limit for kind, limit in limits.items() if limit is not None},
        "over_s": bound.over_s,
        **({} if bound.every_s is None else {"every_s": bound.every_s}),
        "sinks": list(sinks),
    }


def why(decided: Decision, current: Decision, seen: Observation | None) -> str:
    """Say what changes and at what load; empty if nothing does.

    >>> why(Decision({"score": 4}, lifetime_s=0.5), Decision({"score": 2}, lifetime_s=0.5), None)
    'score 2 -> 4'
    """
    changes = [
        f"{name} {current.widths.get(name, width)} -> {width}"
        for name, width in decided.widths.items()
        if width != current.widths.get(name, width)
    ]
    if decided.lifetime_s != current.lifetime_s:
        changes.append(f"lifetime {_ms(current.lifetime_s)} -> {_ms(decided.lifetime_s)}")
    changes += [f"keys of {name} moved" for name in decided.routes if decided.routes[name] != current.routes.get(name)]
    if decided.chains != current.chains:
        changes.append("chained: " + (", ".join("+".join(chain) for chain in decided.chains) or "none"))
    if decided.at_ends != current.at_ends:
        changes.append("cut as windows end" if decided.at_ends else "not cut as windows end")
    if decided.row_cap != current.row_cap:
        changes.append(f"rows per batch {current.row_cap or 'any'} -> {decided.row_cap or 'any'}")
    if not changes:
        return ""
    load = _load(seen)
    return ", ".join(changes) + (f"; {load}" if load else "")


def _load(seen: Observation | None) -> str:
    if seen is None or ROWS not in seen.operators:
        return ""
    words = [f"at {seen.operators[ROWS].arrivals_per_s:,.0f} rows/s", f"F {_ms(seen.fixed_s)}"]
    for bound in seen.bounds:
        if bound.name in seen.latency:
            found: Mapping[str, float] = dict(zip(("mean", "p95", "p99"), seen.latency[bound.name][:3], strict=True))
            limits = {"mean": bound.mean_s, "p95": bound.p95_s, "p99": bound.p99_s}
            words += [f"{kind} {_ms(found[kind])} of {_ms(limit)}" for kind, limit in limits.items() if limit]
    return ", ".join(words)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
