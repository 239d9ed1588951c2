"""Kingman's wait, fitted and unfitted, against the digest's values, textbook formulas and a simulated queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.control.models.kingman import QueueModel, kingman_wait, klb_factor
from penstock.errors import PolicyError

Draw = Callable[[np.random.Generator, int], np.ndarray]


def simulated_wait(draw_arrivals: Draw, draw_service: Draw, n: int = 400_000) -> float:
    """Mean wait of a FIFO queue: Lindley's recursion w' = max(0, w + s - a), as a running minimum of its sum."""
    random = np.random.default_rng(7)
    steps = draw_service(random, n) - draw_arrivals(random, n)
    level = np.concatenate([[0.0], np.cumsum(steps)])
    waits = level - np.minimum.accumulate(level)
    return float(waits[n // 50 :].mean())


def exponential(mean: float) -> Draw:
    return lambda random, n: random.exponential(mean, n)


def constant(mean: float) -> Draw:
    return lambda random, n: np.full(n, mean)


def gamma(mean: float, cv: float) -> Draw:
    shape = 1.0 / (cv * cv)
    return lambda random, n: random.gamma(shape, mean / shape, n)


def test_acceptance_18_worked_values() -> None:
    model = QueueModel(4.0, 5.0, 1.0, 0.5, width=8, wait=14.0)
    assert kingman_wait(4.0, 5.0, 1.0, 0.5) == pytest.approx(10.0)
    assert model.fit == pytest.approx(1.4)
    expected = {7: 37.333, 8: 14.0, 9: 8.615, 10: 6.222, 12: 4.0, 16: 2.333}
    assert {p: round(model.wait_at(p), 3) for p in expected} == expected
    # The closed form would give -56 at 6, which fits any budget.
    assert model.wait_at(6) == math.inf


@given(
    st.floats(0.001, 100.0),
    st.floats(0.01, 0.99),
    st.floats(0.05, 4.0),
    st.floats(0.0, 4.0),
    st.integers(1, 400),
    st.floats(0.0, 1e4),
    st.booleans(),
)
@settings(derandomize=True, deadline=None)
def test_acceptance_18_exact_where_measured_and_convex_falling(
    service: float, rho: float, ca: float, cs: float, width: int, wait: float, klb: bool
) -> None:
    assume(not klb or klb_factor(rho, ca, cs) > 1e-6)  # a wait that is modelled as 0 cannot be fitted
    model = QueueModel(service, service / rho, ca, cs, width=width, wait=wait, klb=klb)
    assert model.wait_at(width) == wait
    saturated = [p for p in range(1, width + 1) if model.utilisation_at(p) >= 1.0]
    assert all(model.wait_at(p) == math.inf for p in saturated)
    waits = [model.wait_at(p) for p in range(max(saturated, default=0) + 1, width + 20)]
    assert all(a >= b * (1 - 1e-9) for a, b in pairwise(waits))
    if not klb:
        assert all(a - b >= (b - c) - 1e-9 * a for a, b, c in zip(waits, waits[1:], waits[2:], strict=False))


@pytest.mark.parametrize("rho", [0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize(
    ("service_cv", "draw"), [(1.0, exponential(4.0)), (0.0, constant(4.0)), (0.5, gamma(4.0, 0.5))]
)
def test_acceptance_19_poisson_arrivals_are_met_within_10_percent(rho: float, service_cv: float, draw: Draw) -> None:
    interarrival = 4.0 / rho
    modelled = kingman_wait(4.0, interarrival, 1.0, service_cv)
    # Pollaczek-Khinchine, exact: lambda E[S^2] / (2 (1 - rho)).
    assert modelled == pytest.approx((1 / interarrival) * 16.0 * (1 + service_cv**2) / (2 * (1 - rho)))
    assert simulated_wait(exponential(interarrival), draw) == pytest.approx(modelled, rel=0.1)


def two_phases(mean: float, cv: float) -> Draw:
    """Hyperexponential with balanced means: what the correction for cA > 1 was made for."""
    share = 0.5 * (1.0 + math.sqrt((cv * cv - 1.0) / (cv * cv + 1.0)))

    def draw(random: np.random.Generator, n: int) -> np.ndarray:
        fast = random.random(n) < share
        return np.where(fast, random.exponential(mean / (2 * share), n), random.exponential(mean / (2 - 2 * share), n))

    return draw


@pytest.mark.parametrize(
    ("arrival_cv", "service_cv", "rho"), [(0.5, 0.5, 0.7), (0.5, 1.0, 0.8), (1.5, 0.5, 0.5), (2.0, 0.5, 0.5)]
)
def test_klb_is_nearer_to_the_simulation_than_kingman(arrival_cv: float, service_cv: float, rho: float) -> None:
    kingman = kingman_wait(4.0, 4.0 / rho, arrival_cv, service_cv)
    corrected = kingman * klb_factor(rho, arrival_cv, service_cv)
    arrivals = (gamma if arrival_cv < 1 else two_phases)(4.0 / rho, arrival_cv)
    simulated = simulated_wait(arrivals, gamma(4.0, service_cv), n=1_000_000)
    assert abs(corrected - simulated) < abs(kingman - simulated)
    assert corrected == pytest.approx(simulated, rel=0.1)


def test_klb_leaves_poisson_arrivals_alone_and_never_adds() -> None:
    assert klb_factor(0.7, 1.0, 0.3) == 1.0
    for ca in np.linspace(0.0, 3.0, 13):
        for cs in np.linspace(0.0, 3.0, 13):
            assert 0.0 <= klb_factor(0.6, float(ca), float(cs)) <= 1.0


def test_degenerate_fits() -> None:
    assert QueueModel(4.0, 5.0, 0.0, 0.0, width=8, wait=3.0).fit == 1.0  # nothing varies: nothing to fit
    assert QueueModel(4.0, 5.0, 0.0, 0.0, width=8, wait=3.0).wait_at(9) == 0.0
    assert QueueModel(4.0, 5.0, 1.0, 1.0, width=8, wait=0.0).wait_at(9) == 0.0
    saturated = QueueModel(6.0, 5.0, 1.0, 1.0, width=8, wait=900.0)
    assert saturated.fit == 1.0 and saturated.wait_at(8) == math.inf and math.isfinite(saturated.wait_at(10))
    burst = QueueModel(4.0, 5.0, 1.0, 0.5, width=8, wait=1000.0)
    assert burst.fit == pytest.approx(100.0)
    assert QueueModel(4.0, 5.0, 1.0, 0.5, width=8, wait=1000.0, fit_band=0.2).fit == pytest.approx(1.2)
    assert QueueModel(4.0, 5.0, 1.0, 0.5, width=8, wait=1.0, fit_band=0.2).fit == pytest.approx(0.8)


def test_the_floor_is_the_least_width_at_or_below_the_utilisation() -> None:
    for s, a, p in [(4.0, 5.0, 8), (2.0, 4.0, 4), (9.0, 10.0, 10), (1.0, 7.0, 3), (0.3, 1.0, 1)]:
        model = QueueModel(s, a, 1.0, 1.0, width=p)
        slow = next(q for q in range(1, 1000) if model.utilisation_at(q) <= 0.9 + 1e-12)
        assert model.floor(0.9) == slow


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"service": -1.0}, "service must be at least 0"),
        ({"service": math.nan}, "service must be at least 0"),
        ({"interarrival": 0.0}, "interarrival must be greater than 0"),
        ({"interarrival": math.inf}, "interarrival must be greater than 0"),
        ({"arrival_cv": math.nan}, "arrival_cv must be at least 0"),
        ({"width": 0}, "width must be at least 1"),
        ({"wait": -0.1}, "wait must be at least 0"),
    ],
)
def test_bad_statistics_are_refused(wrong: dict[str, float], rule: str) -> None:
    good = {"service": 4.0, "interarrival": 5.0, "arrival_cv": 1.0, "service_cv": 0.5, "width": 8, "wait": 14.0}
    with pytest.raises(PolicyError, match=rule):
        QueueModel(**{**good, **wrong})  # type: ignore[arg-type]
