"""Aggregates of one's own: `ps.Aggregate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import FlowError
from penstock.windows.aggregates.base import Column, Flags, Function, Measure, Partial, State, Types, both, validity
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.scans import Arrays, scan_arrays

Lift = Callable[[Mapping[str, NDArray[Any]]], Any]


@dataclass(frozen=True)
class Aggregate(Function):
    """An aggregate given by its algebra, on arrays: it is computed for many rows and many windows at a time.

    Args:
        lift: gets a dict of NumPy columns (rows in which one of them is null are left out) and returns the state of
            each row: an array, or a tuple of arrays, of numbers or booleans.
        combine: `combine(older, newer)` gets two states (tuples of arrays) and returns the state of both together,
            position by position. It must be associative; over time windows it must not depend on the order either.
        lower: turns a state into an array of results.
        identity: the state of nothing, a tuple of numbers: without it, a window without values gives null.
        invert: `invert(all, oldest)` takes the oldest out of a state again. Used only where states are integers, where
            nothing is rounded: sums of doubles would drift.
        columns: the columns that `lift` reads.
        result: the type of the results, as DDL text such as "double" or an Arrow type.

    >>> range_of = Aggregate(
    ...     lift=lambda c: (c["x"], c["x"]),
    ...     combine=lambda a, b: (np.minimum(a[0], b[0]), np.maximum(a[1], b[1])),
    ...     lower=lambda s: s[1] - s[0],
    ...     columns=["x"], result=pa.float64(), name="range_of",
    ... )
    >>> range_of.text()
    'range_of(x)'
    """

    lift: Lift
    combine: Callable[[Arrays, Arrays], Any]
    lower_: Callable[[Arrays], Any] = field(repr=False)
    identity: tuple[Any, ...] | None
    invert: Callable[[Arrays, Arrays], Any] | None
    columns_: tuple[str, ...]
    result_: pa.DataType | str
    name_: str

    def __init__(
        self,
        lift: Lift,
        combine: Callable[[Arrays, Arrays], Any],
        lower: Callable[[Arrays], Any],
        identity: Sequence[Any] | float | None = None,
        invert: Callable[[Arrays, Arrays], Any] | None = None,
        *,
        columns: Sequence[str] | str,
        result: pa.DataType | str = "double",
        name: str = "aggregate",
    ) -> None:
        """Take the functions; nothing is called before the aggregate meets a schema."""
        named = (columns,) if isinstance(columns, str) else tuple(columns)
        if not named:
            raise FlowError("Aggregate", "columns names no column", "name the columns that lift reads")
        for what, function in (("lift", lift), ("combine", combine), ("lower", lower), ("invert", invert)):
            if not callable(function) and not (what == "invert" and function is None):
                raise FlowError("Aggregate", f"{what} is not a function but {type(function).__name__}", "pass one")
        nothing = identity if identity is None else _tuple(identity)
        values = {
            "lift": lift, "combine": combine, "lower_": lower, "identity": nothing, "invert": invert,
            "columns_": named, "result_": result, "name_": name,
        }  # fmt: skip
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)  # the dataclass is frozen for everyone else

    def with_result(self, result: pa.DataType) -> Aggregate:
        """Return it with DDL text replaced by the type that it means."""
        return Aggregate(
            self.lift, self.combine, self.lower_, self.identity, self.invert,
            columns=self.columns_, result=result, name=self.name_,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """What it is called in `explain()`."""
        return self.name_

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `lift` reads."""
        return self.columns_

    @property
    def options(self) -> tuple[str, ...]:
        """The result's type."""
        return () if self.result_ in ("double", pa.float64()) else (f"result {self.result_}",)

    def result(self, types: Types) -> pa.DataType:
        """Return the declared type."""
        if isinstance(self.result_, str):
            known = {
                "double": pa.float64(), "float": pa.float32(), "bigint": pa.int64(), "long": pa.int64(),
                "int": pa.int32(), "integer": pa.int32(), "boolean": pa.bool_(), "string": pa.string(),
            }  # fmt: skip
            if self.result_.strip().lower() not in known:
                rule = f"result={self.result_!r} is not a type known here"
                raise FlowError(self.name, rule, f"use one of {', '.join(known)}, or an Arrow type")
            return known[self.result_.strip().lower()]
        return self.result_

    def check(self, types: Types, where: str) -> None:
        """Call `lift` and `combine` on no rows, to see what a state is."""
        try:
            state = self.call_lift(self._no_rows(types), 0)
            self.call_combine(state, state)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            rule = f"{self.name}: lift and combine must work on arrays of length 0, to show the state ({reason})"
            raise FlowError(where, rule, "let them return arrays as long as those they get") from error
        bad = [array.dtype for array in state if array.dtype.kind not in "iufb"]
        if bad:
            rule = f"{self.name}: a state is made of numbers or booleans, lift returned {bad[0]}"
            raise FlowError(where, rule, "lift to numeric arrays")
        if self.identity is not None and len(self.identity) != len(state):
            rule = f"{self.name}: identity has {len(self.identity)} values, a state has {len(state)}"
            raise FlowError(where, rule, "give one number per array that lift returns")

    @staticmethod
    def _empty(given: pa.DataType | None) -> NDArray[Any]:
        return as_numpy(pa.chunked_array([pa.array([], given or pa.float64())]))

    def _no_rows(self, types: Types) -> dict[str, NDArray[Any]]:
        return {name: self._empty(given) for name, given in zip(self.columns, types, strict=True)}

    def measures(self, types: Types, output: str) -> tuple[Measure, ...]:
        """Return its states as one measure, under the name of the output."""
        state = self.call_lift(self._no_rows(types), 0)
        return (Custom(self, output, tuple(pa.from_numpy_dtype(array.dtype) for array in state)),)

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """Call `lower`, over the identity where there was nothing."""
        (state,) = states
        arrays, valid = state.arrays, state.valid
        if valid is not None and self.identity is not None:
            arrays = tuple(np.where(valid, a, i).astype(a.dtype) for a, i in zip(arrays, self.identity, strict=True))
            valid = None
        if valid is None:
            return _as_arrow(self.lower_(arrays), len(state), self.result(types), self.name)
        found = np.flatnonzero(valid)
        given = _as_arrow(self.lower_(tuple(a[found] for a in arrays)), len(found), self.result(types), self.name)
        place = np.zeros(len(valid), dtype=np.int64)
        place[found] = np.arange(len(found))
        return given.take(pa.array(place, mask=~valid))

    def call_lift(self, columns: Mapping[str, NDArray[Any]], rows: int) -> Arrays:
        """Call `lift` and check what it returns."""
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities are values like others
            state = tuple(np.asarray(array) for array in _tuple(self.lift(columns)))
        for array in state:
            if array.ndim != 1 or len(array) != rows:
                raise TypeError(f"{self.name}: lift got {rows} rows and returned an array of shape {array.shape}")
        return state

    def call_combine(self, a: Arrays, b: Arrays) -> Arrays:
        """Call `combine` and check what it returns."""
        with np.errstate(invalid="ignore", over="ignore"):
            state = tuple(np.asarray(array) for array in _tuple(self.combine(a, b)))
        if len(state) != len(a) or any(array.shape != a[0].shape for array in state):
            shapes = ", ".join(str(array.shape) for array in state)
            raise TypeError(f"{self.name}: combine got {len(a)} arrays of shape {a[0].shape} and returned {shapes}")
        return state


@dataclass(frozen=True)
class Custom(Measure):
    """The states of an `Aggregate`."""

    aggregate: Aggregate
    output: str
    types: tuple[pa.DataType, ...]

    @property
    def partials(self) -> tuple[Partial, ...]:
        """One column per array of a state; Spark cannot compute them."""
        return tuple(Partial(f"own{i}", self.output, given) for i, given in enumerate(self.types))

    def lift(self, rows: pa.Table) -> State:
        """Call the user's `lift` on the rows without nulls."""
        valid: Flags | None = None
        for name in self.aggregate.columns:
            valid = both(valid, validity(rows.column(name)))
        if valid is not None:
            rows = rows.select(list(self.aggregate.columns)).filter(pa.array(valid))
        columns = {name: as_numpy(rows.column(name)) for name in self.aggregate.columns}
        dense = self.aggregate.call_lift(columns, rows.num_rows)
        dense = tuple(array.astype(given.to_pandas_dtype()) for array, given in zip(dense, self.types, strict=True))
        if valid is None:
            return State(dense)
        spread = tuple(np.zeros(len(valid), dtype=array.dtype) for array in dense)
        for array, values in zip(spread, dense, strict=True):
            array[valid] = values
        return State(spread, valid)

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        """Combine over ranges: by differences of prefixes where they are exact, else by two-stacks."""
        invert = self.aggregate.invert
        if invert is None or any(array.dtype.kind not in "iub" for array in arrays) or not len(arrays[0]):
            return ranges.fold_arrays(arrays, self.aggregate.call_combine)
        upto = scan_arrays(arrays, np.zeros(1, dtype=np.intp), self.aggregate.call_combine)
        out = tuple(array[np.maximum(ranges.hi - 1, 0)] for array in upto)
        later = np.flatnonzero((ranges.lo > 0) & (ranges.hi > ranges.lo))
        gone = tuple(array[ranges.lo[later] - 1] for array in upto)
        rest = _tuple(invert(tuple(array[later] for array in out), gone))
        for array, values in zip(out, rest, strict=True):
            array[later] = values
        return out

    def read(self, log: pa.Table) -> State:
        """Return the states of a pane log."""
        columns = [log.column(p.name) for p in self.partials]
        valid = validity(columns[0])
        return State(
            tuple(as_numpy(c, fill=True).astype(t.to_pandas_dtype()) for c, t in zip(columns, self.types, strict=True)),
            valid,
        )

    def write(self, state: State) -> list[pa.Array]:
        """Return the states as columns."""
        return [Column(array, state.valid).arrow(given) for array, given in zip(state.arrays, self.types, strict=True)]


def as_numpy(column: pa.ChunkedArray, fill: bool = False) -> NDArray[Any]:
    """Return a column as NumPy; with `fill`, nulls as 0.

    >>> as_numpy(pa.chunked_array([[1, None]]), fill=True)
    array([1, 0])
    """
    if fill and column.null_count:
        column = column.fill_null(pa.scalar(0).cast(column.type))
    return np.asarray(column.to_numpy())


def _tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def _as_arrow(values: Any, rows: int, given: pa.DataType, name: str) -> pa.Array:
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(np.asarray(values))
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if len(array) != rows:
        raise TypeError(f"{name}: lower got {rows} states and returned {len(array)} values")
    return array if array.type == given else array.cast(given)
