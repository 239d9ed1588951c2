"""The farm scenarios give their theses' figures under the theses' policies; `Adaptive` is close to the best width."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from penstock.apps.simulate import farm_scenarios
from penstock.apps.simulate.farm_scenarios import best_static, mpr, spar, spar_host
from penstock.apps.simulate.frozen_farm import SPAR, THESIS_FARM
from penstock.control.policies import registry
from penstock.engine.sim.loop import run

SEEDS = (1, 2, 3)


def mean(program: str, policy: str, field: str) -> float:
    return float(np.mean([getattr(spar(program, policy, seed)[0][0], field) for seed in SEEDS]))


@pytest.mark.parametrize(("program", "best"), [("lane", 14), ("person", 8), ("bzip2", 16)])
def test_the_best_static_width_is_the_thesis(program: str, best: int) -> None:
    """003, sections 6.2 to 6.4."""
    assert [best_static(program, seed)[1] for seed in SEEDS] == [best] * 3


@pytest.mark.parametrize("program", SPAR)
@pytest.mark.parametrize("policy", ["spar-throughput", "spar-wudp"])
def test_losses_of_thesis_003_are_within_a_point(program: str, policy: str) -> None:
    loss = mean(program, policy, "loss_vs_best_static")
    known = THESIS_FARM[f"spar-{program}"].get(policy, {}).get("loss_vs_best_static")
    if known is not None:
        assert loss == pytest.approx(known, abs=1.0)
    else:  # Pbzip2: the thesis compares its target strategy with static 14, not with the best
        at_14 = []
        for seed in SEEDS:
            host = spar_host(program, seed, 14, adaptive=False)
            run(host, registry.make("static"))
            ours = spar(program, policy, seed)[0][0].throughput_per_s or 0.0
            at_14.append(100.0 * (1.0 - ours / (host.costs.size / host.now)))
        assert np.mean(at_14) == pytest.approx(4.38, abs=1.0)


def test_all_replicas_are_at_work_after_two_seconds() -> None:
    """003, Figure 4.18: steps of two every half second, from 8 to 14."""
    assert mean("lane", "spar-throughput", "settle_s") == pytest.approx(2.0, abs=0.6)


@pytest.mark.parametrize("program", SPAR)
def test_adaptive_loses_less_than_3_percent(program: str) -> None:
    """Issue target: within 3 % of the best static width, what measuring costs included; seeds it was not tuned on."""
    rows = [spar(program, "adaptive", seed)[0][0] for seed in range(100, 110)]
    assert np.mean([row.loss_vs_best_static for row in rows]) <= 3.0
    assert all(row.loss_vs_best_static < 6.0 for row in rows)  # one wrong decision costs up to 5 %


def test_who_times_fewer_items_pays_less_for_it() -> None:
    ours, theirs = (spar("lane", policy, 1)[0][0] for policy in ("adaptive", "spar-throughput"))
    tax = [(r.loss_vs_best_static - r.deciding_loss) / (1.0 - r.deciding_loss / 100.0) for r in (ours, theirs)]
    assert tax == pytest.approx([0.435, 4.35])


@pytest.mark.parametrize("program", ["mandelbrot", "prime"])
def test_shares_of_adding_and_removing_of_thesis_004(program: str) -> None:
    rows = [mpr(program, "mpr-mape", seed)[0][0] for seed in SEEDS]
    for field, known in THESIS_FARM[f"mpr-{program}"]["mpr-mape"].items():
        assert np.mean([getattr(row, field) for row in rows]) == pytest.approx(known, abs=3.0), field


@pytest.mark.parametrize("program", ["mandelbrot", "prime"])
def test_adaptive_reaches_the_goal_more_often_with_less_stopping(program: str) -> None:
    ours, theirs = ([mpr(program, policy, seed)[0][0] for seed in SEEDS] for policy in ("adaptive", "mpr-mape"))
    assert np.mean([r.fulfilled for r in ours]) > np.mean([r.fulfilled for r in theirs])
    stopped = [np.mean([r.adding_percent + r.removing_percent for r in rows]) for rows in (ours, theirs)]
    assert stopped[0] < stopped[1]


def test_lane_detection_alone_handles_7_to_20_frames_a_second() -> None:
    rates = 1.0 / farm_scenarios.spar_costs("lane", 5)
    assert 7.0 <= rates.min() < 8.0
    assert 19.0 < rates.max() <= 20.0


def changed(monkeypatch: pytest.MonkeyPatch, program: str, **given: float) -> None:
    """The scenario with other values, for this test."""
    monkeypatch.setitem(SPAR, program, dataclasses.replace(SPAR[program], **given))
    best_static.cache_clear()
    monkeypatch.setattr(farm_scenarios, "best_static", best_static.__wrapped__)


def test_the_loss_is_smaller_in_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """003, acceptance 38: 783 blocks of an ISO file against 7000 of the Wikipedia abstracts, at most 14 replicas."""
    long = [spar("bzip2", "spar-throughput", seed)[0][0].loss_vs_best_static for seed in SEEDS]
    changed(monkeypatch, "bzip2", items=783)
    short = [spar("bzip2", "spar-throughput", seed)[0][0].loss_vs_best_static for seed in SEEDS]
    assert np.mean(short) > np.mean(long)


def test_period_and_step_of_the_regulator_hardly_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """003, acceptance 40: the four configurations differ by less than 10 % in final throughput."""
    for policy in ("spar-throughput", "spar-wudp"):
        rates = []
        for every_s in (0.5, 1.0):
            for factor in (1, 2):
                changed(monkeypatch, "lane", every_s=every_s, scaling_factor=factor)
                rates.append(spar("lane", policy, 1)[0][0].throughput_per_s or 0.0)
        assert max(rates) < 1.1 * min(rates), policy
