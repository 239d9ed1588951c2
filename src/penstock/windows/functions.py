"""Call a user's function window by window, and gather what it returns into columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.windows.content import Window


class WindowFailed(Exception):
    """A window function raised, or returned something else than declared; `cause` is the error itself."""

    def __init__(self, window: Window, cause: Exception) -> None:
        super().__init__(f"key {dict(window.key)}, window {window.start} .. {window.end} of {len(window)} rows")
        self.cause = cause


class Gathered:
    """Results as they come: how many rows each window gave, and their columns.

    >>> gathered = Gathered(pa.schema([("n", pa.int64())]))
    >>> for result in ({"n": 1}, None, [{"n": 2}, {"n": 3}], pa.table({"n": [4]})):
    ...     gathered.add(result)
    >>> gathered.rows_per_window().tolist(), gathered.table().column("n").to_pylist()
    ([1, 0, 2, 1], [1, 2, 3, 4])
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._pieces: list[pa.Table] = []
        self._counts: list[int] = []

    def add(self, result: Any) -> None:
        """Take what one call returned: a dict, None, a list of dicts, or an Arrow table."""
        if isinstance(result, Mapping):
            self._row(result)
            self._counts.append(1)
        elif result is None:
            self._counts.append(0)
        elif isinstance(result, (pa.Table, pa.RecordBatch)):
            self._flush()
            table = pa.table(result) if isinstance(result, pa.RecordBatch) else result
            self._pieces.append(table.select(self._schema.names).cast(self._schema))
            self._counts.append(table.num_rows)
        elif isinstance(result, (list, tuple)) and all(isinstance(row, Mapping) for row in result):
            for row in result:
                self._row(row)
            self._counts.append(len(result))
        else:
            given = type(result).__name__
            raise TypeError(f"a window function returns a dict, None, a list of dicts or an Arrow table, not {given}")

    def _row(self, row: Mapping[str, Any]) -> None:
        names = self._schema.names
        if len(row) != len(names) or any(name not in row for name in names):
            missing, extra = [n for n in names if n not in row], [n for n in row if n not in names]
            what = f"column '{missing[0]}' is missing" if missing else f"column '{extra[0]}' is not declared"
            raise TypeError(f"{what} in the row returned; declared are {', '.join(names)}")
        for column, name in zip(self._columns, names, strict=True):
            column.append(row[name])

    def _flush(self) -> None:
        if self._columns and self._columns[0]:
            arrays = [as_array(values, field) for values, field in zip(self._columns, self._schema, strict=True)]
            self._pieces.append(pa.Table.from_arrays(arrays, schema=self._schema))
            self._columns = [[] for _ in self._schema]

    def rows_per_window(self) -> NDArray[np.int64]:
        """Return how many rows each call gave."""
        return np.array(self._counts, dtype=np.int64)

    def table(self) -> pa.Table:
        """Return all rows so far, in order, of the declared types."""
        self._flush()
        return pa.concat_tables([self._schema.empty_table(), *self._pieces]).combine_chunks()


def as_array(values: list[Any], field: pa.Field) -> pa.Array:
    """Return one result column; a value that does not fit its declared type is named.

    >>> as_array([np.float64(1.5), None], pa.field("m", pa.float64())).to_pylist()
    [1.5, None]
    """
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        for value in values:
            try:
                pa.array([value], field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
                text = f"column '{field.name}' is declared {field.type}, got {value!r}"
                raise TypeError(text) from error
        raise


def call_each(fn: Callable[[Window], Any], windows: Iterable[Window], schema: pa.Schema) -> Gathered:
    """Call the function for every window.

    >>> window = Window(pa.table({"x": [1, 2]}), {"k": "a"}, 0, 10)
    >>> call_each(lambda w: {"s": int(w["x"].sum())}, [window], pa.schema([("s", pa.int64())])).table().to_pylist()
    [{'s': 3}]
    """
    gathered = Gathered(schema)
    for window in windows:
        try:
            gathered.add(fn(window))
        except Exception as error:
            raise WindowFailed(window, error) from error
    return gathered
