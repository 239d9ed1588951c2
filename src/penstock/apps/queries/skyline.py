"""The skyline of each window: the points that no other point of the window beats (thesis 000 section 4.9.3).

    x dominates y  <=>  x_i <= y_i for all i  and  x_j < y_j for some j
    skyline        =    the points that no point of the window dominates; equal points do not dominate each other

Less is better; name the columns where more is better in `most`. Rows without one of the values are left out. The
skyline of a union is the skyline of the union of skylines, so panes and partitions do (`pane`, `combine`).

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"price": [3.0, 1.0, 2.0, 2.0], "distance": [1.0, 4.0, 2.0, 3.0]})
    >>> Skyline(("price", "distance"))(Window(rows, {}, 1, 4)).to_pylist()
    [{'price': 3.0, 'distance': 1.0}, {'price': 1.0, 'distance': 4.0}, {'price': 2.0, 'distance': 2.0}]

In a flow, recomputed at every arrival over the last 10 s, as in the thesis:

    best = offers.window(ps.Time("10 s", every=1)).apply(Skyline(("price", "distance")), schema="price double, ...")

One kernel does all: of points in some order, keep those that none *before* them dominates. In lexicographic order a
point can only be dominated by one before it, so the kernel gives the skyline. From the youngest to the oldest it gives
the thesis's pruning: a point dominated by a younger one leaves the window before its dominator does, so it is never
again in a skyline and need not be stored (`SkylineBuffer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.apps.queries.columns import Content, Floats, numbers

SKYLINE_SCHEMA = "x double, y double"
BLOCK = 256  # points compared at once with all kept so far: large enough for NumPy, small enough for the cache


def dominates(points: Floats, others: Floats) -> NDArray[np.bool_]:
    """Return a matrix: whether points[i] dominates others[j].

    >>> dominates(np.array([[1.0, 1.0]]), np.array([[1.0, 2.0], [1.0, 1.0], [0.0, 2.0]]))
    array([[ True, False, False]])
    """
    no_worse = np.ones((len(points), len(others)), bool)
    better = np.zeros_like(no_worse)
    for d in range(points.shape[1]):
        mine, theirs = points[:, d, None], others[None, :, d]
        no_worse &= mine <= theirs
        better |= mine < theirs
    return no_worse & better


def undominated_by_earlier(points: Floats) -> NDArray[np.bool_]:
    """Tell which points none before them dominates. It is enough to compare with those kept: dominance is transitive.

    >>> undominated_by_earlier(np.array([[2.0, 2.0], [3.0, 2.0], [1.0, 2.0], [2.0, 1.0]]))
    array([ True, False,  True,  True])
    """
    keep = np.ones(len(points), bool)
    kept = np.empty((0, points.shape[1]))
    for first in range(0, len(points), BLOCK):
        block = points[first : first + BLOCK]
        inside = np.arange(len(block))
        if len(kept):  # what the kept ones dominate need not be compared with each other
            inside = inside[~dominates(kept, block).any(axis=0)]
        rest = block[inside]
        inside = inside[~np.triu(dominates(rest, rest), 1).any(axis=0)]
        keep[first : first + BLOCK] = False
        keep[first + inside] = True
        kept = np.concatenate([kept, block[inside]])
    return keep


def skyline(points: Floats) -> NDArray[np.int64]:
    """Return the positions of the skyline's points, ascending.

    >>> skyline(np.array([[3.0, 1.0], [3.0, 1.0], [3.0, 2.0], [1.0, 5.0]])).tolist()
    [0, 1, 3]
    """
    order = np.lexsort(points.T[::-1])  # by the first dimension, then the second, ...
    if points.shape[1] == 2:
        return np.sort(order[_undominated_in_plane(points[order])])
    return np.sort(order[undominated_by_earlier(points[order])])


def _undominated_in_plane(ordered: Floats) -> NDArray[np.bool_]:
    """Do the same for two dimensions in one pass: y must be below all y of smaller x, and the least of its own x."""
    if not len(ordered):
        return np.empty(0, bool)
    x, y = ordered[:, 0], ordered[:, 1]
    first = np.flatnonzero(np.r_[True, x[1:] != x[:-1]])  # of each x; the first has the least y
    group = np.cumsum(np.r_[False, x[1:] != x[:-1]])
    least = np.minimum.accumulate(y[first])
    before = np.r_[np.inf, least[:-1]][group]
    # an infinite y is below nothing, but where no x is smaller nothing dominates it either
    return (y == y[first][group]) & ((y < before) | (group == 0))


@dataclass(frozen=True)
class Skyline:
    """The rows of the skyline with their `columns`, and the columns in `carry` beside them, in the window's order."""

    columns: tuple[str, ...] = ("x", "y")
    most: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()
    default_schema: ClassVar[str] = SKYLINE_SCHEMA

    @property
    def schema(self) -> str:
        """The result's columns if all are doubles; with others, or with `carry`, declare them yourself.

        >>> Skyline(("price", "distance")).schema
        'price double, distance double'
        """
        return ", ".join(f"{name} double" for name in self.columns)

    def __call__(self, window: Content) -> pa.Table:
        """Return the skyline's rows of one window."""
        arrays, used = numbers(window, *self.columns)
        chosen = np.flatnonzero(used)[skyline(self._points(arrays))]
        return window.arrow.select([*self.columns, *self.carry]).take(pa.array(chosen))

    def pane(self, pane: Content) -> dict[str, Any]:
        """G: the skyline of a pane, one list per column."""
        rows: pa.Table = self(pane)
        return {name: rows.column(name).to_pylist() for name in (*self.columns, *self.carry)}

    def combine(self, panes: Sequence[Mapping[str, Any]], window: Any = None) -> list[dict[str, Any]]:
        """H: the skyline of all panes' skylines."""
        names = (*self.columns, *self.carry)
        union = {name: [value for pane in panes for value in pane[name]] for name in names}
        points = self._points([np.array(union[name], dtype=np.float64) for name in self.columns])
        return [{name: union[name][i] for name in names} for i in skyline(points).tolist()]

    def _points(self, arrays: Sequence[Floats]) -> Floats:
        signs = (-1.0 if name in self.most else 1.0 for name in self.columns)
        return np.column_stack([sign * array for sign, array in zip(signs, arrays, strict=True)])


class SkylineBuffer:
    """The window of one worker in the thesis: points of the last `size` time units, pruned as younger ones come.

    >>> buffer = SkylineBuffer(size=10, dimensions=2)
    >>> buffer.insert(np.array([[2.0, 2.0], [1.0, 3.0]]), np.array([0, 1]))
    >>> buffer.insert(np.array([[1.0, 2.0]]), np.array([5]))  # dominates both: they will never be needed again
    >>> len(buffer), buffer.skyline().tolist()
    (1, [[1.0, 2.0]])
    >>> buffer.expire(now=16)
    >>> len(buffer)
    0
    """

    def __init__(self, size: int, dimensions: int) -> None:
        self.size = size
        self._points = np.empty((0, dimensions))
        self._times = np.empty(0, np.int64)

    def __len__(self) -> int:
        """Return how many points are stored."""
        return len(self._times)

    def insert(self, points: Floats, times: NDArray[np.int64]) -> None:
        """Add points, youngest last; what is too old at the last one's time leaves, then what it dominates."""
        if not len(times):
            return
        self._points = np.concatenate([self._points, points])
        self._times = np.concatenate([self._times, times])
        self.expire(int(times[-1]))
        keep = undominated_by_earlier(self._points[::-1])[::-1]
        self._points, self._times = self._points[keep], self._times[keep]

    def expire(self, now: int) -> None:
        """Drop the points with time < now - size."""
        gone = int(np.searchsorted(self._times, now - self.size, side="left"))
        self._points, self._times = self._points[gone:], self._times[gone:]

    def skyline(self) -> Floats:
        """Return the skyline of the stored points: that of all points of the window."""
        return self._points[skyline(self._points)]
