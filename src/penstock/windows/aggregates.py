"""Aggregates described by their algebra: how a row is lifted, how partials combine, how a result is lowered.

A window function F is decomposable when F(window) = H(G(pane 1), ..., G(pane r)) (thesis 000 section 4.5). Here G is a
few *partials* per pane. Spark computes them natively (the engine translates a `Partial`); the pane kernel combines them
over windows; `lower` turns the combined partials into the result. Nothing here knows Spark.

Null, NaN and overflow follow Spark with ANSI on: a sum of no non-null rows is null; `count(column)` ignores nulls and
`count()` does not; a sum of integers is a 64-bit long and overflow is an error; a sum of floats is a double and NaN
spreads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import FlowError, PenstockError

Kind = Literal["long", "double", "other"]
"""What a column holds: any integer type, any floating type, or something that cannot be added."""


class AggregateOverflow(PenstockError, ArithmeticError):
    """A sum of integers left 64 bits. Spark's ANSI mode fails here too; cast the column to double to go on."""


@dataclass(frozen=True)
class Column:
    """Values with their validity; `valid` None = no nulls. Where invalid, the value is meaningless (but defined)."""

    values: NDArray[np.int64] | NDArray[np.float64]
    valid: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Partial:
    """One partial column of a pane.

    Lift: `function` over `column` *cast to `kind`* first (`count` of None counts rows), nulls skipped; a `sum` of no
    non-null row is null, a `count` is 0. Combine: how two partials of the same key become one; "add" skips nulls.

    >>> Partial("sum", "price", "double").name
    '_ps_sum_double_price'
    """

    function: Literal["sum", "count"]
    column: str | None
    kind: Literal["long", "double"]
    combine: Literal["add"] = "add"

    @property
    def name(self) -> str:
        """The column's name in the pane log: a function of what it holds, so equal partials are stored once."""
        return "_ps_rows" if self.column is None else f"_ps_{self.function}_{self.kind}_{self.column}"


ROWS = Partial("count", None, "long")
"""How many rows fell into the pane; always present, since a window exists if a row fell into it."""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate as the user wrote it, not yet tied to a schema.

    >>> sum("price")
    Aggregate(name='sum', column='price')
    """

    name: str
    column: str | None


@dataclass(frozen=True)
class _Algebra:
    partials: Callable[[str | None, Kind], tuple[Partial, ...]]
    lower: Callable[[Sequence[Column]], Column]
    result: Callable[[Kind], Literal["long", "double"]]
    adds: bool  # needs a column that can be added


def _number(kind: Kind) -> Literal["long", "double"]:
    return "long" if kind == "long" else "double"


def _sum_partials(column: str | None, kind: Kind) -> tuple[Partial, ...]:
    return (Partial("sum", column, _number(kind)),)


def _count_partials(column: str | None, kind: Kind) -> tuple[Partial, ...]:
    return (ROWS,) if column is None else (Partial("count", column, "long"),)


def _mean_partials(column: str | None, kind: Kind) -> tuple[Partial, ...]:
    # Spark's avg adds integers as doubles, so that it cannot overflow; a long `sum` is another partial.
    return Partial("sum", column, "double"), Partial("count", column, "long")


def _lower_first(columns: Sequence[Column]) -> Column:
    return columns[0]


def _lower_mean(columns: Sequence[Column]) -> Column:
    total, count = columns
    # where the count is 0 the sum is null already; the 1 only avoids a division warning
    return Column(np.asarray(total.values / np.maximum(count.values, 1), dtype=np.float64), total.valid)


_ALGEBRAS: dict[str, _Algebra] = {
    "sum": _Algebra(_sum_partials, _lower_first, _number, adds=True),
    "count": _Algebra(_count_partials, _lower_first, lambda kind: "long", adds=False),
    "mean": _Algebra(_mean_partials, _lower_mean, lambda kind: "double", adds=True),
}


@dataclass(frozen=True)
class Output:
    """An aggregate tied to a schema: the name of its result column and the kind of its input.

    >>> total = Output("total", sum("price"), "double")
    >>> total.kind, [p.name for p in total.partials]
    ('double', ['_ps_sum_double_price'])
    """

    name: str
    aggregate: Aggregate
    input_kind: Kind

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The partials that `lower` takes, in its order."""
        return _ALGEBRAS[self.aggregate.name].partials(self.aggregate.column, self.input_kind)

    @property
    def kind(self) -> Literal["long", "double"]:
        """The kind of the result."""
        return _ALGEBRAS[self.aggregate.name].result(self.input_kind)

    def lower(self, columns: Sequence[Column]) -> Column:
        """Turn combined partials into results.

        >>> Output("m", mean("x"), "long").lower([Column(np.array([6.0])), Column(np.array([4]))]).values
        array([1.5])
        """
        return _ALGEBRAS[self.aggregate.name].lower(columns)


def bind(named: Mapping[str, Aggregate], kinds: Mapping[str, Kind], where: str = "aggregate") -> tuple[Output, ...]:
    """Tie aggregates to a schema given as the kind of each column; refuse what cannot be computed.

    >>> [o.kind for o in bind({"n": count(), "s": sum("qty")}, {"qty": "long"})]
    ['long', 'long']
    """
    outputs = []
    for name, aggregate in named.items():
        column = aggregate.column
        if column is not None and column not in kinds:
            raise FlowError(where, f"{name} reads the unknown column {column!r}", f"use one of {sorted(kinds)}")
        kind: Kind = "other" if column is None else kinds[column]
        if kind == "other" and _ALGEBRAS[aggregate.name].adds:
            raise FlowError(
                where, f"{aggregate.name}({column!r}) needs an integer or floating column", "cast it to double before"
            )
        outputs.append(Output(name, aggregate, kind))
    return tuple(outputs)


def partials_of(outputs: Sequence[Output]) -> tuple[Partial, ...]:
    """Return the partial columns of a pane row, each once, the row count first.

    >>> [p.name for p in partials_of(bind({"n": count(), "m": mean("x"), "s": sum("x")}, {"x": "double"}))]
    ['_ps_rows', '_ps_sum_double_x', '_ps_count_long_x']
    """
    return tuple(dict.fromkeys((ROWS, *(p for output in outputs for p in output.partials))))


def sum(column: str) -> Aggregate:
    """Return the sum of the non-null values; null if there are none.

    >>> sum("price").column
    'price'
    """
    return Aggregate("sum", column)


def count(column: str | None = None) -> Aggregate:
    """Return the number of rows, or of non-null values of `column`.

    >>> count()
    Aggregate(name='count', column=None)
    """
    return Aggregate("count", column)


def mean(column: str) -> Aggregate:
    """Return the mean of the non-null values, a double; null if there are none.

    >>> mean("price").name
    'mean'
    """
    return Aggregate("mean", column)
