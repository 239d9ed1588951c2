"""What is measured of one batch: a record per batch, with one entry per operator; plain values, JSON both ways.

The statistics are those of thesis 001, App. A (service time, inter-arrival time, waits), with a chunk as the item.
Times are seconds; clock readings are seconds since the epoch. A reader ignores fields it does not know and takes the
default of those that are missing, so that telemetry outlives a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.control.histogram import LogHistogram
from penstock.control.moments import Moments

PARTS = ("spark", "log", "plan", "run", "manifest", "sink", "control", "wait")
"""The parts of a batch's time, in order; `spark` passes between two of our calls, `wait` waits the lifetime out."""


@dataclass(frozen=True, slots=True)
class OperatorStats:
    """What one operator did in one batch.

    >>> OperatorStats("score", "map", width=2, rows_in=10) == OperatorStats.from_json(
    ...     OperatorStats("score", "map", width=2, rows_in=10).to_json())
    True
    """

    name: str = ""
    kind: str = ""  # "map", "window", ...
    width: int = 0  # tasks that may run at once, as decided
    tasks: int = 0  # tasks that ran
    rows_in: int = 0
    rows_out: int = 0
    calls: int = 0  # calls of the user's function
    skipped: int = 0  # chunks or windows that needed no call
    busy_s: float = 0.0  # inside user code, summed over tasks
    wait_s: float = 0.0  # blocked on input, summed over tasks
    idle_s: float = 0.0  # slots idle: width x wall time of the stage - busy
    service: Moments = Moments()  # seconds per call (001: S_v)
    arrivals: Moments = Moments()  # seconds between two chunks reaching the operator (001: A_v)
    concurrency: int = 0  # most tasks observed at once
    task_max_s: float = 0.0  # the longest task
    setups: int = 0
    teardowns: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    congested: int = 0  # how often a cap was hit
    stage: str = ""  # operators of one stage share its tasks
    busy_max_s: float = 0.0  # inside user code, in the busiest task
    groups: tuple[int, ...] = ()  # rows of each key group, where the operator is keyed
    replicas: tuple[tuple[int, int], ...] = ()  # rows in and out of each of several replicas

    def to_json(self) -> dict[str, Any]:
        """A plain dict, one entry per field.

        >>> OperatorStats("a", service=Moments(1, 0.5, 0.0)).to_json()["service"]
        [1, 0.5, 0.0]
        """
        out = {name: getattr(self, name) for name in _OPERATOR_FIELDS}
        out["service"], out["arrivals"] = self.service.to_json(), self.arrivals.to_json()
        out["groups"] = list(self.groups)
        out["replicas"] = [list(rows) for rows in self.replicas]
        return out

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> OperatorStats:
        """What `to_json` wrote; unknown fields are ignored.

        >>> OperatorStats.from_json({"name": "a", "of_a_later_version": 1}).name
        'a'
        """
        known = {name: value[name] for name in _OPERATOR_FIELDS if name in value}
        for name in ("service", "arrivals"):
            if name in known:
                known[name] = Moments.from_json(known[name])
        known["groups"] = tuple(known.get("groups", ()))
        known["replicas"] = tuple((rows_in, rows_out) for rows_in, rows_out in known.get("replicas", ()))
        return OperatorStats(**known)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What was measured of one batch, from its start to when its results were visible at every sink.

    >>> r = BatchRecord(7, run="a", started=10.0, visible=10.5, parts={"run": 0.4, "wait": 0.1})
    >>> r.cycle_s, r.work_s
    (0.5, 0.4)
    >>> BatchRecord.from_json(r.to_json()) == r
    True
    """

    batch: int
    run: str = ""  # one per start of the job
    started: float = 0.0
    visible: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    due: int | None = None  # rows scheduled up to the cut (attempted, cumulative); None: the source does not say
    backlog: int | None = None  # rows available and not read; None: not known
    parts: dict[str, float] = field(default_factory=dict)  # seconds by part, keys out of PARTS
    operators: tuple[OperatorStats, ...] = ()
    latency: dict[str, LogHistogram] = field(default_factory=dict)  # per sink
    latency_from: str = "cut"  # "arrival" or "cut": where a latency starts
    decision: dict[str, Any] = field(default_factory=dict)  # for audit, as the controller wrote it
    watermark: int | None = None  # microseconds since the epoch
    replayed: bool = False  # this is a second attempt at the batch, after a failure
    late: int = 0  # rows that missed a window
    dead: int = 0  # rows set aside because they could not be processed
    control: dict[str, Any] = field(default_factory=dict)  # what the policy saw, decided and expected, and why
    superseded: bool = False  # a later record of the same batch exists; set when reading

    @property
    def cycle_s(self) -> float:
        """Seconds of the whole cycle, the wait for the lifetime included (design, section 6: C).

        >>> BatchRecord(1, parts={"run": 0.25, "wait": 0.5}).cycle_s
        0.75
        """
        return sum(self.parts.values())

    @property
    def work_s(self) -> float:
        """Seconds of work: the cycle without the wait (design, section 6: w).

        >>> BatchRecord(1, parts={"run": 0.25, "wait": 0.5}).work_s
        0.25
        """
        return sum(seconds for part, seconds in self.parts.items() if part != "wait")

    def to_json(self) -> dict[str, Any]:
        """A plain dict, one entry per field.

        >>> sorted(BatchRecord(1, latency={"out": LogHistogram.of([1.0])}).to_json()["latency"]["out"])
        ['buckets', 'counts', 'max', 'sum']
        """
        out = {name: getattr(self, name) for name in _BATCH_FIELDS}
        out["operators"] = [operator.to_json() for operator in self.operators]
        out["latency"] = {sink: histogram.to_json() for sink, histogram in self.latency.items()}
        return out

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> BatchRecord:
        """What `to_json` wrote; unknown fields are ignored.

        >>> BatchRecord.from_json({"batch": 3, "of_a_later_version": 1}).batch
        3
        """
        known = {name: value[name] for name in _BATCH_FIELDS if name in value}
        if "operators" in known:
            known["operators"] = tuple(OperatorStats.from_json(operator) for operator in known["operators"])
        if "latency" in known:
            known["latency"] = {sink: LogHistogram.from_json(h) for sink, h in known["latency"].items()}
        return BatchRecord(**known)


_OPERATOR_FIELDS = tuple(f.name for f in fields(OperatorStats))
_BATCH_FIELDS = tuple(f.name for f in fields(BatchRecord))


def mark_superseded(records: Iterable[BatchRecord]) -> list[BatchRecord]:
    """The same records in the same order; where a batch occurs more than once (a replay), all but the last are marked.

    >>> [r.superseded for r in mark_superseded([BatchRecord(1), BatchRecord(2), BatchRecord(2, replayed=True)])]
    [False, True, False]
    """
    found = list(records)
    last = {record.batch: position for position, record in enumerate(found)}
    return [
        record if last[record.batch] == position else replace(record, superseded=True)
        for position, record in enumerate(found)
    ]
