"""What a policy sees: one view per operator, the requirements, and what was measured against them, over one interval.

Plain values in seconds and items; a host builds them, a policy reads them. Conventions that hosts keep:

- a source has no view; every other operator on a path, sinks included, has one;
- the *streams* of a bound are named by their ends: ``"a->b"`` for two neighbours on its path, and ``"->a"`` for the
  stream into its first operator if that operator has a view (so a path may be written with or without its source). Each
  stream is thus the input of one operator that has a view, and that view's `batch_wait_s` is its output-batch delay;
- an operator that showed nothing in the interval is left out of `operators`: its bounds are then stale, and no policy
  acts on them. A single statistic that is not known is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.control.checks import above, at_least, finite, ordered
from penstock.errors import PolicyError


@dataclass(frozen=True)
class OperatorView:
    """One operator over the last interval (thesis 001, App. A: the workload statistics of a task).

    >>> view = OperatorView("score", width=8, lo=1, hi=64, arrivals_per_s=1600.0, completed_per_s=1600.0,
    ...     service_s=0.004, service_cv=0.5, interarrival_s=0.005, arrival_cv=1.0, wait_s=0.014, batch_wait_s=0.0,
    ...     queue_items=22.4, utilisation=0.8)
    >>> view.task_latency_s, round(view.busiest, 2)
    (0.004, 0.8)
    """

    name: str
    width: int  # subtasks now
    lo: int  # least and most subtasks allowed
    hi: int
    arrivals_per_s: float  # offered, all subtasks together
    completed_per_s: float
    service_s: float  # mean service time of one item on one subtask (0 if unknown)
    service_cv: float  # coefficient of variation
    interarrival_s: float  # per subtask, mean (0 if unknown)
    arrival_cv: float  # per subtask
    wait_s: float  # measured mean queue wait (excluding output batching)
    batch_wait_s: float  # measured mean wait in the output batch before it
    queue_items: float  # at the end of the interval, all subtasks
    utilisation: float  # busy share of the subtasks, 0..1 (measured: may pass 1 while queues fill, 001 section 4.6)
    skew: float = 1.0  # busiest subtask's load / mean load
    groups: tuple[float, ...] = ()  # rows of each key group, where the operator is keyed and the host counts them
    latency_s: float | None = None  # mean subtask latency l_v if it is not the service time: read-write operators
    tasks_each: int = 1  # tasks that a micro-batch starts for each of several subtasks

    def __post_init__(self) -> None:
        where = f"operator '{self.name}'"
        at_least(where, "lo", self.lo, 1)
        at_least(where, "width", self.width, 1)
        at_least(where, "tasks_each", self.tasks_each, 1)
        ordered(where, "lo", self.lo, "hi", self.hi)
        for name in _RATES:
            at_least(where, name, getattr(self, name), 0.0)
        above(where, "skew", self.skew, 0.0)
        if self.latency_s is not None:
            at_least(where, "latency_s", self.latency_s, 0.0)

    @property
    def task_latency_s(self) -> float:
        """Mean subtask latency l_v: read-ready latency is the service time, read-write latency is measured apart."""
        return self.service_s if self.latency_s is None else self.latency_s

    @property
    def busiest(self) -> float:
        """Utilisation of the busiest subtask (001: rho^max)."""
        return self.utilisation * self.skew


_RATES = (
    "arrivals_per_s",
    "completed_per_s",
    "service_s",
    "service_cv",
    "interarrival_s",
    "arrival_cv",
    "wait_s",
    "batch_wait_s",
    "queue_items",
    "utilisation",
)


@dataclass(frozen=True)
class Bound:
    """A latency requirement on a path of operators, in flow order; without a number it only measures.

    >>> bound = Bound("fast", ("source", "score", "sink"), mean_s=0.02)
    >>> bound.streams({"score", "sink"})
    ('source->score', 'score->sink')
    >>> Bound("fast", ("score",), mean_s=0.02).streams({"score"})
    ('->score',)
    """

    name: str
    operators: tuple[str, ...]
    mean_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    over_s: float = 5.0  # the span over which it is judged
    every_s: float | None = None  # how often the windows end whose results these are; None: at no known times

    def __post_init__(self) -> None:
        where = f"bound '{self.name}'"
        if not self.operators or len(set(self.operators)) != len(self.operators):
            raise PolicyError(where, "a path names each operator once, and at least one", "list them in flow order")
        for name in ("mean_s", "p95_s", "p99_s"):
            value = getattr(self, name)
            if value is not None:
                above(where, name, value, 0.0)
        above(where, "over_s", self.over_s, 0.0)
        if self.every_s is not None:
            above(where, "every_s", self.every_s, 0.0)

    def streams(self, views: Mapping[str, OperatorView] | Set[str]) -> tuple[str, ...]:
        """The names of the path's streams: into its first operator (if that has a view), then between neighbours."""
        first = (f"->{self.operators[0]}",) if self.operators[0] in views else ()
        return first + tuple(f"{a}->{b}" for a, b in pairwise(self.operators))


@dataclass(frozen=True)
class Observation:
    """One interval, as a policy sees it.

    >>> Observation(now_s=5.0, interval_s=5.0).micro_batch
    False
    """

    now_s: float
    interval_s: float
    operators: Mapping[str, OperatorView] = field(default_factory=dict)
    bounds: tuple[Bound, ...] = ()
    # per bound name: mean, p95, p99, max measured over the interval
    latency: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)
    target_per_s: Mapping[str, float] = field(default_factory=dict)  # throughput requirements, per operator
    backlog_items: float = 0.0
    fixed_s: float = 0.0  # F: fixed cost of a micro-batch; 0 on continuous hosts
    task_s: float = 0.0  # what each task adds to a micro-batch, whatever its rows
    micro_batch: bool = False
    parallelism: int = 0  # slots of the machine, 0 = unbounded
    pipelines: tuple[tuple[str, ...], ...] = ()  # runs of operators that the host can fuse (001, section 4.7)

    def __post_init__(self) -> None:
        where = "observation"
        finite(where, "now_s", self.now_s)
        above(where, "interval_s", self.interval_s, 0.0)
        for name in ("backlog_items", "fixed_s", "task_s", "parallelism"):
            at_least(where, name, getattr(self, name), 0.0)
        for bound, values in self.latency.items():
            for name, value in zip(("mean", "p95", "p99", "max"), values, strict=True):
                at_least(f"bound '{bound}'", f"measured {name}", value, 0.0)
        for operator, target in self.target_per_s.items():
            at_least(f"operator '{operator}'", "target_per_s", target, 0.0)

    def path(self, bound: Bound, known: Set[str] = frozenset()) -> tuple[OperatorView, ...] | None:
        """The views along a bound's path, one per stream of it; None if one is missing: the bound is stale.

        Only the first operator may lack its view, as a source does, and not if it is `known` to have had one before.

        >>> Observation(5.0, 5.0).path(Bound("fast", ("source", "score"))) is None
        True
        """
        first = bound.operators[0]
        names = bound.operators if first in self.operators or first in known else bound.operators[1:]
        if not names or any(name not in self.operators for name in names):
            return None
        return tuple(self.operators[name] for name in names)
