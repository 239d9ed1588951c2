"""Our choice of output-batch lifetimes: what queues leave, room for full queues, recovery after an overload."""

from __future__ import annotations

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive_paths import Path
from penstock.control.policies.adaptive_shipping import Shipping

BOUND = Bound("fast", ("source", "score", "sink"), mean_s=0.1)
STREAMS = ("source->score", "score->sink")


def view(name: str, wait_s: float, delay_s: float, utilisation: float = 0.8) -> OperatorView:
    return OperatorView(
        name, 4, 1, 8, arrivals_per_s=400.0, completed_per_s=400.0, service_s=0.005, service_cv=1.0,
        interarrival_s=0.01, arrival_cv=1.0, wait_s=wait_s, batch_wait_s=delay_s, queue_items=2.0,
        utilisation=utilisation,
    )  # fmt: skip


def step(
    shipping: Shipping, lifetime: float, *, wait_s: float = 0.01, utilisation: float = 0.8, batches_s: float = 0.07
) -> float:
    """One interval with dense batches, whose delay is half their lifetime; the next lifetime."""
    views = [view("score", wait_s, lifetime / 2.0, utilisation), view("sink", 0.0, lifetime / 2.0, 0.1)]
    total = wait_s + lifetime
    seen = Observation(5.0, 5.0, {v.name: v for v in views}, (BOUND,), {"fast": (total, total, total, total)})
    path = Path(BOUND, 0.1, views, allowed_s=0.02, most_s=0.02, batches_s=batches_s)
    current = Decision(lifetimes=dict.fromkeys(STREAMS, lifetime))
    chosen = shipping.lifetimes([path], seen, current)
    assert len(set(chosen.values())) == 1
    return chosen[STREAMS[0]]


def test_batches_take_what_the_queues_leave_within_a_few_intervals() -> None:
    shipping, lifetime = Shipping(), 0.0
    lifetimes = [lifetime := step(shipping, lifetime) for _ in range(6)]
    assert lifetimes[-1] == pytest.approx(2 * 0.07 / 2)  # mean delay: half of it, on two streams
    assert lifetimes == sorted(lifetimes)


def test_room_is_kept_for_queues_that_have_been_full_if_enough_is_left() -> None:
    shipping, lifetime = Shipping(), 0.07
    step(shipping, lifetime, wait_s=0.04, utilisation=1.1)
    for _ in range(6):
        lifetime = step(shipping, lifetime)
    assert lifetime + 0.04 == pytest.approx(0.09, rel=0.02)  # batches and a full queue: what queues and batches have


def test_full_queues_that_cannot_be_borne_change_nothing_for_good() -> None:
    shipping, lifetime = Shipping(), 0.07
    lifetime = step(shipping, lifetime, wait_s=0.5, utilisation=1.1)
    for _ in range(6):
        lifetime = step(shipping, lifetime)
    assert lifetime == pytest.approx(0.07, rel=0.01)


def test_after_an_overload_batches_are_short_once() -> None:
    shipping = Shipping()
    assert step(shipping, 0.07, wait_s=0.5, utilisation=1.1) == pytest.approx(0.6 * 0.07)
    assert step(shipping, 0.042) > 0.042


def test_a_stream_of_two_bounds_obeys_the_tighter_one() -> None:
    seen_view = view("score", 0.0, 0.01)
    bounds = (Bound("a", ("source", "score"), mean_s=0.1), Bound("b", ("source", "score"), mean_s=0.05))
    paths = [
        Path(b, b.mean_s or 0.0, [seen_view], 0.01, 0.01, left) for b, left in zip(bounds, (0.08, 0.03), strict=True)
    ]
    seen = Observation(5.0, 5.0, {"score": seen_view}, bounds)
    for order in (paths, paths[::-1]):
        chosen = Shipping().lifetimes(order, seen, Decision(lifetimes={"source->score": 0.1}))
        assert chosen == {"source->score": pytest.approx(0.06)}
