"""The feedback loop in virtual time: a host and a policy, interval by interval, and a trace of what happened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.control.decision import Decision, Policy
from penstock.control.observation import Bound, Observation


class Host(Protocol):
    """What a simulated host offers; `stream`, `batch` and `farm` are the three there are."""

    now: float
    bounds: tuple[Bound, ...]

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        ...

    def start(self) -> Decision:
        """The decision that describes how it starts."""
        ...

    def advance(self, decision: Decision) -> Observation:
        """Run one interval."""
        ...

    def widths(self) -> dict[str, int]:
        """Subtasks at work now."""
        ...

    def paid(self) -> dict[str, float]:
        """Subtask-seconds of the last interval."""
        ...

    def check(self) -> None:
        """Raise if the books do not balance."""
        ...


@dataclass(frozen=True)
class Interval:
    """One interval of a run."""

    begin_s: float
    end_s: float
    rate: float  # offered to the first operator, per second
    completed: float  # by the last operator, per second
    widths: Mapping[str, int]
    paid_s: Mapping[str, float]
    latency: Mapping[str, tuple[float, float, float, float]]  # per bound: mean, p95, p99, max
    met: Mapping[str, bool]  # per bound
    goals_met: bool | None  # throughput requirements, if there are any
    backlog: float


@dataclass
class Trace:
    """A whole run: its intervals, and how often and by how much the decision moved."""

    bounds: tuple[Bound, ...]
    intervals: list[Interval] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)  # (when decided, sum of |new - old| widths)
    prediction_error: float | None = None  # of the policy's own model, if it keeps one: mean absolute, relative

    @property
    def duration_s(self) -> float:
        """Seconds simulated.

        >>> Trace(()).duration_s
        0.0
        """
        return self.intervals[-1].end_s if self.intervals else 0.0


def within(bound: Bound, measured: tuple[float, float, float, float]) -> bool:
    """Whether a measured (mean, p95, p99, max) keeps a bound.

    >>> within(Bound("fast", ("a",), mean_s=0.02, p95_s=0.05), (0.01, 0.06, 0.07, 0.1))
    False
    """
    limits = (bound.mean_s, bound.p95_s, bound.p99_s)
    return all(limit is None or value <= limit for limit, value in zip(limits, measured, strict=False))


def run(host: Host, policy: Policy) -> Trace:
    """Run a host under a policy to its end; the books are checked at the end.

    >>> import numpy as np
    >>> from penstock.control.decision import Static
    >>> from penstock.engine.sim.loads import Load
    >>> from penstock.engine.sim.spec import Operator
    >>> from penstock.engine.sim.stream import StreamHost
    >>> load = Load("flat", 20.0, lambda t: np.full_like(t, 50.0))
    >>> host = StreamHost([Operator("a", 0.01)], load, seed=1, bounds=(Bound("fast", ("a",), mean_s=0.1),))
    >>> [interval.met["fast"] for interval in run(host, Static()).intervals]
    [True, True, True, True]
    """
    trace = Trace(host.bounds)
    decision = policy.decide(None, host.start())
    seen: Observation | None = None
    while not host.finished:
        begin = host.now
        seen = host.advance(decision)
        trace.intervals.append(_interval(host, seen, begin))
        following = policy.decide(seen, decision)
        moved = sum(abs(int(w) - int(decision.widths.get(n, w))) for n, w in following.widths.items())
        if moved:
            trace.changes.append((host.now, moved))
        decision = following
    host.check()
    log = getattr(policy, "predictions", None)
    error = log.mape() if log is not None and hasattr(log, "mape") else None
    trace.prediction_error = error if error is not None and math.isfinite(error) else None
    return trace


def _interval(host: Host, seen: Observation, begin: float) -> Interval:
    views = list(seen.operators.values())
    by_name = {bound.name: bound for bound in host.bounds}
    met = {name: within(by_name[name], value) for name, value in seen.latency.items()}
    goals = None
    if seen.target_per_s:
        goals = all(
            name in seen.operators and seen.operators[name].completed_per_s >= target
            for name, target in seen.target_per_s.items()
        )
    return Interval(
        begin,
        seen.now_s,
        views[0].arrivals_per_s if views else 0.0,
        views[-1].completed_per_s if views else 0.0,
        host.widths(),
        host.paid(),
        dict(seen.latency),
        met,
        goals,
        seen.backlog_items,
    )
