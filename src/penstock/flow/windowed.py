"""A stream cut into windows: what to compute over each is said here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.schema import check_names
from penstock.windows.aggregates import Aggregate, Kind, bind
from penstock.windows.time import Time

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

WINDOW = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])


class WindowedStream:
    """A stream with a window; `aggregate` names the results."""

    def __init__(self, stream: Stream, spec: Time, key: tuple[str, ...], name: str | None) -> None:
        self.stream, self.spec, self.key, self.name = stream, spec, key, name

    def aggregate(self, **named: Aggregate) -> Stream:
        """Compute aggregates per window, one output column each: `aggregate(total=ps.sum("price"), n=ps.count())`.

        A result row has the key columns, `window` (struct `start`, `end`), then the outputs.
        """
        stream = self.stream
        operator = stream.flow._name(self.name, None, "window")
        where = f"window '{operator}'"
        if not named:
            raise FlowError(where, "aggregate() names at least one result", "e.g. aggregate(n=ps.count())")
        for name, aggregate in named.items():
            if not isinstance(aggregate, Aggregate):
                rule = f"{name}= is not an aggregate but {type(aggregate).__name__}"
                raise FlowError(where, rule, "use ps.sum, ps.count, ...")
            if name.lower() in (*(key.lower() for key in self.key), "window"):
                raise FlowError(where, f"the result name '{name}' is taken by the key or the window", "choose another")
        outputs = bind(named, {field.name: input_kind(field.dataType) for field in stream.schema}, where)
        fields = [stream.schema[name] for name in self.key]
        fields.append(StructField("window", WINDOW))
        fields += [StructField(o.name, DoubleType() if o.kind == "double" else LongType()) for o in outputs]
        out = check_names(StructType(fields), where, allow_window=True)
        assert stream.time is not None
        node = op.Window(
            operator,
            (stream.port,),
            {operator: out},
            spec=self.spec,
            key=self.key,
            time=stream.time,
            aggregates=outputs,
        )
        stream.flow._operators[operator] = node
        return type(stream)(stream.flow, operator, out, None, operator)


def input_kind(kind: DataType) -> Kind:
    """Return how an aggregate sees a column: "long", "double" or "other".

    >>> input_kind(ShortType()), input_kind(FloatType()), input_kind(TimestampType())
    ('long', 'double', 'other')
    """
    if isinstance(kind, (ByteType, ShortType, IntegerType, LongType)):
        return "long"
    return "double" if isinstance(kind, (FloatType, DoubleType)) else "other"
