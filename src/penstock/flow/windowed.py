"""A stream cut into windows: what to compute over each is said here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.rules import check_function
from penstock.flow.schema import check_names, parse
from penstock.patterns.choice import choose
from penstock.windows.aggregates import Aggregate, Kind, Output, bind
from penstock.windows.aggregates import Function as Aggregated
from penstock.windows.kinds import WindowSpec
from penstock.windows.time import Time

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

TIMES = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])
POSITIONS = StructType([StructField("start", LongType()), StructField("end", LongType())])
DETAILS = StructType(
    [
        StructField("id", LongType()),
        StructField("rows", LongType()),
        StructField("task", IntegerType()),
        StructField("calculation_s", DoubleType()),
        StructField("fired", TimestampType()),
    ]
)
Function = Callable[..., Any]


class WindowedStream:
    """A stream with a window; `aggregate` or `apply` say what is computed over each.

    A result row has the key columns, `window` (struct `start`, `end`: times for Time windows, positions of tuples, both
    inclusive, for Count and Delta), then the outputs. With `details=True` a struct `details` comes last: the window's
    id, its rows, the task, the calculation time and when it fired.
    """

    def __init__(
        self,
        stream: Stream,
        spec: WindowSpec,
        key: tuple[str, ...],
        name: str | None,
        *,
        order: tuple[str, ...] = (),
        pattern: str | None = None,
        details: bool = False,
        width: op.Width | None = None,
    ) -> None:
        self.stream, self.spec, self.key, self.name = stream, spec, key, name
        self.order, self.pattern, self.details = order, pattern, details
        self.width = width or op.Width(1, op.MAX_KEYED_WIDTH)

    def aggregate(self, **named: Aggregated) -> Stream:
        """Compute aggregates per window, one output column each: `aggregate(total=ps.sum("price"), n=ps.count())`."""
        operator = self.stream.flow._name(self.name, None, "window")
        where = f"window '{operator}'"
        if not named:
            raise FlowError(where, "aggregate() names at least one result", "e.g. aggregate(n=ps.count())")
        for name, aggregate in named.items():
            if not isinstance(aggregate, Aggregated):
                rule = f"{name}= is not an aggregate but {type(aggregate).__name__}"
                raise FlowError(where, rule, "use ps.sum, ps.count, ...")
            self._check_free(name, where)
        typed = {name: with_type(aggregate, where) for name, aggregate in named.items()}
        outputs = bind(typed, {field.name: input_type(field.dataType) for field in self.stream.schema}, where)
        fields = [StructField(o.name, from_arrow_type(o.type)) for o in outputs]
        return self._add(operator, fields, where, aggregates=outputs)

    def apply(
        self,
        fn: Function | None = None,
        schema: str | StructType | None = None,
        *,
        pane: Function | None = None,
        combine: Function | None = None,
    ) -> Stream:
        """Compute any function of a window's content: `apply(fit, "slope double, error double")`.

        `fn(window)` gets a `Window` and returns a dict (one row), None, a list of dicts or an Arrow table, of the
        columns that `schema` declares. Where the function can be put together from parts, `apply(pane=G, combine=H,
        schema=...)` is cheaper: `G(pane)` is called once for each pane, `H(results, window)` for each window with the
        results of its panes in order; F(window) = H([G(pane), ...]) must hold for every way to cut the window.
        """
        given = fn or pane
        operator = self.stream.flow._name(self.name, given if callable(given) else None, "window")
        where = f"window '{operator}'"
        if (pane is None) != (combine is None):
            raise FlowError(where, "pane= and combine= go together", "pass both, or a function of the whole window")
        if (fn is None) == (pane is None):
            raise FlowError(where, "apply() takes either a function or pane= and combine=", "pass one of the two")
        for function in (fn, pane, combine):
            if function is not None:
                check_function(function, where)
        if schema is None:
            raise FlowError(where, "schema is missing", "declare the columns returned, e.g. 'slope double'")
        declared = parse(schema, where)
        for name in declared.names:
            self._check_free(name, where)
        return self._add(operator, list(declared.fields), where, fn=fn, pane=pane, combine=combine)

    def _check_free(self, name: str, where: str) -> None:
        taken = [*(key.lower() for key in self.key), "window", *(["details"] if self.details else [])]
        if name.lower() in taken:
            raise FlowError(where, f"the result name '{name}' is taken by the key or the window", "choose another")

    def _add(
        self,
        operator: str,
        fields: list[StructField],
        where: str,
        *,
        aggregates: tuple[Output, ...] = (),
        fn: Function | None = None,
        pane: Function | None = None,
        combine: Function | None = None,
    ) -> Stream:
        stream, timed = self.stream, isinstance(self.spec, Time)
        path = choose(self.spec, aggregates, has_function=fn is not None, pattern=self.pattern, where=where)
        head = [stream.schema[name] for name in self.key]
        tail = [StructField("details", DETAILS)] if self.details else []
        out = StructType([*head, StructField("window", TIMES if timed else POSITIONS), *fields, *tail])
        check_names(out, where, allow_window=True)
        # Where rows themselves reach the operator it gives out the late ones; native panes are made before it.
        late = {f"{operator}.late": stream.schema} if path != "native" and stream.time is not None else {}
        stream.flow._operators[operator] = op.Window(
            operator,
            (stream.port,),
            {operator: out, **late},
            spec=self.spec,
            key=self.key,
            time=stream.time,
            order=self.order,
            aggregates=aggregates,
            fn=fn,
            pane=pane,
            combine=combine,
            details=self.details,
            path=path,
            width=self.width,
        )
        # The event time of a result is window.end - 1 microsecond, so that windows chain.
        return type(stream)(stream.flow, operator, out, "window" if timed else None, None if timed else operator)


def input_type(kind: DataType) -> pa.DataType | Kind:
    """Return how an aggregate sees a column: its Arrow type, or "other" if it has none.

    >>> input_type(IntegerType()), input_type(DataType())
    (DataType(int32), 'other')
    """
    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return "other"


def with_type(aggregate: Aggregated, where: str) -> Aggregated:
    """Return an aggregate whose result type, if written as DDL text, is the type that it means."""
    if not isinstance(aggregate, Aggregate) or not isinstance(aggregate.result_, str):
        return aggregate
    given = parse(f"result {aggregate.result_}", where, role=f"result of {aggregate.name}")
    return aggregate.with_result(to_arrow_type(given["result"].dataType, timezone="UTC"))
