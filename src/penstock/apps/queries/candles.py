"""Candle bars: open, high, low, close and volume of each window, whole or by panes.

    open = price of the first trade     high, low = greatest, least price     close = price of the last trade

The consumer of thesis 000's trading operator draws such candles (7.1). H relies on panes coming in order: the candle of
two panes opens with the first and closes with the second. Rows without price or volume are left out; a window without
trades gives no bar.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"price": [10.0, 13.0, 9.0, 11.0], "volume": [1, 2, 3, 4]})
    >>> whole, left, right = (Window(part, {}, 1, 4) for part in (rows, rows[:2], rows[2:]))
    >>> Candles()(whole)
    {'open': 10.0, 'high': 13.0, 'low': 9.0, 'close': 11.0, 'volume': 10.0, 'trades': 4}
    >>> Candles().combine([Candles().pane(left), Candles().pane(right)], whole) == Candles()(whole)
    True

In a flow: `.apply(pane=Candles().pane, combine=Candles().combine, schema=CANDLES_SCHEMA)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.apps.queries.columns import Content, numbers

CANDLES_SCHEMA = "open double, high double, low double, close double, volume double, trades bigint"


@dataclass(frozen=True)
class Candles:
    """One bar per window; the rows must come in the order of the trades, as windows give them."""

    price: str = "price"
    volume: str = "volume"
    schema: ClassVar[str] = CANDLES_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any] | None:
        """Return the bar of one window, or None if it has no trades."""
        return self.combine([self.pane(window)], window)

    def pane(self, pane: Content) -> dict[str, Any]:
        """G: the bar of a pane; nulls if it has no trades."""
        (price, volume), _ = numbers(pane, self.price, self.volume)
        if not len(price):
            return {"open": None, "high": None, "low": None, "close": None, "volume": 0.0, "trades": 0}
        return {
            "open": float(price[0]),
            "high": float(price.max()),
            "low": float(price.min()),
            "close": float(price[-1]),
            "volume": float(volume.sum()),
            "trades": len(price),
        }

    def combine(self, panes: Sequence[Mapping[str, Any]], window: Any = None) -> dict[str, Any] | None:
        """H: the bar of bars, or None if none of them has trades."""
        bars = [pane for pane in panes if pane["trades"]]
        if not bars:
            return None
        return {
            "open": bars[0]["open"],
            "high": max(bar["high"] for bar in bars),
            "low": min(bar["low"] for bar in bars),
            "close": bars[-1]["close"],
            "volume": float(sum(bar["volume"] for bar in bars)),
            "trades": int(sum(bar["trades"] for bar in bars)),
        }
