"""What a `stateful` function sees of its keys' state: columns, one row per key, never changed in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UserFunctionError


@dataclass(frozen=True)
class KeyedState:
    """The state of the keys that occur in one call, one slot per key.

    `slots[i]` is the slot of row i; `keys` holds the key columns, `table` the state columns (null for a
    key that is new), both one row per slot. A function returns `state.update(column=array, ...)`.

    >>> state = KeyedState(
    ...     slots=np.array([0, 1, 0]), keys=pa.table({"k": ["a", "b"]}),
    ...     table=pa.table({"total": pa.array([10.0, None])}), is_new=np.array([False, True]))
    >>> state["total"]
    array([10.,  0.])
    >>> after = state.update(total=state["total"] + np.bincount(state.slots, [1.0, 2.0, 3.0]))
    >>> after["total"]
    array([14.,  2.])
    """

    slots: npt.NDArray[np.int64]
    keys: pa.Table
    table: pa.Table
    is_new: npt.NDArray[np.bool_]
    dead: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """Return the number of keys."""
        return int(self.keys.num_rows)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return a state column as NumPy, one value per slot; a number that is null reads as 0."""
        values = self.arrow(column)
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            values = pc.fill_null(values, 0)
        elif pa.types.is_boolean(values.type):
            values = pc.fill_null(values, False)
        array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array

    def arrow(self, column: str) -> pa.Array:
        """Return a state column as it is stored, nulls and all."""
        self._need(column)
        chunked = self.table.column(column)
        return chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)

    def update(self, **columns: Any) -> KeyedState:
        """Return the state with some columns replaced, one value per slot: NumPy, Arrow or a list.

        Values are brought to the declared type where nothing is lost by it.

        >>> state = KeyedState(
        ...     slots=np.array([0]), keys=pa.table({"k": ["a"]}),
        ...     table=pa.table({"n": pa.array([1])}), is_new=np.array([False]))
        >>> state.update(n=[2.5])
        Traceback (most recent call last):
        ...
        penstock.errors.UserFunctionError: state column 'n' is declared int64: Float value 2.5... was truncated ...
        """
        table = self.table
        for name, values in columns.items():
            self._need(name)
            size = len(values) if hasattr(values, "__len__") else None
            if size != len(self):
                got = type(values).__name__ if size is None else size
                raise UserFunctionError(f"state column '{name}' needs {len(self)} values, one per key, got {got}")
            index = table.column_names.index(name)
            declared = table.schema.field(index)
            table = table.set_column(index, declared, _typed(values, declared))
        return replace(self, table=table)

    def drop(self, mask: npt.NDArray[np.bool_]) -> KeyedState:
        """Return the state with the keys under `mask` forgotten: the next row of such a key finds it new."""
        mask = np.asarray(mask)
        if mask.dtype != np.bool_ or mask.shape != (len(self),):
            shape = f"{mask.dtype} of shape {mask.shape}"
            raise UserFunctionError(f"drop() needs {len(self)} booleans, one per key, got {shape}")
        return replace(self, dead=mask if self.dead is None else self.dead | mask)

    def _need(self, column: str) -> None:
        if column not in self.table.column_names:
            raise UserFunctionError(f"state has no column '{column}'; state_schema declares {self.table.column_names}")


def _typed(values: Any, declared: pa.Field) -> pa.Array:
    """Return the values as an array of the declared type; refuse to lose anything by it."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        # Not pa.array(values, type): that would cut 2.5 to 2 without a word.
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return array.cast(declared.type)
    except (pa.ArrowException, OverflowError) as error:
        raise UserFunctionError(f"state column '{declared.name}' is declared {declared.type}: {error}") from None
