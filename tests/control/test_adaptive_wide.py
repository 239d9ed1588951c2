"""`Adaptive` on wide operators and engines with output batches (thesis 001's kind): what it does otherwise there."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.control.decision import Decision
from penstock.control.models.kingman import kingman_wait
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive import Adaptive
from penstock.control.policies.adaptive_learner import Learner, Need
from penstock.control.policies.adaptive_queue import QueuePlanner
from penstock.control.policies.adaptive_widths import WidthSearch
from tests.control.cases import view

T = 5.0
BOUND = Bound("fast", ("source", "v"), mean_s=0.05)


def seen(width: int, rate: float, **given: Any) -> OperatorView:
    """An operator of 1 ms per item in a steady state, unless told otherwise."""
    service = 0.001
    busy = rate * service / width
    values = {
        "completed_per_s": min(rate, width / service), "service_cv": 1.0, "arrival_cv": 1.0,
        "interarrival_s": width / rate, "utilisation": busy, "queue_items": 0.0, "batch_wait_s": 0.0,
        "wait_s": kingman_wait(service, width / rate, 1.0, 1.0) if busy < 1.0 else 0.1, **given,
    }  # fmt: skip
    return view("v", width=width, hi=400, arrivals_per_s=rate, service_s=service, **values)


def run(policy: Adaptive, lifetimes: dict[str, float], rates: list[float], width: int) -> list[int]:
    """Widths decided over intervals with these rates; a decided width works in the next interval."""
    decision = Decision({"v": width}, lifetimes=lifetimes)
    widths = []
    for i, rate in enumerate(rates):
        one = seen(decision.widths["v"], rate)
        mean = one.wait_s + one.service_s
        observed = Observation(T * (i + 1), T, {"v": one}, (BOUND,), {"fast": (mean, 3 * mean, 4 * mean, 9 * mean)})
        decision = policy.decide(observed, decision)
        widths.append(decision.widths["v"])
    return widths


def test_where_output_batches_are_shipped_a_change_is_not_taken_for_a_stop() -> None:
    """001, section 4.6.4: new subtasks start beside the old ones, so a needless width goes as soon as it has lasted."""
    batching, other = Adaptive(), Adaptive()
    assert run(batching, {"source->v": 0.01}, [20_000.0] * 8, 200)[-1] < 40
    run(other, {}, [20_000.0] * 2, 200)
    assert batching.queues.learners["v"].stop_guess_s == 0.0 < other.queues.learners["v"].stop_guess_s


def test_a_broken_interval_is_worth_no_more_on_a_wider_operator() -> None:
    planner = QueuePlanner(20.0)
    assert [planner._price(seen(w, 100.0)) for w in (8, 64, 128, 256)] == pytest.approx([20.0, 20.0, 10.0, 5.0])


def test_sources_that_are_held_back_add_nothing_to_a_backlog() -> None:
    """Saturated at 100 subtasks: the load may be twice that, but bounded queues hold what they hold."""
    full = seen(100, 100_000.0, queue_items=20_000.0, utilisation=1.0, wait_s=0.2)
    learner = Learner(20.0)
    learner.add(full, T, T)
    search = WidthSearch({"v": learner}, {"v": Need(100_000.0, 100_000.0, 0.0, 0.0)}, T)
    backlog = 20_000.0 * 0.001
    assert 200 <= search.drain(full, 100, T, 20.0) <= 200 + backlog / 1.0


def test_jumps_that_come_when_they_are_due_need_no_room_between_and_are_not_counted_twice() -> None:
    learner = Learner(20.0)
    needs = []
    rate = 10_000.0
    for step in range(12 * 7):
        if step and step % 12 == 0:
            rate += 10_000.0
        needs.append(learner.add(seen(200, rate), T * step, T))
    assert needs[12 * 2 + 6].room > 0.0  # two jumps so far: who knows
    assert needs[12 * 6 + 5].room == 0.0  # they follow a rule
    assert needs[12 * 7 - 1].room == pytest.approx(10_000.0, rel=0.2)  # the next one is due
    late = learner.add(seen(200, rate + 10_000.0), T * 12 * 7, T)
    assert late.room < 2_000.0  # it has come
