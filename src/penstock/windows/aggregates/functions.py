"""Aggregates whose partials combine: sum, count, mean, min, max, var, std, covariance, regression, histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.errors import FlowError
from penstock.windows.aggregates.base import (
    DOUBLE,
    LONG,
    Column,
    Function,
    Measure,
    State,
    Types,
    both,
    kind_of,
    need_numbers,
    need_order,
)
from penstock.windows.aggregates.measures import Count, Extreme, InBin, Total
from penstock.windows.aggregates.moments import Comoments, Moments
from penstock.windows.scans import Doubles

MAX_BINS = 256  # each bin is a column of the pane log and of Spark's plan
LINE = pa.struct([("slope", DOUBLE), ("intercept", DOUBLE), ("r2", DOUBLE)])


@dataclass(frozen=True)
class _OfOne(Function):
    """A function of one column of numbers."""

    of: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.of,)

    def check(self, types: Types, where: str) -> None:
        need_numbers(self, types, where)


class Sum(_OfOne):
    """See `sum`."""

    name = "sum"

    def result(self, types: Types) -> pa.DataType:
        """A long of integers, a double of floats."""
        return LONG if kind_of(types[0]) == "long" else DOUBLE

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """The total."""
        return (Total(self.of, "long" if kind_of(types[0]) == "long" else "double"),)

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """The total itself."""
        return Column(states[0].arrays[0], states[0].valid).arrow(self.result(types))


@dataclass(frozen=True)
class Counted(Function):
    """See `count`."""

    of: str | None
    name = "count"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column, if there is one."""
        return () if self.of is None else (self.of,)

    def result(self, types: Types) -> pa.DataType:
        """A long."""
        return LONG

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """The count."""
        return (Count(self.of),)

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """The count itself."""
        return pa.array(states[0].arrays[0], LONG)


class Mean(_OfOne):
    """See `mean`."""

    name = "mean"

    def result(self, types: Types) -> pa.DataType:
        """A double."""
        return DOUBLE

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """Spark's avg adds integers as doubles, so that it cannot overflow; a long `sum` is another measure."""
        return Total(self.of, "double"), Count(self.of)

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """Divide; where the count is 0 the sum is null already, and the 1 only avoids a warning."""
        total, count = states
        return Column(total.arrays[0] / np.maximum(count.arrays[0], 1), total.valid).arrow(DOUBLE)


@dataclass(frozen=True)
class Bound(Function):
    """See `min` and `max`."""

    function: Literal["min", "max"]
    of: str

    @property
    def name(self) -> str:
        """Return "min" or "max"."""
        return self.function

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.of,)

    def check(self, types: Types, where: str) -> None:
        """Any type with an order."""
        need_order(self, self.of, types[0], where)

    def result(self, types: Types) -> pa.DataType:
        """The column's type."""
        return types[0]

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """The value itself."""
        return (Extreme(self.function, self.of, types[0]),)

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """The value itself."""
        return Extreme(self.function, self.of, types[0]).write(states[0])[0]


@dataclass(frozen=True)
class Spread(Function):
    """See `var` and `std`."""

    function: Literal["var", "std"]
    of: str

    @property
    def name(self) -> str:
        """Return "var" or "std"."""
        return self.function

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.of,)

    def check(self, types: Types, where: str) -> None:
        """Numbers."""
        need_numbers(self, types, where)

    def result(self, types: Types) -> pa.DataType:
        """A double."""
        return DOUBLE

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """Count, mean, M2."""
        return (Moments(self.of),)

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """M2 / (n - 1), null for less than two values."""
        n, _, m2 = states[0].arrays
        value = m2 / np.maximum(n - 1, 1)
        return Column(np.sqrt(value) if self.function == "std" else value, both(states[0].valid, n >= 2)).arrow(DOUBLE)


@dataclass(frozen=True)
class _OfTwo(Function):
    """A function of two columns of numbers, over the rows where neither is null."""

    x: str
    y: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.x, self.y

    def check(self, types: Types, where: str) -> None:
        need_numbers(self, types, where)

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        return (Comoments(self.x, self.y),)


class Covariance(_OfTwo):
    """See `covariance`."""

    name = "covariance"

    def result(self, types: Types) -> pa.DataType:
        """A double."""
        return DOUBLE

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """C / (n - 1), null for less than two rows."""
        n, together = states[0].arrays[0], states[0].arrays[5]
        return Column(together / np.maximum(n - 1, 1), both(states[0].valid, n >= 2)).arrow(DOUBLE)


class Regression(_OfTwo):
    """See `regression`."""

    name = "regression"

    def result(self, types: Types) -> pa.DataType:
        """A struct of three doubles."""
        return LINE

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """Least squares: slope = C / M2_x, intercept = mean_y - slope mean_x, r2 = C**2 / (M2_x M2_y)."""
        _, mean_x, mean_y, m2_x, m2_y, together = states[0].arrays
        valid = both(states[0].valid, ~(m2_x == 0))  # all x equal (or one row): no line, as Spark's regr_slope

        def over(above: Doubles, below: Doubles) -> Doubles:
            return np.asarray(above / np.where(below == 0, 1.0, below))

        with np.errstate(invalid="ignore", over="ignore"):
            slope = over(together, m2_x)
            intercept = mean_y - slope * mean_x
            r2 = np.where(m2_y == 0, 1.0, slope * over(together, m2_y))
        fields = [Column(values, valid).arrow(DOUBLE) for values in (slope, intercept, r2)]
        return pa.StructArray.from_arrays(fields, fields=list(LINE))


@dataclass(frozen=True)
class Histogram(Function):
    """See `histogram`."""

    of: str
    edges: tuple[float, ...]
    name = "histogram"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.of,)

    @property
    def options(self) -> tuple[str, ...]:
        """The edges."""
        return (f"[{', '.join(repr(edge) for edge in self.edges)}]",)

    def check(self, types: Types, where: str) -> None:
        """Numbers, and edges that ascend."""
        need_numbers(self, types, where)
        if len(self.edges) < 2 or any(not a < b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise FlowError(where, f"histogram needs two or more ascending edges, got {list(self.edges)}", "sort them")
        if len(self.edges) > MAX_BINS + 1:
            rule = f"histogram has at most {MAX_BINS} bins, got {len(self.edges) - 1}"
            raise FlowError(where, rule, "use fewer edges, or quantile(..., approximate=True)")

    def result(self, types: Types) -> pa.DataType:
        """A list of longs."""
        return pa.list_(pa.field("element", LONG))

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """One count per bin."""
        bins = len(self.edges) - 1
        return tuple(InBin(self.of, self.edges[i], self.edges[i + 1], i == bins - 1) for i in range(bins))

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """One list per window."""
        counts = np.column_stack([state.arrays[0] for state in states])
        offsets = np.arange(counts.shape[0] + 1, dtype=np.int32) * counts.shape[1]
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(counts.ravel(), LONG)).cast(self.result(types))
