"""Levenberg-Marquardt against least squares in closed form; the two queries built on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps.queries import Forecast, Polynomial
from penstock.apps.queries.forecast import means_per_interval
from penstock.apps.queries.levenberg import fit_polynomial, has_different, minimise
from penstock.errors import FlowError
from tests.apps.queries.query_cases import FAST, window


@FAST
@given(
    degree=st.integers(0, 5),
    n=st.integers(8, 300),
    noise=st.sampled_from([0.0, 1e-6, 0.1, 100.0]),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_fit_equals_closed_form_least_squares(degree: int, n: int, noise: float, seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    x = np.unique(random.uniform(-1, 1, n)) * scale
    y = (
        np.polynomial.polynomial.polyval(x / scale, random.normal(0, 10, degree + 1))
        + random.normal(0, 1, len(x)) * noise
    )
    fit = fit_polynomial(x, y, degree)
    assert fit is not None
    right = np.polynomial.Polynomial.fit(x, y, degree)
    size = np.abs(y).max()
    np.testing.assert_allclose(fit.at(x), right(x), rtol=1e-6, atol=1e-6 * size)
    t = x - fit.origin  # the printed coefficients give the same curve
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(t, fit.coefficients), right(x), atol=1e-6 * size)
    best = float(((y - right(x)) ** 2).sum())
    assert math.isclose(fit.squares, best, rel_tol=1e-6, abs_tol=1e-12 * size * size * len(x))


@pytest.mark.parametrize("seed", range(5))
def test_coefficients_within_a_millionth_of_polyfit(seed: int) -> None:
    """Thesis 002's acceptance: noisy points of c0 + c1 x + c2 x^2."""
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(0, 5, 5000))
    y = 3.0 - 2.0 * x + 0.7 * x * x + random.normal(0, 0.5, len(x))
    fit = fit_polynomial(x, y, 2, origin=0.0)
    assert fit is not None
    np.testing.assert_allclose(fit.coefficients, np.polyfit(x, y, 2)[::-1], rtol=1e-6)
    assert fit.steps < 20


def test_exact_points_are_met() -> None:
    x = np.arange(10.0)
    fit = fit_polynomial(x, 1 + 2 * x + 3 * x**2, 2, origin=0.0)
    assert fit is not None
    np.testing.assert_allclose(fit.coefficients, [1, 2, 3], rtol=1e-9)
    assert fit.squares < 1e-16


def test_a_nonlinear_model_is_found() -> None:
    random = np.random.default_rng(1)
    x = np.linspace(0, 4, 200)
    y = 2.0 * np.exp(-0.7 * x) + 0.5 + random.normal(0, 1e-3, len(x))

    def slopes(c: np.ndarray) -> np.ndarray:
        return np.column_stack([np.exp(c[1] * x), c[0] * x * np.exp(c[1] * x), np.ones_like(x)])

    found = minimise(lambda c: c[0] * np.exp(c[1] * x) + c[2], slopes, y, np.array([1.0, -0.1, 0.0]))
    assert found.converged
    np.testing.assert_allclose(found.parameters, [2.0, -0.7, 0.5], atol=2e-3)
    residual = y - found.parameters[0] * np.exp(found.parameters[1] * x) - found.parameters[2]
    gradient = slopes(found.parameters).T @ residual
    assert np.abs(gradient).max() < 1e-5  # a minimum, and of a curve that was not linear


def test_a_step_too_far_is_taken_back_and_shortened() -> None:
    """From a slope far too steep, undamped steps overshoot again and again: only growing damping leads back."""
    x = np.linspace(-3, 3, 60)
    y = np.arctan(2.0 * (x - 0.5))

    def slopes(c: np.ndarray) -> np.ndarray:
        return np.column_stack([x - c[1], np.full_like(x, -c[0])]) / (1 + (c[0] * (x - c[1])) ** 2)[:, None]

    found = minimise(lambda c: np.arctan(c[0] * (x - c[1])), slopes, y, np.array([40.0, -2.5]))
    assert found.converged
    np.testing.assert_allclose(found.parameters, [2.0, 0.5], rtol=1e-6)


def test_steps_run_out_without_convergence() -> None:
    x = np.linspace(0, 4, 50)
    found = minimise(
        lambda c: np.exp(c[0] * x), lambda c: (x * np.exp(c[0] * x))[:, None], np.exp(-2 * x), np.array([1.0]), steps=2
    )
    assert not found.converged and found.steps == 2


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1.0], [1.0]),
        ([1.0, 2.0], [1.0, 2.0]),
        ([3.0] * 9, list(range(9))),
        ([1.0, 2.0, None], [1.0, 2.0, 3.0]),
    ],
)
def test_too_few_points_give_nulls(x: list[float], y: list[float]) -> None:
    got = Polynomial(degree=2)(window(x=x, y=y))
    assert got["coefficients"] is None and got["squares"] is None and got["steps"] is None and got["origin"] is None
    assert got["points"] == sum(value is not None for value in x)


def test_rows_without_values_and_infinities_are_left_out() -> None:
    x = [0.0, 1.0, None, 2.0, 3.0, math.inf, 4.0]
    y = [1.0, 3.0, 99.0, math.nan, 7.0, 5.0, 9.0]
    got = Polynomial(degree=1)(window(x=x, y=y))
    np.testing.assert_allclose(got["coefficients"], [1.0, 2.0], rtol=1e-8)
    assert got["points"] == 4 and got["origin"] == 0.0


def test_timestamps_are_seconds_and_keep_their_microseconds() -> None:
    first = 1_700_000_000_000_000
    stamps = pa.array([first + k for k in range(8)], pa.timestamp("us", tz="UTC"))  # a window of 7 microseconds
    got = Polynomial("ts", "y", degree=1)(window(ts=stamps, y=[2.0 + 1e6 * (k * 1e-6) for k in range(8)]))
    np.testing.assert_allclose(got["coefficients"], [2.0, 1e6], rtol=1e-9)
    assert got["origin"] == first / 1e6


def test_an_origin_of_ones_own() -> None:
    rows = window(x=[10.0, 11.0, 12.0, 13.0], y=[1.0, 2.0, 5.0, 10.0])  # 1 + (x - 10)^2
    np.testing.assert_allclose(Polynomial(origin=0.0)(rows)["coefficients"], [101.0, -20.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(Polynomial()(rows)["coefficients"], [1.0, 0.0, 1.0], atol=1e-8)


@FAST
@given(x=st.lists(st.integers(0, 5).map(float), max_size=60), many=st.integers(1, 6))
def test_has_different(x: list[float], many: int) -> None:
    assert has_different(np.array(x), many) == (len(set(x)) >= many)


# --- forecast --------------------------------------------------------------------------------------------------------


@FAST
@given(
    times=st.lists(st.integers(0, 40), min_size=0, max_size=40), interval=st.integers(1, 10), seed=st.integers(0, 99)
)
def test_means_per_interval_equal_a_group_by(times: list[int], interval: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, len(times))
    groups: dict[int, list[int]] = {}
    for row, time in enumerate(times):
        groups.setdefault(time // interval, []).append(row)
    begin = min(groups, default=0) * interval
    at, (means,) = means_per_interval(np.array(times, np.int64), (values,), interval)
    right = [rows for _, rows in sorted(groups.items())]
    np.testing.assert_allclose(at, [sum(times[r] - begin for r in rows) / len(rows) / 1e6 for rows in right])
    np.testing.assert_allclose(means, [sum(values[r] for r in rows) / len(rows) for rows in right], atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_forecast_equals_polyfit_of_the_means(seed: int) -> None:
    random = np.random.default_rng(seed)
    us = 1_700_000_000_000_000 + np.cumsum(random.exponential(300, 1000)).astype(np.int64)  # about 3 a millisecond
    price, volume = 100 + np.cumsum(random.normal(0, 0.01, 1000)), random.integers(1, 500, 1000).astype(float)
    rows = window(ts=pa.array(us, pa.timestamp("us", tz="UTC")), price=price.tolist(), volume=volume.tolist())
    got = Forecast(ahead="5 ms")(rows)
    buckets = us // 1000
    at = np.array([(us[buckets == b] - us[0]).mean() for b in np.unique(buckets)]) / 1e6
    assert got["points"] == len(at)
    for name, values in (("price", price), ("volume", volume)):
        means = np.array([values[buckets == b].mean() for b in np.unique(buckets)])
        right = np.polynomial.Polynomial.fit(at, means, 2)
        assert got[name] == pytest.approx(right(at[-1] + 0.005), rel=1e-6)
        shifted = right.convert(domain=[-1, 1])(np.polynomial.Polynomial([at[0], 1.0]))
        np.testing.assert_allclose(got[f"{name}_coefficients"], shifted.coef, rtol=1e-6)


def test_forecast_of_too_little_is_null() -> None:
    ts = pa.array([5, None, 7], pa.timestamp("us", tz="UTC"))
    nothing: dict[str, Any] = {"price": None, "volume": None, "price_coefficients": None, "volume_coefficients": None}
    assert Forecast()(window(ts=ts, price=[1.0, 2.0, 3.0], volume=[1, 1, None])) == {**nothing, "points": 1}
    none = pa.array([], pa.timestamp("us", tz="UTC"))
    assert Forecast()(window(ts=none, price=[], volume=[])) == {**nothing, "points": 0}


def test_forecast_refuses_durations_when_made() -> None:
    with pytest.raises(FlowError, match="Forecast: ahead"):
        Forecast(ahead="soon")
    with pytest.raises(FlowError, match="Forecast: resolution"):
        Forecast(resolution="0 s")
