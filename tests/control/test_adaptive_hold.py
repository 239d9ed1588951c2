"""A narrowing that has to be taken back at once is not tried again and again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation
from penstock.control.policies import adaptive_batch
from penstock.control.policies.adaptive import Adaptive
from tests.control.cases import view

RATE, FIXED_S = 1000.0, 0.1


def changes(batches: int = 240) -> int:
    """How often the width changes where one task alone takes twice as long per row as several: no model knows that."""
    policy, decision, now, widths = Adaptive(), Decision({"farm": 1}), 0.0, list[int]()
    for _ in range(batches):
        width = decision.widths["farm"]
        service = 0.0005 if width == 1 else 0.00025
        cycle = max(decision.lifetime_s, FIXED_S / (1.0 - RATE * service / width))
        now += cycle
        farm = view(
            "farm", width=width, lo=1, hi=2, arrivals_per_s=RATE, completed_per_s=RATE, service_s=service,
            utilisation=RATE * service / width,
        )  # fmt: skip
        bound = Bound("fast", ("farm",), mean_s=0.29, over_s=3.0)
        seen = Observation(
            now, cycle, {"farm": farm}, (bound,), fixed_s=FIXED_S, task_s=0.001, micro_batch=True, parallelism=2,
            backlog_items=RATE * cycle,
        )  # fmt: skip
        decision = policy.decide(seen, decision)
        widths.append(decision.widths["farm"])
    return sum(a != b for a, b in pairwise(widths))


def test_after_a_mistake_the_next_narrowing_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = changes()
    monkeypatch.setattr(adaptive_batch, "_REGRET", -1)  # nothing is ever a mistake
    assert 2 <= patient <= changes() / 2
