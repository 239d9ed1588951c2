"""Means and second moments that are combined without cancellation.

Two sets with counts n, means m and M2 = sum (x - m)**2 combine by the formulas of Chan, Golub and LeVeque (1979), with
d = m_b - m_a and n = n_a + n_b:

    m = m_a + d n_b / n        M2 = M2_a + M2_b + d**2 n_a n_b / n        C = C_a + C_b + d_x d_y n_a n_b / n

A sum of squares minus the square of a sum would lose all digits where the mean is large beside the spread. NaN and the
infinities spread to every moment, as in Spark: M2 of one infinite value is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.base import DOUBLE, LONG, Column, Measure, Partial, State, both, numbers, sql_name
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.scans import Arrays, Doubles


def _zero(x: Doubles) -> Doubles:
    """Return the second moment of single values: 0, or NaN where the value is not finite."""
    with np.errstate(invalid="ignore"):
        return np.asarray(x - x, dtype=np.float64)


class _Joint(Measure):
    """A count first, then doubles that are null where the count is 0."""

    def read(self, log: pa.Table) -> State:
        names = [p.name for p in self.partials]
        count = numbers(log, names[0], "double").values
        some = count > 0
        rest = [numbers(log, name, "double").values for name in names[1:]]
        return State((count, *rest), None if some.all() else some)

    def write(self, state: State) -> list[pa.Array]:
        count = state.arrays[0] if state.valid is None else np.where(state.valid, state.arrays[0], 0)
        return [
            pa.array(count.astype(np.int64), LONG),
            *(Column(array, state.valid).arrow(DOUBLE) for array in state.arrays[1:]),
        ]


@dataclass(frozen=True)
class Moments(_Joint):
    """Count, mean and second moment of one column.

    >>> moments = Moments("x")
    >>> moments.over(moments.lift(pa.table({"x": [1.0, 3.0]})), Ranges.runs(2, np.array([0]))).arrays
    (array([2.]), array([2.]), array([2.]))
    """

    column: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The count, the mean, M2 (Spark's population variance, which it computes stably, times the count)."""
        value = f"cast({sql_name(self.column)} as double)"
        return (
            Partial("count", self.column, LONG, f"count({sql_name(self.column)})"),
            Partial("mean", self.column, DOUBLE, f"avg({value})"),
            Partial("m2", self.column, DOUBLE, f"var_pop({value}) * count({sql_name(self.column)})"),
        )

    def lift(self, rows: pa.Table) -> State:
        """Return each value as a set of one."""
        x = numbers(rows, self.column, "double")
        return State((np.ones(len(x.values)), x.values, _zero(x.values)), x.valid)

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        """Combine sets."""
        return ranges.fold_arrays(arrays, _moments)


def _moments(a: Arrays, b: Arrays) -> Arrays:
    with np.errstate(invalid="ignore", over="ignore"):
        n = a[0] + b[0]
        share = b[0] / n
        d = b[1] - a[1]
        return n, a[1] + d * share, a[2] + b[2] + d * d * (a[0] * share)


@dataclass(frozen=True)
class Comoments(_Joint):
    """Count, both means, both second moments and the co-moment C of the rows where x and y are not null.

    >>> pair = Comoments("x", "y")
    >>> rows = pa.table({"x": [1.0, 3.0, None], "y": [2.0, 6.0, 1.0]})
    >>> [float(a[0]) for a in pair.over(pair.lift(rows), Ranges.runs(3, np.array([0]))).arrays]
    [2.0, 2.0, 4.0, 2.0, 8.0, 4.0]
    """

    x: str
    y: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The count, the means of x and y, M2 of x and y, C."""
        x, y = sql_name(self.x), sql_name(self.y)
        left = f"if({y} is null, null, cast({x} as double))"
        right = f"if({x} is null, null, cast({y} as double))"
        count = f"count_if({x} is not null and {y} is not null)"
        pair = ",".join(name.replace(",", ",,") for name in (self.x, self.y))
        return (
            Partial("pair_count", pair, LONG, count),
            Partial("pair_mean_x", pair, DOUBLE, f"avg({left})"),
            Partial("pair_mean_y", pair, DOUBLE, f"avg({right})"),
            Partial("pair_m2_x", pair, DOUBLE, f"var_pop({left}) * {count}"),
            Partial("pair_m2_y", pair, DOUBLE, f"var_pop({right}) * {count}"),
            Partial("pair_c", pair, DOUBLE, f"covar_pop({left}, {right}) * {count}"),
        )

    def lift(self, rows: pa.Table) -> State:
        """Return each pair as a set of one."""
        x, y = numbers(rows, self.x, "double"), numbers(rows, self.y, "double")
        own_x, own_y = _zero(x.values), _zero(y.values)
        return State((np.ones(len(own_x)), x.values, y.values, own_x, own_y, own_x + own_y), both(x.valid, y.valid))

    def combine(self, arrays: Arrays, ranges: Ranges) -> Arrays:
        """Combine sets."""
        return ranges.fold_arrays(arrays, _comoments)


def _comoments(a: Arrays, b: Arrays) -> Arrays:
    with np.errstate(invalid="ignore", over="ignore"):
        n = a[0] + b[0]
        share = b[0] / n
        weight = a[0] * share
        dx, dy = b[1] - a[1], b[2] - a[2]
        means = a[1] + dx * share, a[2] + dy * share
        return n, *means, a[3] + b[3] + dx * dx * weight, a[4] + b[4] + dy * dy * weight, a[5] + b[5] + dx * dy * weight
