"""The operators of a flow, as frozen descriptions: what runs, not how or where.

A *port* is one output of one operator, written `name` for the main output and `name.port` for a side
output (`split` parts, dead letters). Hosts turn these descriptions into work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.windows.aggregates import Output
from penstock.windows.kinds import WindowSpec, is_ordered

Scheduling = Literal["round_robin", "on_demand"]
Partition = Literal["round_robin", "key", "broadcast"]
OnError = Literal["stop", "skip", "dead_letter"]
LatencyMode = Literal["read_ready", "read_write"]
WindowPath = Literal["native", "panes", "content"]

DEFAULT_CHUNK = 1024
ON_DEMAND_TASKS = 4  # tasks per replica: a free replica takes the next, so finer tasks balance better
MAX_CHUNK = 1 << 20  # a row's place in its chunk has 20 bits
MAX_KEYED_WIDTH = 64  # the key groups of a checkpoint: the unit that moves between replicas


def owner(port: str) -> str:
    """Return the operator that a port belongs to.

    >>> owner("score"), owner("score.dead")
    ('score', 'score')
    """
    return port.partition(".")[0]


@dataclass(frozen=True)
class Width:
    """How many replicas an operator may have: `lo` to `hi`, `lo` at the start.

    >>> Width(1, 8).clamp(20)
    8
    """

    lo: int
    hi: int

    @property
    def elastic(self) -> bool:
        """Whether the width may change while the job runs."""
        return self.lo < self.hi

    def clamp(self, wanted: int) -> int:
        """Return the allowed width nearest to `wanted`."""
        return max(self.lo, min(self.hi, wanted))


@dataclass(frozen=True)
class Operator:
    """What every operator has: its name, the ports it reads, and the schema of each port it offers."""

    name: str
    inputs: tuple[str, ...]
    outputs: dict[str, StructType]

    @property
    def kind(self) -> str:
        """The operator's kind in lower case, as reports show it.

        >>> Filter("good", ("quotes",), {}).kind
        'filter'
        """
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Read(Operator):
    """A source: any DataFrame, with the columns that carry event time and arrival time."""

    frame: DataFrame = field(repr=False, compare=False, default=None)  # type: ignore[assignment]
    time: str | None = None
    arrival: str | None = None


@dataclass(frozen=True)
class Sql(Operator):
    """A stateless DataFrame -> DataFrame step that runs in the JVM."""

    fn: Callable[[DataFrame], DataFrame] = field(repr=False, default=None)  # type: ignore[assignment]


@dataclass(frozen=True)
class Union(Operator):
    """Several streams of one schema as one."""


@dataclass(frozen=True)
class Map(Operator):
    """RecordBatch -> RecordBatch; a farm when it has replicas (theses 003 F20, 001 F8)."""

    fn: Callable[..., Any] = field(repr=False, default=None)  # type: ignore[assignment]
    width: Width | None = None
    ordered: bool = False
    scheduling: Scheduling = "round_robin"
    partition: Partition = "round_robin"
    key: tuple[str, ...] = ()
    chunk: int = DEFAULT_CHUNK
    setup: Callable[[], Any] | None = field(repr=False, default=None)
    teardown: Callable[[Any], Any] | None = field(repr=False, default=None)
    latency_mode: LatencyMode = "read_ready"
    on_error: OnError = "stop"

    @property
    def tasks_each(self) -> int:
        """The most tasks for each of several replicas; on demand, one that is free takes the next."""
        return ON_DEMAND_TASKS if self.scheduling == "on_demand" else 1


@dataclass(frozen=True)
class FlatMap(Map):
    """RecordBatch -> any number of RecordBatches."""


@dataclass(frozen=True)
class Filter(Operator):
    """Keeps the rows for which a predicate over the batch holds."""

    fn: Callable[..., Any] = field(repr=False, default=None)  # type: ignore[assignment]
    on_error: OnError = "stop"


@dataclass(frozen=True)
class Split(Operator):
    """Sends each row to the first output whose predicate holds."""

    predicates: tuple[Callable[..., Any], ...] = field(repr=False, default=())
    rest: bool = False


@dataclass(frozen=True)
class Stateful(Operator):
    """A function of the rows and the state of their keys (key partitioning)."""

    fn: Callable[..., Any] = field(repr=False, default=None)  # type: ignore[assignment]
    key: tuple[str, ...] = ()
    state_schema: StructType = field(default_factory=StructType)
    width: Width = Width(1, MAX_KEYED_WIDTH)


@dataclass(frozen=True)
class Window(Operator):
    """Windows per key with aggregates, or with a function of their content.

    `path` says how it runs: `native` panes made by Spark, Python `panes` (a user's pane and combine functions), or the
    `content`, row by row in order.
    """

    spec: WindowSpec = None  # type: ignore[assignment]
    key: tuple[str, ...] = ()
    time: str | None = None
    order: tuple[str, ...] = ()
    aggregates: tuple[Output, ...] = ()
    fn: Callable[..., Any] | None = field(repr=False, default=None)
    pane: Callable[..., Any] | None = field(repr=False, default=None)
    combine: Callable[..., Any] | None = field(repr=False, default=None)
    details: bool = False
    path: WindowPath = "native"
    width: Width = Width(1, MAX_KEYED_WIDTH)

    @property
    def keeps_partials(self) -> bool:
        """Whether what it keeps of its rows are partial aggregates per pane, made by Spark or lifted in Python."""
        return self.path == "native" or (self.path == "panes" and bool(self.aggregates))

    @property
    def waits(self) -> bool:
        """Whether rows wait for the watermark and are then taken in order (design section 3, Order)."""
        return self.time is not None and is_ordered(self.spec)


@dataclass(frozen=True)
class Late(Operator):
    """The rows that missed a window of `window`: they came behind its watermark, or without an event time."""

    window: str = ""
    spec: WindowSpec = None  # type: ignore[assignment]
    time: str = ""


@dataclass(frozen=True)
class Sink:
    """Where a stream is written: a file format, or `memory`, `console`, `function`."""

    name: str
    port: str
    format: str
    path: str | None = None
    fn: Callable[..., Any] | None = field(repr=False, default=None)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """What a checkpoint calls the sink: its place, not its name, which may change with the order of statements."""
        return f"{self.format}:{self.path or self.name}:{self.port}"
