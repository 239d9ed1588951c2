"""What the queries share: columns of a window as plain numbers, without the rows that have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Content(Protocol):
    """A window or a pane, as a function of it sees it: `penstock.windows.content.Window` is one."""

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column."""

    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    def arrow(self) -> pa.Table:
        """The rows exactly."""

    @property
    def key(self) -> Mapping[str, Any]:
        """The key columns' values."""


def numbers(window: Content, *columns: str) -> tuple[list[Floats], NDArray[np.bool_]]:
    """Return the columns as floats over the rows where none of them is null or NaN, and which rows those are.

    Null and NaN both mean "no value" to the queries. A timestamp is a number too: seconds since the UTC epoch.

    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"price": [10, 11, None, 13], "volume": [1.0, float("nan"), 3.0, 4.0]})
    >>> (price, volume), used = numbers(Window(rows, {}, 1, 4), "price", "volume")
    >>> price.tolist(), volume.tolist(), used.tolist()
    ([10.0, 13.0], [1.0, 4.0], [True, False, False, True])
    """
    arrays = [_floats(window[column]) for column in columns]
    used = ~np.isnan(arrays[0])
    for array in arrays[1:]:
        used &= ~np.isnan(array)
    return (arrays if used.all() else [array[used] for array in arrays]), used


def microseconds_of(times: NDArray[Any]) -> NDArray[np.int64]:
    """Return timestamps as whole microseconds since the UTC epoch; there must be no null among them.

    >>> microseconds_of(np.array(["1970-01-01T00:00:01.5"], "datetime64[ns]")).tolist()
    [1500000]
    """
    return np.asarray(times).astype("datetime64[us]").astype(np.int64)


def _floats(array: NDArray[Any]) -> Floats:
    if array.dtype.kind == "M":
        seconds = array.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(array), np.nan, seconds)
    return np.asarray(array, dtype=np.float64)  # of objects too: decimals become floats, None becomes NaN


def gather(results: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """Return one field of all pane results, in their order, as an array.

    >>> gather([{"n": 2}, {"n": 3}], "n").tolist()
    [2.0, 3.0]
    """
    return np.array([result[name] for result in results], dtype=np.float64)


def ratio(part: float, whole: float) -> float | None:
    """Return part / whole, or None where there is no whole.

    >>> ratio(1.0, 4.0), ratio(1.0, 0.0)
    (0.25, None)
    """
    return float(part / whole) if whole else None
