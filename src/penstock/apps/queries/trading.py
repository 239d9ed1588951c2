"""Trading statistics over quotes: the window function of thesis 000's pattern benchmark (4.9.2), by panes or whole.

The thesis says what the quotes are (bid and ask, price and volume) and that F = H(G, ..., G), with G far dearer than H;
it does not list the statistics. These are ours, the usual ones, all computed in one pass and all exact under H. With
mid = (bid + ask) / 2:

    quotes                       how many
    {bid,ask}_{min,max,mean,std} of the prices; std of the sample (n - 1), null for fewer than two quotes
    spread_mean, spread_max      of ask - bid
    bid_volume, ask_volume       sums
    imbalance                    (bid_volume - ask_volume) / (bid_volume + ask_volume)
    fair                         sum (bid * ask_volume + ask * bid_volume) / sum (bid_volume + ask_volume)
    move                         log(last mid / first mid)
    volatility                   sqrt(sum of squared log returns of mid from quote to quote)

Panes merge means and variances by n, mean and M2 = sum (x - mean)^2 (no difference of large sums), and the return
*between* two panes comes from the last mid of one and the first of the next: H needs panes in order. A row counts if
its four values are there, both prices are above zero and both volumes at least zero.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"bid": [10.0, 12.0], "ask": [11.0, 12.5], "bid_volume": [3, 1], "ask_volume": [1, 3]})
    >>> whole, left, right = (Window(part, {"symbol": 1}, 1, 2) for part in (rows, rows[:1], rows[1:]))
    >>> suite = Trading()
    >>> found = suite(whole)
    >>> found["quotes"], found["bid_mean"], found["spread_max"], found["imbalance"], round(found["move"], 4)
    (2, 11.0, 1.0, 0.0, 0.1542)
    >>> suite.combine([suite.pane(left), suite.pane(right)], whole) == found
    True

In a flow, with the reference window: `quotes.window(ps.Count(1000, slide=200), key="symbol").apply(pane=Trading().pane,
combine=Trading().combine, schema=TRADING_SCHEMA)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.apps.queries.columns import Content, Floats, gather, numbers, ratio

TRADING_SCHEMA = (
    "quotes bigint, "
    "bid_min double, bid_max double, bid_mean double, bid_std double, "
    "ask_min double, ask_max double, ask_mean double, ask_std double, "
    "spread_mean double, spread_max double, bid_volume double, ask_volume double, "
    "imbalance double, fair double, move double, volatility double"
)
NAMES = tuple(column.split()[0] for column in TRADING_SCHEMA.split(", "))


@dataclass(frozen=True)
class Trading:
    """All statistics of a window of quotes in one row."""

    bid: str = "bid"
    ask: str = "ask"
    bid_volume: str = "bid_volume"
    ask_volume: str = "ask_volume"
    schema: ClassVar[str] = TRADING_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the statistics of one window."""
        return self.combine([self.pane(window)], window)

    def pane(self, pane: Content) -> dict[str, Any]:
        """G: what the statistics are made of, for one pane; only `n` if it has no quotes."""
        columns, _ = numbers(pane, self.bid, self.ask, self.bid_volume, self.ask_volume)
        sound = (columns[0] > 0) & (columns[1] > 0) & (columns[2] >= 0) & (columns[3] >= 0)
        bid, ask, bids, asks = (column[sound] for column in columns)
        n = len(bid)
        if not n:
            return dict.fromkeys(_PARTS) | {"n": 0}
        mid, spread = np.log(bid / 2 + ask / 2), ask - bid
        steps = np.diff(mid)
        return {
            "n": n,
            **_moments("bid", bid),
            **_moments("ask", ask),
            "spread_sum": float(spread.sum()),
            "spread_max": float(spread.max()),
            "bid_volume": float(bids.sum()),
            "ask_volume": float(asks.sum()),
            "money": float(bid @ asks + ask @ bids),
            "first": float(mid[0]),
            "last": float(mid[-1]),
            "squares": float(steps @ steps),
        }

    def combine(self, panes: Sequence[Mapping[str, Any]], window: Any = None) -> dict[str, Any]:
        """H: the statistics of panes in order; nulls and zeros if none has quotes."""
        parts = [pane for pane in panes if pane["n"]]
        if not parts:
            return dict.fromkeys(NAMES) | {"quotes": 0, "bid_volume": 0.0, "ask_volume": 0.0}
        counts = gather(parts, "n")
        n, bids, asks = int(counts.sum()), gather(parts, "bid_volume").sum(), gather(parts, "ask_volume").sum()
        between = gather(parts[1:], "first") - gather(parts[:-1], "last")
        return {
            "quotes": n,
            **_merge("bid", parts, counts),
            **_merge("ask", parts, counts),
            "spread_mean": float(gather(parts, "spread_sum").sum() / n),
            "spread_max": float(gather(parts, "spread_max").max()),
            "bid_volume": float(bids),
            "ask_volume": float(asks),
            "imbalance": ratio(bids - asks, bids + asks),
            "fair": ratio(gather(parts, "money").sum(), bids + asks),
            "move": parts[-1]["last"] - parts[0]["first"],
            "volatility": math.sqrt(gather(parts, "squares").sum() + between @ between),
        }


def _moments(name: str, values: Floats) -> dict[str, float]:
    mean = values.mean()
    apart = values - mean
    return {
        f"{name}_min": float(values.min()),
        f"{name}_max": float(values.max()),
        f"{name}_mean": float(mean),
        f"{name}_m2": float(apart @ apart),
    }


def _merge(name: str, parts: Sequence[Mapping[str, Any]], counts: Floats) -> dict[str, Any]:
    """Return the columns of one price: M2 of a union = sum of M2 + sum n_i (mean_i - mean)^2."""
    means, n = gather(parts, f"{name}_mean"), counts.sum()
    # measured from the first mean: the means lie close together, so the difference keeps its digits
    mean = means[0] + counts @ (means - means[0]) / n
    m2 = gather(parts, f"{name}_m2").sum() + counts @ (means - mean) ** 2
    return {
        f"{name}_min": float(gather(parts, f"{name}_min").min()),
        f"{name}_max": float(gather(parts, f"{name}_max").max()),
        f"{name}_mean": float(mean),
        f"{name}_std": math.sqrt(m2 / (n - 1)) if n > 1 else None,
    }


_PARTS = (
    *(f"{side}_{what}" for side in ("bid", "ask") for what in ("min", "max", "mean", "m2")),
    *("spread_sum", "spread_max", "bid_volume", "ask_volume", "money", "first", "last", "squares"),
)
