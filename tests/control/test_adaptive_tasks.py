"""What tasks cost a micro-batch, and that no width is chosen which only costs."""

from __future__ import annotations

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation
from penstock.control.policies.adaptive import Adaptive
from tests.control.cases import view

RATE, FIXED_S, TASK_S = 400.0, 0.04, 0.008


def widths(row_s: float, bound_s: float, tasks_each: int, batches: int = 12) -> set[int]:
    """Widths that are decided under a steady load once the slow first batches are over."""
    policy, decision, now, found = Adaptive(), Decision({"farm": 1}), 0.0, set()
    bound = Bound("lines", ("farm",), mean_s=bound_s, over_s=3.0)
    for batch in range(batches):
        width = decision.widths["farm"]
        cycle = max(decision.lifetime_s, 0.15)
        now += cycle
        farm = view(
            "farm", width=width, lo=1, hi=2, arrivals_per_s=RATE, completed_per_s=RATE, service_s=row_s,
            utilisation=RATE * row_s / width, tasks_each=tasks_each,
        )  # fmt: skip
        seen = Observation(
            now, cycle, {"farm": farm}, (bound,), fixed_s=FIXED_S, task_s=TASK_S, micro_batch=True, parallelism=2,
            backlog_items=RATE * cycle,
        )  # fmt: skip
        decision = policy.decide(seen, decision)
        if batch > 3:
            found.add(decision.widths["farm"])
    return found


def test_a_second_replica_that_brings_eight_tasks_must_save_more_than_they_cost() -> None:
    """At width 1: 48 ms / (1 - 0.6) = 120 ms. At 2 with a task each: 64 / 0.7 = 91; with four each: 112 / 0.7 = 160."""
    assert widths(0.0015, bound_s=0.16, tasks_each=1) == {2}
    assert widths(0.0015, bound_s=0.16, tasks_each=4) == {1}


@pytest.mark.parametrize("tasks_each", [1, 4])
def test_where_no_width_keeps_the_bound_the_fastest_is_chosen(tasks_each: int) -> None:
    assert widths(0.0001, bound_s=0.05, tasks_each=tasks_each) == {1}, "40 us of work a ms: a second task only costs"
