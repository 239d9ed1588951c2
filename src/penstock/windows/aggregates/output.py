"""Aggregates tied to a schema, and their evaluation over ranges of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import FlowError
from penstock.windows.aggregates.base import DOUBLE, LONG, Function, Kind, Measure, Partial, State, Type, Types, kind_of
from penstock.windows.aggregates.measures import Count
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.scans import Longs

_ROWS = Count(None)
ROWS = _ROWS.partials[0]
"""How many rows fell into the pane; always present, since a window exists if a row fell into it."""


@dataclass(frozen=True)
class Output:
    """An aggregate tied to a schema: the name of its result column and the types that it reads.

    >>> from penstock.windows.aggregates import sum
    >>> total = Output("total", sum("price"), (pa.float32(),))
    >>> total.kind, [p.name for p in total.partials], total.native
    ('double', ['_ps_sum_double_price'], True)
    """

    name: str
    aggregate: Function
    types: Types

    @property
    def input_kind(self) -> Kind:
        """The kind of the first column that it reads."""
        return kind_of(self.types[0]) if self.types else "other"

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the result."""
        return self.aggregate.result(self.types)

    @property
    def kind(self) -> Kind:
        """The kind of the result."""
        return kind_of(self.type)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What `lower` takes, in its order; nothing if it needs the whole window."""
        return self.aggregate.measures(self.types, self.name) or ()

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The columns of the pane log that it needs."""
        return tuple(p for measure in self.measures for p in measure.partials)

    @property
    def decomposable(self) -> bool:
        """Whether it can be put together from panes (thesis 000 section 4.5)."""
        return self.aggregate.measures(self.types, self.name) is not None

    @property
    def native(self) -> bool:
        """Whether Spark can compute the panes."""
        return self.decomposable and all(p.sql is not None for p in self.partials)

    def lower(self, states: Sequence[State]) -> pa.Array:
        """Turn combined measures into results.

        >>> import numpy as np
        >>> from penstock.windows.aggregates import mean
        >>> total, count = State((np.array([6.0]),)), State((np.array([4]),))
        >>> Output("m", mean("x"), (pa.int64(),)).lower([total, count]).to_pylist()
        [1.5]
        """
        return self.aggregate.lower(states, self.types)

    def text(self, types: bool = False) -> str:
        """Return it in words, with the types that it reads if asked for: part of the flow's identity.

        >>> from penstock.windows.aggregates import quantile
        >>> Output("m", quantile("x", 0.5), (pa.float64(),)).text(types=True)
        'm = quantile(x double, 0.5)'
        """
        return f"{self.name} = {self.aggregate.text(self.types if types else None)}"


_TYPES: dict[str, Type] = {"long": LONG, "double": DOUBLE, "other": None}


def bind(
    named: Mapping[str, Function], columns: Mapping[str, pa.DataType | Kind], where: str = "aggregate"
) -> tuple[Output, ...]:
    """Tie aggregates to a schema, the Arrow type (or at least the kind) of each column; refuse what is impossible.

    >>> from penstock.windows.aggregates import count, max, sum
    >>> outputs = bind({"n": count(), "s": sum("qty"), "m": max("who")}, {"qty": "long", "who": pa.string()})
    >>> [str(o.type) for o in outputs]
    ['int64', 'int64', 'string']
    """
    outputs = []
    for name, aggregate in named.items():
        for column in aggregate.columns:
            if column not in columns:
                raise FlowError(where, f"{name} reads the unknown column {column!r}", f"use one of {sorted(columns)}")
        given = tuple(columns[column] for column in aggregate.columns)
        types = tuple(_TYPES[one] if isinstance(one, str) else one for one in given)
        aggregate.check(types, where)
        outputs.append(Output(name, aggregate, types))
    return tuple(outputs)


def measures_of(outputs: Sequence[Output]) -> tuple[Measure, ...]:
    """Return what the panes of these outputs hold, each measure once, the row count first."""
    return tuple(dict.fromkeys((_ROWS, *(m for output in outputs for m in output.measures))))


def partials_of(outputs: Sequence[Output]) -> tuple[Partial, ...]:
    """Return the partial columns of a pane row, each once, the row count first.

    >>> from penstock.windows.aggregates import count, mean, sum
    >>> [p.name for p in partials_of(bind({"n": count(), "m": mean("x"), "s": sum("x")}, {"x": "double"}))]
    ['_ps_rows', '_ps_sum_double_x', '_ps_count_long_x']
    """
    return tuple(dict.fromkeys(p for measure in measures_of(outputs) for p in measure.partials))


def aggregate_ranges(
    rows: pa.Table, outputs: Sequence[Output], lo: Longs, hi: Longs, position: Longs | None = None
) -> list[pa.Array]:
    """Return the results of windows given as ranges [lo, hi) of ordered rows, one array per output.

    Ranges may overlap, be empty and stand in any order; n rows and w windows cost O(n + w), or O((n + w) log n) for
    quantiles, distinct counts and top-k lists. `position` numbers the rows of a key one by one, whatever batch they
    came in; then the last bits of a sum do not depend on how batches were cut. Left out, rows count as they stand.

    >>> import numpy as np
    >>> from penstock.windows.aggregates import max, sum
    >>> rows = pa.table({"x": [1, 5, None, 2]})
    >>> outputs = bind({"s": sum("x"), "m": max("x")}, {"x": "long"})
    >>> [a.to_pylist() for a in aggregate_ranges(rows, outputs, np.array([0, 1, 2]), np.array([2, 4, 3]))]
    [[6, 7, None], [5, 5, None]]
    """
    ranges = Ranges.over_rows(rows.num_rows, lo, hi, position)
    done: dict[Measure, State] = {}
    results = []
    for output in outputs:
        result = output.aggregate.content(rows, ranges, output.types)
        if result is None:
            for measure in output.measures:
                if measure not in done:
                    done[measure] = measure.over(measure.lift(rows), ranges)
            result = output.lower([done[measure] for measure in output.measures])
        results.append(result)
    return results
