"""The batch-service model against batches that are played through one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.models.batch_service import BatchService, late_cut_s
from penstock.errors import PolicyError


def played(model: BatchService, lifetime: float, cycles: int = 60) -> tuple[float, float, float]:
    """Mean and p95 latency and CPU per second of a steady stream, batch after batch: cut, work, wait the rest out."""
    cut, last_cut, latencies, cpu = 0.0, -1e-9, [], 0.0
    gap = 1.0 / model.rate_per_s
    for number in range(cycles):
        first, last = math.floor(last_cut / gap) + 1, math.floor(cut / gap)
        arrivals = gap * np.arange(first, last + 1)
        work = model.fixed_s + len(arrivals) * model.row_s * model.skew / model.width
        if number >= cycles // 2:  # the start is not the steady state
            latencies.append(cut + work - arrivals)
            cpu += model.fixed_s + len(arrivals) * model.row_s
        last_cut, cut = cut, cut + max(lifetime, work)
        if number == cycles // 2 - 1:
            began = cut
    every = np.concatenate(latencies)
    return float(every.mean()), float(np.quantile(every, 0.95)), cpu / (cut - began)


@pytest.mark.parametrize("lifetime", [0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize(("load", "width", "skew"), [(0.3, 1, 1.0), (1.2, 2, 1.0), (1.2, 2, 1.3), (0.05, 1, 1.0)])
def test_mean_p95_and_cost_are_those_of_the_batches(lifetime: float, load: float, width: int, skew: float) -> None:
    rate = 20_000.0
    model = BatchService(0.2, load / rate, rate, width=width, skew=skew)
    mean, p95, cpu = played(model, lifetime)
    assert model.mean_s(lifetime) == pytest.approx(mean, rel=0.02)
    assert model.quantile_s(0.95, lifetime) == pytest.approx(p95, rel=0.02)
    assert model.cpu_per_s(lifetime) == pytest.approx(cpu, rel=0.03)


models = st.builds(
    BatchService,
    fixed_s=st.floats(0.01, 1.0),
    row_s=st.floats(0.0, 1e-3),
    rate_per_s=st.floats(1.0, 5000.0),
    width=st.integers(1, 8),
    skew=st.floats(1.0, 3.0),
)


@given(models, st.floats(0.01, 10.0), st.floats(0.01, 10.0))
@settings(derandomize=True, deadline=None)
def test_the_longest_lifetime_keeps_the_bounds_and_no_longer_one_does(
    model: BatchService, mean: float, p95: float
) -> None:
    lifetime = model.longest_lifetime_s(mean_s=mean, p95_s=p95)
    if lifetime is None:
        assert model.least_mean_s > mean * (1 - 1e-9) or model.least_quantile_s(0.95) > p95 * (1 - 1e-9)
    else:
        assert model.mean_s(lifetime) <= mean * (1 + 1e-6)
        assert model.quantile_s(0.95, lifetime) <= p95 * (1 + 1e-6)
        longer = max(lifetime, model.least_cycle_s) * 1.001
        assert model.mean_s(longer) > mean or model.quantile_s(0.95, longer) > p95


@given(models, st.floats(0.0, 10.0), st.floats(0.0, 10.0))
@settings(derandomize=True, deadline=None)
def test_longer_lifetimes_cost_less_and_last_longer(model: BatchService, a: float, b: float) -> None:
    short, long = min(a, b), max(a, b)
    assert model.cpu_per_s(long) <= model.cpu_per_s(short)
    if model.utilisation < 1.0:
        assert model.least_mean_s <= model.mean_s(short) * (1 + 1e-9)
        assert model.mean_s(short) <= model.mean_s(long)


def closed(model: BatchService, lifetime: float, every: float, ends: int = 40) -> float:
    """The longest wait for a window, batch after batch: cut at its end or after the lifetime."""
    cut, last_cut, waits = 0.0, 0.0, []
    for number in range(1, ends + 1):
        end = number * every
        while cut < end:  # batches between two ends
            work = model.fixed_s + model.rate_per_s * (cut - last_cut) * model.row_s * model.skew / model.width
            next_cut = max(cut + work, min(cut + lifetime, end))
            held = next_cut < end <= next_cut + late_cut_s(work, model.utilisation)
            last_cut, cut = cut, end if held else next_cut
        work = model.fixed_s + model.utilisation * (cut - last_cut)
        waits.append(cut + work - end)
        last_cut, cut = cut, max(cut + work, min(cut + lifetime, end + every))
    return max(waits)


@pytest.mark.parametrize("rate", [0.0, 500.0, 2000.0])
@pytest.mark.parametrize("lifetime", [1.0, 5.0])
def test_windows_wait_as_long_as_their_batch_takes(lifetime: float, rate: float) -> None:
    model = BatchService(0.1, 0.0001, rate)
    assert closed(model, lifetime, every=1.0) == pytest.approx(model.closing_s(lifetime, 1.0), rel=0.15)
    assert closed(model, lifetime, every=1.0) <= model.closing_s(lifetime, 1.0) * (1 + 1e-9)


@pytest.mark.parametrize("rate", [500.0, 2000.0, 4000.0])
@pytest.mark.parametrize("lifetime", [0.0, 0.2, 0.3])
def test_batches_between_the_ends_make_windows_wait_longer(lifetime: float, rate: float) -> None:
    """The ends of 40 windows fall on all phases of the batches; the model says the worst of them."""
    model = BatchService(0.1, 0.0001, rate)
    found = [closed(model, lifetime, every) for every in np.linspace(1.0, 1.4, 81)]
    assert max(found) == pytest.approx(model.closing_s(lifetime, 1.0), rel=0.1)


@given(models, st.floats(0.01, 10.0), st.floats(0.01, 10.0))
@settings(derandomize=True, deadline=None)
def test_the_longest_lifetime_for_windows_keeps_their_bound_and_no_longer_one_does(
    model: BatchService, bound: float, every: float
) -> None:
    lifetime = model.longest_lifetime_closing(bound, every)
    tightest = min(bound, every)
    if lifetime is None:
        assert model.closing_s(0.0, every) > tightest * (1 - 1e-6)
    else:
        assert model.closing_s(lifetime, every) <= tightest * (1 + 1e-6)
        longer = lifetime * 1.01
        assert longer >= every or model.utilisation < 1e-3 or model.closing_s(longer, every) > tightest * (1 - 1e-6)


def test_infeasible_is_said() -> None:
    model = BatchService(0.2, 0.001, 500.0)  # rho 0.5, least cycle 0.4 s
    assert model.least_mean_s == pytest.approx(0.6)
    assert model.longest_lifetime_s(mean_s=0.6) == pytest.approx(0.4)
    assert model.longest_lifetime_s(mean_s=0.59) is None
    full = BatchService(0.2, 0.001, 1000.0)
    assert full.mean_s(1.0) == math.inf and full.longest_lifetime_s(mean_s=1e6) is None


def test_bad_parameters_are_refused() -> None:
    for wrong in ({"rate_per_s": -1.0}, {"row_s": math.nan}, {"fixed_s": math.inf}, {"width": 0}, {"skew": 0.5}):
        with pytest.raises(PolicyError):
            BatchService(**{"fixed_s": 0.2, "row_s": 0.001, "rate_per_s": 10.0, **wrong})  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="there is no bound"):
        BatchService(0.2, 0.001, 10.0).longest_lifetime_s()
    with pytest.raises(PolicyError, match="must be greater than 0"):
        BatchService(0.2, 0.001, 10.0).longest_lifetime_s(mean_s=0.0)
