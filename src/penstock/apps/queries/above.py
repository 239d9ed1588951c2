"""How many tuples are above a threshold, and above their own window's mean: thesis 000's map-reduce examples (4.6).

    above a threshold:  map = is it above?, reduce = sum                                   (asynchronous reduce)
    above the mean:     reduce to the mean first, then a second map over the same window   (synchronous reduce)

The first decomposes over panes and partitions. The second needs two rounds over the content: a pane cannot know the
mean of a window that it is part of, so there is no `pane`. Null and NaN are left out.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> window = Window(pa.table({"price": [1.0, 2.0, 9.0, None]}), {}, 1, 4)
    >>> Above("price", threshold=1.5)(window)
    {'above': 2, 'n': 3}
    >>> AboveMean("price")(window)
    {'mean': 4.0, 'above': 1, 'n': 3}

In a flow: `.window(ps.Count(1000, slide=200), key="symbol").apply(AboveMean("price"), schema=ABOVE_MEAN_SCHEMA)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.apps.queries.columns import Content, gather, numbers

ABOVE_SCHEMA = "above bigint, n bigint"
ABOVE_MEAN_SCHEMA = "mean double, above bigint, n bigint"


@dataclass(frozen=True)
class Above:
    """Count the rows whose `column` is greater than `threshold`."""

    column: str = "value"
    threshold: float = 0.0
    schema: ClassVar[str] = ABOVE_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the result of one window."""
        return self.pane(window)

    def pane(self, pane: Content) -> dict[str, Any]:
        """G: the count in a pane."""
        (values,), _ = numbers(pane, self.column)
        return {"above": int(np.count_nonzero(values > self.threshold)), "n": len(values)}

    def combine(self, panes: Sequence[Mapping[str, Any]], window: Any = None) -> dict[str, Any]:
        """H: add up."""
        return {name: int(gather(panes, name).sum()) for name in ("above", "n")}


@dataclass(frozen=True)
class AboveMean:
    """Count the rows whose `column` is greater than its mean over the same window."""

    column: str = "value"
    schema: ClassVar[str] = ABOVE_MEAN_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the result of one window."""
        (values,), _ = numbers(window, self.column)
        if not len(values):
            return {"mean": None, "above": 0, "n": 0}
        mean = float(values.mean())
        return {"mean": mean, "above": int(np.count_nonzero(values > mean)), "n": len(values)}
