"""Durations, tuple-to-window and pane arithmetic against brute force, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.durations import microseconds
from penstock.errors import FlowError
from penstock.windows.aggregates import bind, count
from penstock.windows.aggregates import sum as total
from penstock.windows.panes import needed_from
from penstock.windows.time import Time
from tests.windows.window_cases import specs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100 ms", 100_000), ("10 s", 10_000_000), ("1 minute", 60_000_000), ("2 hours", 7_200_000_000),
        ("1 day", 86_400_000_000), ("250 us", 250), ("10 seconds", 10_000_000), ("1.5 s", 1_500_000), ("0.1s", 100_000),
        (" 1 hour 30 min ", 5_400_000_000), ("-5 ms", -5_000), ("0 s", 0),
        (timedelta(days=1, microseconds=1), 86_400_000_001), ("3 µs", 3), ("1 WEEK", 604_800_000_000),
    ],
)  # fmt: skip
def test_durations(text: str | timedelta, expected: int) -> None:
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ("1 month", "fixed length"), ("2 years", "fixed length"), ("1 quarter", "fixed length"),
        ("0.5 us", "whole number"),
        ("", "number and a unit"), ("10", "number and a unit"), ("s", "number and a unit"), ("1 m", "unknown unit"),
        ("1 s 2", "number and a unit"), ("10 ns", "unknown unit"), ("99999999 days", "shorter than"), (10, "no unit"),
    ],
)  # fmt: skip
def test_durations_refused(bad: str, rule: str) -> None:
    with pytest.raises(FlowError, match=rule):
        microseconds(bad)


def test_time_refuses_by_parameter() -> None:
    for arguments, rule in [
        ({"size": "0 s"}, "size must be more than zero"),
        ({"size": "-1 s"}, "size must be more than zero"),
        ({"size": "1 s", "slide": "0 s"}, "slide must be more than zero"),
        ({"size": "1 s", "lateness": "-1 s"}, "lateness must be zero or more"),
        ({"size": "1 month"}, "size must have a fixed length"),
        ({"size": "1 s", "origin": datetime(2024, 1, 1)}, "origin must name its zone"),  # noqa: DTZ001
        ({"size": "1 s", "origin": "second"}, "origin must be a timestamp"),
    ]:
        with pytest.raises(FlowError, match=rule):
            Time(**arguments)


def test_origin() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert (
        Time("1 s", origin=at)
        == Time("1 s", origin="2024-01-01T01:00:00+01:00")
        == Time("1 s", origin=1_704_067_200_000_000)
    )
    assert Time("1 s", origin=datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)).origin_us == -999_999


def test_bind_refuses() -> None:
    with pytest.raises(FlowError, match="unknown column 'y'"):
        bind({"s": total("y")}, {"x": "long"})
    with pytest.raises(FlowError, match="needs an integer or floating column"):
        bind({"s": total("name")}, {"name": "other"})
    assert bind({"n": count("name")}, {"name": "other"})[0].kind == "long"


@given(spec=specs(), times=st.lists(st.integers(-500, 500), min_size=1, max_size=20), watermark=st.integers(-500, 500))
def test_arithmetic_is_brute_force(spec: Time, times: list[int], watermark: int) -> None:
    # windows that could hold any time in range, by definition
    some = {
        k: (spec.origin_us + k * spec.slide_us, spec.origin_us + k * spec.slide_us + spec.size_us)
        for k in range(-1000, 1001)
    }
    arrays = np.array(times)
    first, last = spec.first_window(arrays), spec.last_window(arrays)
    missed, still_open = spec.has_missed(arrays, watermark), spec.has_open(arrays, watermark)
    r, dp = spec.panes_per_window, spec.panes_per_slide
    # a pane begins where a window starts or ends, and nowhere else: no cut could be left out
    edges = sorted({edge for window in some.values() for edge in window})
    begins = spec.start_of_pane(np.arange(-100, 101))
    assert begins.tolist() == [edge for edge in edges if begins[0] <= edge <= begins[-1]]
    assert dp <= spec.slide_us // math.gcd(spec.size_us, spec.slide_us)
    for i, t in enumerate(times):
        holds = [k for k, (start, end) in some.items() if start <= t < end]
        assert list(range(first[i], last[i] + 1)) == holds
        assert (spec.first_window(t), spec.last_window(t)) == (first[i], last[i])
        assert all((spec.start_of(k), spec.end_of(k)) == some[k] for k in holds)
        assert missed[i] == any(some[k][1] <= watermark for k in holds)
        assert still_open[i] == any(some[k][1] > watermark for k in holds)
        if still_open[i]:
            assert t >= spec.open_from(watermark)
            assert spec.pane_of(t) >= needed_from(spec, watermark)
        # a pane lies in the same windows as every time in it
        pane = spec.pane_of(t)
        assert spec.start_of_pane(pane) <= t < spec.start_of_pane(pane + 1)
        assert list(range(spec.first_window_of_pane(pane), spec.last_window_of_pane(pane) + 1)) == holds
        assert all(k * dp <= pane < k * dp + r for k in holds)
    assert spec.last_closed(watermark) == max(k for k, (_, end) in some.items() if end <= watermark)
