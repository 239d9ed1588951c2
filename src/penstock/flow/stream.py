"""Streams: what a user chains. Every call checks its rules at once and adds one operator to the flow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType, TimestampType

from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.rules import check_choice, check_function, check_stateless, check_width
from penstock.flow.schema import check_names, need_atomic, need_columns, parse
from penstock.flow.windowed import WindowedStream
from penstock.windows.time import Time

if TYPE_CHECKING:
    from penstock.flow.flow import Flow

REPLICAS_VARIABLE = "PENSTOCK_REPLICAS"
Function = Callable[..., Any]
Key = str | tuple[str, ...] | list[str]


def elastic(lo: int, hi: int) -> op.Width:
    """Let a farm have between `lo` and `hi` replicas; it starts with `lo` and a policy moves it.

    >>> elastic(1, 8)
    Width(lo=1, hi=8)
    """
    return check_width(op.Width(lo, hi), "elastic")


class Stream:
    """One stream of a flow: the rows that one port of one operator gives out."""

    def __init__(self, flow: Flow, port: str, schema: StructType, time: str | None, lost_by: str | None = None) -> None:
        self.flow, self.port, self.schema = flow, port, schema
        self.time, self._time_lost_by = time, lost_by

    def __repr__(self) -> str:
        return f"Stream({self.port!r}, {self.schema.simpleString()})"

    def map(self, fn: Function, schema: str | StructType | None = None, **farm: Any) -> Stream:
        """Apply `fn(pyarrow.RecordBatch) -> RecordBatch`; it may drop and multiply rows.

        Without `replicas` the step runs fused with its neighbours. With `replicas=n` or
        `replicas=ps.elastic(lo, hi)` it is a farm: chunks of `chunk` rows (1024) go to that many
        replicas, one call per chunk, by `scheduling="round_robin"` (one task per replica) or
        `"on_demand"` (more tasks than replicas, a free replica takes the next), and
        `partition="round_robin" | "key" | "broadcast"`. `ordered=True` gives results in the order of the
        input. `setup` runs once per worker process and what it returns becomes the second argument of
        `fn`; `teardown` gets it back at the end. `on_error="skip"` drops and counts the rows on which
        `fn` raises, `"dead_letter"` sends them to `.dead_letter`, `"stop"` (default) ends the job.
        """
        return self._mapped(op.Map, fn, schema, farm)

    def flat_map(self, fn: Function, schema: str | StructType | None = None, **farm: Any) -> Stream:
        """Apply `fn(RecordBatch)` that yields any number of RecordBatches; options as for `map`."""
        return self._mapped(op.FlatMap, fn, schema, farm)

    def filter(self, predicate: Function | str, name: str | None = None, on_error: op.OnError = "stop") -> Stream:
        """Keep the rows for which `predicate` holds: SQL text (runs in the JVM) or `fn(batch) -> booleans`."""
        if isinstance(predicate, str):
            text = predicate
            return self.sql(lambda frame: frame.where(text), name=name or "filter")
        name = self.flow._name(name, predicate, "filter")
        where = f"filter '{name}'"
        check_function(predicate, where)
        check_choice(on_error, ("stop", "skip"), where, "on_error")
        node = op.Filter(name, (self.port,), {name: self.schema}, fn=predicate, on_error=on_error)
        return self._add(node, self.schema)

    def sql(self, fn: Callable[[DataFrame], DataFrame], name: str | None = None) -> Stream:
        """Apply a stateless DataFrame -> DataFrame step (select, where, withColumn, ...) in the JVM."""
        name = self.flow._name(name, fn, "sql")
        where = f"sql '{name}'"
        check_function(fn, where)
        probe = self.flow._probe(self.schema)
        result = fn(probe)
        if not isinstance(result, DataFrame):
            raise FlowError(where, f"fn must return a DataFrame, got {type(result).__name__}", "return the DataFrame")
        check_stateless(result, where)
        schema = check_names(result.schema, where, allow_window=True)
        return self._add(op.Sql(name, (self.port,), {name: schema}, fn=fn), schema)

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Merge this stream with others of the same columns and types; no order between them is promised."""
        name = self.flow._name(name, None, "union")
        where = f"union '{name}'"
        if not others:
            raise FlowError(where, "a union has at least two streams", "pass the others as arguments")
        mine = [(f.name, f.dataType) for f in self.schema]
        for other in others:
            if other.flow is not self.flow:
                raise FlowError(where, f"'{other.port}' belongs to another flow", "read both in one flow")
            theirs = [(f.name, f.dataType) for f in other.schema]
            if theirs != mine:
                odd = next((b or a for a, b in _pairs(mine, theirs) if a != b), None)
                raise FlowError(where, f"'{other.port}' has other columns ({odd[0] if odd else '?'})", "map it to the same schema first")
        ports = (self.port, *(other.port for other in others))
        time = self.time if all(other.time == self.time for other in others) else None
        self.flow._operators[name] = op.Union(name, ports, {name: self.schema})
        return Stream(self.flow, name, self.schema, time, None if time else name)

    def split(self, *predicates: Function, rest: bool = False, name: str | None = None) -> tuple[Stream, ...]:
        """Split into one stream per predicate `fn(batch) -> booleans`: a row goes to the first that holds.

        Rows for which none holds are dropped, or with `rest=True` form one more stream at the end.
        """
        name = self.flow._name(name, None, "split")
        where = f"split '{name}'"
        if not predicates:
            raise FlowError(where, "a split has at least one predicate", "pass functions of a batch to booleans")
        for predicate in predicates:
            check_function(predicate, where)
        ports = [f"{name}.{i}" for i in range(len(predicates))] + ([f"{name}.rest"] if rest else [])
        node = op.Split(name, (self.port,), dict.fromkeys(ports, self.schema), predicates=predicates, rest=rest)
        self.flow._operators[name] = node
        return tuple(Stream(self.flow, port, self.schema, self.time, self._time_lost_by) for port in ports)

    def stateful(
        self,
        fn: Function,
        schema: str | StructType | None = None,
        state_schema: str | StructType | None = None,
        *,
        key: Key,
        name: str | None = None,
        replicas: int | op.Width | None = None,
    ) -> Stream:
        """Apply `fn(rows, state) -> (rows, state)` with state kept per key, exactly once.

        `rows` is a RecordBatch of many keys, each key's rows in order; `state` a `KeyedState`. The
        function must treat keys independently: which keys share a call changes with the width.
        """
        name = self.flow._name(name, fn, "stateful")
        where = f"stateful '{name}'"
        check_function(fn, where)
        keys = (key,) if isinstance(key, str) else tuple(key)
        need_columns(self.schema, keys, where, "key")
        need_atomic(self.schema, keys, where)
        if state_schema is None:
            raise FlowError(where, "state_schema is missing", "declare the state's columns, e.g. 'total double'")
        state = parse(state_schema, where)
        clash = set(state.names) & set(keys)
        if clash:
            raise FlowError(where, f"state column '{clash.pop()}' is also a key", "rename the state column")
        out = self.schema if schema is None else parse(schema, where)
        node = op.Stateful(
            name, (self.port,), {name: out}, fn=fn, key=keys, state_schema=state, width=self._width(replicas, where) or op.Width(1, 64)
        )
        return self._add(node, out)

    def window(self, spec: Time, key: Key | None = None, name: str | None = None) -> WindowedStream:
        """Cut the stream into windows per key; say what to compute with `.aggregate(...)` on the result."""
        name = self.flow._name(name, None, "window")
        where = f"window '{name}'"
        if not isinstance(spec, Time):
            raise FlowError(where, f"a window is ps.Time(...), got {type(spec).__name__}", "pass a window spec")
        keys = () if key is None else ((key,) if isinstance(key, str) else tuple(key))
        need_columns(self.schema, keys, where, "key")
        need_atomic(self.schema, keys, where)
        if self.time is None:
            lost = f"; '{self._time_lost_by}' lost it" if self._time_lost_by else ""
            raise FlowError(where, f"a Time window needs the event-time column{lost}", "name it in read(time=...) and keep it")
        return WindowedStream(self, spec, keys, name)

    def write(self, format: str, path: str | None = None, *, name: str | None = None, fn: Function | None = None, **options: Any) -> Stream:
        """Write the stream: any Spark file format with `path=`, or `memory`, `console`, `function` with `fn=`.

        `function` gets `fn(table, batch_id)`, at least once per batch. Options of a file format go to
        Spark's writer. Returns the stream, so that several sinks can be chained.
        """
        self.flow._add_sink(self, format, path, name, fn, options)
        return self

    def to_df(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the stream as a DataFrame; only for flows over batch DataFrames."""
        from penstock.engine.spark.batch import to_df  # noqa: PLC0415 - flow describes, the engine runs

        return to_df(self.flow, self.port, spark)

    @property
    def dead_letter(self) -> Stream:
        """The rows that `map(..., on_error="dead_letter")` could not process, with the error's text."""
        port = f"{self.port}.dead"
        owner = self.flow._operators.get(self.port)
        if owner is None or port not in owner.outputs:
            raise FlowError(f"'{self.port}'", "it has no dead letters", "pass on_error='dead_letter' to its map")
        return Stream(self.flow, port, owner.outputs[port], None, self.port)

    def _mapped(self, kind: type[op.Map], fn: Function, schema: str | StructType | None, farm: dict[str, Any]) -> Stream:
        name = self.flow._name(farm.pop("name", None), fn, "map" if kind is op.Map else "flat_map")
        where = f"map '{name}'"
        check_function(fn, where)
        width = self._width(farm.pop("replicas", None), where)
        out = self.schema if schema is None else parse(schema, where)
        key = farm.pop("key", ())
        options: dict[str, Any] = {"width": width, "key": (key,) if isinstance(key, str) else tuple(key)}
        choices = {
            "scheduling": ("round_robin", "on_demand"),
            "partition": ("round_robin", "key", "broadcast"),
            "latency_mode": ("read_ready", "read_write"),
            "on_error": ("stop", "skip", "dead_letter"),
        }
        for option, allowed in choices.items():
            if option in farm:
                options[option] = check_choice(farm.pop(option), allowed, where, option)
        for option in ("ordered", "chunk", "setup", "teardown"):
            if option in farm:
                options[option] = farm.pop(option)
        if farm:
            raise FlowError(where, f"unknown option '{next(iter(farm))}'", "see help(penstock.Stream.map)")
        self._check_farm(options, where)
        ports = {name: out}
        if options.get("on_error") == "dead_letter":
            ports[f"{name}.dead"] = StructType(self.schema.fields[:]).add("error", StringType())
            check_names(ports[f"{name}.dead"], where)
        return self._add(kind(name, (self.port,), ports, fn=fn, **options), out)

    def _check_farm(self, options: dict[str, Any], where: str) -> None:
        if options.get("chunk", 1) < 1:
            raise FlowError(where, f"chunk must be at least 1 row, got {options['chunk']}", "pass chunk=1024 or so")
        if options.get("teardown") and not options.get("setup"):
            raise FlowError(where, "teardown without setup has nothing to give back", "pass setup= as well")
        if options["width"] is None:
            for option in ("scheduling", "partition", "ordered"):
                if options.get(option) not in (None, False, "round_robin"):
                    raise FlowError(where, f"{option}= is for farms", "pass replicas= as well")
        by_key = options.get("partition") == "key"
        if by_key != bool(options["key"]):
            raise FlowError(where, "partition='key' and key= go together", "pass both or neither")
        if by_key:
            need_columns(self.schema, options["key"], where, "key")
            need_atomic(self.schema, options["key"], where)

    def _width(self, replicas: int | op.Width | str | None, where: str) -> op.Width | None:
        """Resolve `replicas=`; PENSTOCK_REPLICAS makes elastic and "env" farms static (003 F5)."""
        forced = os.environ.get(REPLICAS_VARIABLE)
        if isinstance(replicas, str) and replicas != "env":
            raise FlowError(where, f"replicas is a number, ps.elastic(lo, hi) or 'env', got {replicas!r}", "pass one of them")
        if replicas == "env" or (forced and isinstance(replicas, op.Width)):
            if not (forced or "1").isdigit() or int(forced or "1") < 1:
                raise FlowError(where, f"{REPLICAS_VARIABLE} must be a whole number of 1 or more, got {forced!r}", "set it so")
            fixed = int(forced or "1")
            return op.Width(fixed, fixed)
        if replicas is None:
            return None
        if isinstance(replicas, op.Width):
            return check_width(replicas, where)
        return check_width(op.Width(replicas, replicas), where)  # type: ignore[arg-type]

    def _add(self, node: op.Operator, schema: StructType) -> Stream:
        self.flow._operators[node.name] = node
        kept = (
            self.time is not None
            and self.time in schema.names
            and schema[self.time].dataType == self.schema[self.time].dataType
        )
        if kept or self.time is None:
            return Stream(self.flow, node.name, schema, self.time, self._time_lost_by)
        return Stream(self.flow, node.name, schema, None, node.name)


def _pairs(mine: list[Any], theirs: list[Any]) -> list[tuple[Any, Any]]:
    size = max(len(mine), len(theirs))
    return list(zip(mine + [None] * (size - len(mine)), theirs + [None] * (size - len(theirs)), strict=True))


def check_time_column(schema: StructType, time: str, where: str) -> None:
    """Refuse an event-time or arrival column that is missing or not a timestamp."""
    need_columns(schema, (time,), where, "time")
    if not isinstance(schema[time].dataType, TimestampType):
        kind = schema[time].dataType.simpleString()
        raise FlowError(where, f"column '{time}' is {kind}, event and arrival times are timestamps", f"cast it: to_timestamp({time})")
