"""Aggregates that are obviously right: one window's rows as dicts, plain Python, no state. Tests compare with them.

Spark's rules, spelt out: nulls (None) are skipped, except by `first`, `last` and `count()`; NaN is the greatest number
and equal to itself; -0.0 equals 0.0; a sum of integers that leaves 64 bits is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.windows.aggregates import Aggregate, AggregateOverflow, Output
from penstock.windows.aggregates.content import Arg, Distinct, Edge, Quantile, TopK
from penstock.windows.aggregates.functions import (
    Bound,
    Counted,
    Covariance,
    Histogram,
    Mean,
    Regression,
    Spread,
    Sum,
)

Row = Mapping[str, Any]


def evaluate(output: Output, rows: Sequence[Row]) -> Any:
    """Return the aggregate over one window's rows, in order, as a Python value.

    >>> from penstock.windows.aggregates import bind, topk
    >>> rows = [{"x": 2.0}, {"x": None}, {"x": float("nan")}, {"x": 7.0}]
    >>> evaluate(bind({"t": topk("x", 2)}, {"x": "double"})[0], rows)
    [nan, 7.0]
    """
    for kind, function in _RULES.items():
        if isinstance(output.aggregate, kind):
            return function(output.aggregate, rows, output)
    raise TypeError(f"no oracle for {output.aggregate!r}")


def order(value: Any) -> Any:
    """Return a key that sorts as Spark does.

    >>> sorted([math.nan, 1.0, math.inf], key=order)
    [1.0, inf, nan]
    """
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def values_of(rows: Sequence[Row], column: str) -> list[Any]:
    """Return the non-null values of a column."""
    return [row[column] for row in rows if row[column] is not None]


def plus(values: Sequence[float]) -> float:
    """Return the sum of doubles, exactly rounded where that is defined.

    >>> plus([1e300, 1.0, -1e300]), plus([math.inf, 1.0])
    (1.0, inf)
    """
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond doubles, or inf - inf
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.sum(np.array(values)))


def _sum(aggregate: Sum, rows: Sequence[Row], output: Output) -> Any:
    values = values_of(rows, aggregate.of)
    if not values:
        return None
    if output.kind == "double":
        return plus([float(value) for value in values])
    total = sum(int(value) for value in values)
    if not -(2**63) <= total < 2**63:
        text = "a sum of integers left 64 bits; cast the column to double"
        raise AggregateOverflow(f"sum({aggregate.of!r}): {text}")
    return total


def _count(aggregate: Counted, rows: Sequence[Row], output: Output) -> Any:
    return len(rows) if aggregate.of is None else len(values_of(rows, aggregate.of))


def _mean(aggregate: Mean, rows: Sequence[Row], output: Output) -> Any:
    values = [float(value) for value in values_of(rows, aggregate.of)]
    return plus(values) / len(values) if values else None


def _bound(aggregate: Bound, rows: Sequence[Row], output: Output) -> Any:
    values = values_of(rows, aggregate.of)
    pick: Callable[..., Any] = min if aggregate.function == "min" else max
    return pick(values, key=order) if values else None


def _products(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the sum of (x - mean x)(y - mean y); NaN if a value is not finite."""
    if not all(math.isfinite(value) for value in (*x, *y)):
        return math.nan
    mean_x, mean_y = plus(x) / len(x), plus(y) / len(y)
    return plus([(a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)])


def _spread(aggregate: Spread, rows: Sequence[Row], output: Output) -> Any:
    values = [float(value) for value in values_of(rows, aggregate.of)]
    if len(values) < 2:
        return None
    variance = _products(values, values) / (len(values) - 1)
    return math.sqrt(variance) if aggregate.function == "std" else variance


def _pairs(rows: Sequence[Row], x: str, y: str) -> tuple[list[float], list[float]]:
    both = [row for row in rows if row[x] is not None and row[y] is not None]
    return [float(row[x]) for row in both], [float(row[y]) for row in both]


def _covariance(aggregate: Covariance, rows: Sequence[Row], output: Output) -> Any:
    x, y = _pairs(rows, aggregate.x, aggregate.y)
    return None if len(x) < 2 else _products(x, y) / (len(x) - 1)


def _regression(aggregate: Regression, rows: Sequence[Row], output: Output) -> Any:
    x, y = _pairs(rows, aggregate.x, aggregate.y)
    if not x or _products(x, x) == 0:
        return {"slope": None, "intercept": None, "r2": None}
    xx, yy, xy = _products(x, x), _products(y, y), _products(x, y)
    slope = xy / xx
    return {
        "slope": slope,
        "intercept": plus(y) / len(y) - slope * (plus(x) / len(x)),
        "r2": 1.0 if yy == 0 else slope * (xy / yy),
    }


def _histogram(aggregate: Histogram, rows: Sequence[Row], output: Output) -> Any:
    values = [float(value) for value in values_of(rows, aggregate.of)]
    edges = aggregate.edges
    counts = [sum(1 for v in values if a <= v < b) for a, b in pairwise(edges)]
    counts[-1] += sum(1 for v in values if v == edges[-1])
    return counts


def _edge(aggregate: Edge, rows: Sequence[Row], output: Output) -> Any:
    return rows[0 if aggregate.function == "first" else -1][aggregate.of] if rows else None


def _arg(aggregate: Arg, rows: Sequence[Row], output: Output) -> Any:
    known = [row for row in rows if row[aggregate.by] is not None]
    pick: Callable[..., Any] = min if aggregate.function == "arg_min" else max  # both keep the first of equals
    return pick(known, key=lambda row: order(row[aggregate.by]))[aggregate.value] if known else None


def _quantile(aggregate: Quantile, rows: Sequence[Row], output: Output) -> Any:
    values = sorted([float(value) for value in values_of(rows, aggregate.of)], key=order)
    if not values:
        return None
    position = aggregate.q * (len(values) - 1)
    below, above = math.floor(position), math.ceil(position)
    low, high = values[below], values[above]
    return low if below == above or low == high else (above - position) * low + (position - below) * high


def _distinct(aggregate: Distinct, rows: Sequence[Row], output: Output) -> Any:
    return len({order(value) for value in values_of(rows, aggregate.of)})


def _topk(aggregate: TopK, rows: Sequence[Row], output: Output) -> Any:
    by = aggregate.columns[-1]
    known = [row for row in rows if row[by] is not None]
    best = sorted(known, key=lambda row: order(row[by]), reverse=True)  # stable, also in reverse
    return [row[aggregate.of] for row in best[: aggregate.k]]


def _own(aggregate: Aggregate, rows: Sequence[Row], output: Output) -> Any:
    """Lift row by row, combine from left to right, lower once."""
    known = [row for row in rows if all(row[name] is not None for name in aggregate.columns)]
    states = [aggregate.call_lift({name: np.array([row[name]]) for name in aggregate.columns}, 1) for row in known]
    if not states:
        if aggregate.identity is None:
            return None
        states = [tuple(np.array([value]) for value in aggregate.identity)]
    total = states[0]
    for state in states[1:]:
        total = aggregate.call_combine(total, state)
    return np.asarray(aggregate.lower_(total)).tolist()[0]


_RULES: dict[type, Callable[[Any, Sequence[Row], Output], Any]] = {
    Sum: _sum, Counted: _count, Mean: _mean, Bound: _bound, Spread: _spread, Covariance: _covariance,
    Regression: _regression, Histogram: _histogram, Edge: _edge, Arg: _arg, Quantile: _quantile, Distinct: _distinct,
    TopK: _topk, Aggregate: _own,
}  # fmt: skip
