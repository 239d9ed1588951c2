"""Moments against NumPy, whatever the numbers and however they are split."""

from __future__ import annotations

import json
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.moments import Moments

numbers = st.lists(st.floats(-1e6, 1e6, allow_nan=False), max_size=60)


def agrees(moments: Moments, values: list[float]) -> None:
    scale = max((abs(v) for v in values), default=0.0) + 1e-300
    assert moments.n == len(values)
    if values:
        assert moments.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-12 * scale)
    if len(values) > 1:
        assert moments.variance == pytest.approx(np.var(values, ddof=1), rel=1e-7, abs=1e-12 * scale * scale)


@given(numbers)
def test_of_and_add_agree_with_numpy(values: list[float]) -> None:
    agrees(Moments.of(values), values)
    agrees(reduce(Moments.add, values, Moments()), values)


@given(st.lists(numbers, max_size=6))
def test_merging_parts_is_the_whole(parts: list[list[float]]) -> None:
    agrees(reduce(Moments.merge, map(Moments.of, parts), Moments()), [v for part in parts for v in part])


@given(numbers)
def test_json_round_trip(values: list[float]) -> None:
    moments = Moments.of(values)
    assert Moments.from_json(json.loads(json.dumps(moments.to_json(), allow_nan=False))) == moments


def test_a_large_offset_does_not_swallow_the_variance() -> None:
    values = [1e9 + v for v in (4.0, 7.0, 13.0, 16.0)]
    assert Moments.of(values).variance == 30.0
    assert reduce(Moments.add, values, Moments()).variance == pytest.approx(30.0)


def test_what_is_not_known_is_none_not_zero() -> None:
    assert Moments().variance is None
    assert Moments().cv is None
    assert Moments.of([5.0]).variance is None
    assert Moments.of([5.0]).cv is None
    assert Moments.of([-1.0, 1.0]).cv is None
    assert Moments.of([2.0, 2.0]).cv == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Moments().add(bad)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="finite"):
        Moments.of([1.0, bad])
