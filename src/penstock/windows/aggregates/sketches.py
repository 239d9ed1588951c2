"""Measures that are sketches: small summaries that merge, so that holistic functions can have panes.

The sketches are Apache DataSketches'. Spark computes them natively and stores the same bytes as the Python library
reads: a pane's sketch is made in the JVM and merged here. Merging is no group, it cannot be undone, so windows over
sketches are slid by two-stacks like every other measure.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import datasketches  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.base import Column, Measure, Partial, State, kind_of, numbers, sql_name, validity
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.scans import Arrays

KLL_K = 200
"""Accuracy of quantiles: the rank of the answer is off by at most 1.33 % of the rows, in 99 of 100 cases."""
HLL_LG_K = 12
"""Accuracy of distinct counts: 2**12 registers, a standard error of 1.6 % (4 KiB per pane and key when full)."""


class _Sketch(Measure):
    """One binary column; null or an empty sketch where there are no values."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """Return the sketch of both sets; neither is changed."""

    @abstractmethod
    def load(self, data: bytes) -> Any:
        """Read a sketch."""

    @abstractmethod
    def dump(self, sketch: Any) -> bytes:
        """Write a sketch."""

    @abstractmethod
    def make(self, rows: pa.Table, ranges: Ranges) -> Iterator[Any]:
        """Yield the sketch of each run of rows."""

    def lift(self, rows: pa.Table) -> State:
        return self.lift_runs(rows, Ranges.runs(rows.num_rows, np.arange(rows.num_rows)))

    def lift_runs(self, rows: pa.Table, ranges: Ranges) -> State:
        return _state(list(self.make(rows, ranges)))

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        def merged(a: Arrays, b: Arrays) -> Arrays:
            return (_objects([self.merge(x, y) for x, y in zip(a[0], b[0], strict=True)]),)

        return ranges.fold_arrays(arrays, merged)

    def read(self, log: pa.Table) -> State:
        column = log.column(self.partials[0].name)
        return _state([None if data is None else self.load(data) for data in column.to_pylist()])

    def write(self, state: State) -> list[pa.Array]:
        there = np.ones(len(state), dtype=np.bool_) if state.valid is None else state.valid
        data = [self.dump(sketch) if here else None for sketch, here in zip(state.arrays[0], there, strict=True)]
        return [pa.array(data, pa.binary())]


def _objects(values: list[Any]) -> Any:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _state(sketches: list[Any]) -> State:
    there = np.array([sketch is not None and not sketch.is_empty() for sketch in sketches], dtype=np.bool_)
    return State((_objects(sketches),), None if there.all() else there)


@dataclass(frozen=True)
class QuantileSketch(_Sketch):
    """A KLL sketch of a column's values as doubles (Karnin, Lang and Liberty 2016). NaN is left out.

    >>> sketch = QuantileSketch("x")
    >>> state = sketch.lift_runs(pa.table({"x": [5.0, None, 1.0]}), Ranges.runs(3, np.array([0])))
    >>> state.arrays[0][0].get_quantile(0.5, True)
    1.0
    """

    column: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The sketch."""
        text = f"kll_sketch_agg_double(cast({sql_name(self.column)} as double), {KLL_K})"
        return (Partial("kll", self.column, pa.binary(), text),)

    def merge(self, a: Any, b: Any) -> Any:
        """Merge into a new sketch."""
        both = datasketches.kll_doubles_sketch(KLL_K)
        both.merge(a)
        both.merge(b)
        return both

    def load(self, data: bytes) -> Any:
        """Read a sketch."""
        return datasketches.kll_doubles_sketch.deserialize(data)

    def dump(self, sketch: Any) -> bytes:
        """Write a sketch."""
        return bytes(sketch.serialize())

    def make(self, rows: pa.Table, ranges: Ranges) -> Iterator[Any]:
        """Yield one sketch per run."""
        column = numbers(rows, self.column, "double")
        kept = ranges.keep(column.valid)
        values = column.values if column.valid is None else column.values[column.valid]
        for lo, hi in zip(kept.lo.tolist(), kept.hi.tolist(), strict=True):
            sketch = datasketches.kll_doubles_sketch(KLL_K)
            if hi > lo:
                sketch.update(values[lo:hi].copy())  # Arrow's memory is read-only, which the library refuses
            yield sketch


@dataclass(frozen=True)
class DistinctSketch(_Sketch):
    """A HyperLogLog sketch of a column's values (Flajolet et al. 2007). Numbers other than integers go in as text.

    >>> sketch = DistinctSketch("x", pa.string())
    >>> state = sketch.lift_runs(pa.table({"x": ["a", "b", "a"]}), Ranges.runs(3, np.array([0])))
    >>> round(state.arrays[0][0].get_estimate())
    2
    """

    column: str
    type: pa.DataType

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The sketch."""
        name, kind = sql_name(self.column), kind_of(self.type)
        if kind == "long":
            value = f"cast({name} as bigint)"
        elif kind == "double":
            value = f"cast(cast({name} as double) + 0.0D as string)"  # one zero
        else:
            value = (
                name if pa.types.is_binary(self.type) or pa.types.is_string(self.type) else f"cast({name} as string)"
            )
        return (Partial("hll", self.column, pa.binary(), f"hll_sketch_agg({value}, {HLL_LG_K})"),)

    def merge(self, a: Any, b: Any) -> Any:
        """Merge into a new sketch."""
        union = datasketches.hll_union(HLL_LG_K)
        union.update(a)
        union.update(b)
        return union.get_result(datasketches.HLL_8)

    def load(self, data: bytes) -> Any:
        """Read a sketch."""
        return datasketches.hll_sketch.deserialize(data)

    def dump(self, sketch: Any) -> bytes:
        """Write a sketch."""
        return bytes(sketch.serialize_compact())

    def make(self, rows: pa.Table, ranges: Ranges) -> Iterator[Any]:
        """Yield one sketch per run; a value is hashed once per run, however often it occurs."""
        column = rows.column(self.column)
        valid = validity(column)
        if pa.types.is_floating(self.type):
            numeric = numbers(rows, self.column, "double")
            column = pa.chunked_array([Column(numeric.values + 0.0, numeric.valid).arrow(pa.float64())])
        encoded = column.drop_null().combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        words = [value if isinstance(value, (int, str)) else repr(value) for value in encoded.dictionary.to_pylist()]
        kept = ranges.keep(valid)
        for lo, hi in zip(kept.lo.tolist(), kept.hi.tolist(), strict=True):
            sketch = datasketches.hll_sketch(HLL_LG_K, datasketches.HLL_8)
            for code in np.unique(codes[lo:hi]).tolist():
                sketch.update(words[code])
            yield sketch
