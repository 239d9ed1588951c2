"""The exact median of each window, whole or by panes.

    of n values in order: the middle one, or for even n the mean of the two in the middle (as Spark's `median`)

A holistic function in the words of thesis 000 (4.5): no summary of constant size does for G. Whole windows are selected
from in O(n), without sorting. For panes, G is the list of different values with their counts: prices move on a grid of
ticks, so it is short however many trades there are, and nothing is lost. Null and NaN are left out.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"price": [10.0, 30.0, 20.0, 20.0, None]})
    >>> Median("price")(Window(rows, {}, 1, 5))
    {'median': 20.0, 'n': 4}
    >>> Median("price").pane(Window(rows, {}, 1, 5))
    {'values': [10.0, 20.0, 30.0], 'counts': [1, 2, 1]}

In a flow: `.apply(Median("price"), schema=MEDIAN_SCHEMA)`. `ps.quantile(column, 0.5)` is the same as an aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.apps.queries.columns import Content, numbers

MEDIAN_SCHEMA = "median double, n bigint"


@dataclass(frozen=True)
class Median:
    """The median of `column` and how many values there are."""

    column: str = "value"
    schema: ClassVar[str] = MEDIAN_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the result of one window."""
        (values,), _ = numbers(window, self.column)
        n = len(values)
        if not n:
            return {"median": None, "n": 0}
        low, high = (n - 1) // 2, n // 2
        parted = np.partition(values, (low, high))
        return {"median": _middle(parted[low], parted[high]), "n": n}

    def pane(self, pane: Content) -> dict[str, Any]:
        """G: the different values, ascending, and how often each occurs."""
        (values,), _ = numbers(pane, self.column)
        different, counts = np.unique(values, return_counts=True)
        return {"values": different.tolist(), "counts": counts.tolist()}

    def combine(self, panes: Sequence[Mapping[str, Any]], window: Any = None) -> dict[str, Any]:
        """H: walk up the values of all panes until half of the count has passed."""
        values = np.concatenate([np.empty(0), *(pane["values"] for pane in panes)])
        counts = np.concatenate([np.empty(0, np.int64), *(np.asarray(pane["counts"], np.int64) for pane in panes)])
        n = int(counts.sum())
        if not n:
            return {"median": None, "n": 0}
        order = np.argsort(values)
        passed = np.cumsum(counts[order])  # values[order][i] holds the ranks passed[i-1] .. passed[i] - 1, from 0
        low, high = np.searchsorted(passed, [(n - 1) // 2, n // 2], side="right")
        return {"median": _middle(values[order[low]], values[order[high]]), "n": n}


def _middle(low: float, high: float) -> float:
    """Return the mean of two values; halves are added, for the sum of two large ones is infinite."""
    return float(low) if low == high else float(low / 2 + high / 2)
