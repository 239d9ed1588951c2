"""What the aggregate tests share: rows with every trap, all aggregates over them, and when two results are the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.windows import aggregates as ps
from penstock.windows.aggregates import Output, bind

ROW = dict[str, Any]

SCHEMA = pa.schema([("x", pa.int64()), ("z", pa.int32()), ("d", pa.float64()), ("f", pa.float32()), ("s", pa.string())])

RANGE = ps.Aggregate(
    lift=lambda c: (c["x"], c["x"]),
    combine=lambda a, b: (np.minimum(a[0], b[0]), np.maximum(a[1], b[1])),
    lower=lambda s: s[1] - s[0],
    columns=["x"],
    result="bigint",
    name="range_of",
)
PRODUCT_SUM = ps.Aggregate(  # with an exact inverse and an identity
    lift=lambda c: c["x"] * c["z"],
    combine=lambda a, b: a[0] + b[0],
    lower=lambda s: s[0],
    identity=0,
    invert=lambda whole, oldest: whole[0] - oldest[0],
    columns=["x", "z"],
    result=pa.int64(),
    name="product_sum",
)
NORM = ps.Aggregate(
    lift=lambda c: c["d"] ** 2,
    combine=lambda a, b: a[0] + b[0],
    lower=lambda s: np.sqrt(s[0]),
    identity=(0.0,),
    invert=lambda whole, oldest: whole[0] - oldest[0],  # must not be used: squares of doubles are rounded
    columns="d",
)

COMBINED = bind(
    {
        "n": ps.count(), "ns": ps.count("s"), "sx": ps.sum("x"), "sd": ps.sum("d"), "sf": ps.sum("f"),
        "mx": ps.mean("x"), "md": ps.mean("d"),
        "least_x": ps.min("x"), "most_z": ps.max("z"), "least_d": ps.min("d"), "most_d": ps.max("d"),
        "least_f": ps.min("f"), "least_s": ps.min("s"), "most_s": ps.max("s"),
        "vx": ps.var("x"), "vd": ps.var("d"), "std_x": ps.std("x"), "cov": ps.covariance("d", "x"),
        "line": ps.regression("x", "z"), "hist": ps.histogram("d", [-math.inf, -1, 0, 0.5, 1e3]),
        "range": RANGE, "products": PRODUCT_SUM, "norm": NORM,
    },
    {field.name: field.type for field in SCHEMA},
)  # fmt: skip
WHOLE = bind(
    {
        "first_s": ps.first("s"), "last_d": ps.last("d"), "arg_least": ps.arg_min("s", by="d"),
        "arg_most": ps.arg_max("d", by="s"), "median": ps.quantile("d", 0.5), "q9": ps.quantile("x", 0.9),
        "q0": ps.quantile("x", 0, approximate=True), "distinct_d": ps.distinct("d"),
        "distinct_s": ps.distinct("s", approximate=True), "top_d": ps.topk("d", 3), "top_s": ps.topk("s", 2, by="x"),
    },
    {field.name: field.type for field in SCHEMA},
)  # fmt: skip


def rows(size: int) -> st.SearchStrategy[list[ROW]]:
    special = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e300, 1e-300, 1.0, 0.5])
    row = st.fixed_dictionaries(
        {
            "x": st.one_of(st.none(), st.integers(-1000, 1000)),
            "z": st.one_of(st.none(), st.integers(-5, 5)),
            "d": st.one_of(st.none(), st.floats(-1e3, 1e3), special),
            "f": st.one_of(st.none(), st.floats(-100, 100, width=32)),
            "s": st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "ä", "\U0001f600"])),
        }
    )
    return st.lists(row, max_size=size)


def table(given: list[ROW]) -> pa.Table:
    return pa.Table.from_pylist(given, SCHEMA)


def assert_same(output: Output, got: Any, expected: Any, members: list[ROW]) -> None:
    """Integers, texts and selections exactly; doubles within 1e-9 of what was added up; NaN and infinities by class."""
    weight = 0.0
    for name in output.aggregate.columns:
        numbers = [abs(float(m[name])) for m in members if isinstance(m[name], (int, float))]
        weight = max(weight, sum(v for v in numbers if math.isfinite(v)))
    what = (output.name, got, expected)
    if output.aggregate.name in ("var", "covariance"):
        weight *= weight
    if output.aggregate.name == "std" and got is not None and expected is not None:
        got, expected, weight = got**2, expected**2, weight**2
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), what
        for name in expected:
            assert_close(got[name], expected[name], 1e6, what)  # x and z are small integers: well conditioned
    elif isinstance(expected, list):
        assert len(got) == len(expected), what
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b, 0.0, what)
    elif output.aggregate.name in ("sum", "mean", "var", "std", "covariance", "quantile", "aggregate"):
        assert_close(got, expected, weight, what)
    else:
        assert_close(got, expected, 0.0, what)


def assert_close(got: Any, expected: Any, weight: float, what: Any) -> None:
    if not isinstance(expected, float) or not isinstance(got, float):
        assert got == expected, what
    elif not math.isfinite(expected):
        if weight == 0.0 or math.isinf(weight):  # where squares overflow, inf and inf - inf are both right
            assert repr(got) == repr(expected) or math.isinf(weight), what
        else:
            assert not math.isfinite(got), what
    else:
        assert abs(got - expected) <= 1e-9 * weight, what
