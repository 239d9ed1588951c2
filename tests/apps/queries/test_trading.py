"""VWAP, candles, the median, counts above, and the trading statistics against plain loops, whole and by panes."""

from __future__ import annotations

import math
import pickle
import statistics
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps import queries
from penstock.apps.queries import Above, AboveMean, Candles, Forecast, Median, Polynomial, Skyline, Trading, Vwap
from penstock.apps.queries.trading import NAMES
from tests.apps.queries.query_cases import CUTS, FAST, PRICE, VOLUME, assert_close, by_panes, there, window

TRADES = st.lists(st.tuples(PRICE, VOLUME), max_size=40)


def trades_window(trades: list[tuple[Any, Any]]) -> Any:
    return window(price=[price for price, _ in trades], volume=pa.array([volume for _, volume in trades], pa.int64()))


@FAST
@given(trades=TRADES, places=CUTS)
def test_vwap(trades: list[tuple[Any, Any]], places: list[int]) -> None:
    used = [(price, volume) for price, volume in trades if there(price, volume)]
    volume = sum(v for _, v in used)
    money = math.fsum(p * v for p, v in used)
    right = {"vwap": money / volume if volume else None, "volume": float(volume), "trades": len(used)}
    assert_close(Vwap()(trades_window(trades)), right)
    assert_close(by_panes(Vwap(), trades_window(trades), places), right)


@FAST
@given(trades=TRADES, places=CUTS)
def test_candles(trades: list[tuple[Any, Any]], places: list[int]) -> None:
    used = [(price, volume) for price, volume in trades if there(price, volume)]
    right = None
    if used:
        prices = [price for price, _ in used]
        bar = {"open": prices[0], "high": max(prices), "low": min(prices), "close": prices[-1]}
        right = {**bar, "volume": float(sum(v for _, v in used)), "trades": len(used)}
    assert Candles()(trades_window(trades)) == right
    assert by_panes(Candles(), trades_window(trades), places) == right


@FAST
@given(values=st.lists(PRICE, max_size=40), places=CUTS)
def test_median(values: list[Any], places: list[int]) -> None:
    used = [value for value in values if there(value)]
    right = {"median": statistics.median(used) if used else None, "n": len(used)}
    assert_close(Median("price")(window(price=values)), right, relative=1e-15)
    # by panes it is not near but equal: nothing is lost
    assert by_panes(Median("price"), window(price=values), places) == Median("price")(window(price=values))


def test_median_of_huge_and_infinite_values() -> None:
    assert Median("p")(window(p=[1.7e308, 1.7e308, 1.6e308, 1.6e308]))["median"] == pytest.approx(1.65e308)
    assert Median("p")(window(p=[math.inf, math.inf, 1.0]))["median"] == math.inf
    assert Median("p")(window(p=[5, 3, 4]))["median"] == 4.0


@FAST
@given(values=st.lists(PRICE, max_size=40), places=CUTS, threshold=st.integers(0, 6))
def test_above(values: list[Any], places: list[int], threshold: int) -> None:
    used = [value for value in values if there(value)]
    right = {"above": sum(value > threshold for value in used), "n": len(used)}
    query = Above("price", threshold)
    assert query(window(price=values)) == right
    assert by_panes(query, window(price=values), places) == right


@FAST
@given(values=st.lists(st.one_of(st.none(), st.integers(-8, 8)), max_size=40))
def test_above_mean(values: list[int | None]) -> None:
    used = [value for value in values if value is not None]
    got = AboveMean("v")(window(v=pa.array(values, pa.int64())))
    assert got["n"] == len(used)
    if used:  # small integers: sums are exact, so is the comparison n * v > sum
        assert got["above"] == sum(value * len(used) > sum(used) for value in used)
        assert got["mean"] == pytest.approx(sum(used) / len(used))
    else:
        assert got == {"mean": None, "above": 0, "n": 0}


# --- the suite of statistics -----------------------------------------------------------------------------------------

QUOTE = st.tuples(*[st.one_of(st.none(), st.integers(-1, 4).map(float), st.floats(0.5, 1e4))] * 2, VOLUME, VOLUME)
COLUMNS = ("bid", "ask", "bid_volume", "ask_volume")


def statistics_by_hand(quotes: list[tuple[Any, ...]]) -> dict[str, Any]:
    used = [q for q in quotes if there(*q) and q[0] > 0 and q[1] > 0 and q[2] >= 0 and q[3] >= 0]
    if not used:
        return dict.fromkeys(NAMES) | {"quotes": 0, "bid_volume": 0.0, "ask_volume": 0.0}
    bids, asks, bid_volumes, ask_volumes = (list(column) for column in zip(*used, strict=True))
    mids = [(bid + ask) / 2 for bid, ask in zip(bids, asks, strict=True)]
    returns = [math.log(after / before) for before, after in pairwise(mids)]
    volume = sum(bid_volumes) + sum(ask_volumes)
    out: dict[str, Any] = {"quotes": len(used)}
    for name, prices in (("bid", bids), ("ask", asks)):
        out |= {f"{name}_min": min(prices), f"{name}_max": max(prices), f"{name}_mean": statistics.fmean(prices)}
        out[f"{name}_std"] = statistics.stdev(prices) if len(prices) > 1 else None
    spreads = [ask - bid for bid, ask in zip(bids, asks, strict=True)]
    out |= {"spread_mean": math.fsum(spreads) / len(used), "spread_max": max(spreads)}
    out |= {"bid_volume": float(sum(bid_volumes)), "ask_volume": float(sum(ask_volumes))}
    out["imbalance"] = (sum(bid_volumes) - sum(ask_volumes)) / volume if volume else None
    money = math.fsum(bid * av + ask * bv for bid, ask, bv, av in used)
    out["fair"] = money / volume if volume else None
    out |= {"move": math.log(mids[-1] / mids[0]), "volatility": math.sqrt(math.fsum(r * r for r in returns))}
    return out


def assert_same_statistics(got: dict[str, Any], right: dict[str, Any]) -> None:
    """Spreads, moves and deviations are differences of larger numbers: exact to the digits of those."""
    assert set(got) == set(NAMES)
    size = max(right["bid_max"] or 0.0, right["ask_max"] or 0.0)
    for name in NAMES:
        if right[name] is None:
            assert got[name] is None, name
        else:
            within = 1e-9 * size if name.startswith(("bid_", "ask_", "spread_")) else 1e-9
            assert got[name] == pytest.approx(right[name], rel=1e-9, abs=max(within, 1e-9)), name


@FAST
@given(quotes=st.lists(QUOTE, max_size=30), places=CUTS)
def test_trading_statistics(quotes: list[tuple[Any, ...]], places: list[int]) -> None:
    right = statistics_by_hand(quotes)
    types = (pa.float64(), pa.float64(), pa.int64(), pa.int64())
    columns = {name: pa.array([q[i] for q in quotes], types[i]) for i, name in enumerate(COLUMNS)}
    assert_same_statistics(Trading()(window(**columns)), right)
    assert_same_statistics(by_panes(Trading(), window(**columns), places), right)


def test_deviation_of_large_prices_keeps_its_digits() -> None:
    random = np.random.default_rng(3)
    bid = 1e9 + random.normal(0, 1e-2, 1000)
    rows = window(bid=bid.tolist(), ask=(bid + 1).tolist(), bid_volume=[1.0] * 1000, ask_volume=[1.0] * 1000)
    assert by_panes(Trading(), rows, [200, 400, 600, 800])["bid_std"] == pytest.approx(bid.std(ddof=1), rel=1e-6)


# --- all queries -----------------------------------------------------------------------------------------------------

ALL = (Above(), AboveMean(), Candles(), Forecast(), Median(), Polynomial(), Skyline(), Trading(), Vwap())


@pytest.mark.parametrize("query", ALL, ids=[type(query).__name__ for query in ALL])
def test_results_have_the_declared_columns_and_travel(query: Any) -> None:
    ts = pa.array(range(0, 8000, 1000), pa.timestamp("us", tz="UTC"))
    names = ("price", "volume", "x", "y", "value", "bid", "ask", "bid_volume", "ask_volume")
    rows = window(ts=ts, **{name: [float(k * k + 1) for k in range(8)] for name in names})
    declared = [column.split()[0] for column in query.schema.split(", ")]
    for made in (query, pickle.loads(pickle.dumps(query))):
        result = made(rows)
        columns = result.column_names if isinstance(result, pa.Table) else list(result)
        assert sorted(columns) == sorted(declared)
    if hasattr(query, "pane"):
        pane, combine = pickle.loads(pickle.dumps((query.pane, query.combine)))
        assert combine([pane(rows)], rows) == (result.to_pylist() if isinstance(result, pa.Table) else result)


def test_every_query_and_its_schema_are_exported() -> None:
    assert {type(query).__name__ for query in ALL} | {"SkylineBuffer"} == {n for n in queries.__all__ if n[1].islower()}
    assert {query.schema for query in ALL} == {getattr(queries, n) for n in queries.__all__ if n.endswith("_SCHEMA")}
