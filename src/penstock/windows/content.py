"""What a window function sees: the rows of one window as columns, without a copy.

All windows of a task share one set of arranged rows; a window is a range of it, so a column is a NumPy slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Window:
    """The content of one window, with its key and bounds.

    `window["price"]` is a NumPy column (nulls as NaN in floats and integers, None in all else), `window.arrow` the
    rows exactly, `len(window)` their number. `start` and `end` are those of the result row: times of Time windows,
    positions of Count and Delta windows. The columns are shared with other windows: do not write into them.

    >>> window = Window(pa.table({"price": [3.0, 5.0]}), {"symbol": "A"}, start=1, end=2)
    >>> float(window["price"].mean()), len(window), window.key["symbol"], window.end
    (4.0, 2, 'A', 2)
    """

    def __init__(self, table: pa.Table, key: Mapping[str, Any], start: Any, end: Any) -> None:
        self._rows, self._lo, self._hi = Rows(table), 0, table.num_rows
        self._key, self._start, self._end = key, start, end

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._hi - self._lo)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column as NumPy, a view of the shared rows."""
        return self._rows.column(column)[self._lo : self._hi]

    @property
    def arrow(self) -> pa.Table:
        """The rows as an Arrow table, nulls and types as they are."""
        return self._rows.table.slice(self._lo, self._hi - self._lo)

    @property
    def key(self) -> Mapping[str, Any]:
        """The key columns' values by name."""
        return self._key

    @property
    def start(self) -> Any:
        """The window's start, as in its result row."""
        return self._start

    @property
    def end(self) -> Any:
        """The window's end, as in its result row."""
        return self._end

    def __repr__(self) -> str:
        return f"Window({dict(self.key)}, {self.start} .. {self.end}, {len(self)} rows)"


class Rows:
    """Arranged rows, whose columns become NumPy arrays at the first use and stay."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._columns: dict[str, NDArray[Any]] = {}

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as NumPy."""
        if name not in self._columns:
            if name not in self.table.column_names:
                raise KeyError(f"no column {name!r}; there are {', '.join(self.table.column_names)}")
            values = self.table.column(name)
            array: NDArray[Any] = values.to_numpy()
            array.flags.writeable = False
            self._columns[name] = array
        return self._columns[name]


class _Range(Window):
    """A window over shared rows; key and bounds are turned into Python values only if the function asks for them."""

    def __init__(self, rows: Rows, lo: int, hi: int, keys: _Keys, slot: int, bounds: tuple[int, int, bool]) -> None:
        self._rows, self._lo, self._hi = rows, lo, hi
        self._keys, self._slot, self._bounds = keys, slot, bounds

    @property
    def key(self) -> Mapping[str, Any]:
        return self._keys[self._slot]

    @property
    def start(self) -> Any:
        return EPOCH + timedelta(microseconds=self._bounds[0]) if self._bounds[2] else self._bounds[0]

    @property
    def end(self) -> Any:
        return EPOCH + timedelta(microseconds=self._bounds[1]) if self._bounds[2] else self._bounds[1]


class _Keys:
    """The distinct keys as dictionaries, made when asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._made: dict[int, Mapping[str, Any]] = {}

    def __getitem__(self, slot: int) -> Mapping[str, Any]:
        if slot not in self._made:
            rows = self._table.slice(slot, 1).to_pylist()
            self._made[slot] = rows[0] if rows else {}
        return self._made[slot]


def windows_of(
    table: pa.Table,
    keys: pa.Table,
    slot: NDArray[np.int64],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    *,
    timed: bool,
) -> Iterator[Window]:
    """Yield one window after the other over arranged rows; `timed` bounds are microseconds.

    >>> rows, keys = pa.table({"x": [1, 2, 3]}), pa.table({"k": ["a"]})
    >>> one = np.array([0]), np.array([1]), np.array([3]), np.array([0]), np.array([10])
    >>> [window] = windows_of(rows, keys, *one, timed=False)
    >>> window["x"].tolist(), window.key, window.end
    ([2, 3], {'k': 'a'}, 10)
    """
    rows, values = Rows(table), _Keys(keys)
    bounds = zip(slot.tolist(), lo.tolist(), hi.tolist(), start.tolist(), end.tolist(), strict=True)
    for key, first, last, begin, stop in bounds:
        yield _Range(rows, first, last, values, key, (begin, stop, timed))
