"""Every aggregate against the oracle: over ranges of rows, and by panes lifted in Python."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.windows import aggregates as ps
from penstock.windows.aggregates import AggregateOverflow, Output, aggregate_ranges, bind, partials_of
from penstock.windows.aggregates.measures import Total
from penstock.windows.keys import HASH
from penstock.windows.oracle_aggregates import evaluate
from penstock.windows.panes import PANE, close_windows, compact, lift_panes
from penstock.windows.time import END_OF_TIME, Time
from tests.windows.aggregate_cases import COMBINED, ROW, SCHEMA, WHOLE, assert_same, rows, table
from tests.windows.window_cases import hash_of, specs, us

FAST = settings(max_examples=75, deadline=None, derandomize=True)
NAN = math.nan


def ranges(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, size), st.integers(0, size)).map(lambda r: (min(r), max(r))), max_size=12)


@FAST
@given(given=rows(40), bounds=ranges(40), offset=st.one_of(st.none(), st.integers(-100, 100)))
def test_ranges_of_rows(given: list[ROW], bounds: list[tuple[int, int]], offset: int | None) -> None:
    outputs = (*COMBINED, *WHOLE)
    lo = np.array([min(a, len(given)) for a, _ in bounds], dtype=np.int64)
    hi = np.array([min(b, len(given)) for _, b in bounds], dtype=np.int64)
    position = None if offset is None else np.arange(len(given)) + offset
    results = aggregate_ranges(table(given), outputs, lo, hi, position)
    for output, result in zip(outputs, results, strict=True):
        assert result.type == output.type, output.name
        assert len(result) == len(lo)
        for got, a, b in zip(result.to_pylist(), lo, hi, strict=True):
            assert_same(output, got, evaluate(output, given[a:b]), given[a:b])


def pane_rows(given: list[ROW], times: list[int], spec: Time) -> pa.Table:
    """Raw rows as the engine hands them over: with key, hash and pane."""
    keys = [f"k{t % 3}" for t in times]
    heads = {HASH: pa.array([hash_of(k, False) for k in keys], pa.int64()), "key": pa.array(keys, pa.string())}
    panes = pa.array([spec.pane_of(t) for t in times], pa.int64())
    columns = table(given)
    return pa.table({**heads, PANE: panes, **{name: columns.column(name) for name in SCHEMA.names}})


@FAST
@given(given=rows(30), spec=specs(), data=st.data(), cut=st.integers(0, 30), squeeze=st.booleans())
def test_panes_lifted_in_python(given: list[ROW], spec: Time, data: st.DataObject, cut: int, squeeze: bool) -> None:
    times = data.draw(st.lists(st.integers(-60, 60), min_size=len(given), max_size=len(given)))
    parts = [
        lift_panes(pane_rows(given[part], times[part], spec), COMBINED, ["key"])
        for part in (slice(0, cut), slice(cut, None))
    ]
    log = pa.concat_tables(parts)
    assert log.column_names == [HASH, "key", PANE, *(p.name for p in partials_of(COMBINED))]
    assert [log.schema.field(p.name).type for p in partials_of(COMBINED)] == [p.type for p in partials_of(COMBINED)]
    if squeeze:
        log = compact(log, ["key"], COMBINED)
    got = close_windows(log, ["key"], spec, COMBINED, None, END_OF_TIME)
    windows: dict[tuple[str, int], list[ROW]] = {}
    for t, row in zip(times, given, strict=True):
        for k in range(spec.first_window(t), spec.last_window(t) + 1):
            windows.setdefault((f"k{t % 3}", spec.start_of(k)), []).append(row)
    found = {(r["key"], r["_ps_start"]): r for r in got.to_pylist()}
    assert found.keys() == windows.keys()
    assert got.num_rows == len(windows)
    for output in COMBINED:
        assert got.schema.field(output.name).type == output.type
        for window, members in windows.items():
            assert_same(output, found[window][output.name], evaluate(output, members), members)


INSTANT = datetime(2024, 1, 1, tzinfo=UTC)
TYPES: list[tuple[pa.DataType, list[Any]]] = [  # ascending
    (pa.int8(), [-128, 0, 127]), (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.float32(), [-math.inf, -1.5, 0.0, math.inf, NAN]), (pa.float64(), [-math.inf, 5e-324, math.inf, NAN]),
    (pa.bool_(), [False, True]), (pa.string(), ["", "B", "a", "ab", "ä"]), (pa.binary(), [b"", b"\x00", b"\xff"]),
    (pa.date32(), [date(1900, 1, 1), date(2024, 2, 29)]),
    (pa.timestamp("us", "UTC"), [INSTANT, INSTANT + timedelta(microseconds=1)]),
    (pa.timestamp("us"), [datetime(1969, 1, 1), datetime(2024, 1, 1)]),  # noqa: DTZ001
    (pa.duration("us"), [timedelta(microseconds=-1), timedelta(days=1)]),
    (pa.decimal128(20, 2), [Decimal("-10.00"), Decimal("-9.99"), Decimal("100.00")]),
]  # fmt: skip


def equal(got: list[Any], expected: list[Any]) -> bool:
    """Equal, and NaN equals NaN."""
    return len(got) == len(expected) and all(
        a == b or repr(a) == repr(b) == "nan" for a, b in zip(got, expected, strict=True)
    )


@pytest.mark.parametrize(("kind", "ascending"), TYPES, ids=lambda v: str(v) if isinstance(v, pa.DataType) else "")
def test_any_type_with_an_order(kind: pa.DataType, ascending: list[Any]) -> None:
    values = pa.array([None, *ascending, None], kind)
    everything, nothing = (0, len(values)), (0, 1)
    for order, greatest in ((values, len(values) - 2), (values[::-1], 1)):
        rows = pa.table({"v": order, "i": range(len(order))})
        named = {
            "least": ps.min("v"), "most": ps.max("v"), "n": ps.distinct("v"), "top": ps.topk("v", 2),
            "at": ps.arg_max("i", by="v"), "first": ps.first("v"),
        }  # fmt: skip
        outputs = bind(named, {"v": kind, "i": pa.int64()})
        lo, hi = (np.array([a, b]) for a, b in zip(everything, nothing, strict=True))
        got = {o.name: a for o, a in zip(outputs, aggregate_ranges(rows, outputs, lo, hi), strict=True)}
        assert got["least"].type == got["most"].type == got["first"].type == kind
        assert equal(got["least"].to_pylist(), [ascending[0], None])
        assert equal(got["most"].to_pylist(), [ascending[-1], None])
        assert equal(got["top"].to_pylist()[0], ascending[::-1][:2])
        assert got["n"].to_pylist() == [len(ascending), 0]
        assert got["at"].to_pylist() == [greatest, None]
        # and through panes, one of which has only a null
        log = pa.table({HASH: [1] * len(order), PANE: range(len(order)), "v": order})
        extremes = bind({"least": ps.min("v"), "most": ps.max("v")}, {"v": kind})
        panes = compact(lift_panes(log, extremes, []), [], extremes)
        windows = close_windows(panes, [], Time(us(100), us(1)), extremes, None, END_OF_TIME).to_pylist()
        [window] = [w for w in windows if w["_ps_start"] == 0]
        assert equal([window["least"], window["most"]], [ascending[0], ascending[-1]])


def test_sums_of_integers_leave_64_bits_only_with_an_error() -> None:
    big = 2**62
    rows, outputs = pa.table({"x": [big, big, -big]}), bind({"s": ps.sum("x"), "m": ps.mean("x")}, {"x": "long"})
    sums, means = aggregate_ranges(rows, outputs, np.array([1, 0]), np.array([3, 1]))
    assert sums.to_pylist() == [0, big]
    assert means.to_pylist() == [0.0, float(big)]
    with pytest.raises(AggregateOverflow, match="sum\\('x'\\)"):
        aggregate_ranges(rows, outputs, np.array([0]), np.array([2]))
    assert aggregate_ranges(rows, outputs[1:], np.array([0]), np.array([2]))[0].to_pylist() == [float(big)]


def test_variance_keeps_its_digits_beside_a_large_mean() -> None:
    rng = np.random.default_rng(3)
    small = rng.normal(size=5000)
    rows = pa.table({"d": 1e9 + small, "e": 1e9 - 3 * small})
    outputs = bind(
        {"v": ps.var("d"), "c": ps.covariance("d", "e"), "l": ps.regression("d", "e")}, dict.fromkeys("de", "double")
    )
    lo = np.arange(0, 4000, 7)
    hi = lo + 1000
    variance, covariance, line = aggregate_ranges(rows, outputs, lo, hi)
    shifted = (rows.column("d").to_numpy() - 1e9, rows.column("e").to_numpy() - 1e9)
    expected = [np.cov(shifted[0][a:b], shifted[1][a:b]) for a, b in zip(lo, hi, strict=True)]
    np.testing.assert_allclose(variance.to_numpy(), [e[0, 0] for e in expected], rtol=1e-7)
    np.testing.assert_allclose(covariance.to_numpy(), [e[0, 1] for e in expected], rtol=1e-7)
    np.testing.assert_allclose([r["slope"] for r in line.to_pylist()], -3.0, rtol=1e-6)
    assert all(r["r2"] > 1 - 1e-6 for r in line.to_pylist())


def test_not_finite_values_spread_to_every_moment() -> None:
    rows = pa.table({"x": [1.0, 2.0, 4.0, 5.0], "y": [1.0, math.inf, NAN, 2.0]})
    outputs = bind(
        {"v": ps.var("y"), "c": ps.covariance("x", "y"), "l": ps.regression("x", "y")}, dict.fromkeys("xy", "double")
    )
    variance, covariance, line = aggregate_ranges(rows, outputs, np.array([0, 1, 0]), np.array([2, 4, 1]))
    assert repr(variance.to_pylist()) == repr(covariance.to_pylist()) == "[nan, nan, None]"
    assert [repr(r["slope"]) for r in line.to_pylist()] == ["nan", "nan", "None"]


def test_aggregates_share_what_they_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"s": ps.sum("d"), "m": ps.mean("d"), "n": ps.count("d"), "v": ps.var("d"), "w": ps.std("d")}
    outputs = bind(named, {"d": "double"})
    names = [p.name for p in partials_of(outputs)]
    assert names == ["_ps_rows", "_ps_sum_double_d", "_ps_count_long_d", "_ps_mean_double_d", "_ps_m2_double_d"]
    calls, lift = [], Total.lift

    def counted(self: Total, rows: pa.Table) -> Any:
        calls.append(self)
        return lift(self, rows)

    monkeypatch.setattr(Total, "lift", counted)
    aggregate_ranges(pa.table({"d": [1.0]}), outputs, np.array([0]), np.array([1]))
    assert calls == [Total("d", "double")]


def test_what_is_native_and_what_has_panes() -> None:
    kinds = {"x": "long", "d": "double", "s": pa.string()}
    own = ps.Aggregate(lambda c: c["x"], lambda a, b: a[0] + b[0], lambda s: s[0], columns="x")
    outputs = {o.name: o for o in bind(
        {"sum": ps.sum("x"), "line": ps.regression("x", "d"), "hist": ps.histogram("d", [0, 1]), "min": ps.min("s"),
         "own": own, "median": ps.quantile("d", 0.5), "about": ps.quantile("d", 0.5, approximate=True),
         "first": ps.first("s"), "users": ps.distinct("s", approximate=True)}, kinds)}  # fmt: skip
    assert {n for n, o in outputs.items() if o.native} == {"sum", "line", "hist", "min", "about", "users"}
    assert {n for n, o in outputs.items() if o.decomposable and not o.native} == {"own"}
    assert [p.sql for p in outputs["sum"].partials] == ["sum(cast(`x` as bigint))"]
    assert [p.sql for p in outputs["hist"].partials] == [
        "count_if(cast(`d` as double) >= 0.0D and cast(`d` as double) <= 1.0D)"
    ]
    assert outputs["about"].text(types=True) == "about = quantile(d double, 0.5, approximate)"
    assert outputs["min"].text(types=True) == "min = min(s string)"


def older(a: Any, b: Any) -> Any:
    return a


def bad(**named: Any) -> tuple[Output, ...]:
    return bind(named, {"x": pa.int64(), "s": pa.string(), "l": pa.list_(pa.int64()), "o": "other"}, "window 'w'")


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: bad(v=ps.var("s")), "var\\('s'\\) needs an integer or floating column"),
        (lambda: bad(v=ps.covariance("x", "s")), "covariance\\('s'\\) needs"),
        (lambda: bad(v=ps.min("l")), "can be compared, and 'l' is of type list"),
        (lambda: bad(v=ps.max("o")), "'o' is of unknown type"),
        (lambda: bad(v=ps.arg_min("s", by="l")), "can be compared, and 'l'"),
        (lambda: bad(v=ps.first("o")), "cannot carry"),
        (lambda: bad(v=ps.quantile("x", 1.5)), "q between 0 and 1"),
        (lambda: bad(v=ps.topk("x", 0)), "k of at least 1"),
        (lambda: bad(v=ps.topk("x", 1, by="nope")), "unknown column 'nope'"),
        (lambda: bad(v=ps.histogram("x", [1])), "two or more ascending edges"),
        (lambda: bad(v=ps.histogram("x", [1, 1])), "two or more ascending edges"),
        (lambda: bad(v=ps.histogram("x", [1, NAN])), "two or more ascending edges"),
        (lambda: bad(v=ps.histogram("x", range(1000))), "at most 256 bins"),
        (lambda: ps.histogram("x", ["a"]), "edges must be numbers"),  # type: ignore[list-item]
        (lambda: ps.Aggregate(1, 2, 3, columns="x"), "lift is not a function but int"),  # type: ignore[arg-type]
        (lambda: ps.Aggregate(min, min, min, columns=[]), "columns names no column"),
        (lambda: bad(v=ps.Aggregate(lambda c: c["y"], max, max, columns="x")), "must work on arrays of length 0"),
        (lambda: bad(v=ps.Aggregate(lambda c: c["x"], lambda a, b: 1, max, columns="x")), "returned \\(\\)"),
        (lambda: bad(v=ps.Aggregate(lambda c: c["s"], lambda a, b: a, max, columns="s")), "numbers or booleans"),
        (lambda: bad(v=ps.Aggregate(lambda c: c["x"], lambda a, b: a, max, (1, 2), columns="x")), "identity has 2"),
        (lambda: bad(v=ps.Aggregate(lambda c: c["x"], older, max, columns="x", result="map"))[0].type, "not a type"),
    ],
)  # fmt: skip
def test_refusals(build: Any, rule: str) -> None:
    with pytest.raises(FlowError, match=rule):
        build()


def test_own_aggregates_need_not_commute_over_rows() -> None:
    # polynomials in base 3, modulo 1009: the state of a run is (value, 3 ** length)
    horner = ps.Aggregate(
        lift=lambda c: (c["x"], np.full(len(c["x"]), 3)),
        combine=lambda a, b: ((a[0] * b[1] + b[0]) % 1009, a[1] * b[1] % 1009),
        lower=lambda s: s[0],
        columns="x",
        result="int",
    )
    outputs = bind({"h": horner}, {"x": "long"})
    x = np.random.default_rng(0).integers(0, 3, 3000)
    lo, hi = np.array([0, 5, 17, 1000]), np.array([3000, 6, 2500, 1033])
    got = aggregate_ranges(pa.table({"x": x}), outputs, lo, hi)[0]
    assert got.type == pa.int32()
    expected = [int("".join(map(str, x[a:b])), 3) % 1009 for a, b in zip(lo, hi, strict=True)]
    assert got.to_pylist() == expected


def test_wrong_lengths_are_named() -> None:
    short = ps.Aggregate(lambda c: c["x"][:1], lambda a, b: a[0], lambda s: s[0], columns="x", name="short")
    once = ps.Aggregate(lambda c: c["x"], lambda a, b: a[0], lambda s: s[0][:1], columns="x", name="once")
    rows, lo, hi = pa.table({"x": [1, 2]}), np.array([0, 0]), np.array([1, 2])
    with pytest.raises(TypeError, match="short: lift got 2 rows and returned an array of shape \\(1,\\)"):
        aggregate_ranges(rows, bind({"v": short}, {"x": "long"}), lo, hi)
    with pytest.raises(TypeError, match="once: lower got 2 states and returned 1 values"):
        aggregate_ranges(rows, bind({"v": once}, {"x": "long"}), lo, hi)


def test_outputs_travel() -> None:
    outputs = bind({"m": ps.max("s"), "q": ps.quantile("d", 0.5, approximate=True)}, {"s": pa.string(), "d": "double"})
    assert pickle.loads(pickle.dumps(outputs)) == outputs


@pytest.mark.parametrize("position", [0, 1, 5, 12345])
def test_positions_decide_the_last_bits(position: int) -> None:
    """The same windows at the same positions give the same bits, whichever rows and windows are there besides."""
    d = np.random.default_rng(1).normal(size=2000) * 10.0 ** np.random.default_rng(2).integers(-9, 9, 2000)
    rows, outputs = pa.table({"d": d}), bind({"s": ps.sum("d"), "v": ps.var("d")}, {"d": "double"})
    lo = np.arange(0, 1700, 13)
    hi = lo + 300 - lo % 7
    at = np.arange(len(d)) + position
    whole = aggregate_ranges(rows, outputs, lo, hi, at)
    for first in (1, 5, 57):  # rows before window `first` are gone, as in a later batch
        gone = int(lo[first])
        later = aggregate_ranges(rows.slice(gone), outputs, lo[first:] - gone, hi[first:] - gone, at[gone:])
        assert [a.slice(first).to_pylist() for a in whole] == [a.to_pylist() for a in later]
