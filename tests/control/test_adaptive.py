"""`Adaptive` piece by piece: what it learns, the widths it looks for, and what it decides on scripted intervals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.control.decision import Decision
from penstock.control.forecast import Recurrence, Trend
from penstock.control.models.kingman import kingman_wait
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive import Adaptive
from penstock.control.policies.adaptive_learner import Learner, Need, scatter
from penstock.control.policies.adaptive_paths import Budgets, Path, mean_limit
from penstock.control.policies.adaptive_search import told_apart
from penstock.control.policies.adaptive_widths import BARE, DUE, NEXT, WidthSearch
from penstock.control.reserve import Reserve
from tests.control.cases import view

T = 5.0
BOUND = Bound("fast", ("v",), mean_s=0.1)


def seen(width: int, rate: float, queue: float = 0.0, **given: Any) -> OperatorView:
    """An operator of 20 ms per item (exponential) in a steady state, unless told otherwise."""
    service = given.pop("service_s", 0.02)
    load = rate * service
    wait = kingman_wait(service, width / rate, 1.0, 1.0) if load < width else 1.0
    values = {
        "completed_per_s": min(rate, width / service),
        "service_cv": 1.0,
        "arrival_cv": 1.0,
        "interarrival_s": width / rate,
        "wait_s": wait,
        "utilisation": load / width,
        **given,
    }
    return view("v", width=width, arrivals_per_s=rate, service_s=service, queue_items=queue, **values)


def observe(now_s: float, one: OperatorView, bound: Bound = BOUND) -> Observation:
    mean = one.wait_s + one.service_s
    return Observation(now_s, T, {"v": one}, (bound,), {bound.name: (mean, 3 * mean, 4.6 * mean, 9 * mean)})


# --- what is learnt ---------------------------------------------------------------------------------------------------


def test_a_trend_follows_a_ramp_and_takes_a_jump_at_once() -> None:
    ramp = Trend()
    for i in range(30):
        ramp.add(100.0 + 10.0 * i)
    assert ramp.ahead(2) == pytest.approx(100.0 + 10.0 * 31, rel=0.03)
    jump = Trend()
    for x in [100.0] * 10 + [300.0]:
        jump.add(x)
    assert jump.level == 300.0
    assert jump.ahead(3) == pytest.approx(300.0, rel=0.02)


def test_a_trend_smooths_noise() -> None:
    rng = np.random.default_rng(1)
    trend, errors = Trend(), []
    for x in rng.normal(100.0, 5.0, 400):
        trend.add(float(x))
        errors.append(trend.ahead(1) - 100.0)
    assert float(np.std(errors[20:])) < 5.0


def test_recurrence_needs_equal_gaps_and_forgets_when_they_end() -> None:
    recurrence = Recurrence()
    for step in (10, 22, 34, 46):
        recurrence.jumped(step, 50.0)
    assert recurrence.due(50) == (8, 50.0)
    assert recurrence.kept == 1  # the first three only suggested it
    recurrence.jumped(51, 50.0)
    assert recurrence.kept == 0
    assert recurrence.due(55) is None


def reserve_after(bursts: int, gap: int, size: float) -> Reserve:
    reserve = Reserve(price=20.0)
    for _ in range(bursts):
        for rate in [100.0] * gap + [100.0 + size] * 3:
            reserve.add(rate, forecast=rate, horizon=3)
    for _ in range(gap // 2):
        reserve.add(100.0, 100.0, 3)
    return reserve


def test_room_is_kept_for_bursts_that_are_a_habit_and_worth_it() -> None:
    assert reserve_after(0, 30, 80.0).room(100.0, 3) == 0.0
    assert reserve_after(4, 20, 80.0).room(100.0, 3) == pytest.approx(80.0, abs=8.0)
    assert reserve_after(4, 20, 900.0).room(100.0, 3) == 0.0  # nine times the capacity, all the time, is too dear
    assert reserve_after(4, 20, 150.0).room(250.0, 3) == 0.0  # a burst on top of a burst was never seen


def test_jumps_that_are_over_before_capacity_comes_are_known_as_fleeting() -> None:
    brief, lasting = Reserve(), Reserve()
    for _ in range(4):
        for rate in [100.0] * 10 + [200.0]:
            brief.add(rate, 100.0, 3)
        for rate in [100.0] * 10 + [200.0] * 8:
            lasting.add(rate, rate, 3)
    assert brief.fleeting()
    assert not lasting.fleeting()


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8, 1.0])
def test_the_rate_at_the_end_is_found_when_the_load_jumps_within_an_interval(share: float) -> None:
    """Rise and queue growth of the interval give both the moment and the size of the jump."""
    learner = Learner(20.0)
    for i in range(5):
        learner.add(seen(11, 400.0), T * (i + 1), T)
    capacity = 11 / 0.02
    mean, queue = 400.0 + share * 400.0, share * T * (800.0 - capacity)
    need = learner.add(seen(11, mean, queue), 30.0, T)
    assert need.soon == pytest.approx(800.0, rel=0.03)


def test_a_rise_without_a_queue_is_no_jump_within_the_interval() -> None:
    learner = Learner(20.0)
    for i in range(5):
        learner.add(seen(30, 400.0), T * (i + 1), T)
    learner.add(seen(30, 480.0), 30.0, T)
    assert learner.trend.level == pytest.approx(480.0, rel=0.01)


@pytest.mark.parametrize("lag", [5.5, 8.0, 9.5])
def test_the_lag_is_found_from_the_work_of_the_interval_in_which_subtasks_came(lag: float) -> None:
    learner = Learner(20.0)
    learner.add(seen(10, 400.0), 5.0, T)
    learner.ordered(5.0, 40)
    learner.add(seen(10, 900.0, 2000.0, wait_s=2.0, completed_per_s=500.0), 10.0, T)
    worked = 10 * (lag - T) + 40 * (2 * T - lag)  # subtask-seconds of the second interval
    done = seen(40, 900.0, 1500.0, wait_s=3.0, completed_per_s=worked / 0.02 / T)
    learner.add(done, 15.0, T)
    assert learner.lag_s(T) == pytest.approx(lag)
    assert learner.horizon(T) == 3


def test_the_fit_learns_what_the_model_is_off_by() -> None:
    learner = Learner(20.0)
    for i in range(60):
        one = seen(11, 400.0)
        learner.add(seen(11, 400.0, wait_s=1.6 * one.wait_s), T * (i + 1), T)
    assert learner.fit == pytest.approx(1.6, rel=0.05)


def test_what_a_change_of_width_costs_is_learnt_from_changes_in_calm() -> None:
    """P^2 / (2 T (1 - rho)): for P = 0.3 s, T = 5 s that is 9 ms / (1 - rho)."""
    learner, width = Learner(20.0), 14
    for i in range(60):
        changed = i % 6 == 5
        width = width + (1 if width == 14 else -1) if changed else width
        one = seen(width, 400.0)
        extra = 0.009 / (1.0 - one.utilisation) if changed else 0.0
        learner.add(seen(width, 400.0, wait_s=one.wait_s + extra), T * (i + 1), T)
    assert learner.stop_at(16, 400.0) == pytest.approx(0.018, rel=0.25)


def test_service_times_are_averaged_while_they_scatter_and_followed_when_they_change() -> None:
    rng, learner = np.random.default_rng(3), Learner(20.0)
    for i in range(30):
        learner.add(seen(12, 400.0, service_s=0.02 * (1.0 + 0.02 * float(rng.standard_normal()))), T * (i + 1), T)
    assert learner.service_s == pytest.approx(0.02, rel=0.01)
    learner.add(seen(12, 400.0, service_s=0.04), 155.0, T)
    assert learner.service_s == 0.04


def test_scatter_is_that_of_simulated_means() -> None:
    """The spread of 5 s means of an M/M/1 queue at rho = 0.7, times 10 subtasks, against a simulation."""
    rng = np.random.default_rng(4)
    gaps, services = rng.exponential(0.02 / 0.7, 200_000), rng.exponential(0.02, 200_000)
    born, free, waits = np.cumsum(gaps), 0.0, np.empty(200_000)
    for i, (at, work) in enumerate(zip(born, services, strict=True)):
        start = max(at, free)
        waits[i], free = start - at, start + work
    at = (born // (10 * T)).astype(int)[20_000:]
    means = np.bincount(at - at[0], waits[20_000:])[:-1] / np.bincount(at - at[0])[:-1]
    assert scatter(0.7, 10 * T / 0.02, 1.0, 1.0) == pytest.approx(float(means.std() / means.mean()), rel=0.2)


# --- widths -----------------------------------------------------------------------------------------------------------


def searching(views: list[OperatorView], rates: list[float]) -> WidthSearch:
    learners = {}
    for one in views:
        learners[one.name] = Learner(20.0)
        learners[one.name].add(one, T, T)
    needs = {one.name: Need(rate, rate, 0.0, 0.0) for one, rate in zip(views, rates, strict=True)}
    return WidthSearch(learners, needs, T)


def test_the_least_widths_are_those_of_a_search_through_all() -> None:
    rng, checked = np.random.default_rng(5), 0
    for _ in range(25):
        services = rng.uniform(0.005, 0.04, 2)
        rate = float(rng.uniform(50.0, 300.0))
        views = [
            view(name, width=8, hi=24, arrivals_per_s=rate, service_s=float(s), service_cv=1.0, utilisation=0.5)
            for name, s in zip("ab", services, strict=True)
        ]
        search = searching(views, [rate, rate])
        allowed = float(rng.uniform(0.01, 0.1))
        path = Path(Bound("p", ("a", "b"), mean_s=1.0), 1.0, views, allowed, allowed, 0.0)
        found = search.least(path, DUE)

        def wait(widths: tuple[int, int], search: WidthSearch = search, pair: Any = (views, rate)) -> float:
            views, rate = pair
            waits = (search.learners[v.name].wait_at(w, rate, 0.0, v, T) for v, w in zip(views, widths, strict=True))
            return sum(waits)

        roomy = [  # busier than 0.92 is never planned
            pair
            for pair in itertools.product(range(1, 25), repeat=2)
            if all(rate * s <= 0.92 * w for s, w in zip(services, pair, strict=True))
        ]
        fits = [sum(pair) for pair in roomy if wait(pair) <= allowed]
        if fits:
            assert wait((found["a"], found["b"])) <= allowed
            assert sum(found.values()) == min(fits)
            checked += 1
    assert checked > 10


def test_a_burst_and_a_change_need_not_be_borne_at_once() -> None:
    one = seen(14, 400.0)
    search = searching([one], [400.0])
    search.learners["v"].stop_guess_s = 0.01
    path = Path(BOUND, 0.1, [one], 0.07, 0.075, 0.0)
    calm = search.least(path, NEXT)["v"]
    search.needs = {"v": Need(400.0, 400.0, 300.0, 0.0)}
    assert search.least(path, NEXT)["v"] == calm
    assert search.least(path, BARE)["v"] > calm


def test_a_backlog_is_drained_by_the_end_of_an_interval() -> None:
    """p = x + B / D: 16 subtasks' load, 12 at work, 20 subtask-seconds waiting, subtasks after 8 s of 10."""
    one = seen(12, 800.0, queue=1000.0)
    search = searching([one], [800.0])
    search.learners["v"]._lag_s = 8.0
    backlog = 1000.0 * 0.02 + (16.0 - 12.0) * 8.0
    assert search.drain(one, 12, 0.0, 20.0) == math.ceil(16.0 + backlog / (2.0 - 0.5))
    assert search.drain(one, 12, 0.0, 0.01) < 30  # where a broken interval costs nothing there is no hurry
    assert search.drain(seen(40, 800.0, queue=1000.0), 40, 0.0, 20.0) == 0  # gone before more could work


@pytest.mark.parametrize(("bound", "limit"), [({"mean_s": 0.1}, 0.1), ({"p95_s": 0.3}, 0.1), ({"p99_s": 0.46}, 0.1)])
def test_bounds_on_percentiles_are_taken_as_bounds_on_the_mean(bound: dict[str, float], limit: float) -> None:
    assert mean_limit(Bound("b", ("v",), **bound)) == pytest.approx(limit)


def test_transport_is_taken_from_what_the_queues_get() -> None:
    budgets, one = Budgets(), seen(14, 400.0)
    late = Observation(T, T, {"v": one}, (BOUND,), {"fast": (one.wait_s + 0.02 + 0.03, 0.2, 0.3, 0.4)})
    learner = {"v": Learner(20.0)}
    near = budgets.path(BOUND, observe(T, one), Decision({"v": 14}), learner)
    for _ in range(30):
        far = budgets.path(BOUND, late, Decision({"v": 14}), learner)
    assert near is not None
    assert far is not None
    assert near.allowed_s == pytest.approx(0.095 - 0.02)
    assert far.allowed_s == pytest.approx(0.095 - 0.02 - 0.03, abs=0.001)


# --- decisions --------------------------------------------------------------------------------------------------------


def test_steady_load_is_left_alone() -> None:
    policy, decision = Adaptive(), Decision({"v": 12})
    for i in range(100):
        decision = policy.decide(observe(T * (i + 1), seen(12, 400.0)), decision)
        assert decision.widths["v"] == 12


def test_a_step_is_answered_at_once_with_what_drains_it_and_then_given_back() -> None:
    policy, decision = Adaptive(), Decision({"v": 12})
    for i in range(20):
        decision = policy.decide(observe(T * (i + 1), seen(12, 400.0)), decision)
    decision = policy.decide(observe(105.0, seen(12, 800.0, queue=1000.0)), decision)
    assert decision.widths["v"] > 30  # 16 would do but for the backlog
    decision = policy.decide(observe(110.0, seen(12, 800.0, queue=2000.0)), decision)
    wide = decision.widths["v"]
    decision = policy.decide(observe(115.0, seen(wide, 800.0)), decision)
    assert 19 <= decision.widths["v"] < wide  # no sooner gone than the extra goes


def test_a_lower_need_must_last_before_a_narrowing() -> None:
    policy, decision = Adaptive(), Decision({"v": 26})
    widths = []
    for i in range(40):
        rate = 400.0 if i >= 10 else 800.0
        decision = policy.decide(observe(T * (i + 1), seen(decision.widths["v"], rate)), decision)
        widths.append(decision.widths["v"])
    assert widths[9:15] == [26] * 6
    assert 11 <= widths[-1] <= 16


def test_a_width_outside_its_bounds_is_mended() -> None:
    decided = Adaptive().decide(observe(T, seen(12, 400.0, hi=12)), Decision({"v": 99}))
    assert decided.widths["v"] == 12


def test_reset_forgets() -> None:
    policy, fresh = Adaptive(), Adaptive()
    for i in range(30):
        policy.decide(observe(T * (i + 1), seen(12, 400.0 + 300.0 * (i % 5 == 0))), Decision({"v": 12}))
    policy.reset()
    one = observe(T, seen(12, 500.0))
    assert policy.decide(one, Decision({"v": 12})) == fresh.decide(one, Decision({"v": 12}))


# --- goals and the greatest throughput --------------------------------------------------------------------------------


def farm(now_s: float, width: int, per_s: float, goal: float | None = None, hi: int = 16) -> Observation:
    one = view(
        "v", width=width, hi=hi, arrivals_per_s=per_s, completed_per_s=per_s, service_s=width / per_s, service_cv=0.1
    )
    return Observation(now_s, 1.0, {"v": one}, target_per_s={} if goal is None else {"v": goal}, parallelism=16)


def test_a_goal_is_reached_with_the_least_width() -> None:
    policy, decision = Adaptive(), Decision({"v": 1})
    for i in range(60):
        width = decision.widths["v"]
        decision = policy.decide(farm(float(i), width, 10.0 * width, goal=75.0), decision)
    assert decision.widths["v"] in (8, 9)


def test_the_first_batch_of_a_job_says_how_wide_a_goal_needs_it() -> None:
    seen_first = farm(0.0, 1, 35.0, goal=100.0)
    assert Adaptive().decide(replace(seen_first, micro_batch=True), Decision({"v": 1})).widths["v"] == 4
    assert Adaptive().decide(seen_first, Decision({"v": 1})).widths["v"] == 1  # elsewhere a farm may just have started


def test_a_goal_out_of_reach_does_not_widen_for_ever() -> None:
    """Beyond 6 the speed stays: a widening that brings nothing is not repeated at once."""
    policy, decision, widths = Adaptive(), Decision({"v": 1}), []
    for i in range(30):
        width = decision.widths["v"]
        decision = policy.decide(farm(float(i), width, 10.0 * min(width, 6), goal=500.0, hi=64), decision)
        widths.append(decision.widths["v"])
    assert max(widths[:8]) < 64


def test_a_rate_that_keeps_falling_is_met_before_it_is_short() -> None:
    """Each interval the items are 8 % dearer: the farm is wider by the time that two would not have done."""
    policy, decision, reached = Adaptive(), Decision({"v": 2}), []
    for i in range(22):
        width = decision.widths["v"]
        per_s = 80.0 * width * 0.92**i
        reached.append(per_s)
        decision = policy.decide(farm(float(i), width, per_s, goal=75.0), decision)
    assert min(reached) >= 75.0


@pytest.mark.parametrize("busy", [1.0, 0.8])
@pytest.mark.parametrize("best", [4, 8, 14, 16])
def test_the_width_of_the_greatest_throughput_is_found(best: int, busy: float) -> None:
    """By counts where the farm is always busy (no service time is shown), else by the times of the items."""
    policy, decision, rng = Adaptive(), Decision({"v": 8}), np.random.default_rng(best)
    widths = []
    for i in range(400):
        width = decision.widths["v"]
        speed = 10.0 * (min(width, best) - 0.6 * max(width - best, 0)) * (1.0 + 0.02 * float(rng.standard_normal()))
        speed = max(speed, 1.0)
        shown = {"service_s": 0.0, "utilisation": 1.0} if busy == 1.0 else {"utilisation": busy}
        one = view(
            "v",
            **{
                "width": width,
                "hi": 16,
                "completed_per_s": speed if busy == 1.0 else 50.0,  # not always busy: what came is what was done
                "service_s": width / speed,
                "service_cv": 0.1,
                **shown,
            },
        )
        decision = policy.decide(Observation(float(i), 1.0, {"v": one}, parallelism=16), decision)
        widths.append(decision.widths["v"])
    assert abs(float(np.median(widths[200:])) - best) <= 1


def test_widths_are_told_apart_as_well_as_their_noise_allows() -> None:
    """Against 2000 drawn contests: one that is 2 standard deviations better is nearly always taken, one that is a
    deviation worse seldom, an equal one sometimes (no harm done), and who is much worse is rejected within 3 rounds.
    """
    rng = np.random.default_rng(8)

    def contest(better: float, scatters: float, noise: float) -> tuple[bool, int]:
        ratios: list[float] = []
        while True:
            ratios.append(better + scatters * float(rng.standard_normal()))
            verdict = told_apart(ratios, noise)
            if verdict is not None:
                return verdict, len(ratios)

    def taken(better: float, scatters: float, noise: float) -> tuple[float, float]:
        results = [contest(better, scatters, noise) for _ in range(2000)]
        return float(np.mean([r for r, _ in results])), float(np.mean([n for _, n in results]))

    for scatters, noise in ((0.05, 0.05), (0.02, 0.05)):
        assert taken(0.0, scatters, noise)[0] < 0.3
        assert taken(-scatters, scatters, noise)[0] < 0.05
        assert taken(2.0 * scatters, scatters, noise)[0] > 0.95
        assert taken(-2.0 * scatters, scatters, noise)[0] < 0.01
    assert taken(-0.1, 0.05, 0.05)[1] < 3.0


def test_trials_of_bad_widths_lose_no_more_than_1_percent_in_the_long_run() -> None:
    """The top is at 8 and all else is much worse; only slow items (3 per interval) are compared: long windows."""
    policy, decision, lost = Adaptive(), Decision({"v": 8}), []
    for i in range(4000):
        width = decision.widths["v"]
        speed = 3.0 * (1.0 - abs(width - 8) / 8.0 if width < 8 else 1.0 - 0.1 * (width - 8))
        one = view("v", width=width, hi=16, completed_per_s=max(speed, 0.1), service_s=0.0, utilisation=1.0)
        decision = policy.decide(Observation(float(i), 1.0, {"v": one}, parallelism=16), decision)
        lost.append(1.0 - speed / 3.0)
    assert 0.0 < np.mean(lost[400:]) <= 0.01
