"""Thesis 004's MAPE loop: files, monitor, planner, controller. Numbers: the digest's acceptance list."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies import registry
from penstock.control.policies.mpr_files import read_parameters, read_statistics, write_parameters, write_statistics
from penstock.control.policies.mpr_mape import GuardedMape, Mape
from penstock.control.policies.mpr_monitor import MapeMonitor
from penstock.control.policies.mpr_planner import plan_clamped, plan_literal, planned_step
from penstock.control.protocol.pipeline import Pipeline
from penstock.control.protocol.world import Settings
from penstock.errors import PolicyError

LISTING_5_11 = json.dumps(
    {
        "stage2": {
            "1675563904635": {
                "Compute0": {"ItemsConsumed": 81347, "ItemsProduced": 81348, "averageItemsProduced": 40674.53}
            },
            "1675563909814": {
                "Compute0": {"ItemsConsumed": 74916, "ItemsProduced": 74916, "averageItemsProduced": 37459.21},
                "Compute1": {"ItemsConsumed": 50588, "ItemsProduced": 50587, "averageItemsProduced": 25294.31},
            },
        }
    }
)


def test_a25_the_monitor_counts_the_pause() -> None:
    samples = read_statistics(LISTING_5_11)
    assert samples is not None
    monitor = MapeMonitor()
    assert monitor.throughput({1675563904635: samples[1675563904635]}) is None
    assert monitor.throughput(samples) == pytest.approx(24233.06, abs=0.01)
    averages = sum(counters["averageItemsProduced"] for counters in samples[1675563909814].values())
    assert averages == pytest.approx(62753.5, abs=0.1)  # what it would be without the pause


def test_a26_no_decision_where_nothing_can_be_said() -> None:
    def sample(items: int) -> dict[str, dict[str, float]]:
        return {"Compute0": {"ItemsProduced": items}}

    monitor = MapeMonitor()
    assert monitor.throughput(None) is None  # no file yet
    assert monitor.throughput({}) is None
    assert monitor.throughput({1000: sample(5)}) is None  # first call: only remember
    assert monitor.throughput({1000: sample(5)}) is None  # nothing new
    assert monitor.throughput({3000: sample(5), 5000: sample(7)}) == 3.0  # rotated: all that is newer counts
    assert monitor.throughput({2000: sample(9)}) is None  # an older file
    assert monitor.throughput({5000: sample(7), 6000: sample(4)}) == 4.0


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"stage2": 4}', '{"stage2": {"x": {}}}', '{"a": {}, "b": {}}'])
def test_statistics_that_cannot_be_read_are_not_there_yet(text: str) -> None:
    assert read_statistics(text) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"stage1": 1}', '{"stage1": 1, "stage2": 2.5, "stage3": 1}', '{"stage1": true}']
)
def test_parameters_that_cannot_be_read_change_nothing(text: str) -> None:
    assert read_parameters(text, (1, 4, 1)) is None


@given(st.lists(st.integers(1, 99), min_size=2, max_size=6))
def test_files_come_back_as_written(sizes: list[int]) -> None:
    assert read_parameters(write_parameters(sizes), sizes) == tuple(sizes)
    samples = {
        1000 * (i + 1): {"Compute0": {"ItemsConsumed": n, "ItemsProduced": n, "averageItemsProduced": n / 2}}
        for i, n in enumerate(sizes)
    }
    assert read_statistics(write_statistics(2, samples)) == samples


RATIOS = [0, 0.49, 0.5, 0.74, 0.75, 0.93, 0.9375, 1, 1.25, 1.26, 1.5, 1.51, 2, 2.01]
STEPS = [4, 4, 2, 2, 1, 1, 0, 0, 0, -1, -1, -2, -2, -4]


@pytest.mark.parametrize(("ratio", "step"), list(zip(RATIOS, STEPS, strict=True)))
def test_a27_planner_table(ratio: float, step: int) -> None:
    assert planned_step(ratio) == step
    assert plan_literal(10, ratio) == plan_clamped(10, ratio) == 10 + step


def sequence(
    plan: Callable[[int, float], int], start: int, ratio: Callable[[int], float], rounds: int = 40
) -> list[int]:
    """The sizes until they repeat for good."""
    sizes = [start]
    for _ in range(rounds):
        sizes.append(plan(sizes[-1], ratio(sizes[-1])))
    assert len(set(sizes[-10:])) == 1
    while len(sizes) > 1 and sizes[-1] == sizes[-2]:
        sizes.pop()
    return sizes


def test_a28_literal_steps_get_stuck_and_clamped_ones_do_not() -> None:
    assert sequence(plan_literal, 1, lambda n: 0.1) == [*range(1, 46, 4)]
    assert sequence(plan_literal, 48, lambda n: 9.0) == [*range(48, 3, -4)]
    assert sequence(plan_clamped, 1, lambda n: 0.1)[-1] == 48
    assert sequence(plan_clamped, 48, lambda n: 9.0)[-1] == 1


TRAJECTORIES = {
    3: [1, 5, 3],
    7: [1, 5, 7],
    10: [1, 5, 7, 9, 10],
    16: [1, 5, 9, 11, 13, 14, 15],
}
SETTLED = {3: 3, 7: 7, 10: 10, 16: 15, 20: 19, 40: 38, 47: 45, 60: 47}


def test_a29_trajectories_on_an_ideal_plant() -> None:
    for goal, expected in TRAJECTORIES.items():
        assert sequence(plan_literal, 1, lambda n, goal=goal: n / goal) == expected
    for goal, settled in SETTLED.items():
        assert sequence(plan_literal, 1, lambda n, goal=goal: n / goal)[-1] == settled
    assert sequence(plan_literal, 1, lambda n: n / 60)[-3:] == [45, 46, 47]


@given(st.integers(1, 48), st.floats(0, 1e300), st.integers(1, 10), st.integers(10, 60))
def test_plans_stay_within_their_bounds(processes: int, ratio: float, lo: int, hi: int) -> None:
    assert 1 <= plan_literal(processes, ratio) <= max(47, processes)
    assert lo <= plan_clamped(processes, ratio, lo, hi) <= hi


def see(width: int, rate: float, now: float, hi: int = 64) -> Observation:
    view = OperatorView("score", width, 1, hi, rate, rate, 0.1, 0, 0, 0, 0, 0, 0, 1.0)
    return Observation(now, 1.0, {"score": view})


def closed_loop(
    policy: Mape, plant: Callable[[int, float], float], seconds: int = 80, delay: int = 0, hi: int = 64
) -> list[tuple[int, int]]:
    """Desired and actual sizes, second by second, with a host that applies a decision after a delay."""
    desired, log = [1] * (delay + 1), []
    for second in range(1, seconds + 1):
        actual = desired[-1 - delay]
        seen = see(actual, plant(actual, second), float(second), hi)
        desired.append(policy.decide(seen, Decision({"score": desired[-1]})).widths["score"])
        log.append((desired[-1], actual))
    return log


def test_policy_follows_the_literal_trajectory() -> None:
    sizes = [desired for desired, _ in closed_loop(Mape(goal_per_s=16.0), lambda n, t: float(n))]
    assert sizes[:6] == [5, 9, 11, 13, 14, 15] and set(sizes[6:]) == {15}
    guarded = [desired for desired, _ in closed_loop(GuardedMape(goal_per_s=16.0), lambda n, t: float(n))]
    assert guarded[-1] == 15


def test_a30_a_plant_that_saturates() -> None:
    def saturating(processes: int, second: float) -> float:
        return 10.0 * min(processes, 8)

    literal = [desired for desired, _ in closed_loop(Mape(goal_per_s=200.0), saturating)]
    assert max(literal) == 45 == literal[-1]
    guarded = [desired for desired, _ in closed_loop(GuardedMape(goal_per_s=200.0, least_gain=0.5), saturating)]
    assert 8 <= guarded[-1] <= 16 and len(set(guarded[20:])) == 1
    without = [desired for desired, _ in closed_loop(GuardedMape(goal_per_s=200.0), saturating)]
    assert without[-1] == 64


def test_a_verdict_of_futility_ends_with_the_load_that_gave_it() -> None:
    def plant(processes: int, second: float) -> float:
        return 10.0 * min(processes, 8) if second < 40 else 10.0 * processes

    sizes = [desired for desired, _ in closed_loop(GuardedMape(goal_per_s=200.0, least_gain=0.5), plant, 120)]
    assert sizes[35] <= 16 and sizes[-1] >= 19


def test_a32_decisions_stack_when_literal_and_not_when_guarded() -> None:
    literal = closed_loop(Mape(goal_per_s=10.0), lambda n, t: float(n), seconds=12, delay=2)
    assert literal[:3] == [(5, 1), (9, 1), (13, 1)]  # three +4 before the first took effect
    guarded = closed_loop(GuardedMape(goal_per_s=10.0, cool_down_s=2.0), lambda n, t: float(n), seconds=40, delay=2)
    assert guarded[:4] == [(5, 1), (5, 1), (5, 1), (5, 5)]
    assert max(desired for desired, _ in guarded) <= 10


def test_cool_down_spaces_decisions() -> None:
    policy, changes = GuardedMape(goal_per_s=100.0, cool_down_s=5.0), []
    log = closed_loop(policy, lambda n, t: float(n))
    for second in range(1, len(log)):
        if log[second][0] != log[second - 1][0]:
            changes.append(second)
    assert len(changes) > 5 and all(later - earlier >= 5 for earlier, later in pairwise(changes))


def test_a_size_that_never_comes_does_not_stop_the_guarded_controller() -> None:
    policy, desired = GuardedMape(goal_per_s=100.0), 1
    decided = []
    for second in range(1, 40):  # a host that cannot go beyond 3
        desired = policy.decide(see(min(desired, 3), 3.0, float(second)), Decision({"score": desired})).widths["score"]
        decided.append(desired)
    assert decided[0] == 5 and 7 in decided  # 3 + 4, from the actual size


def test_no_goal_no_decision_and_the_goal_may_come_from_the_flow() -> None:
    assert Mape().decide(see(4, 1.0, 1.0), Decision({"score": 4})).widths == {"score": 4}
    asked = Observation(1.0, 1.0, see(4, 1.0, 1.0).operators, target_per_s={"score": 10.0})
    assert Mape().decide(asked, Decision({"score": 4})).widths == {"score": 8}
    assert Mape().decide(None, Decision({"score": 4})).widths == {"score": 4}
    assert Mape(goal_per_s=10.0, operator="other").decide(see(4, 1.0, 1.0), Decision({"score": 4})).widths["score"] == 4


@pytest.mark.parametrize("name", ["mpr-mape", "mpr-mape-guarded"])
@given(st.lists(st.tuples(st.floats(0, 1e300), st.integers(1, 40)), min_size=1, max_size=8))
def test_whatever_is_measured_the_width_is_within_the_bounds(name: str, measured: list[tuple[float, int]]) -> None:
    policy = registry.make(name, goal_per_s=50.0)
    for tick, (rate, width) in enumerate(measured):
        after = policy.decide(see(width, rate, float(tick), hi=40), Decision({"score": width})).widths["score"]
        assert isinstance(after, int) and 1 <= after <= 40


@pytest.mark.parametrize(
    ("name", "bad", "rule"),
    [
        ("mpr-mape", {"goal_per_s": 0.0}, "goal_per_s must be greater than 0"),
        ("mpr-mape", {"every_s": math.nan}, "every_s"),
        ("mpr-mape", {"bound": 1}, "bound"),
        ("mpr-mape-guarded", {"cool_down_s": -1.0}, "cool_down_s"),
        ("mpr-mape-guarded", {"least_gain": math.inf}, "least_gain"),
    ],
)
def test_bad_parameters_are_refused_with_the_rule(name: str, bad: dict[str, float], rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        registry.make(name, **bad)
    with pytest.raises(PolicyError, match="ratio|goal"):
        planned_step(math.nan)


CONTROLLER = """
import json, sys
stats, parameters = sys.argv[1:]
samples = json.load(open(stats))["stage2"]
stamps = sorted(samples, key=int)[-2:]
items = sum(process["ItemsProduced"] for process in samples[stamps[-1]].values())
rate = items / ((int(stamps[-1]) - int(stamps[0])) / 1000)
sizes = json.load(open(parameters))
sizes["stage2"] += 1 if rate < 90 else -1 if rate > 130 else 0
json.dump(sizes, open(parameters, "w"))
"""


def test_a31_an_external_script_that_knows_only_the_files_drives_the_model(tmp_path: Path) -> None:
    script, stats, parameters = tmp_path / "controller.py", tmp_path / "stats_stage2.json", tmp_path / "parameters.json"
    script.write_text(CONTROLLER)
    parameters.write_text(write_parameters((1, 1, 1)))

    def desired(now: float) -> tuple[int, ...]:
        return read_parameters(parameters.read_text(), (1, 1, 1)) or (1, 1, 1)

    def cost(stage: int, item: int, now: float) -> float:
        return 0.04 if stage == 2 else 0.0  # 25 items per second and process

    pipeline = Pipeline(Settings(items=1500, cost=cost, desired=desired))
    for second in range(2, 12):
        pipeline.advance(float(second))
        stats.write_text(write_statistics(2, pipeline.world.samples[2]))
        subprocess.run([sys.executable, "-I", "-S", str(script), str(stats), str(parameters)], check=True)
    run = pipeline.run()
    assert run.sizes[0] == (1, 1, 1) and run.sizes[-1][1] in (4, 5)
    assert sorted(run.delivered) == list(range(1500))
