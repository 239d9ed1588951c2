"""Measures of one column: counts, sums, the least and the greatest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.windows.aggregates.base import (
    DOUBLE,
    LONG,
    Column,
    Measure,
    Partial,
    State,
    numbers,
    sql_name,
    validity,
)
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.kernels.ranks import order_codes
from penstock.windows.scans import Arrays


class _Added(Measure):
    """One long column, never null, added without overflow: a number of rows."""

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        return (ranges.add_longs(arrays[0]),)

    def over(self, state: State, ranges: Ranges) -> State:
        return State(self.combine(state.arrays, ranges))  # no rows: 0, not null

    def read(self, log: pa.Table) -> State:
        return State((numbers(log, self.partials[0].name, "long").values,))

    def write(self, state: State) -> list[pa.Array]:
        return [pa.array(state.arrays[0], LONG)]


@dataclass(frozen=True)
class Count(_Added):
    """How many rows, or how many non-null values of a column.

    >>> Count("x").lift(pa.table({"x": [7, None]})).arrays[0]
    array([1, 0])
    """

    column: str | None = None

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The count."""
        text = "count(1)" if self.column is None else f"count({sql_name(self.column)})"
        return (Partial("count", self.column, LONG, text),)

    def lift(self, rows: pa.Table) -> State:
        """Return 1 for a row that counts."""
        valid = None if self.column is None else validity(rows.column(self.column))
        ones = np.ones(rows.num_rows, dtype=np.int64) if valid is None else valid.astype(np.int64)
        return State((ones,))


@dataclass(frozen=True)
class InBin(_Added):
    """How many values lie in [low, high), or in [low, high] for the last bin of a histogram.

    >>> InBin("x", 0.0, 1.0, False).lift(pa.table({"x": [0.0, 1.0, None, float("nan")]})).arrays[0]
    array([1, 0, 0, 0])
    """

    column: str
    low: float
    high: float
    closed: bool

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The count."""
        value, upper = f"cast({sql_name(self.column)} as double)", "<=" if self.closed else "<"
        text = f"count_if({value} >= {_double(self.low)} and {value} {upper} {_double(self.high)})"
        bounds = f"{self.low!r}_{self.high!r}{'_closed' if self.closed else ''}"
        return (Partial(f"bin_{bounds}", self.column, LONG, text),)

    def lift(self, rows: pa.Table) -> State:
        """Return 1 for a value in the bin."""
        column = numbers(rows, self.column, "double")
        x = column.values
        inside = (x >= self.low) & ((x <= self.high) if self.closed else (x < self.high))
        if column.valid is not None:
            inside &= column.valid
        return State((inside.astype(np.int64),))


def _double(value: float) -> str:
    """Return SQL text for a double, exactly."""
    if np.isinf(value):
        return f"double('{'-' if value < 0 else ''}Infinity')"
    return f"{value!r}D" if "e" not in repr(value) else f"double('{value!r}')"


@dataclass(frozen=True)
class Total(Measure):
    """The sum of a column's non-null values, as longs or as doubles.

    >>> total = Total("x", "double")
    >>> total.over(total.lift(pa.table({"x": [1, None, 4]})), Ranges.runs(3, np.array([0, 2]))).arrays[0]
    array([1., 4.])
    """

    column: str
    kind: Literal["long", "double"]

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The sum; null if there is nothing to add."""
        kind, given = ("bigint", LONG) if self.kind == "long" else ("double", DOUBLE)
        return (Partial("sum", self.column, given, f"sum(cast({sql_name(self.column)} as {kind}))"),)

    def lift(self, rows: pa.Table) -> State:
        """Return the values."""
        return self._state(numbers(rows, self.column, self.kind))

    def read(self, log: pa.Table) -> State:
        """Return the sums."""
        return self._state(numbers(log, self.partials[0].name, self.kind))

    @staticmethod
    def _state(column: Column) -> State:
        return State((column.values,), column.valid)

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        """Add: longs by exact differences of prefixes, doubles by scans of blocks."""
        if self.kind == "long":
            return (ranges.add_longs(arrays[0], f"sum({self.column!r})"),)
        return (ranges.fold(arrays[0], np.add),)

    def write(self, state: State) -> list[pa.Array]:
        """Return the sums."""
        return [Column(state.arrays[0], state.valid).arrow(self.partials[0].type)]


@dataclass(frozen=True)
class Extreme(Measure):
    """The least or the greatest non-null value of a column of any type with an order; NaN is the greatest.

    >>> least = Extreme("min", "x", pa.string())
    >>> least.write(least.over(least.lift(pa.table({"x": ["b", None, "a"]})), Ranges.runs(3, np.array([0]))))[0][0]
    <pyarrow.StringScalar: 'a'>
    """

    function: Literal["min", "max"]
    column: str
    type: pa.DataType

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The value, in the column's own type."""
        return (Partial(self.function, self.column, self.type, f"{self.function}({sql_name(self.column)})"),)

    def lift(self, rows: pa.Table) -> State:
        """Return the values."""
        return self._state(rows.column(self.column))

    def read(self, log: pa.Table) -> State:
        """Return the values."""
        return self._state(log.column(self.partials[0].name))

    def _state(self, column: pa.ChunkedArray) -> State:
        valid = validity(column)
        dense = column.combine_chunks() if valid is None else column.drop_null().combine_chunks()
        values, source = comparable(dense)
        if valid is None:
            return State((values,), None, source)
        spread = np.zeros(len(valid), dtype=values.dtype)
        spread[valid] = values
        return State((spread,), valid, source)

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        """Select: `fmin` passes over NaN and `maximum` keeps it, so it is the greatest for both."""
        if self.function == "max":
            return (ranges.fold(arrays[0], np.maximum),)
        return (ranges.fold(arrays[0], np.fmin if arrays[0].dtype.kind == "f" else np.minimum),)

    def write(self, state: State) -> list[pa.Array]:
        """Return the values in the column's type."""
        if state.source is None:
            return [Column(state.arrays[0], state.valid).arrow(self.type)]
        places = Column(state.arrays[0], state.valid).arrow(LONG)
        if not len(state.source):
            return [pa.nulls(len(state), self.type)]
        return [state.source.take(places).cast(self.type)]


def comparable(values: pa.Array) -> tuple[NDArray[Any], pa.Array | None]:
    """Return non-null values as numbers in the same order; if these are only places, also the values themselves.

    >>> comparable(pa.array(["b", "a"]))[0], comparable(pa.array([True, False]))[0]
    (array([1, 0]), array([1, 0]))
    """
    kind = values.type
    if pa.types.is_floating(kind):
        return values.cast(DOUBLE).to_numpy(zero_copy_only=False), None
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(LONG).to_numpy(), None
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        return values.cast(LONG).to_numpy(), None
    return order_codes(values)
