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
from penstock.windows.aggregates import Aggregate, Kind, bind
from penstock.windows.time import Time

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

WINDOW = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])


class WindowedStream:
    """A stream with a window; `aggregate` names the results."""

    def __init__(self, stream: Stream, spec: Time, key: tuple[str, ...], name: str) -> None:
        self.stream, self.spec, self.key, self.name = stream, spec, key, name

    def aggregate(self, **named: Aggregate) -> Stream:
        """Compute aggregates per window, one output column each: `aggregate(total=ps.sum("price"), n=ps.count())`.

        A result row has the key columns, `window` (struct `start`, `end`), then the outputs.
        """
        where = f"window '{self.name}'"
        if not named:
            raise FlowError(where, "aggregate() names at least one result", 'e.g. aggregate(n=ps.count())')
        fields = [self.stream.schema[name] for name in self.key]
        fields.append(StructField("window", WINDOW))
        taken = {*self.key, "window"}
        for name, aggregate in named.items():
            if not isinstance(aggregate, Aggregate):
                raise FlowError(where, f"{name}= is not an aggregate", "use ps.sum, ps.count, ...")
            if name in taken or name.startswith("_ps_"):
                raise FlowError(where, f"the result name '{name}' is taken", "choose another")
            taken.add(name)
        outputs = bind(named, {field.name: input_kind(field.dataType) for field in self.stream.schema}, where)
        fields += [StructField(o.name, DoubleType() if o.kind == "double" else LongType()) for o in outputs]
        out = StructType(fields)
        stream = self.stream
        assert stream.time is not None
        node = op.Window(
            self.name, (stream.port,), {self.name: out}, spec=self.spec, key=self.key, time=stream.time, aggregates=outputs
        )
        stream.flow._operators[self.name] = node
        from penstock.flow.stream import Stream as StreamClass  # noqa: PLC0415 - the two name each other

        return StreamClass(stream.flow, self.name, out, None, self.name)


def input_kind(kind: DataType) -> Kind:
    """Return how an aggregate sees a column: "long", "double" or "other"."""
    if isinstance(kind, (ByteType, ShortType, IntegerType, LongType)):
        return "long"
    return "double" if isinstance(kind, (FloatType, DoubleType)) else "other"
