"""Rows made by a user's function of the row index, the same however batches and partitions are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FlowError, UserFunctionError
from penstock.sources.draws import STREAM_ROWS, generator
from penstock.sources.schedule import Ints

# The function always gets whole blocks, so that what it draws for a row depends on the row's block and place in
# it, never on where a batch began. Part of the values' definition: another size gives other values.
BLOCK = 1024

RowFunction = Callable[[Ints, np.random.Generator], Mapping[str, Any] | pa.RecordBatch]


@dataclass(frozen=True)
class Generated:
    """A function of (row index, random generator) that makes the columns of `schema`."""

    function: RowFunction
    schema: pa.Schema
    seed: int

    # How many rows there are: a function has no end.
    rows = float("inf")

    @property
    def name(self) -> str:
        return f"rows function {getattr(self.function, '__name__', self.function)!r}"

    def _block(self, block: int) -> Mapping[str, Any] | pa.RecordBatch:
        index = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.int64)
        made = self.function(index, generator(self.seed, STREAM_ROWS, block))
        if isinstance(made, pa.RecordBatch):
            made = {name: made.column(name) for name in made.schema.names}
        if not isinstance(made, Mapping):
            raise UserFunctionError(f"{self.name} must return a dict of arrays or a RecordBatch, not {type(made)}")
        if set(made) != set(self.schema.names):
            raise UserFunctionError(f"{self.name} returned columns {list(made)}, its schema says {self.schema.names}")
        for name, column in made.items():
            if len(column) != BLOCK:
                raise UserFunctionError(f"{self.name} returned {len(column)} values of {name!r} for {BLOCK} rows")
        return made

    def arrays(self, first: int, last: int) -> list[pa.Array]:
        """The columns of the rows `first` .. `last` (exclusive), in the order and types of the schema."""
        low, high = first // BLOCK, -(-last // BLOCK)
        blocks = [self._block(block) for block in range(low, high)]
        cut = slice(first - low * BLOCK, last - low * BLOCK)
        return [self._array(field, [block[field.name] for block in blocks], cut) for field in self.schema]

    def _array(self, field: pa.Field, parts: list[Any], cut: slice) -> pa.Array:
        try:
            if isinstance(parts[0], (pa.Array, pa.ChunkedArray)):
                flat = (chunk for part in parts for chunk in getattr(part, "chunks", [part]))
                return pa.concat_arrays(flat)[cut].cast(field.type)
            return pa.array(np.concatenate(parts)[cut], type=field.type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UserFunctionError(f"{self.name}: column {field.name!r} is not {field.type}: {error}") from error

    def check(self) -> None:
        """Refuse a function that fails on its first block, or that gives other values when asked again."""
        try:
            once, again = ([array.to_pylist() for array in self.arrays(0, BLOCK)] for _ in range(2))
        except Exception as error:
            rule = f"it failed on the rows 0 .. {BLOCK - 1}: {type(error).__name__}: {error}"
            raise FlowError(self.name, rule, "return one array of len(index) per column of schema=") from error
        if repr(once) != repr(again):  # as text, so that NaN equals NaN
            raise FlowError(
                self.name,
                "called twice for the same rows it gave different values",
                "make it a function of the index, and draw from the generator that it is given",
            )
