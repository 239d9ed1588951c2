"""Aggregates of a window's whole content: first, last, arg_min, arg_max, quantile, distinct, topk.

Those with an approximate form have panes by a sketch; where the content is at hand, they are exact all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import FlowError
from penstock.windows.aggregates.base import (
    DOUBLE,
    LONG,
    Column,
    Function,
    Measure,
    State,
    Types,
    need_numbers,
    need_order,
    numbers,
    validity,
)
from penstock.windows.aggregates.sketches import DistinctSketch, QuantileSketch
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.kernels.ranks import OrderStatistics, order_codes
from penstock.windows.scans import Longs


def take_rows(column: pa.ChunkedArray, row: Longs, there: NDArray[np.bool_] | None, given: pa.DataType) -> pa.Array:
    """Return values by row number, null where there is none.

    >>> take_rows(pa.chunked_array([["a", "b"]]), np.array([1, 0]), np.array([True, False]), pa.string()).to_pylist()
    ['b', None]
    """
    index = pa.array(row, LONG, mask=None if there is None else ~there)
    values = column.combine_chunks()
    taken = values.take(index)
    return taken if taken.type == given else taken.cast(given)


@dataclass(frozen=True)
class Edge(Function):
    """See `first` and `last`."""

    function: Literal["first", "last"]
    of: str

    @property
    def name(self) -> str:
        """Return "first" or "last"."""
        return self.function

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.of,)

    def check(self, types: Types, where: str) -> None:
        """Any type, as long as it is known."""
        if types[0] is None:
            rule = f"{self.name}({self.of!r}) cannot carry a column of this type"
            raise FlowError(where, rule, "cast it to a type that Arrow knows")

    def result(self, types: Types) -> pa.DataType:
        """The column's type."""
        return types[0]

    def content(self, rows: pa.Table, ranges: Ranges, types: Types) -> pa.Array:
        """Return the value of the first or the last row, null or not."""
        row = ranges.lo if self.function == "first" else ranges.hi - 1
        filled = ranges.filled
        return take_rows(rows.column(self.of), row if filled is None else np.where(filled, row, 0), filled, types[0])


def ranked(column: pa.ChunkedArray, greatest: bool) -> tuple[Longs, Longs, NDArray[np.bool_] | None]:
    """Return for each non-null row its rank by (value, row), best first; the row of each rank; which rows are not null.

    >>> ranked(pa.chunked_array([[3, None, 5, 3]]), greatest=True)[:2]
    (array([1, 0, 2]), array([2, 0, 3]))
    """
    valid = validity(column)
    codes, _ = order_codes(column.drop_null().combine_chunks())
    order = np.argsort(-codes if greatest else codes, kind="stable")  # ties: the earliest row first
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    row = order if valid is None else np.flatnonzero(valid)[order]
    return rank, row.astype(np.int64), valid


@dataclass(frozen=True)
class Arg(Function):
    """See `arg_min` and `arg_max`."""

    function: Literal["arg_min", "arg_max"]
    value: str
    by: str

    @property
    def name(self) -> str:
        """Return "arg_min" or "arg_max"."""
        return self.function

    @property
    def columns(self) -> tuple[str, ...]:
        """The value, and what it is chosen by."""
        return self.value, self.by

    def check(self, types: Types, where: str) -> None:
        """Any value, an order to choose by."""
        Edge("first", self.value).check(types, where)
        need_order(self, self.by, types[1], where)

    def result(self, types: Types) -> pa.DataType:
        """The type of the value."""
        return types[0]

    def content(self, rows: pa.Table, ranges: Ranges, types: Types) -> pa.Array:
        """Return the value of the best row: the least rank, since ranks are best first and no two are equal."""
        rank, row, valid = ranked(rows.column(self.by), self.function == "arg_max")
        kept = ranges.keep(valid)
        best = kept.fold(rank, np.minimum)
        chosen = row[best] if len(row) else best
        return take_rows(rows.column(self.value), chosen, kept.filled, types[0])


@dataclass(frozen=True)
class Quantile(Function):
    """See `quantile`."""

    of: str
    q: float
    approximate: bool
    name = "quantile"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.of,)

    @property
    def options(self) -> tuple[str, ...]:
        """Which one, and how."""
        return (repr(self.q), *(["approximate"] if self.approximate else []))

    def check(self, types: Types, where: str) -> None:
        """Numbers, and 0 <= q <= 1."""
        need_numbers(self, types, where)
        if not 0 <= self.q <= 1:
            raise FlowError(where, f"quantile needs q between 0 and 1, got {self.q}", "0.5 is the median")

    def result(self, types: Types) -> pa.DataType:
        """A double."""
        return DOUBLE

    def measures(self, types: Types, output: str) -> tuple[Measure, ...] | None:
        """A sketch, or the whole window."""
        return (QuantileSketch(self.of),) if self.approximate else None

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """Ask each sketch."""
        (state,) = states
        there = np.ones(len(state), dtype=np.bool_) if state.valid is None else state.valid
        found = [s.get_quantile(self.q, True) if here else None for s, here in zip(state.arrays[0], there, strict=True)]
        return pa.array(found, DOUBLE)

    def content(self, rows: pa.Table, ranges: Ranges, types: Types) -> pa.Array:
        """Interpolate between the two values around position q (n - 1), as Spark's `percentile`."""
        column = numbers(rows, self.of, "double")
        values = column.values if column.valid is None else column.values[column.valid]
        kept = ranges.keep(column.valid)
        distinct, codes = np.unique(values, return_inverse=True)
        filled = kept.filled
        out = np.zeros(len(kept))
        some = np.arange(len(kept)) if filled is None else np.flatnonzero(filled)
        if len(some):
            lo, hi = kept.lo[some], kept.hi[some]
            position = self.q * (hi - lo - 1)
            lower = np.floor(position)
            above = np.ceil(position)
            ranks = OrderStatistics(codes.astype(np.int64))
            low = distinct[ranks.kth(lo, hi, lower.astype(np.int64))]
            high = distinct[ranks.kth(lo, hi, above.astype(np.int64))]
            with np.errstate(invalid="ignore", over="ignore"):
                between = (above - position) * low + (position - lower) * high
            out[some] = np.where((above == lower) | (low == high), low, between)
        return Column(out, filled).arrow(DOUBLE)


@dataclass(frozen=True)
class Distinct(Function):
    """See `distinct`."""

    of: str
    approximate: bool
    name = "distinct"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.of,)

    @property
    def options(self) -> tuple[str, ...]:
        """How."""
        return ("approximate",) if self.approximate else ()

    def check(self, types: Types, where: str) -> None:
        """Any type whose values can be compared."""
        need_order(self, self.of, types[0], where)

    def result(self, types: Types) -> pa.DataType:
        """A long."""
        return LONG

    def measures(self, types: Types, output: str) -> tuple[Measure, ...] | None:
        """A sketch, or the whole window."""
        return (DistinctSketch(self.of, types[0]),) if self.approximate else None

    def lower(self, states: Sequence[State], types: Types) -> pa.Array:
        """Ask each sketch."""
        (state,) = states
        there = np.ones(len(state), dtype=np.bool_) if state.valid is None else state.valid
        found = [round(s.get_estimate()) if here else 0 for s, here in zip(state.arrays[0], there, strict=True)]
        return pa.array(found, LONG)

    def content(self, rows: pa.Table, ranges: Ranges, types: Types) -> pa.Array:
        """Count the rows whose value does not occur before them in the window.

        With prev(i) the row before i that has the same value, or none: rows i of [lo, hi) with prev(i) < lo.
        """
        column = rows.column(self.of)
        kept = ranges.keep(validity(column))
        codes, _ = order_codes(column.drop_null().combine_chunks())
        order = np.argsort(codes, kind="stable")
        again = codes[order][1:] == codes[order][:-1]
        previous = np.zeros(len(codes), dtype=np.int64)  # counted from 1; 0: none
        previous[order[1:][again]] = order[:-1][again] + 1
        return pa.array(OrderStatistics(previous).below(kept.lo, kept.hi, kept.lo + 1), LONG)


@dataclass(frozen=True)
class TopK(Function):
    """See `topk`."""

    of: str
    k: int
    by: str | None
    name = "topk"

    @property
    def columns(self) -> tuple[str, ...]:
        """The value, and what it is chosen by."""
        return (self.of,) if self.by is None else (self.of, self.by)

    @property
    def options(self) -> tuple[str, ...]:
        """How many."""
        return (str(self.k),)

    def check(self, types: Types, where: str) -> None:
        """Any value, an order to choose by, k >= 1."""
        Edge("first", self.of).check(types, where)
        need_order(self, self.columns[-1], types[-1], where)
        if self.k < 1:
            raise FlowError(where, f"topk needs k of at least 1, got {self.k}", "pass how many values you want")

    def result(self, types: Types) -> pa.DataType:
        """A list of the value's type."""
        return pa.list_(pa.field("element", types[0]))

    def content(self, rows: pa.Table, ranges: Ranges, types: Types) -> pa.Array:
        """Ask for the k least ranks of each window: ranks are best first."""
        rank, row, valid = ranked(rows.column(self.columns[-1]), greatest=True)
        kept = ranges.keep(valid)
        sizes = np.minimum(kept.lengths, self.k)
        offsets = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        which = np.repeat(np.arange(len(kept)), sizes)
        k = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], sizes)
        found = OrderStatistics(rank).kth(kept.lo[which], kept.hi[which], k)
        chosen = row[found] if len(row) else found
        values = take_rows(rows.column(self.of), chosen, None, types[0])
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
        return lists.cast(self.result(types))
