"""Aggregates described by their algebra: how a row is lifted, how partials combine, how a result is lowered.

`base` says how they are made, `measures`, `moments` and `sketches` hold the partials, `functions`, `content` and
`custom` the aggregates, `output` ties them to a schema. Here are the names that users write. Nothing here knows Spark:
SQL text is only text.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import FlowError
from penstock.windows.aggregates.base import Column, Function, Kind, Measure, Partial, State
from penstock.windows.aggregates.content import Arg, Distinct, Edge, Quantile, TopK
from penstock.windows.aggregates.custom import Aggregate
from penstock.windows.aggregates.functions import Bound, Counted, Covariance, Histogram, Mean, Regression, Spread, Sum
from penstock.windows.aggregates.output import ROWS, Output, aggregate_ranges, bind, measures_of, partials_of
from penstock.windows.scans import AggregateOverflow


def sum(column: str) -> Function:
    """Return the sum of the non-null values; null if there are none. Integers give a long, floats a double.

    >>> sum("price").text()
    'sum(price)'
    """
    return Sum(column)


def count(column: str | None = None) -> Function:
    """Return the number of rows, or of non-null values of `column`.

    >>> count().text(), count("price").text()
    ('count()', 'count(price)')
    """
    return Counted(column)


def mean(column: str) -> Function:
    """Return the mean of the non-null values, a double; null if there are none.

    >>> mean("price").name
    'mean'
    """
    return Mean(column)


def min(column: str) -> Function:
    """Return the least non-null value, in the column's own type; NaN is greater than every number.

    >>> min("price").name
    'min'
    """
    return Bound("min", column)


def max(column: str) -> Function:
    """Return the greatest non-null value, in the column's own type; NaN is greater than every number.

    >>> max("price").name
    'max'
    """
    return Bound("max", column)


def var(column: str) -> Function:
    """Return the sample variance, as Spark's `var_samp`; null for less than two values.

    >>> var("price").name
    'var'
    """
    return Spread("var", column)


def std(column: str) -> Function:
    """Return the sample standard deviation, as Spark's `stddev_samp`; null for less than two values.

    >>> std("price").name
    'std'
    """
    return Spread("std", column)


def first(column: str) -> Function:
    """Return the value of the window's first row, null or not.

    >>> first("price").name
    'first'
    """
    return Edge("first", column)


def last(column: str) -> Function:
    """Return the value of the window's last row, null or not.

    >>> last("price").name
    'last'
    """
    return Edge("last", column)


def arg_min(value: str, by: str) -> Function:
    """Return `value` of the row where `by` is least, the earliest of several; null where `by` is always null.

    >>> arg_min("symbol", by="price").text()
    'arg_min(symbol, price)'
    """
    return Arg("arg_min", value, by)


def arg_max(value: str, by: str) -> Function:
    """Return `value` of the row where `by` is greatest, the earliest of several; null where `by` is always null.

    >>> arg_max("symbol", by="price").text()
    'arg_max(symbol, price)'
    """
    return Arg("arg_max", value, by)


def quantile(column: str, q: float, approximate: bool = False) -> Function:
    """Return the q-quantile of the non-null values, interpolated, as Spark's `percentile`; null if there are none.

    `approximate=True` keeps a sketch per pane instead of the rows (where panes can be used): the rank of the answer is
    off by at most 1.33 % of the rows in 99 of 100 cases, it is one of the values, and NaN is left out.

    >>> quantile("price", 0.5).text()
    'quantile(price, 0.5)'
    """
    return Quantile(column, float(q), approximate)


def distinct(column: str, approximate: bool = False) -> Function:
    """Return how many different non-null values there are, a long.

    `approximate=True` keeps a sketch per pane instead of the rows (where panes can be used): its standard error is
    1.6 %.

    >>> distinct("user", approximate=True).text()
    'distinct(user, approximate)'
    """
    return Distinct(column, approximate)


def topk(column: str, k: int, by: str | None = None) -> Function:
    """Return the k greatest values as a list, greatest first; with `by`, the values of the rows where it is greatest.

    Ties stand in the order of the rows; rows where `by` (or else the value) is null are left out.

    >>> topk("symbol", 3, by="volume").text()
    'topk(symbol, volume, 3)'
    """
    return TopK(column, k, by)


def covariance(x: str, y: str) -> Function:
    """Return the sample covariance over the rows where neither is null, as Spark's `covar_samp`.

    >>> covariance("price", "volume").name
    'covariance'
    """
    return Covariance(x, y)


def regression(x: str, y: str) -> Function:
    """Return the least-squares line y = slope x + intercept and its r2, a struct of doubles; null if all x are equal.

    >>> regression("time", "price").name
    'regression'
    """
    return Regression(x, y)


def histogram(column: str, edges: Sequence[float]) -> Function:
    """Return how many values lie between each two neighbouring edges, a list of longs: [e0, e1), ..., [ek-1, ek].

    >>> histogram("price", [0, 10, 100]).text()
    'histogram(price, [0.0, 10.0, 100.0])'
    """
    try:
        return Histogram(column, tuple(float(edge) for edge in edges))
    except (TypeError, ValueError):
        raise FlowError("histogram", f"edges must be numbers, got {edges!r}", "pass e.g. [0, 10, 100]") from None


__all__ = [
    "ROWS",
    "Aggregate",
    "AggregateOverflow",
    "Column",
    "Function",
    "Kind",
    "Measure",
    "Output",
    "Partial",
    "State",
    "aggregate_ranges",
    "arg_max",
    "arg_min",
    "bind",
    "count",
    "covariance",
    "distinct",
    "first",
    "histogram",
    "last",
    "max",
    "mean",
    "measures_of",
    "min",
    "partials_of",
    "quantile",
    "regression",
    "std",
    "sum",
    "topk",
    "var",
]
