"""Streams: what a user chains. Every call checks its rules at once and adds one operator to the flow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, FractionalType, IntegralType, StringType, StructType, TimestampType

from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.rules import check_choice, check_function, check_known, check_stateless, check_width
from penstock.flow.schema import check_names, columns_text, first_line, need_columns, need_keys, parse
from penstock.flow.windowed import WindowedStream
from penstock.windows.count import Count
from penstock.windows.delta import Delta
from penstock.windows.kinds import WindowSpec
from penstock.windows.time import Time

if TYPE_CHECKING:
    from penstock.flow.flow import Flow

REPLICAS_VARIABLE = "PENSTOCK_REPLICAS"
CHOICES = {
    "scheduling": ("round_robin", "on_demand"),
    "partition": ("round_robin", "key", "broadcast"),
    "latency_mode": ("read_ready", "read_write"),
    "on_error": ("stop", "skip", "dead_letter"),
}
MAP_OPTIONS = (*CHOICES, "name", "replicas", "ordered", "key", "chunk", "setup", "teardown")
Function = Callable[..., Any]
Key = str | tuple[str, ...] | list[str]


def elastic(lo: int, hi: int) -> op.Width:
    """Let a farm have between `lo` and `hi` replicas; it starts with `lo` and a policy moves it.

    >>> elastic(1, 8)
    Width(lo=1, hi=8)
    >>> elastic(3, 2)
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: replicas: elastic(3, 2): the lower limit is above the upper. Remedy: swap them.
    """
    return check_width(op.Width(lo, hi), "replicas")


class Stream:
    """One stream of a flow: the rows that one port of one operator gives out."""

    def __init__(self, flow: Flow, port: str, schema: StructType, time: str | None, lost_by: str | None = None) -> None:
        self.flow, self.port, self.schema = flow, port, schema
        self.time, self._time_lost_by = time, lost_by

    def __repr__(self) -> str:
        return f"Stream({self.port!r}, {columns_text(self.schema)!r})"

    def map(self, fn: Function, schema: str | StructType | None = None, **farm: Any) -> Stream:
        """Apply `fn(pyarrow.RecordBatch) -> RecordBatch`; it may drop and multiply rows.

        Without `replicas` the step runs fused with its neighbours. With `replicas=n` or
        `replicas=ps.elastic(lo, hi)` it is a farm: chunks of `chunk` rows (1024) go to that many
        replicas, one call per chunk, by `scheduling="round_robin"` (one task per replica) or
        `"on_demand"` (more tasks than replicas, a free replica takes the next), and
        `partition="round_robin" | "key" | "broadcast"`; `"key"` needs `key=`. `ordered=True` gives results
        in the order of the input. `setup` runs once per worker process and what it returns becomes the
        second argument of `fn`; `teardown` gets it back at the end. `on_error="skip"` drops and counts the
        rows on which `fn` raises, `"dead_letter"` sends them to `.dead_letter`, `"stop"` (default) ends the
        job. `replicas="env"` takes the number from PENSTOCK_REPLICAS, which also fixes elastic farms.
        """
        return self._mapped(op.Map, "map", fn, schema, farm)

    def flat_map(self, fn: Function, schema: str | StructType | None = None, **farm: Any) -> Stream:
        """Apply `fn(RecordBatch)` that yields any number of RecordBatches; options as for `map`."""
        return self._mapped(op.FlatMap, "flat_map", fn, schema, farm)

    def filter(self, predicate: Function | str, name: str | None = None, on_error: op.OnError = "stop") -> Stream:
        """Keep the rows for which `predicate` holds: SQL text (runs in the JVM) or `fn(batch) -> booleans`."""
        if isinstance(predicate, str):
            text = predicate
            if on_error != "stop":
                where = f"filter '{name or text}'"
                raise FlowError(where, "on_error= is for predicates in Python", "leave it out, or pass a function")
            return self._sql(lambda frame: frame.where(text), self.flow._name(name, None, "filter"), "filter")
        name = self.flow._name(name, predicate, "filter")
        where = f"filter '{name}'"
        check_function(predicate, where, "a function or SQL text")
        check_choice(on_error, ("stop", "skip"), where, "on_error")
        node = op.Filter(name, (self.port,), {name: self.schema}, fn=predicate, on_error=on_error)
        return self._add(node, self.schema)

    def sql(self, fn: Callable[[DataFrame], DataFrame], name: str | None = None) -> Stream:
        """Apply a stateless DataFrame -> DataFrame step (select, where, withColumn, ...) in the JVM."""
        return self._sql(fn, self.flow._name(name, fn, "sql"), "sql")

    def _sql(self, fn: Callable[[DataFrame], DataFrame], name: str, word: str) -> Stream:
        where = f"{word} '{name}'"
        check_function(fn, where, "a function of a DataFrame")
        probe = self.flow._probe(self.schema)
        try:
            result = fn(probe)
        except Exception as error:
            rule = f"it fails on this stream's columns ({columns_text(self.schema)}): {first_line(error)}"
            raise FlowError(where, rule, "use the columns that there are") from error
        if not isinstance(result, DataFrame):
            raise FlowError(where, f"fn must return a DataFrame, got {type(result).__name__}", "return the DataFrame")
        check_stateless(result, probe, where)
        schema = check_names(result.schema, where, self._has_window)
        return self._add(op.Sql(name, (self.port,), {name: schema}, fn=fn), schema)

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Merge this stream with others of the same columns and types; no order between them is promised."""
        name = self.flow._name(name, None, "union")
        where = f"union '{name}'"
        if not others:
            raise FlowError(where, "a union has at least two streams", "pass the others as arguments")
        for other in others:
            if not isinstance(other, Stream):
                raise FlowError(where, f"a stream is expected, got {type(other).__name__}", "pass streams of this flow")
            if other.flow is not self.flow:
                rule = f"'{other.port}' belongs to another flow, '{other.flow.name}'"
                raise FlowError(where, rule, "read both in one flow")
            difference = _difference(self.schema, other.schema)
            if difference:
                rule = f"'{self.port}' and '{other.port}' differ: {difference}"
                raise FlowError(where, rule, "bring them to the same columns and types first")
        streams = (self, *others)
        self.flow._operators[name] = op.Union(name, tuple(s.port for s in streams), {name: self.schema})
        if all(s.time == self.time for s in streams):
            lost_by = next((s._time_lost_by for s in streams if s._time_lost_by), None)
            return Stream(self.flow, name, self.schema, self.time, lost_by)
        lost_by = next((s._time_lost_by for s in streams if s.time is None and s._time_lost_by), name)
        return Stream(self.flow, name, self.schema, None, lost_by)

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
        replicas: int | op.Width | str | None = None,
    ) -> Stream:
        """Apply `fn(rows, state) -> (rows, state)` with state kept per key, exactly once.

        `rows` is a RecordBatch of many keys, each key's rows in order; `state` a `KeyedState`. The
        function must treat keys independently: which keys share a call changes with the width.
        """
        name = self.flow._name(name, fn, "stateful")
        where = f"stateful '{name}'"
        check_function(fn, where)
        keys = _keys(key, where)
        if not keys:
            raise FlowError(where, "state is kept per key, and there is none", "name at least one key column")
        need_keys(self.schema, keys, where)
        if state_schema is None:
            raise FlowError(where, "state_schema is missing", "declare the state's columns, e.g. 'total double'")
        state = parse(state_schema, where, allow_window=True, role="state_schema")
        lower = {key.lower() for key in keys}
        for column in state.names:
            if column.lower() in lower:
                raise FlowError(where, f"state column '{column}' is also a key", "rename the state column")
        out = self.schema if schema is None else parse(schema, where, allow_window=self._has_window)
        width = self._width(replicas, where, keyed=True) or op.Width(1, op.MAX_KEYED_WIDTH)
        node = op.Stateful(name, (self.port,), {name: out}, fn=fn, key=keys, state_schema=state, width=width)
        return self._add(node, out)

    def window(
        self,
        spec: WindowSpec,
        key: Key | None = None,
        name: str | None = None,
        *,
        order: Key = (),
        pattern: str | None = None,
        details: bool = False,
        replicas: int | op.Width | str | None = None,
    ) -> WindowedStream:
        """Cut the stream into windows per key; say what to compute with `.aggregate(...)` or `.apply(...)`.

        `spec` is `ps.Time`, `ps.Count` or `ps.Delta`. Without a key all rows are of one key. Where the result depends
        on the order of rows, it is that of event time, then of the columns named by `order`, then of the other columns;
        on a stream without event time, that in which rows were read. `pattern="key"` or `"pane"` overrides the choice
        of pattern. `details=True` adds a struct with the window's id, rows, task, calculation time and fire time.
        """
        where = f"window '{self.flow._name(name, None, 'window')}'"
        if not isinstance(spec, (Time, Count, Delta)):
            rule = f"a window is ps.Time(...), ps.Count(...) or ps.Delta(...), got {type(spec).__name__}"
            raise FlowError(where, rule, "pass a window spec")
        keys = () if key is None else _keys(key, where)
        need_keys(self.schema, keys, where)
        if self.time is None and isinstance(spec, Time):
            lost = f", and '{self._time_lost_by}' lost it" if self._time_lost_by else ", and read() named none"
            remedy = "keep the column, name and type" if self._time_lost_by else "name it in read(df, time=...)"
            raise FlowError(where, f"a Time window needs the event-time column{lost}", remedy)
        if not isinstance(details, bool):
            raise FlowError(where, f"details is True or False, got {details!r}", "pass one of them")
        if isinstance(spec, Delta):
            check_delta(self.schema, spec.column, where)
        by = _keys(order, where)
        need_columns(self.schema, by, where, "order")
        if by and self.time is None:
            raise FlowError(where, "order= breaks ties of event time, and there is none", "name it in read(df, time=)")
        width = self._width(replicas, where, keyed=True)
        return WindowedStream(self, spec, keys, name, order=by, pattern=pattern, details=details, width=width)

    @property
    def late(self) -> Stream:
        """The rows that missed a window of this stream's window operator, each once; rows without event time, too.

        Nothing is dropped silently: rows that nobody reads here are counted in the report all the same.
        """
        window = self.flow._operators.get(self.port)
        if not isinstance(window, op.Window):
            raise FlowError(f"'{self.port}'", "late rows are those of a window's result", "use .late right behind it")
        if window.time is None:
            rule = "a window without event time has no late rows"
            raise FlowError(f"window '{window.name}'", rule, "name the event time in read(df, time=...)")
        source, port = window.inputs[0], f"{window.name}.late"
        if port in window.outputs:
            return Stream(self.flow, port, window.outputs[port], window.time)
        name = f"{window.name}_late"
        if name not in self.flow._operators:
            schema = self.flow._operators[op.owner(source)].outputs[source]
            node = op.Late(name, (source,), {name: schema}, window=window.name, spec=window.spec, time=window.time)
            self.flow._operators[name] = node
        return Stream(self.flow, name, self.flow._operators[name].outputs[name], window.time)

    def write(
        self,
        format: str,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        fn: Function | None = None,
        **options: Any,
    ) -> Stream:
        """Write the stream: any Spark file format with `path=`, or `memory`, `console`, `function` with `fn=`.

        `function` gets `fn(table, batch_id)`, at least once per batch. Options of a file format go to its
        writer, `console` takes `rows=`. Returns the stream, so that several sinks can be chained.
        """
        self.flow._add_sink(self, format, path, name=name, fn=fn, options=options)
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
        return Stream(self.flow, port, owner.outputs[port], None, port)

    @property
    def _has_window(self) -> bool:
        return "window" in self.schema.names

    def _mapped(
        self, kind: type[op.Map], word: str, fn: Function, schema: str | StructType | None, farm: dict[str, Any]
    ) -> Stream:
        name = self.flow._name(farm.pop("name", None), fn, word)
        where = f"{word} '{name}'"
        check_function(fn, where)
        check_known(farm, MAP_OPTIONS, where)
        for option, allowed in CHOICES.items():
            if option in farm:
                check_choice(farm[option], allowed, where, option)
        out = self.schema if schema is None else parse(schema, where, allow_window=self._has_window)
        options = {option: value for option, value in farm.items() if option not in ("replicas", "key")}
        options["width"] = self._width(farm.get("replicas"), where)
        options["key"] = _keys(farm.get("key") or (), where)
        self._check_farm(options, where)
        ports = {name: out}
        if options.get("on_error") == "dead_letter":
            if "error" in (column.lower() for column in self.schema.names):
                rule = "dead letters carry the error's text in a column 'error', which the stream has already"
                raise FlowError(where, rule, "rename that column before")
            ports[f"{name}.dead"] = StructType(self.schema.fields[:]).add("error", StringType())
        return self._add(kind(name, (self.port,), ports, fn=fn, **options), out)

    def _check_farm(self, options: dict[str, Any], where: str) -> None:
        chunk = options.get("chunk", op.DEFAULT_CHUNK)
        if not isinstance(chunk, int) or isinstance(chunk, bool) or not 1 <= chunk <= op.MAX_CHUNK:
            rule = f"chunk is a whole number of rows from 1 to {op.MAX_CHUNK}, got {chunk!r}"
            raise FlowError(where, rule, f"pass chunk={op.DEFAULT_CHUNK} or so")
        if not isinstance(options.get("ordered", False), bool):
            raise FlowError(where, f"ordered is True or False, got {options['ordered']!r}", "pass one of them")
        for option in ("setup", "teardown"):
            if options.get(option) is not None:
                check_function(options[option], where, f"a function for {option}=")
        if options.get("teardown") and not options.get("setup"):
            raise FlowError(where, "teardown without setup has nothing to give back", "pass setup= as well")
        if options["width"] is None:
            defaults = {"scheduling": "round_robin", "partition": "round_robin", "ordered": False, "chunk": None}
            for option, default in defaults.items():
                if options.get(option, default) != default:
                    raise FlowError(where, f"{option}= is for farms", "pass replicas= as well")
        by_key = options.get("partition") == "key"
        if by_key and options.get("ordered"):
            rule = "partition='key' spreads a chunk over replicas, so ordered=True cannot be kept"
            raise FlowError(where, rule, "drop one of them; each key's rows stay in order")
        if options.get("partition") == "broadcast" and options.get("scheduling") == "on_demand":
            rule = "partition='broadcast' gives every replica every row, so there is nothing to take on demand"
            raise FlowError(where, rule, "drop scheduling='on_demand'")
        if by_key and not options["key"]:
            raise FlowError(where, "partition='key' needs the key", "pass key='column' as well")
        if options["key"] and not by_key:
            raise FlowError(where, "key= is for partition='key'", "pass partition='key' as well, or use stateful()")
        need_keys(self.schema, options["key"], where)

    def _width(self, replicas: Any, where: str, keyed: bool = False) -> op.Width | None:
        """Resolve `replicas=`; PENSTOCK_REPLICAS makes elastic and "env" farms static (003 F5)."""
        forced = os.environ.get(REPLICAS_VARIABLE)
        if isinstance(replicas, str) and replicas != "env":
            rule = f"replicas is a number, ps.elastic(lo, hi) or 'env', got {replicas!r}"
            raise FlowError(where, rule, "pass one of them")
        if replicas == "env" or (forced and isinstance(replicas, op.Width)):
            text = (forced or "1").strip()
            if not text.isdecimal() or int(text) < 1:
                rule = f"{REPLICAS_VARIABLE} must be a whole number of 1 or more, got {forced!r}"
                raise FlowError(where, rule, "set it so, or unset it")
            return check_width(op.Width(int(text), int(text)), where, keyed)
        if replicas is None:
            return None
        return check_width(replicas if isinstance(replicas, op.Width) else op.Width(replicas, replicas), where, keyed)

    def _add(self, node: op.Operator, schema: StructType) -> Stream:
        self.flow._operators[node.name] = node
        if self.time is None:
            return Stream(self.flow, node.name, schema, None, self._time_lost_by)
        kept = self.time in schema.names and schema[self.time].dataType == self.schema[self.time].dataType
        return Stream(self.flow, node.name, schema, self.time if kept else None, None if kept else node.name)


def _keys(key: Any, where: str) -> tuple[str, ...]:
    keys = (key,) if isinstance(key, str) else key
    if not isinstance(keys, (tuple, list)) or not all(isinstance(name, str) for name in keys):
        raise FlowError(where, f"key is a column name or a tuple of them, got {key!r}", "pass key='column'")
    return tuple(keys)


def _difference(mine: StructType, theirs: StructType) -> str | None:
    """Say where two schemas differ first; whether a column may be null makes no difference.

    >>> _difference(StructType().add("a", "long"), StructType().add("a", "string"))
    "column 0 is 'a bigint' and 'a string'"
    """
    left, right = ([columns_text(StructType([field])) for field in schema.fields] for schema in (mine, theirs))
    for number in range(max(len(left), len(right))):
        a, b = (repr(side[number]) if number < len(side) else "missing" for side in (left, right))
        if a != b:
            return f"column {number} is {a} and {b}"
    return None


def check_delta(schema: StructType, column: str, where: str) -> None:
    """Refuse a Delta window over a column that is missing or not a number."""
    need_columns(schema, (column,), where, "Delta")
    if not isinstance(schema[column].dataType, (IntegralType, FractionalType)) or isinstance(
        schema[column].dataType, DecimalType
    ):
        rule = f"Delta measures a number, and column '{column}' is {schema[column].dataType.simpleString()}"
        raise FlowError(where, rule, "name an integer or floating column, or cast it before")


def check_time_column(schema: StructType, column: str, where: str, role: str) -> None:
    """Refuse an event-time or arrival column that is missing or not a timestamp."""
    need_columns(schema, (column,), where, role)
    if not isinstance(schema[column].dataType, TimestampType):
        rule = f"{role} column '{column}' is {schema[column].dataType.simpleString()}, not a timestamp"
        raise FlowError(
            where, rule, f"cast it before read: df.withColumn({column!r}, F.col({column!r}).cast('timestamp'))"
        )
