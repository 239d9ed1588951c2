"""One run in numbers: fulfilment, cost, and how a controller behaves (stability, accuracy, settling, overshoot).

fulfilled     share of intervals in which the bound (or the throughput goal) held
violations    how many intervals it did not
p95_ms        median over the intervals of the interval's 95th percentile
subtask_hours what was paid for: at work, starting up, draining
amplitude     mean size of a reconfiguration, in subtasks
settle_s      mean length of a run of violated intervals: how long it takes to get back
overshoot     greatest width / greatest width of the clairvoyant plan - 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from penstock.engine.sim.loop import Interval, Trace


@dataclass(frozen=True)
class Row:
    """A line of a report; None where a measure does not apply."""

    scenario: str
    policy: str
    seed: int
    bound_ms: float | None = None
    fulfilled: float | None = None
    p95_ms: float | None = None
    subtask_hours: float | None = None
    worker_hours: float | None = None
    reconfigurations: int | None = None
    amplitude: float | None = None
    settle_s: float | None = None
    overshoot: float | None = None
    violations: int | None = None
    loss_vs_best_static: float | None = None
    mean_ms: float | None = None
    throughput_per_s: float | None = None
    backlog_at_end: float | None = None
    model_error: float | None = None
    deciding_loss: float | None = None  # loss against the best static width where measuring costs both the same
    adding_percent: float | None = None  # share of the run that adding subtasks took
    removing_percent: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain dict, rounded to what is meaningful.

        >>> Row("step2", "static", 1, fulfilled=0.5).to_json()["fulfilled"]
        0.5
        """
        return {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(self).items()}


def measure(
    trace: Trace,
    *,
    scenario: str,
    policy: str,
    seed: int,
    bound: str | None = None,
    counted: Sequence[str] | None = None,
    per_worker: float = 1.0,
    best_width: int | None = None,
    skip_s: float = 0.0,
) -> Row:
    """The measures of a run for one bound (or for its throughput goals), counting the operators in `counted`.

    >>> measure(Trace(()), scenario="empty", policy="static", seed=1).fulfilled is None
    True
    """
    names = [b.name for b in trace.bounds if bound in (None, b.name)]
    intervals = [i for i in trace.intervals if i.begin_s >= skip_s]
    verdicts = [v for v in (_verdict(i, names) for i in intervals) if v is not None]
    paid = sum(s for i in intervals for n, s in i.paid_s.items() if counted is None or n in counted)
    limits = [1000.0 * b.mean_s for b in trace.bounds if b.name in names and b.mean_s is not None]
    limits += [1000.0 * b.p95_s for b in trace.bounds if b.name in names and b.p95_s is not None]
    moves = [moved for at, moved in trace.changes if at >= skip_s]
    widest = max((_width(i, counted) for i in intervals), default=0)
    seconds = sum(i.end_s - i.begin_s for i in intervals)
    return Row(
        scenario,
        policy,
        seed,
        bound_ms=min(limits) if limits else None,
        fulfilled=sum(verdicts) / len(verdicts) if verdicts else None,
        p95_ms=_median(intervals, names, 1),
        subtask_hours=paid / 3600.0,
        worker_hours=paid / 3600.0 / per_worker,
        reconfigurations=len(moves),
        amplitude=float(np.mean(moves)) if moves else None,
        settle_s=_settling(intervals, names),
        overshoot=widest / best_width - 1.0 if best_width else None,
        violations=len(verdicts) - sum(verdicts) if verdicts else None,
        mean_ms=_median(intervals, names, 0),
        throughput_per_s=sum(i.completed * (i.end_s - i.begin_s) for i in intervals) / seconds if seconds else None,
        backlog_at_end=intervals[-1].backlog if intervals else None,
        model_error=trace.prediction_error,
    )


def _verdict(interval: Interval, names: Sequence[str]) -> bool | None:
    known = [interval.met[n] for n in names if n in interval.met]
    if interval.goals_met is not None:
        known.append(interval.goals_met)
    return all(known) if known else None


def _width(interval: Interval, counted: Sequence[str] | None) -> int:
    return sum(w for n, w in interval.widths.items() if counted is None or n in counted)


def _median(intervals: Sequence[Interval], names: Sequence[str], at: int) -> float | None:
    values = [max(i.latency[n][at] for n in names if n in i.latency) for i in intervals if set(names) & set(i.latency)]
    return float(np.median(values)) * 1000.0 if values else None


def _settling(intervals: Sequence[Interval], names: Sequence[str]) -> float | None:
    """Mean length of a run of violated intervals; None if there was none."""
    lengths: list[float] = []
    inside = False
    for interval in intervals:
        bad = _verdict(interval, names) is False
        if bad and not inside:
            lengths.append(0.0)
        if bad:
            lengths[-1] += interval.end_s - interval.begin_s
        inside = bad
    return float(np.mean(lengths)) if lengths else None
