"""The search for the highest sustained rate, against servers whose capacity is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bench.rate_finder import Found, Growth, Search, Trial, Verdict, find, growth, judge
from penstock.bench.rate_live import backlog_samples, write
from penstock.observe.record import BatchRecord


def batches(rate: float, capacity: float, fixed: float, cap_s: float, seconds: float, seed: int) -> list[BatchRecord]:
    """A micro-batch server row by row: each batch takes what is due, up to a cap, and costs fixed + rows / capacity."""
    random = np.random.default_rng(seed)
    now, read, found = 0.0, 0.0, list[BatchRecord]()
    while now < seconds:
        due = rate * now
        taken = min(due - read, cap_s * rate)
        read += taken
        work = (fixed + taken / capacity) * random.uniform(0.9, 1.1)
        found.append(
            BatchRecord(len(found), started=now, visible=now + work, rows_in=int(taken), backlog=int(due - read))
        )
        now += work
    return found


def trial_of(capacity: float, fixed: float, cap_s: float, seed: int = 0) -> object:
    def trial(rate: float) -> Trial:
        for seconds in (20.0, 40.0, 80.0):
            records = [r for r in batches(rate, capacity, fixed, cap_s, seconds, seed) if r.started > seconds / 4]
            found = growth(*backlog_samples(records, rate))
            verdict = judge(found, rate)
            if verdict is not Verdict.UNSURE:
                break
        return Trial(rate, verdict, found, seconds)

    return trial


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(1e3, 1e6), st.floats(0.02, 0.3), st.integers(0, 100))
def test_the_rate_found_is_what_a_batch_server_can_do(capacity: float, fixed: float, seed: int) -> None:
    """Batches of at most 1 s of schedule cost fixed + rows / capacity, so (1 - fixed) x capacity is the most."""
    found = find(trial_of(capacity, fixed, cap_s=1.0, seed=seed), Search(start=5000.0, resolution=0.05))  # type: ignore[arg-type]
    assert 0.85 * (1 - fixed) * capacity < found.sustained < 1.06 * (1 - fixed) * capacity
    assert found.confirmed and found.sustained < found.refused <= 1.06 * found.sustained


@pytest.mark.parametrize("cap_s", [1.0, 1e9])
def test_overload_shows_with_a_cap_and_without(cap_s: float) -> None:
    """Without a cap no row is ever left at a cut: the batches grow instead, and that counts."""
    records = batches(12_000.0, 10_000.0, 0.1, cap_s, 60.0, 1)
    if cap_s > 1:
        assert {record.backlog for record in records} == {0}
    assert judge(growth(*backlog_samples(records, 12_000.0)), 12_000.0) is Verdict.OVERLOADED
    calm = batches(5_000.0, 10_000.0, 0.1, cap_s, 60.0, 1)
    assert judge(growth(*backlog_samples(calm, 5_000.0)), 5_000.0) is Verdict.SUSTAINED


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(1.0, 1e9), st.floats(1.0, 1e7), st.floats(0.01, 0.5))
def test_the_search_ends_around_the_border(border: float, start: float, resolution: float) -> None:
    search, tries = Search(start=start, resolution=resolution), 0
    while (rate := search.rate) is not None:
        search.took(rate, rate <= border)
        tries += 1
        assert tries < 200
    assert search.confirmed and search.sustained <= border < search.refused
    assert search.refused <= search.sustained * (1 + resolution) * (1 + 1e-9)


def test_a_flow_that_sustains_nothing_and_one_that_sustains_all() -> None:
    nothing = Search(start=1000.0, least=10.0)
    while (rate := nothing.rate) is not None:
        nothing.took(rate, False)
    assert (nothing.sustained, nothing.refused) == (0.0, 10.0)
    everything = Search(start=1000.0, most=5000.0)
    while (rate := everything.rate) is not None:
        everything.took(rate, True)
    assert (everything.sustained, everything.refused, everything.confirmed) == (5000.0, math.inf, True)


def test_one_lucky_trial_does_not_decide() -> None:
    """800 is sustained at the first look only: the search must end below it."""
    search, seen = Search(start=100.0, resolution=0.1), list[float]()
    while (rate := search.rate) is not None:
        search.took(rate, rate <= 500 or (700 < rate <= 800 and rate not in seen))
        seen.append(rate)
    assert search.sustained <= 500 and search.confirmed


def test_growth_is_the_slope_and_its_limits_hold_it() -> None:
    random = np.random.default_rng(3)
    held = 0
    for _ in range(300):
        times = np.sort(random.uniform(0, 30, 60))
        found = growth(times.tolist(), (200.0 * times + random.normal(0, 500, 60)).tolist())
        held += found.low <= 200.0 <= found.high
    assert 0.85 < held / 300 <= 0.95, "two one-sided limits of 95 % hold the truth in 90 % of the cases"


def test_a_wrong_search_is_refused() -> None:
    for wrong in ({"resolution": 0.0}, {"resolution": 1.0}, {"least": 0.0}, {"least": 2e4}, {"most": 10.0}):
        with pytest.raises(ValueError, match="resolution"):
            Search(start=1000.0, **wrong)


def test_json_has_no_infinities(tmp_path: Path) -> None:
    found = Found(0.0, 10.0, False, (Trial(10.0, Verdict.UNSURE, Growth(0.0, -math.inf, math.inf, 2), 1.0),))
    write(tmp_path / "rate.json", "map", {"cores": 2}, found)
    text = (tmp_path / "rate.json").read_text()
    assert "Infinity" not in text and "NaN" not in text
    document = json.loads(text)
    assert document["trials"][0]["verdict"] == "unsure" and document["sustained_rows_per_s"] == 0
