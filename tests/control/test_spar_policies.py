"""Thesis 003: bounds, the four strategies and their regulator. Numbers: the digest's acceptance list."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies import registry
from penstock.control.policies.spar_bounds import resolve_bounds
from penstock.control.policies.spar_latency import LatencyConstraint, latency_step, relative_latency_step
from penstock.control.policies.spar_queue import PushLosses, QueueCongestion, queue_step, waiting_share
from penstock.control.policies.spar_regulator import DOWN, KEEP, UP, Monitor, Regulator, resize
from penstock.control.policies.spar_throughput import TargetThroughput, throughput_step
from penstock.control.policies.spar_wudp import Wudp, wudp_step
from penstock.errors import PolicyError


def view(width: int = 8, rate: float = 50.0, *, lo: int = 2, hi: int = 14, **others: float) -> OperatorView:
    values: dict[str, float] = {
        "arrivals_per_s": rate,
        "completed_per_s": rate,
        "service_s": 0.1,
        "service_cv": 0.0,
        "interarrival_s": 0.0,
        "arrival_cv": 0.0,
        "wait_s": 0.0,
        "batch_wait_s": 0.0,
        "queue_items": 0.0,
        "utilisation": 1.0,
        **others,
    }
    return OperatorView("score", width, lo, hi, **values)


def seen(one: OperatorView, now: float = 1.0, interval: float = 0.5, **others: object) -> Observation:
    return Observation(now, interval, {"score": one}, **others)  # type: ignore[arg-type]


def width_after(policy: Regulator, one: OperatorView, now: float = 1.0, **others: object) -> int:
    return policy.decide(seen(one, now, **others), Decision({"score": one.width})).widths["score"]


def test_a01_bounds_of_the_thesis_machines() -> None:
    for strategy in ("throughput", "wudp", "queue"):
        bounds = resolve_bounds(strategy, physical_cores=8, hardware_threads=16)
        assert (bounds.lo, bounds.hi, bounds.start) == (2, 14, 8)
        assert resolve_bounds(strategy, physical_cores=12, hardware_threads=24).hi == 22
    bounds = resolve_bounds("latency", physical_cores=8, hardware_threads=16)
    assert (bounds.lo, bounds.hi, bounds.start) == (2, 7, 7)
    assert resolve_bounds("latency", physical_cores=12, hardware_threads=24).hi == 11


@given(st.sampled_from(["throughput", "wudp", "queue", "latency"]), st.integers(1, 64), st.integers(1, 2))
def test_a02_bounds_are_usable_on_any_machine(strategy: str, cores: int, per_core: int) -> None:
    bounds = resolve_bounds(strategy, physical_cores=cores, hardware_threads=cores * per_core)
    assert 1 <= bounds.lo <= bounds.start <= bounds.hi


def test_bounds_refuse_what_makes_no_sense() -> None:
    with pytest.raises(PolicyError, match="least must not be above most"):
        resolve_bounds("wudp", physical_cores=2, hardware_threads=2, most=1)
    with pytest.raises(PolicyError, match="no strategy"):
        resolve_bounds("fast", physical_cores=2, hardware_threads=2)
    with pytest.raises(PolicyError, match="physical_cores"):
        resolve_bounds("wudp", physical_cores=4, hardware_threads=2)
    assert resolve_bounds("wudp", physical_cores=2, hardware_threads=2, most=16, start=4).start == 4


@pytest.mark.parametrize(
    ("rate", "step"), [(0.0, UP), (59.9, UP), (60.0, KEEP), (66.0, KEEP), (72.0, KEEP), (72.1, DOWN)]
)
def test_a03_target_throughput(rate: float, step: int) -> None:
    assert throughput_step(rate, 60.0, 0.2) == step
    assert width_after(TargetThroughput(target_per_s=60.0, scaling_factor=1), view(rate=rate)) == 8 + step


@pytest.mark.parametrize(("ms", "step"), [(240.1, DOWN), (239.9, UP), (240.0, KEEP)])
def test_a04_latency(ms: float, step: int) -> None:
    assert latency_step(ms / 1000, 0.24) == step
    policy = LatencyConstraint(constraint_s=0.25, scaling_factor=1)  # binary fractions: the sum over items is exact
    assert width_after(policy, view(service_s=0.25 + (ms - 240.0) / 64)) == 8 + step


@pytest.mark.parametrize(
    ("history", "rate", "step"),
    [
        ((50, 60, 55), 59, UP),
        ((50, 60, 55), 60, DOWN),
        ((50, 60, 55), 70, DOWN),
        ((60, 60, 60), 60, KEEP),
        ((60, 60, 60), 59.9, UP),
        ((60, 60, 60), 60.1, DOWN),
        ((40, 60, 80), 80, DOWN),
        ((40, 60, 80), 61, UP),
    ],
)
def test_a05_wudp(history: tuple[float, ...], rate: float, step: int) -> None:
    assert wudp_step(rate, history) == step
    policy = Wudp(scaling_factor=1)
    widths = [width_after(policy, view(rate=float(r)), now=float(i)) for i, r in enumerate((*history, rate))]
    assert widths == [8, 8, 8, 8 + step]


@given(st.floats(0, 1e300), st.integers(1, 9))
def test_a05_constant_input_keeps_for_ever(value: float, depth: int) -> None:
    assert wudp_step(value, [value] * depth) == KEEP
    assert relative_latency_step(value, [value] * depth) == KEEP


def test_wudp_other_reading_compares_with_the_last_only() -> None:
    assert wudp_step(61, (40, 80, 60)) == UP
    assert wudp_step(61, (40, 80, 60), "last") == DOWN


def test_a06_wudp_waits_for_three_samples() -> None:
    policy = Wudp()
    assert [width_after(policy, view(rate=r), now=float(i)) for i, r in enumerate((90.0, 10.0, 50.0))] == [8, 8, 8]
    assert (policy.iterations, policy.adaptations) == (3, 0)
    assert width_after(policy, view(rate=1.0), now=9.0) == 10
    policy.reset()
    assert width_after(policy, view(rate=1.0), now=10.0) == 8


@pytest.mark.parametrize(("lost", "step"), [(149_999, DOWN), (150_000, KEEP), (200_000, KEEP), (200_001, UP)])
def test_a07_queue(lost: int, step: int) -> None:
    assert queue_step(lost, 150_000, 200_000) == step


def test_push_losses_count_growth_of_active_replicas_only() -> None:
    losses = PushLosses()
    assert losses.since_last({0: 10, 1: 5, 2: 7}, active=[0, 1]) == 15
    assert losses.since_last({0: 12, 1: 5, 2: 9}, active=[0, 1, 2]) == 4


def test_queue_policy_goes_by_the_share_that_waits() -> None:
    policy = QueueCongestion(low=0.1, high=0.2, scaling_factor=1)
    widths = [width_after(policy, view(rate=100.0, queue_items=q), now=float(i)) for i, q in enumerate((0, 10, 20))]
    assert widths == [7, 8, 9]  # shares 0, 1/6 and 2/7 of an interval with 50 completions
    assert waiting_share(0.0, 0.0) == 0.0


def test_a08_steps_stop_at_the_bounds() -> None:
    assert resize(13, UP, 2, 2, 14) == 14
    policy = TargetThroughput(target_per_s=60.0, scaling_factor=2)
    assert width_after(policy, view(width=13, rate=1.0)) == 14
    assert (policy.iterations, policy.adaptations) == (1, 1)
    assert width_after(policy, view(width=2, rate=100.0), now=2.0) == 2
    assert (policy.iterations, policy.adaptations) == (2, 1)


@pytest.mark.parametrize(("every", "expected"), [(0.5, 40), (1.0, 20)])
def test_a09_iterations_in_twenty_seconds(every: float, expected: int) -> None:
    policy = TargetThroughput(target_per_s=60.0, every_s=every)
    for tick in range(1, 201):  # a host that reports every 0.1 s
        policy.decide(seen(view(), now=tick * 0.1, interval=0.1), Decision({"score": 8}))
    assert abs(policy.iterations - expected) <= 1


@pytest.mark.parametrize(("scaling", "adaptations"), [(1, 6), (2, 3)])
def test_a10_adaptations_and_settling_time(scaling: int, adaptations: int) -> None:
    policy, width, settled = TargetThroughput(target_per_s=135.0, scaling_factor=scaling), 8, 0.0
    for tick in range(1, 41):
        now = tick * 0.5
        before, width = width, width_after(policy, view(width=width, rate=10.0 * width), now=now)  # 10 per replica
        if width != before:
            settled = now
    assert (width, policy.adaptations) == (14, adaptations)
    assert settled <= adaptations * 0.5 + 2 * 0.5


@pytest.mark.parametrize("scaling", [1, 2])
def test_a11_wudp_under_noise_hovers_below_the_most(scaling: int) -> None:
    noise, policy, width, ups, widths = random.Random(3), Wudp(scaling_factor=scaling), 8, 0, []
    history: list[float] = []
    for tick in range(3000):
        rate = noise.gauss(100.0, 10.0)
        if len(history) >= 3:
            ups += wudp_step(rate, history[-3:]) == UP
        history.append(rate)
        width = width_after(policy, view(width=width, rate=rate), now=float(tick))
        widths.append(width)
    assert 0.70 <= ups / 2997 <= 0.80
    assert abs(sum(widths) / len(widths) - 14) <= 3


def test_target_may_change_while_running() -> None:
    policy = TargetThroughput(scaling_factor=1)
    assert width_after(policy, view(rate=50.0), now=1.0) == 8  # nobody asked for anything
    assert width_after(policy, view(rate=50.0), now=2.0, target_per_s={"score": 60.0}) == 9
    assert width_after(policy, view(rate=50.0), now=3.0, target_per_s={"score": 40.0}) == 7
    policy.set_target(45.0)  # the user's word counts more than the flow's
    assert width_after(policy, view(rate=50.0), now=4.0, target_per_s={"score": 90.0}) == 8


def test_target_above_a_slow_source_is_met_if_asked_for() -> None:
    assert width_after(TargetThroughput(target_per_s=60.0), view(rate=20.0)) == 10
    assert width_after(TargetThroughput(target_per_s=60.0, cap_at_arrivals=True), view(rate=20.0)) == 8
    assert width_after(TargetThroughput(target_per_s=60.0, cap_at_arrivals=True), view(rate=20.0, queue_items=5)) == 10


def test_throughput_is_taken_over_all_the_time_since_the_last_iteration() -> None:
    policy, decision = TargetThroughput(target_per_s=50.0, every_s=1.0, scaling_factor=1), Decision({"score": 8})
    policy.decide(seen(view(rate=50.0), now=0.0), decision)
    assert policy.decide(seen(view(rate=10.0), now=0.5), decision) == decision
    late = policy.decide(seen(view(rate=80.0), now=1.0, interval=0.5), decision)
    assert late.widths["score"] == 9  # (5 + 40) items in 1 s


def test_latency_takes_the_tightest_bound_and_keeps_when_nothing_completed() -> None:
    bounds = (
        Bound("a", ("score",), mean_s=0.3),
        Bound("b", ("score", "sink"), mean_s=0.2),
        Bound("c", ("x",), mean_s=0.1),
    )
    policy = LatencyConstraint(scaling_factor=1)
    assert width_after(policy, view(service_s=0.25), now=1.0, bounds=bounds) == 7
    assert width_after(policy, view(service_s=0.15), now=2.0, bounds=bounds) == 9
    assert width_after(policy, view(rate=0.0, service_s=0.9), now=3.0, bounds=bounds) == 8
    path = LatencyConstraint(scaling_factor=1, controls="path")
    measured = {"b": (0.5, 0.6, 0.7, 0.8)}
    assert width_after(path, view(service_s=0.01), bounds=bounds, latency=measured) == 7


def test_latency_without_a_constraint_goes_by_its_own_history() -> None:
    assert [relative_latency_step(s, (0.2, 0.2, 0.2)) for s in (0.3, 0.2, 0.1)] == [DOWN, KEEP, UP]
    policy = LatencyConstraint(automatic=True, scaling_factor=1)
    widths = [width_after(policy, view(service_s=s), now=float(i)) for i, s in enumerate((0.2, 0.2, 0.2, 0.4, 0.1))]
    assert widths == [8, 8, 8, 7, 9]
    still = LatencyConstraint(scaling_factor=1)
    assert [width_after(still, view(service_s=s), now=float(i)) for i, s in enumerate((0.2, 0.2, 0.2, 0.4))] == [8] * 4


def test_most_narrows_the_hosts_bound_and_other_operators_are_left_alone() -> None:
    assert width_after(TargetThroughput(target_per_s=99.0, most=9), view(rate=1.0)) == 9
    decision = Decision({"score": 8, "fixed": 3}, lifetime_s=0.25)
    fixed = OperatorView("fixed", 3, 3, 3, 1.0, 1.0, 0.1, 0, 0, 0, 0, 0, 0, 1.0)
    both = Observation(1.0, 0.5, {"score": view(rate=1.0), "fixed": fixed})
    after = TargetThroughput(target_per_s=99.0).decide(both, decision)
    assert after.widths == {"score": 10, "fixed": 3} and after.lifetime_s == 0.25
    assert TargetThroughput(target_per_s=99.0, operator="fixed").decide(both, decision).widths == decision.widths
    assert TargetThroughput(target_per_s=99.0).decide(None, decision) == decision


POLICIES = {
    "spar-throughput": {"target_per_s": 60.0},
    "spar-wudp": {},
    "spar-latency": {"constraint_s": 0.2},
    "spar-queue": {},
}


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(
    st.lists(
        st.tuples(st.floats(0, 1e300), st.floats(0, 1e300), st.floats(0, 1e300), st.integers(1, 40)),
        min_size=1,
        max_size=8,
    )
)
def test_whatever_is_measured_the_width_is_within_the_bounds(
    name: str, measured: list[tuple[float, float, float, int]]
) -> None:
    policy = registry.make(name, **POLICIES[name])
    for tick, (rate, service, queue, width) in enumerate(measured):
        one = view(width=width, rate=rate, lo=2, hi=14, service_s=service, queue_items=queue)
        decided = policy.decide(seen(one, now=float(tick)), Decision({"score": width})).widths["score"]
        assert isinstance(decided, int) and 2 <= decided <= 14


@pytest.mark.parametrize(
    ("name", "bad", "rule"),
    [
        ("spar-throughput", {"target_per_s": 0.0}, "target_per_s must be greater than 0"),
        ("spar-throughput", {"target_per_s": math.nan}, "target_per_s"),
        ("spar-throughput", {"tolerance": -0.1}, "tolerance must be at least 0"),
        ("spar-throughput", {"scaling_factor": 0}, "scaling_factor must be at least 1"),
        ("spar-wudp", {"every_s": math.inf}, "every_s"),
        ("spar-wudp", {"depth": 0}, "depth"),
        ("spar-wudp", {"compare": "first"}, "compare"),
        ("spar-latency", {"constraint_s": -1.0}, "constraint_s"),
        ("spar-latency", {"controls": "p99"}, "control"),
        ("spar-queue", {"low": 0.5, "high": 0.1}, "low must not be above high"),
        ("spar-queue", {"speed": 1}, "argument"),
    ],
)
def test_bad_parameters_are_refused_with_the_rule(name: str, bad: dict[str, float], rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        registry.make(name, **bad)


def test_a_monitor_that_saw_nothing_says_so() -> None:
    assert Monitor().throughput is None and Monitor().latency_s is None
