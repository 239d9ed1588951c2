"""The flow: a named template graph that a user builds stream by stream and a host runs."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.durations import Duration
from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.explain import explain, verdict
from penstock.flow.graph import Edge, Task, TemplateGraph, all_to_all, one_to_one
from penstock.flow.identity import identity
from penstock.flow.requirements import Requirement, check, merged
from penstock.flow.rules import check_format, check_function, check_known, function_name
from penstock.flow.schema import check_names
from penstock.flow.stream import Stream, check_time_column

PARQUET_OPTIONS = ("compression", "compression_level", "row_group_size", "use_dictionary", "data_page_size")
PEOPLE_SINKS: dict[str, tuple[str, ...]] = {"memory": (), "console": ("rows",), "function": ()}  # and their options


class Flow:
    """A streaming job as a graph of operators: read, transform, write, start.

    See the README for a complete example.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w\-]*", name):
            rule = f"the name {name!r} is not a letter followed by letters, digits, _ and -"
            raise FlowError("flow", rule, "choose such a name")
        self.name = name
        self._operators: dict[str, op.Operator] = {}
        self._sinks: dict[str, op.Sink] = {}
        self._requirements: tuple[Requirement, ...] = ()

    def read(
        self, frame: DataFrame, *, time: str | None = None, arrival: str | None = None, name: str | None = None
    ) -> Stream:
        """Read a streaming or batch DataFrame.

        `time` names the event-time column. `arrival` names the column that says when a row arrived, from
        which its latency counts; without it (and without a replay source) latency counts from the cut of
        the batch.
        """
        name = self._name(name, None, "read")
        where = f"read '{name}'"
        if not isinstance(frame, DataFrame):
            raise FlowError(where, f"a DataFrame is expected, got {type(frame).__name__}", "pass a DataFrame")
        schema = check_names(copy.deepcopy(frame.schema), where)
        if not schema.fields:
            raise FlowError(where, "the DataFrame has no columns", "select at least one")
        replay = getattr(frame, "_penstock_replay", None)
        if arrival is None and replay is not None:
            arrival = replay.scheduled
        for column, role in ((time, "time"), (arrival, "arrival")):
            if column is not None:
                check_time_column(schema, column, where, role)
        for other in self.reads:
            if other.frame.isStreaming != frame.isStreaming:
                kinds = ["a stream" if f.isStreaming else "a batch DataFrame" for f in (other.frame, frame)]
                rule = (
                    f"a flow reads streams or batch DataFrames, not both: '{other.name}' is {kinds[0]}, this {kinds[1]}"
                )
                raise FlowError(where, rule, "join the table to the stream before read()")
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

    def ancestors(self, port: str) -> set[str]:
        """Return the names of the operators from which a port's rows come, its own included."""
        found, waiting = set(), [op.owner(port)]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [op.owner(source) for source in self._operators[name].inputs]
        return found

    def sinks_behind(self, port: str) -> tuple[str, ...]:
        """Return the sinks that a port's rows, or what was made of them, reach: its own if it has any."""
        own = tuple(name for name, sink in self._sinks.items() if sink.port == port)
        owner = op.owner(port)
        return own or tuple(name for name, sink in self._sinks.items() if owner in self.ancestors(sink.port))

    def require(self, *requirements: Requirement) -> Flow:
        """State what the flow must keep: `ps.Latency`, `ps.Throughput`, `ps.Cost`; see docs/how-to/keep-a-latency.md.

        Write the streams first: a latency is measured where results become visible.
        """
        for requirement in requirements:
            self._requirements = merged(self._requirements, check(self, requirement))
        return self

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What is required of the flow."""
        return self._requirements

    def graph(self) -> TemplateGraph:
        """Return the frozen template graph: tasks, streams, widths and wiring (thesis 001, 2.3.1).

        An operator behind an exchange has its own width; every other runs in the subtasks of what it reads.
        """
        tasks, edges = [], []
        for node in self._operators.values():
            width = getattr(node, "width", None)
            if width is not None:
                tasks.append(Task(node.name, node.kind, width.lo, width.lo, width.hi))
            else:
                tasks.append(Task(node.name, node.kind, follows=_owners(node.inputs)))
            for port in node.inputs:
                edges.append(Edge(op.owner(port), node.name, one_to_one if width is None else all_to_all, port))
        for sink in self._sinks.values():
            tasks.append(Task(sink.name, f"sink {sink.format}"))
            edges.append(Edge(op.owner(sink.port), sink.name, all_to_all, sink.port))
        return TemplateGraph(tuple(tasks), tuple(edges))

    def identity(self) -> list[str]:
        """Return what must not change between two starts on one checkpoint, one line per operator."""
        return identity(self)

    def explain(
        self,
        format: str = "text",
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        calibrate: Duration | None = None,
        reread: bool = False,
    ) -> str:
        """Draw the flow: `"text"`, `"mermaid"`, or `"farm"` (the notation of thesis 003).

        With `checkpoint` (of an earlier run) or `calibrate` (the length of a short run made for this, "10 s") the text
        also says whether the latencies required can be kept here: feasible or not, the least that is, where a row's
        time goes, how far predictions were off, what would help. A calibration calls the flow's functions, on a
        temporary checkpoint and with no sink written; it refuses sources that may not be read twice, unless
        `reread=True`. See docs/how-to/keep-a-latency.md.
        """
        drawing = explain(self, format)
        if checkpoint is None and calibrate is None:
            return drawing
        if format != "text":
            raise FlowError("explain", f"a verdict goes with the text, not with format={format!r}", "leave format out")
        return f"{drawing}\n{verdict(self, checkpoint, calibrate, reread)}"

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
        used = {port for node in self._operators.values() for port in node.inputs}
        used |= {sink.port for sink in self._sinks.values()}
        for node in self._operators.values():
            for port in node.outputs:
                if port.endswith(".dead") and port not in used:
                    where = f"{'flat_map' if isinstance(node, op.FlatMap) else 'map'} '{node.name}'"
                    raise FlowError(where, "its dead letters go nowhere", "write its stream's .dead_letter to a sink")

    def _probe(self, schema: StructType) -> DataFrame:
        """Return an empty DataFrame of a schema, to ask what a step makes of it."""
        if not self._operators:
            raise FlowError(f"flow '{self.name}'", "nothing was read yet", "begin with flow.read(df)")
        spark = self.reads[0].frame.sparkSession
        return spark.createDataFrame([], schema)

    def _name(self, given: str | None, fn: Callable[..., Any] | None, kind: str) -> str:
        if given is not None:
            if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z]\w*", given):
                rule = f"the name {given!r} is not a letter followed by letters, digits and _"
                raise FlowError(kind, rule, "choose such a name")
            if given in self._operators or given in self._sinks:
                raise FlowError(f"{kind} '{given}'", "another operator or sink has this name", "rename one")
            return given
        base = function_name(fn) or kind
        number, name = 1, base
        while name in self._operators or name in self._sinks:
            number += 1
            name = f"{base}_{number}"
        return name

    def _add_sink(
        self,
        stream: Stream,
        format: str,
        path: str | os.PathLike[str] | None,
        *,
        name: str | None,
        fn: Any,
        options: dict[str, Any],
    ) -> None:
        if not isinstance(format, str):
            raise FlowError("write", f"a format is a name, got {format!r}", "write('parquet', path=...)")
        format = format if "." in format else format.lower()  # Spark takes "Parquet" and class names, too
        name = self._name(name, None, "write") if name is not None else self._name(None, None, f"to_{_word(format)}")
        where = f"write '{name}'"
        place = None if path is None else os.fspath(path)
        if format == "function" and fn is None:
            raise FlowError(where, "a function sink needs fn=", "pass fn(table, batch_id)")
        if format == "function":
            check_function(fn, where)
        elif fn is not None:
            raise FlowError(where, "fn= is for function sinks", "write('function', fn=...)")
        if format in PEOPLE_SINKS:
            if place:
                raise FlowError(where, f"'{format}' takes no path", "leave it out")
            check_known(options, PEOPLE_SINKS[format], where)
        else:
            self._check_files(stream, format, place, options, where)
        self._sinks[name] = op.Sink(name, stream.port, format, place, fn, dict(options))

    def _check_files(self, stream: Stream, format: str, path: str | None, options: dict[str, Any], where: str) -> None:
        for option in options:
            if option.lower().replace("_", "") == "partitionby":
                rule = "a batch is one file, so that readers never see half of it; partitions would need many"
                raise FlowError(where, rule, f"leave {option} out")
        if format == "parquet":  # written by Arrow, which has its own options
            check_known(options, PARQUET_OPTIONS, where)
        check_format(self.reads[0].frame.sparkSession, format, stream.schema, where)
        if not path:
            raise FlowError(where, f"the file format '{format}' needs path=", "pass path='some/folder'")
        for other in self._sinks.values():
            if other.path and _place(other.path) == _place(path):
                rule = f"sink '{other.name}' writes to {other.path} already"
                raise FlowError(where, rule, "give each sink its own folder")


def _owners(ports: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(op.owner(port) for port in ports))


def _word(format: str) -> str:
    return re.sub(r"\W", "_", format.rpartition(".")[-1]).lower()


def _place(path: str) -> str:
    """Return one spelling of a folder, to compare with.

    >>> _place("file:///tmp/out/") == _place("/tmp/./out") == "/tmp/out"
    True
    >>> _place("s3://bucket/out/")
    's3://bucket/out'
    """
    local = re.sub(r"^file:(//)?", "", path)
    return path.rstrip("/") if "://" in local else os.path.abspath(local)
