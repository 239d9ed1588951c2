"""The histogram against the sorted values themselves."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.histogram import LogHistogram

seconds = st.one_of(st.just(0.0), st.floats(1e-9, 1e15))
values_lists = st.lists(seconds, min_size=1, max_size=80)


def nearest_rank(values: list[float], q: float) -> float:
    return sorted(values)[max(math.ceil(q * len(values) * (1.0 - 1e-12)), 1) - 1]


@given(values_lists, st.floats(0.0, 1.0))
def test_quantiles_are_within_one_percent(values: list[float], q: float) -> None:
    exact = nearest_rank(values, q)
    estimate = LogHistogram.of(values).quantile(q)
    assert estimate is not None
    assert abs(estimate - exact) <= 0.01 * exact


@given(st.floats(1e-9, 1e15))
def test_every_value_is_within_one_percent_of_its_bucket(value: float) -> None:
    # the second value is larger, so the first is answered from its bucket and not by the exact maximum
    estimate = LogHistogram.of([value, 1e15]).quantile(0.5)
    assert estimate is not None
    assert abs(estimate - value) <= 0.01 * value


def test_the_worst_value_of_many_buckets_is_within_one_percent() -> None:
    # ten values to a bucket over five decades: some lie at the very edges, where the error is largest
    values = np.geomspace(1e-3, 1e2, 6000)
    estimates = np.array([LogHistogram.of([v, 1e15]).quantile(0.5) for v in values], dtype=float)
    assert np.max(np.abs(estimates / values - 1.0)) <= 0.01


@given(st.lists(values_lists, max_size=5))
def test_merge_is_the_histogram_of_all_values(parts: list[list[float]]) -> None:
    together = LogHistogram.of([v for part in parts for v in part])
    pairwise = LogHistogram()
    for part in parts:
        pairwise = pairwise.merge(LogHistogram.of(part))
    for merged in (pairwise, LogHistogram.total(map(LogHistogram.of, parts))):
        assert (merged.buckets, merged.counts, merged.max) == (together.buckets, together.counts, together.max)
        assert merged.sum == pytest.approx(together.sum, rel=1e-12)


@given(st.lists(st.tuples(seconds, st.integers(0, 20)), max_size=40))
def test_weights_are_repetitions(pairs: list[tuple[float, int]]) -> None:
    weighted = LogHistogram.of([v for v, _ in pairs], weights=[w for _, w in pairs])
    repeated = LogHistogram.of([v for v, w in pairs for _ in range(w)])
    assert (weighted.buckets, weighted.counts, weighted.max) == (repeated.buckets, repeated.counts, repeated.max)
    assert weighted.sum == pytest.approx(repeated.sum, rel=1e-12)


@given(values_lists)
def test_count_sum_mean_and_max_are_exact(values: list[float]) -> None:
    histogram = LogHistogram.of(values)
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(math.fsum(values), rel=1e-12)
    assert histogram.mean == pytest.approx(math.fsum(values) / len(values), rel=1e-12)
    assert histogram.max == histogram.quantile(1.0) == max(values)


@given(values_lists)
def test_json_round_trip(values: list[float]) -> None:
    histogram = LogHistogram.of(values)
    assert LogHistogram.from_json(json.loads(json.dumps(histogram.to_json(), allow_nan=False))) == histogram


def test_empty_answers_none_and_survives_json() -> None:
    empty = LogHistogram.of([])
    assert (empty.count, empty.sum, empty.mean, empty.max, empty.quantile(0.99)) == (0, 0.0, None, None, None)
    assert empty == LogHistogram() == LogHistogram.of([1.0], weights=[0]) == empty.merge(empty)
    assert LogHistogram.from_json(json.loads(json.dumps(empty.to_json()))) == empty


def test_few_values_err_upwards() -> None:
    assert LogHistogram.of([1.0] * 9 + [50.0]).quantile(0.95) == 50.0


def test_counts_above_two_to_the_53_are_exact() -> None:
    big = 2**53
    assert LogHistogram.of([1.0, 1.0], weights=[big, 1]).count == big + 1


def test_a_million_values_take_few_buckets() -> None:
    rng = np.random.default_rng(7)
    values = rng.lognormal(-1.0, 1.0, 1_000_000)
    histogram = LogHistogram.of(values)
    assert len(histogram.buckets) < 600
    for q in (0.5, 0.95, 0.99):
        assert histogram.quantile(q) == pytest.approx(np.quantile(values, q, method="inverted_cdf"), rel=0.01)


@pytest.mark.parametrize("bad", [-1e-6, float("nan"), float("inf"), 1e16])
def test_what_is_no_duration_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="seconds from 0"):
        LogHistogram.of([1.0, bad])


@pytest.mark.parametrize("weights", [[1], [-1, 1], [0.5, 1.0], [float("nan"), 1.0]])
def test_wrong_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        LogHistogram.of([1.0, 2.0], weights=weights)


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_a_quantile_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        LogHistogram.of([1.0]).quantile(q)
