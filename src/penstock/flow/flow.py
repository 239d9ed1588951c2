"""The flow: a named template graph that a user builds stream by stream and a host runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.explain import explain
from penstock.flow.graph import Edge, Task, TemplateGraph, all_to_all, one_to_one
from penstock.flow.rules import function_name
from penstock.flow.schema import check_names
from penstock.flow.stream import Stream, check_time_column

PEOPLE_SINKS = ("memory", "console", "function")


class Flow:
    """A streaming job as a graph of operators: read, transform, write, start.

    See the README for a complete example.
    """

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z][\w\-]*", name):
            raise FlowError("flow", f"the name {name!r} is not letters, digits, _ and -", "choose such a name")
        self.name = name
        self._operators: dict[str, op.Operator] = {}
        self._sinks: dict[str, op.Sink] = {}

    def read(self, frame: DataFrame, *, time: str | None = None, arrival: str | None = None, name: str | None = None) -> Stream:
        """Read a streaming or batch DataFrame.

        `time` names the event-time column. `arrival` names the column that says when a row arrived, from
        which its latency counts; without it (and without a replay source) latency counts from the cut of
        the batch.
        """
        name = self._name(name, None, "read")
        where = f"read '{name}'"
        if not isinstance(frame, DataFrame):
            raise FlowError(where, f"a DataFrame is expected, got {type(frame).__name__}", "pass a DataFrame")
        schema = check_names(frame.schema, where)
        replay = getattr(frame, "_penstock_replay", None)
        if arrival is None and replay is not None:
            arrival = replay.scheduled
        for column in (time, arrival):
            if column is not None:
                check_time_column(schema, column, where)
        for other in self.reads:
            if other.frame.isStreaming != frame.isStreaming:
                raise FlowError(where, "a flow reads streams or batch DataFrames, not both", "join the table in a sql step before read")
        self._operators[name] = op.Read(name, (), {name: schema}, frame=frame, time=time, arrival=arrival)
        return Stream(self, name, schema, time)

    @property
    def reads(self) -> tuple[op.Read, ...]:
        """The flow's sources, in the order they were read."""
        return tuple(node for node in self._operators.values() if isinstance(node, op.Read))

    @property
    def operators(self) -> dict[str, op.Operator]:
        """The flow's operators by name, each after its inputs."""
        return dict(self._operators)

    @property
    def sinks(self) -> dict[str, op.Sink]:
        """The flow's sinks by name."""
        return dict(self._sinks)

    def graph(self) -> TemplateGraph:
        """Return the frozen template graph: tasks, streams, widths and wiring (thesis 001, 2.3.1)."""
        tasks, edges = [], []
        for node in self._operators.values():
            width = getattr(node, "width", None) or op.Width(1, 1)
            tasks.append(Task(node.name, node.kind, width.lo, width.lo, width.hi))
            exchanged = getattr(node, "width", None) is not None
            for port in node.inputs:
                edges.append(Edge(port.split(".")[0], node.name, all_to_all if exchanged else one_to_one, port))
        for sink in self._sinks.values():
            tasks.append(Task(sink.name, f"sink {sink.format}"))
            edges.append(Edge(sink.port.split(".")[0], sink.name, all_to_all, sink.port))
        return TemplateGraph(tuple(tasks), tuple(edges))

    def explain(self, format: str = "text") -> str:
        """Draw the flow: `"text"`, `"mermaid"`, or `"farm"` (the notation of thesis 003)."""
        return explain(self, format)

    def start(self, spark: SparkSession, checkpoint: str, policy: Any = None, **options: Any) -> Any:
        """Start the flow as one streaming query and return its `Job`; options are those of `Job`."""
        from penstock.engine.spark.job import Job  # noqa: PLC0415 - flow describes, the engine runs

        self.check_runnable()
        return Job(self, spark, checkpoint, policy, **options).begin()

    def check_runnable(self) -> None:
        """Refuse a flow that a streaming job cannot run."""
        where = f"flow '{self.name}'"
        if not self.reads:
            raise FlowError(where, "it reads nothing", "begin with flow.read(df)")
        if not self._sinks:
            raise FlowError(where, "it writes nothing", "end with stream.write(...)")
        if not self.reads[0].frame.isStreaming:
            raise FlowError(where, "start() is for streams, but it reads batch DataFrames", "use stream.to_df(spark)")
        used = {port for node in self._operators.values() for port in node.inputs} | {s.port for s in self._sinks.values()}
        for node in self._operators.values():
            for port in node.outputs:
                if port.endswith(".dead") and port not in used:
                    raise FlowError(f"map '{node.name}'", "its dead letters go nowhere", "write stream.dead_letter to a sink")

    def _probe(self, schema: StructType) -> DataFrame:
        """Return an empty DataFrame of a schema, to ask what a step makes of it."""
        if not self._operators:
            raise FlowError(f"flow '{self.name}'", "nothing was read yet", "begin with flow.read(df)")
        spark = self.reads[0].frame.sparkSession
        return spark.createDataFrame([], schema)

    def _name(self, given: str | None, fn: Callable[..., Any] | None, kind: str) -> str:
        if given is not None:
            if not re.fullmatch(r"[A-Za-z]\w*", given):
                raise FlowError(kind, f"the name {given!r} is not letters, digits and _", "choose such a name")
            if given in self._operators or given in self._sinks:
                raise FlowError(kind, f"two operators are named '{given}'", "rename one")
            return given
        base = function_name(fn) or kind
        number, name = 1, base
        while name in self._operators or name in self._sinks:
            number += 1
            name = f"{base}_{number}"
        return name

    def _add_sink(self, stream: Stream, format: str, path: str | None, name: str | None, fn: Any, options: dict[str, Any]) -> None:
        name = self._name(name, None, f"to_{format}")
        where = f"write '{name}'"
        if format == "function" and not callable(fn):
            raise FlowError(where, "a function sink needs fn=", "pass fn(table, batch_id)")
        if format != "function" and fn is not None:
            raise FlowError(where, "fn= is for function sinks", "write('function', fn=...)")
        if format not in PEOPLE_SINKS and not path:
            raise FlowError(where, f"the file format '{format}' needs path=", "pass path='some/folder'")
        if format in PEOPLE_SINKS and path:
            raise FlowError(where, f"'{format}' takes no path", "leave it out")
        if "partitionBy" in options or "partition_by" in options:
            raise FlowError(where, "a batch is one file, so that readers never see half of it; partitions would need many", "leave it out")
        for other in self._sinks.values():
            if path and other.path == path:
                raise FlowError(where, f"sink '{other.name}' writes to {path} already", "give each sink its own folder")
        self._sinks[name] = op.Sink(name, stream.port, format, path, fn, options)
