"""Thesis 003's farm in virtual time, and the strategies in closed loop on it. Numbers: the digest's acceptance list."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest

from penstock.control.policies.spar_latency import LatencyConstraint
from penstock.control.policies.spar_queue import queue_step
from penstock.control.policies.spar_regulator import resize
from penstock.control.policies.spar_throughput import TargetThroughput
from penstock.control.policies.spar_wudp import Wudp
from penstock.control.protocol.farm import FarmRun, FarmSettings, Reading, by_policy, run_farm
from penstock.control.protocol.machine import Machine
from penstock.errors import PolicyError

EIGHT_CORES = Machine(8, 16)


def uneven(item: int, now: float) -> float:
    return 0.004 + 0.003 * math.sin(item * 1.7)


def see_saw(reading: Reading) -> int:
    """Up to the most, down to the least, at every iteration."""
    return 14 if reading.width <= 7 else 2


@pytest.mark.parametrize("scheduling", ["on_demand", "round_robin"])
@pytest.mark.parametrize("keep_order", [True, False])
def test_a17_a18_every_item_once_under_constant_change(scheduling: str, keep_order: bool) -> None:
    settings = FarmSettings(
        items=10_000, service_s=uneven, every_s=0.01, scheduling=scheduling, ordered=keep_order, slots=3
    )
    run = run_farm(settings, see_saw)
    assert run.adaptations == run.iterations > 50
    assert Counter(run.output) == Counter(range(10_000))
    assert (run.output == list(range(10_000))) is keep_order


@pytest.mark.parametrize(
    "policy",
    [TargetThroughput(target_per_s=1500.0), Wudp(every_s=0.05), LatencyConstraint(constraint_s=0.004, every_s=0.05)],
    ids=["target", "wudp", "latency"],
)
def test_a17_every_item_once_under_every_strategy(policy: TargetThroughput) -> None:
    settings = FarmSettings(items=10_000, service_s=uneven, every_s=0.05)
    run = run_farm(settings, by_policy(policy, settings))
    assert sorted(run.output) == list(range(10_000))


def test_a19_a_suspended_replica_finishes_its_queue_and_the_farm_ends() -> None:
    settings = FarmSettings(items=60, hi=4, start=4, slots=5, every_s=0.35, ordered=True)
    queued: list[int] = []

    def suspend(reading: Reading) -> int:
        queued.append(reading.queued)
        return 2

    run = run_farm(settings, suspend)
    assert queued[0] > 10 and run.widths[0] == 2
    assert run.output == list(range(60)) and run.terminated == 4
    assert run.seconds <= 60 * 0.1 / 2  # ends: bounded by two replicas doing it all


def test_a20_only_the_first_replicas_receive_items() -> None:
    run = run_farm(FarmSettings(items=500, start=8))
    assert [count > 0 for count in run.received] == [True] * 8 + [False] * 6


def test_a21_losses_show_which_side_is_slow() -> None:
    ready = run_farm(FarmSettings(items=500, start=4, emit_s=0.0))
    slow = run_farm(FarmSettings(items=500, start=4, emit_s=0.2))
    assert sum(ready.push_lost) > 100_000 and sum(ready.pop_lost) < sum(ready.push_lost) / 100
    assert sum(slow.push_lost) == 0 and sum(slow.pop_lost) > 100_000


def test_a22_on_demand_spares_a_slow_replica() -> None:
    def slowness(replica: int) -> float:
        return 10.0 if replica == 3 else 1.0

    runs = {
        scheduling: run_farm(FarmSettings(items=2000, start=6, slowness=slowness, scheduling=scheduling))
        for scheduling in ("on_demand", "round_robin")
    }
    received = runs["on_demand"].received[:6]
    assert received[3] < min(received[:3] + received[4:]) / 5
    assert runs["on_demand"].seconds < runs["round_robin"].seconds / 2


# --- closed loop ------------------------------------------------------------------------------------------------------


def closed_loop(
    policy: TargetThroughput | Wudp | LatencyConstraint, settings: FarmSettings, **others: object
) -> FarmRun:
    return run_farm(settings, by_policy(policy, settings, **others))  # type: ignore[arg-type]


def steady(run: FarmRun, since: float, until: float) -> list[Reading]:
    return [reading for reading in run.readings if since <= reading.now_s < until]


def phases(now: float) -> float:
    return 40.0 if now < 8 else 18.0 if now < 16 else 50.0 if now < 23 else 70.0


def lane(item: int, now: float) -> float:
    """About nine frames per second on one core."""
    return (1 / 9) * (1 + 0.02 * math.sin(item * 0.9))


def test_a24_changing_targets_are_followed() -> None:
    settings = FarmSettings(until_s=32.0, service_s=lane, start=2, machine=EIGHT_CORES)
    run = closed_loop(TargetThroughput(scaling_factor=1), settings, target=phases)
    ends = {at: steady(run, at - 2.5, at - 0.1) for at in (8.0, 16.0, 23.0, 32.0)}
    widths = {at: readings[-1].width for at, readings in ends.items()}
    assert 2 < widths[8.0] > widths[16.0] < widths[23.0] < widths[32.0]
    for at, readings in ends.items():
        goal = phases(at - 0.1)
        rate = sum(reading.throughput for reading in readings) / len(readings)
        assert 0.9 * goal <= rate <= 1.1 * 1.2 * goal or (widths[at] == settings.lo and rate > goal)


def settling(every: float, scaling: int) -> float:
    """Seconds from the step 18 -> 50 at 16 s until the target is first met."""

    def target(now: float) -> float:
        return 18.0 if now < 16 else 50.0

    settings = FarmSettings(
        until_s=32.0, service_s=lambda item, now: 1 / 7, start=2, every_s=every, machine=EIGHT_CORES
    )
    run = closed_loop(TargetThroughput(scaling_factor=scaling, every_s=every), settings, target=target)
    return next(reading.now_s for reading in run.readings if reading.now_s > 16 and reading.throughput >= 50.0) - 16


def test_a25_settling_time_is_proportional_to_the_interval() -> None:
    assert 1.6 <= settling(1.0, 1) / settling(0.5, 1) <= 2.6
    assert settling(0.5, 2) < settling(0.5, 1)


@pytest.mark.parametrize("scaling", [1, 2])
def test_a26_an_unreachable_target_stays_at_the_most(scaling: int) -> None:
    settings = FarmSettings(until_s=20.0, service_s=lane, machine=EIGHT_CORES)
    run = closed_loop(TargetThroughput(target_per_s=10_000.0, scaling_factor=scaling), settings)
    assert run.widths[-1] == 14 and run.adaptations == 6 / scaling
    assert set(run.widths[6 // scaling :]) == {14}


def load_that_drops(item: int, now: float) -> float:
    return 0.25 if now < 20 else 0.15


def test_a27_an_unreachable_latency_falls_to_the_least_and_recovers() -> None:
    settings = FarmSettings(until_s=40.0, service_s=load_that_drops, lo=2, hi=7, start=7, machine=EIGHT_CORES)
    run = closed_loop(LatencyConstraint(constraint_s=0.23, scaling_factor=1), settings)
    before, after = steady(run, 5.0, 20.0), steady(run, 26.0, 40.0)
    assert {reading.width for reading in before} == {2}
    assert {reading.width for reading in after} == {7}
    assert after[-1].throughput > 2 * before[-1].throughput


def test_a28_ten_milliseconds_change_everything() -> None:
    rates = {}
    for constraint in (0.230, 0.240):
        settings = FarmSettings(
            until_s=40.0, service_s=lambda item, now: 0.235, lo=2, hi=7, start=7, machine=EIGHT_CORES
        )
        run = closed_loop(LatencyConstraint(constraint_s=constraint, scaling_factor=1), settings)
        rates[constraint] = len(run.output) / run.seconds
        assert run.widths[-1] == (7 if constraint == 0.240 else 2)
    assert rates[0.240] >= 1.5 * rates[0.230]


def test_a29_queue_strategy_follows_its_band() -> None:
    low, high = 40_000, 100_000

    def fluctuating(item: int, now: float) -> float:
        return 1 / (13.5 + 6.5 * math.sin(2 * math.pi * now / 15 - 1.5))  # 7 to 20 frames per second, serial

    def regulate(reading: Reading) -> int:
        return resize(reading.width, queue_step(reading.push_losses, low, high), 1, 2, 14)

    settings = FarmSettings(until_s=45.0, emit_s=0.01, service_s=fluctuating, machine=EIGHT_CORES)
    run = run_farm(settings, regulate)
    seen: Counter[str] = Counter()
    for reading, width in zip(run.readings, run.widths, strict=True):
        if reading.push_losses > high:
            seen["up"] += 1
            assert width == min(reading.width + 1, 14)
        elif reading.push_losses < low:
            seen["down"] += 1
            assert width == max(reading.width - 1, 2)
        else:
            seen["keep"] += 1
            assert width == reading.width
    assert run.widths[3] > 8
    assert all(seen[kind] >= 3 for kind in ("up", "down", "keep"))


@pytest.mark.parametrize(("every", "scaling"), [(0.5, 1), (0.5, 2), (1.0, 1)])
def test_a30_half_the_load_frees_replicas_in_time(every: float, scaling: int) -> None:
    def halved(item: int, now: float) -> float:
        return (0.1 if now < 20 else 0.05) * (1 + 0.1 * math.sin(item * 1.3))

    settings = FarmSettings(until_s=40.0, service_s=halved, start=2, every_s=every)
    run = closed_loop(TargetThroughput(target_per_s=104.0, scaling_factor=scaling, every_s=every), settings)
    before = steady(run, 15.0, 19.9)[-1].width
    after = run.widths[-1]
    steps = math.ceil((before - after) / scaling)
    assert before >= 11 and after == 6
    changed = [reading.now_s for reading, width in zip(run.readings, run.widths, strict=True) if width < reading.width]
    settled = max(now for now in changed if now > 20.0)
    assert settled - 20.0 <= steps * every + 2 * every
    assert {reading.width for reading in steady(run, settled + 2.1 * every, 40.0)} == {6}


def test_machine_curve_against_the_thesis_shape() -> None:
    latency = [EIGHT_CORES.slowdown(n) for n in range(2, 17)]
    assert latency[:7] == [1.0] * 7  # 2 to 8 replicas: a core each
    assert all(b > a for a, b in pairwise(latency[6:]))
    assert latency[14] - latency[12] > latency[12] - latency[10]  # 15 and 16 share with emitter and collector


@pytest.mark.parametrize("bad", [{"start": 20}, {"lo": 0, "start": 0}, {"slots": 0}, {"scheduling": "random"}])
def test_bad_farms_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(PolicyError):
        FarmSettings(**bad)  # type: ignore[arg-type]


def test_regulators_see_only_what_happened_since_their_last_look() -> None:
    seen: list[Reading] = []

    def watch(reading: Reading) -> int:
        seen.append(reading)
        return reading.width

    run = run_farm(FarmSettings(until_s=10.0, start=5, service_s=lane), watch)
    assert 0 <= len(run.output) - sum(reading.items for reading in seen) <= 15  # those after the last look
    assert all(reading.throughput == pytest.approx(45.0, rel=0.21) for reading in seen)
    assert sum(run.push_lost) >= sum(reading.push_losses for reading in seen) > 0
