"""Sketches: the bytes that Spark writes are read, and windows over panes are as exact as promised."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.windows import aggregates as ps
from penstock.windows.aggregates import bind
from penstock.windows.aggregates.sketches import DistinctSketch, QuantileSketch
from penstock.windows.kernels import Ranges
from penstock.windows.panes import close_windows, compact, lift_panes
from penstock.windows.time import END_OF_TIME, Time

NAMED = {"q": ps.quantile("d", 0.9, approximate=True), "n": ps.distinct("u", approximate=True), "k": ps.count()}
OUTPUTS = bind(NAMED, {"d": "double", "u": "long"})
# datasketches-java 6.2, which Spark 4.3 ships: KLL (k 200) of 5.0; HLL_8 (lg k 12, updatable) of "k0" .. "k4"
JAVA_KLL = bytes.fromhex("02020f04c80008000000000000001440")
JAVA_HLL = bytes.fromhex("0201070c030005080f9a6605c31e7e0bc12d810645cedf0468c78310000000000000000000000000")


def test_bytes_of_the_java_library() -> None:
    quantiles, distinct = QuantileSketch("d"), DistinctSketch("u", pa.string())
    log = pa.table({"_ps_kll_other_d": [JAVA_KLL, None], "_ps_hll_other_u": [JAVA_HLL, None]})
    assert quantiles.partials[0].name == "_ps_kll_other_d"
    state = quantiles.read(log)
    assert state.valid is not None and state.valid.tolist() == [True, False]
    assert state.arrays[0][0].get_quantile(0.5, True) == 5.0
    state = distinct.read(log)
    assert round(state.arrays[0][0].get_estimate()) == 5
    same = distinct.make(pa.table({"u": ["k0", "k4", "new"]}), _one_run(3))
    assert round(distinct.merge(state.arrays[0][0], next(iter(same))).get_estimate()) == 6  # both hash texts alike


def _one_run(rows: int) -> Ranges:
    return Ranges.runs(rows, np.array([0]))


@pytest.mark.parametrize("squeeze", [False, True])
def test_windows_over_panes(squeeze: bool) -> None:
    rng, n = np.random.default_rng(5), 20_000
    time = np.sort(rng.integers(0, 100, n))
    d, u = rng.normal(size=n), rng.integers(0, 5000, n)
    spec = Time("20 us", "5 us")
    rows = pa.table({"_ps_hash": np.zeros(n, dtype=np.int64), "_ps_pane": time // 5, "d": d, "u": u})
    batches = [lift_panes(rows.slice(a, 7000), OUTPUTS, []) for a in range(0, n, 7000)]
    log = pa.concat_tables(batches)
    log = compact(log, [], OUTPUTS) if squeeze else log
    results = close_windows(log, [], spec, OUTPUTS, None, END_OF_TIME).to_pylist()
    assert len(results) == 23
    for r in results:
        mine = (time >= r["_ps_start"]) & (time < r["_ps_end"])
        assert r["k"] == mine.sum()
        rank = (d[mine] <= r["q"]).mean()
        assert abs(rank - 0.9) < 0.03  # more than twice the error of 99 in 100
        exact = len(np.unique(u[mine]))
        assert abs(r["n"] - exact) < 0.08 * exact  # five standard errors


def test_no_values_no_quantile_and_nothing_distinct() -> None:
    rows = pa.table(
        {"_ps_hash": [0, 0], "_ps_pane": [0, 1], "d": pa.nulls(2, pa.float64()), "u": pa.nulls(2, pa.int64())}
    )
    log = compact(lift_panes(rows, OUTPUTS, []), [], OUTPUTS)
    found = close_windows(log, [], Time("2 us", "1 us"), OUTPUTS, None, END_OF_TIME).to_pylist()
    assert [(row["q"], row["n"], row["k"]) for row in found] == [(None, 0, 1), (None, 0, 2), (None, 0, 1)]
