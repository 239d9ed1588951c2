"""Schedules: `count` and `time_of` are one truth, whatever the shape."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.sources import Schedule, burst, constant, poisson, ramp, sine, staircase, step

rates = st.floats(0, 5000) | st.sampled_from([0.0, 0.1, 1.0, 1 / 3, 1e6])
seconds = st.floats(0.01, 50)
fractions = st.floats(0.05, 0.95)

shapes = st.one_of(
    st.builds(constant, rates, seconds),
    st.builds(ramp, rates, rates, seconds),
    st.builds(lambda a, b, s, f: step(a, b, s * f, s), rates, rates, seconds, fractions),
    st.builds(staircase, rates, rates, st.integers(1, 6), st.floats(0.01, 5)),
    st.builds(lambda a, b, e, f, s: burst(a, b, e * f, e, s), rates, rates, st.floats(0.1, 5), fractions, seconds),
    st.builds(lambda m, f, p, s: sine(m, m * f, p, s), rates, st.floats(0, 1), st.floats(0.1, 20), seconds),
)
joined = st.lists(shapes, min_size=1, max_size=3).map(lambda parts: _join(parts))  # noqa: PLW0108 - defined below
schedules = joined | st.builds(lambda shape, seed: poisson(shape, seed=seed), joined, st.integers(0, 99))


def _join(parts: list[Schedule]) -> Schedule:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.then(part)
    return whole


@settings(max_examples=150, deadline=None)
@given(schedules, st.floats(0, 1), st.data())
def test_count_and_time_of_are_exact_inverses(schedule: Schedule, place: float, data: st.DataObject) -> None:
    first = int(place * min(schedule.rows, 1e9))
    index = np.arange(first, first + 500)
    due = schedule.time_us(index)
    assert (due[1:] >= due[:-1]).all()
    for us in (int(due[0]), int(due[250]), int(due[-1]), data.draw(st.integers(0, 60_000_000))):
        for instant in (us - 1, us, min(us + 1, 2**62)):
            # What lies outside the window is known only to be on its side of the count.
            counted = min(max(schedule.count_us(min(instant, 2**62)), first), first + 500)
            assert counted == first + int((due <= min(instant, 2**62)).sum())
    times = schedule.time_of(index)
    for row in (0, 250, len(index) - 1):
        if math.isfinite(times[row]):
            assert schedule.count(float(times[row])) == schedule.count_us(int(due[row])) > index[row]
            assert schedule.count(math.nextafter(float(times[row]), -1)) <= index[row]


@settings(max_examples=100, deadline=None)
@given(schedules)
def test_a_finite_schedule_holds_rows_and_then_no_more(schedule: Schedule) -> None:
    rows = int(schedule.rows)
    edge = schedule.time_of([max(rows - 1, 0), rows, rows + 10**6])
    assert np.isinf(edge[1:]).all()
    if rows:
        assert edge[0] <= schedule.duration + 1e-6
    assert schedule.count(schedule.duration + 1) == schedule.count(math.inf) == rows


@settings(max_examples=60, deadline=None)
@given(joined, fractions)
def test_count_is_the_integral_of_the_rate(schedule: Schedule, share: float) -> None:
    end = schedule.duration * share
    middles = (np.arange(20_000) + 0.5) * end / 20_000
    integral = schedule.rate(middles).sum() * end / 20_000
    most = schedule.rate(middles).max() * end / 20_000
    assert abs(schedule.count(end) - integral) <= 2 + 20 * most + 1e-6 * integral


def test_phases_lose_no_fraction_of_a_row() -> None:
    slow = constant(0.5, 1)
    assert _join([slow] * 10).rows == 5


def test_rows_wait_for_a_phase_that_has_a_rate() -> None:
    load = constant(0, 5).then(constant(100, 1))
    assert load.rows == 100
    assert load.time_of([0]).tolist() == [5.0]


def test_staircase_is_the_prime_test_load() -> None:
    load = staircase(10_000, 80_000, steps=7, step_seconds=60)
    levels = [load.rate(60.0 * level + 30) for level in range(15)]
    assert levels == [10_000.0 * level for level in (1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1)]
    assert load.duration == 15 * 60


@pytest.mark.parametrize("endless", [constant(1e6), sine(1e5, 5e4, 60), burst(10, 1000, 1, 10), poisson(1e5, seed=3)])
def test_far_into_an_endless_stream(endless: Schedule) -> None:
    assert math.isinf(endless.rows) and math.isinf(endless.duration)
    row = 10**12
    at = int(endless.time_us(np.array([row]))[0])
    assert endless.count_us(at) > row >= endless.count_us(at - 1)


def test_poisson_gaps_are_exponential_and_independent() -> None:
    gaps = np.diff(poisson(1000, seed=1).time_of(np.arange(3_000_000, 3_200_001))) * 1000
    quantiles = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
    assert np.allclose(np.quantile(gaps, quantiles), -np.log1p(-quantiles), rtol=0.02, atol=0.002)
    assert abs(gaps.mean() - 1) < 0.01 and abs(gaps.std() - 1) < 0.01
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.01


def test_poisson_counts_have_the_variance_of_a_poisson_process() -> None:
    # Over seeds, at a point far beyond one block: the tree of spans, not only the gaps, must be right.
    counts = np.array([poisson(1000, seed=seed).count(1000.0) for seed in range(300)])
    assert abs(counts.mean() - 1e6) < 5 * 1000 / 300**0.5
    assert 0.8 < counts.std() / 1000 < 1.2


def test_poisson_follows_its_load_shape() -> None:
    load = poisson(step(100, 1000, at=100, seconds=200), seed=5)
    assert abs(load.count(100.0) - 10_000) < 500
    assert abs(load.rows - 110_000) < 2000


@pytest.mark.parametrize(
    "build",
    [
        lambda: constant(-1),
        lambda: constant(math.nan),
        lambda: constant(math.inf),
        lambda: constant(10, 0),
        lambda: constant(10, math.nan),
        lambda: constant("fast"),  # type: ignore[arg-type]
        lambda: ramp(0, 10, math.inf),
        lambda: step(1, 2, at=5, seconds=5),
        lambda: staircase(1, 2, steps=0, step_seconds=1),
        lambda: staircase(1, 2, steps=1.5, step_seconds=1),  # type: ignore[arg-type]
        lambda: burst(1, 2, length=5, every=5),
        lambda: sine(1, 2, period=10),
        lambda: sine(1, 1, period=0),
        lambda: poisson(-5),
        lambda: poisson(constant(5), 10),
        lambda: constant(1).then(constant(2)),
        lambda: constant(1, 5).then(poisson(2)),
        lambda: poisson(1, 5).then(constant(2)),
    ],
)
def test_bad_parameters_are_refused_with_a_remedy(build: object) -> None:
    with pytest.raises(FlowError, match="Remedy"):
        build()  # type: ignore[operator]
