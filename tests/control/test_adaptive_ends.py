"""Windows that end seldom get batches of their own, one for each end, where that makes fewer batches."""

from __future__ import annotations

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation
from penstock.control.policies.adaptive import Adaptive
from tests.control.cases import view

RATE, ROW_S, FIXED_S = 1000.0, 0.0001, 0.15


def decided(bound: Bound, batches: int = 12, batching: bool = True) -> Decision:
    """What is decided under a steady load, each cycle as long as decided before."""
    policy, decision, now = Adaptive(batching=batching), Decision({"bars": 1}), 0.0
    for _ in range(batches):
        cycle = max(decision.lifetime_s, FIXED_S / (1.0 - RATE * ROW_S))
        now += cycle
        bars = view(
            "bars", width=1, lo=1, hi=2, arrivals_per_s=RATE, completed_per_s=RATE, service_s=ROW_S, utilisation=0.1
        )
        seen = Observation(
            now, cycle, {"bars": bars}, (bound,), fixed_s=FIXED_S, task_s=0.01, micro_batch=True, parallelism=2,
            backlog_items=RATE * cycle,
        )  # fmt: skip
        decision = policy.decide(seen, decision)
    return decision


def bars(p95_s: float, every_s: float | None) -> Bound:
    return Bound("bars", ("bars",), p95_s=p95_s, over_s=3.0, every_s=every_s)


def test_batches_are_cut_at_the_ends_of_windows_and_not_between_them() -> None:
    plan = decided(bars(0.9, every_s=1.0))
    assert plan.at_ends
    assert plan.lifetime_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("p95_s", "every_s", "why"),
    [
        (0.9, None, "nobody knows when they end"),
        (3.0, 1.0, "the bound allows cycles that are longer than a slide"),
        (0.4, 0.28, "there is no time for a batch between two ends"),
    ],
)
def test_cycles_are_regular_where_ends_would_not_pay(p95_s: float, every_s: float | None, why: str) -> None:
    plan = decided(bars(p95_s, every_s))
    assert not plan.at_ends, why
    assert 0.0 < plan.lifetime_s < p95_s, "a row waits for a cycle, and for its work"


def test_where_batching_is_off_nothing_is_cut_early() -> None:
    assert not decided(bars(0.9, every_s=1.0), batching=False).at_ends
