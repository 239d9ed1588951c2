"""What every aggregate is made of: columns read, partials kept, measures lifted, combined and lowered.

A window function F is decomposable when F(window) = H(G(pane 1), ..., G(pane r)) (thesis 000 section 4.5). Here G gives
a few *partials* per pane, grouped into *measures*: what is lifted and combined together. H combines the measures over
the window's panes and lowers them into the result. The same measures serve three ways of computing a window:

    native panes    Spark computes the partials of (key, pane) by their SQL text; the log of them is slid over
    Python panes    `lift` does it in NumPy, for functions that Spark does not have
    content         `lift` is applied to the rows of the window themselves, and combined over ranges of rows

Null, NaN and overflow follow Spark with ANSI on: an aggregate skips nulls; a sum of no non-null rows is null; a sum of
integers is a 64-bit long and overflow is an error; NaN is greater than every number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import FlowError
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.scans import Arrays

Kind = Literal["long", "double", "other"]
"""What a column holds: any integer type, any floating type, or something that cannot be added."""
Type: TypeAlias = "pa.DataType | None"
"""An Arrow type; None: unknown, and then the column can only be counted."""
Types: TypeAlias = tuple[Type, ...]
Flags = NDArray[np.bool_]

LONG, DOUBLE = pa.int64(), pa.float64()


def kind_of(given: Type) -> Kind:
    """Return how arithmetic sees a type.

    >>> kind_of(pa.int16()), kind_of(pa.float32()), kind_of(pa.string()), kind_of(None)
    ('long', 'double', 'other', 'other')
    """
    if given is None:
        return "other"
    return "long" if pa.types.is_integer(given) else "double" if pa.types.is_floating(given) else "other"


def sql_name(column: str) -> str:
    """Quote a column name for SQL text.

    >>> sql_name("a`b")
    '`a``b`'
    """
    return "`" + column.replace("`", "``") + "`"


# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """Values with their validity; `valid` None = no nulls. Where invalid, the value is meaningless (but defined)."""

    values: NDArray[Any]
    valid: Flags | None = None

    def arrow(self, given: pa.DataType) -> pa.Array:
        """Return it as an Arrow array.

        >>> Column(np.array([1, 2]), np.array([True, False])).arrow(pa.int64()).to_pylist()
        [1, None]
        """
        mask = None if self.valid is None else ~self.valid
        plain = pa.array(self.values, mask=mask)
        if pa.types.is_date32(given):
            plain = plain.cast(pa.int32())
        return plain if plain.type == given else plain.cast(given)


@dataclass(frozen=True)
class State:
    """Elements of a measure, one per row, pane or window: several arrays, and which elements are there at all.

    Types that NumPy cannot order are held as places in `source`, their distinct values in order.
    """

    arrays: Arrays
    valid: Flags | None = None
    source: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.arrays[0])


def numbers(table: pa.Table, name: str, kind: Kind) -> Column:
    """Return a numeric column as int64 ("long") or float64; a null reads as 0.

    >>> numbers(pa.table({"x": [1, None]}), "x", "double").values
    array([1., 0.])
    """
    column, wanted = table.column(name), LONG if kind == "long" else DOUBLE
    if column.type != wanted:
        column = column.cast(wanted, safe=kind == "long")  # a long beyond 2**53 is rounded, as in Spark
    if column.null_count == 0:
        return Column(column.to_numpy())
    return Column(pc.fill_null(column, 0).to_numpy(), validity(column))


def validity(column: pa.ChunkedArray) -> Flags | None:
    """Return which values are not null; None: all."""
    return None if column.null_count == 0 else np.asarray(pc.is_valid(column).to_numpy())


def both(first: Flags | None, second: Flags | None) -> Flags | None:
    """Return where both hold; None = everywhere."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


# --- partials and measures -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partial:
    """One column of the pane log: its type, and the SQL text by which Spark computes it (None: Spark cannot).

    >>> Partial("sum", "price", pa.float64(), "sum(price)").name
    '_ps_sum_double_price'
    """

    function: str
    column: str | None
    type: pa.DataType
    sql: str | None = None

    @property
    def kind(self) -> Kind:
        """What it holds, as arithmetic sees it."""
        return kind_of(self.type)

    @property
    def name(self) -> str:
        """The column's name in the pane log: a function of what it holds, so equal partials are stored once."""
        return "_ps_rows" if self.column is None else f"_ps_{self.function}_{self.kind}_{self.column}"


class Measure(ABC):
    """Partials that are lifted and combined together. Equal measures of several aggregates are computed once."""

    @property
    @abstractmethod
    def partials(self) -> tuple[Partial, ...]:
        """The columns of the pane log that hold it."""

    @abstractmethod
    def lift(self, rows: pa.Table) -> State:
        """Return one element per row."""

    def lift_runs(self, rows: pa.Table, ranges: Ranges) -> State:
        """Return one element per run of rows."""
        return self.over(self.lift(rows), ranges)

    def over(self, state: State, ranges: Ranges) -> State:
        """Combine elements over ranges; an element is there where the range has one that is."""
        kept = ranges.keep(state.valid)
        arrays = state.arrays if state.valid is None else tuple(array[state.valid] for array in state.arrays)
        return State(self.combine(arrays, kept), kept.filled, state.source)

    @abstractmethod
    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        """Combine elements that are all there."""

    @abstractmethod
    def read(self, log: pa.Table) -> State:
        """Return the elements of a pane log."""

    @abstractmethod
    def write(self, state: State) -> list[pa.Array]:
        """Return the columns of a pane log, one per partial."""


# --- functions -------------------------------------------------------------------------------------------------------


class Function(ABC):
    """An aggregate as the user wrote it, not yet tied to a schema."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""

    @property
    def column(self) -> str | None:
        """The first column that it reads."""
        return self.columns[0] if self.columns else None

    @property
    def options(self) -> tuple[str, ...]:
        """What else was said, as text: part of the flow's identity."""
        return ()

    @abstractmethod
    def result(self, types: Types) -> pa.DataType:
        """Return the type of the result."""

    def check(self, types: Types, where: str) -> None:  # noqa: B027  (most types are fine for most functions)
        """Refuse types that it cannot read."""

    def measures(self, types: Types, output: str) -> tuple[Measure, ...] | None:
        """Return what its panes hold; None: it needs the whole window."""
        return None

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """Turn combined measures into results."""
        raise NotImplementedError(f"{self.name} has no measures")

    def content(self, rows: pa.Table, ranges: Ranges, types: Types) -> pa.Array | None:
        """Return the results over ranges of rows by a way of its own; None: by its measures."""
        return None

    def text(self, types: Types | None = None) -> str:
        """Return it as the user would write it, with the types it reads if given.

        >>> from penstock.windows.aggregates import quantile
        >>> quantile("price", 0.5).text(), quantile("price", 0.5).text((pa.float32(),))
        ('quantile(price, 0.5)', 'quantile(price double, 0.5)')
        """
        read = [
            name if types is None else f"{name} {_type_text(given)}"
            for name, given in zip(self.columns, types or (None,) * len(self.columns), strict=True)
        ]
        return f"{self.name}({', '.join([*read, *self.options])})"


def _type_text(given: Type) -> str:
    kind = kind_of(given)
    return str(given) if kind == "other" and given is not None else kind


def need_numbers(function: Function, types: Types, where: str) -> None:
    """Refuse columns that are no numbers."""
    for column, given in zip(function.columns, types, strict=True):
        if kind_of(given) == "other":
            rule = f"{function.name}({column!r}) needs an integer or floating column"
            raise FlowError(where, rule, "cast it to double before")


def need_order(function: Function, column: str, given: Type, where: str) -> None:
    """Refuse columns whose values have no order: nested and unknown ones."""
    if given is None or pa.types.is_nested(given) or pa.types.is_null(given):
        what = "of unknown type" if given is None else f"of type {given}"
        rule = f"{function.name} needs a column whose values can be compared, and {column!r} is {what}"
        raise FlowError(where, rule, "use a number, text, date, timestamp, decimal, boolean or binary column")
