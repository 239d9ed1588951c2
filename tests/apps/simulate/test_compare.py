"""The comparison: its arithmetic, the clairvoyant's plan, and a small run in which `Adaptive` must stand its ground."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from penstock.apps.simulate import compare
from penstock.apps.simulate.report import compare_text
from penstock.control.policies import registry
from penstock.engine.sim.items import Stage, run_items
from penstock.engine.sim.loads import SHAPES, shape
from penstock.engine.sim.measures import Row

ROOT = Path(__file__).parents[3]


def row(shape: str, policy: str, violations: int, hours: float, seed: int = 0) -> Row:
    return Row(shape, policy, seed, violations=violations, worker_hours=hours)


def test_scores_and_domination_are_over_means_of_the_seeds() -> None:
    rows = [
        row("a", "adaptive", 4, 2.0, 0), row("a", "adaptive", 0, 4.0, 1),
        row("a", "ds2", 1, 2.9, 0), row("a", "ds2", 2, 2.9, 1),
        row("a", "latency", 1, 3.0), row("a", "clairvoyant", 0, 1.0),
    ]  # fmt: skip
    assert compare.totals(rows)[("a", "adaptive")] == (2.0, 3.0)
    assert compare.dominated(rows) == [("a", "ds2")]  # latency has as many hours; the clairvoyant is not causal
    assert compare.scores(rows, 10.0)["ds2"] == pytest.approx(1.5 + 29.0)
    assert "ours is worse in both on: a (ds2)" in compare_text(rows)


def test_the_least_width_keeps_the_bound_and_three_less_do_not() -> None:
    """Against the item-level simulator: one subtask of the width, its share of the load, Poisson and exponential."""
    for rate in (200.0, 800.0):
        width = compare.least_width(rate, 1.0, 0.0)
        broken = []
        for w in (width, width - 3):
            rng = np.random.default_rng(1000 + w)  # not the seed of the services: they would be correlated
            born = np.cumsum(rng.exponential(w / rate, int(1000 * rate / w)))
            run = run_items((Stage("a", service_s=0.02, service_cv=1.0),), born, seed=w)
            latency, at = run.latencies(), (born // 5.0).astype(int)
            per_subtask = np.bincount(at, latency) / np.maximum(np.bincount(at), 1)
            # an interval's mean is over all subtasks: group as many intervals of one as there are subtasks
            whole = per_subtask[: per_subtask.size // w * w].reshape(-1, w).mean(axis=1)
            broken.append(float((whole > 0.1).mean()))
        assert broken[0] <= 0.03
        assert broken[1] > 0.5


@pytest.mark.parametrize("name", SHAPES)
def test_the_clairvoyants_plan_is_wide_enough_before_it_is_needed(name: str) -> None:
    load = shape(name, 1)
    plan = compare.clairvoyant_plan(load)
    assert all(b[0] > a[0] for a, b in itertools.pairwise(plan))
    t = np.arange(30.0, load.duration_s, 5.0)
    widths = np.array([[w["score"] for at, w in plan if at <= now][-1] for now in t])
    needs = load.rate(t) * load.cost(t) * compare.SERVICE_S
    # never below the load itself, but where a burst is so short that the plan lets it pass
    assert (widths >= needs).mean() > 0.97


def test_adaptive_is_not_dominated_and_scores_best_on_a_ramp() -> None:
    """A small piece of what `penstock simulate compare` runs in full; the figures are in docs/policies.md."""
    rows = compare.compare(("adaptive", "utilisation", "latency"), ("ramp",), (0,))
    assert compare.dominated(rows) == []
    error = rows[0].model_error
    assert rows[0].policy == "adaptive"
    assert error is not None and 0.0 < error < 0.3  # what it predicted of the queues, beside what was measured
    for k in compare.WEIGHTS:
        ranked = compare.scores(rows, k)
        assert min(ranked, key=lambda p: ranked[p]) == "adaptive", (k, ranked)


def test_the_page_of_policies_has_them_all() -> None:
    text = (ROOT / "docs" / "policies.md").read_text()
    for name in registry.names():
        assert f"| `{name}` |" in text, name
