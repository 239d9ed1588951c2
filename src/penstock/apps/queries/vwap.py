"""The volume-weighted average price of each window, whole or by panes.

    vwap = sum_k price_k volume_k / sum_k volume_k

A differential function in the words of thesis 000 (4.5): the pane function G keeps two sums and a count, H adds them
up, so every trade is looked at once, whatever the overlap of the windows. Rows without price or volume are left out; no
volume, no price: null.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"price": [10.0, 20.0, None], "volume": [3, 1, 5]})
    >>> Vwap()(Window(rows, {"symbol": "A"}, 1, 3))
    {'vwap': 12.5, 'volume': 4.0, 'trades': 2}

In a flow, whole and by panes:

    .apply(Vwap(), schema=VWAP_SCHEMA)
    .apply(pane=Vwap().pane, combine=Vwap().combine, schema=VWAP_SCHEMA)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.apps.queries.columns import Content, gather, numbers, ratio

VWAP_SCHEMA = "vwap double, volume double, trades bigint"


@dataclass(frozen=True)
class Vwap:
    """The volume-weighted average of `price`, with the volume and the number of trades."""

    price: str = "price"
    volume: str = "volume"
    schema: ClassVar[str] = VWAP_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the result of one window."""
        return self.combine([self.pane(window)], window)

    def pane(self, pane: Content) -> dict[str, Any]:
        """G: money paid, volume and number of the pane's trades."""
        (price, volume), _ = numbers(pane, self.price, self.volume)
        return {"money": float(price @ volume), "volume": float(volume.sum()), "trades": len(price)}

    def combine(self, panes: Sequence[Mapping[str, Any]], window: Any = None) -> dict[str, Any]:
        """H: add up."""
        money, volume, trades = (gather(panes, name).sum() for name in ("money", "volume", "trades"))
        return {"vwap": ratio(money, volume), "volume": float(volume), "trades": int(trades)}
