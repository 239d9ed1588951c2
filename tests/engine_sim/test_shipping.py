"""Output batches of the fast simulator: drawn as a process, and against the slow obvious channel of the policies."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.policies.batching_channel import OutputChannel
from penstock.engine.sim.shipping import batch_shape, channel_batches, item_arrival_cv

CASES = [
    (50.0, 0.02, None),  # mostly single items
    (400.0, 0.02, None),
    (400.0, 0.02, 200),  # a buffer that never fills
    (400.0, 0.02, 8),  # one that fills now and then
    (400.0, 5.0, 8),  # one that always does
    (400.0, 0.02, 1),  # items as large as a buffer
]


def shipped(rate: float, lifetime: float, buffer: int | None, seconds: float) -> tuple[list[int], float]:
    """Sizes of the batches of one channel and the mean delay of its items, event by event."""
    channel: OutputChannel[int] = OutputChannel(lifetime=lifetime, buffer=buffer)
    sizes, delays = [], []
    for i, now in enumerate(np.cumsum(np.random.default_rng(5).exponential(1.0 / rate, int(rate * seconds)))):
        # who is due leaves when it is due, not when the next item comes
        due = channel.flush(channel.deadline) if channel.deadline is not None and channel.deadline <= now else None
        for batch in (due, channel.ship(i, size=1, now=float(now))):
            if batch is not None:
                sizes.append(len(batch.items))
                delays += [batch.at - entered for _, entered in batch.items]
    return sizes, float(np.mean(delays))


@pytest.mark.parametrize(("rate", "lifetime", "buffer"), CASES)
def test_batches_are_those_of_an_output_channel(rate: float, lifetime: float, buffer: int | None) -> None:
    sizes, delay = shipped(rate, lifetime, buffer, 60.0)
    items, mean_delay = batch_shape(rate, lifetime, buffer)
    assert items == pytest.approx(np.mean(sizes), rel=0.03)
    assert mean_delay == pytest.approx(delay, rel=0.03, abs=1e-9)
    drawn = channel_batches(np.random.default_rng(1), np.full(20, rate), 3, lifetime, buffer, 2.0)[1]
    assert float(drawn.mean()) == pytest.approx(np.mean(sizes), rel=0.03)
    assert float(drawn.std()) == pytest.approx(np.std(sizes), rel=0.06, abs=1e-9)


@pytest.mark.parametrize(("rate", "lifetime", "buffer"), CASES)
@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_no_item_is_lost_however_short_the_span(
    rate: float, lifetime: float, buffer: int | None, seconds: float
) -> None:
    """The process is drawn from its equilibrium: spans of any length hold as many items as come in them."""
    rng = np.random.default_rng(2)
    total = sum(channel_batches(rng, np.full(50, rate), 4, lifetime, buffer, seconds)[1].sum() for _ in range(20))
    assert float(total) == pytest.approx(20 * 200 * rate * seconds, rel=0.03)


def test_batches_are_grouped_by_subtask_and_in_order() -> None:
    times, _, counts = channel_batches(np.random.default_rng(1), np.array([100.0, 0.0, 300.0]), 5, 0.01, None, 1.0)
    assert counts[1] == 0
    for group in np.split(times, np.cumsum(counts)[:-1]):
        assert np.all(np.diff(group) >= 0.0)


def test_the_variation_of_item_arrivals_is_that_of_the_items_themselves() -> None:
    rng = np.random.default_rng(4)
    gaps, sizes = rng.exponential(1.0, 2000), rng.integers(1, 6, 2000)
    arrivals = np.repeat(np.cumsum(gaps), sizes)
    between = np.diff(arrivals)
    measured = item_arrival_cv(float(sizes.sum()), float(gaps.sum()), float((gaps**2).sum()))
    assert measured == pytest.approx(float(between.std() / between.mean()), rel=0.01)
