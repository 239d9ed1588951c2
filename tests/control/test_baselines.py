"""The baselines: each rule on worked numbers, what holds it back, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies import registry
from penstock.control.policies.baseline_rules import strain_of
from penstock.errors import PolicyError
from tests.control.cases import view

FAST = Bound("fast", ("v",), mean_s=0.1)


def at(now_s: float, seen: OperatorView, mean_s: float | None = None, **given: Any) -> Observation:
    latency = {} if mean_s is None else {"fast": (mean_s, 2 * mean_s, 3 * mean_s, 4 * mean_s)}
    return Observation(now_s, 5.0, {seen.name: seen}, (FAST,), latency, **given)


def wide(policy: Any, seen: Observation, width: int) -> int:
    return int(policy.decide(seen, Decision({"v": width})).widths["v"])


# --- those that do not react ------------------------------------------------------------------------------------------


def test_static_keeps_what_it_finds_or_is_given() -> None:
    assert wide(registry.make("static"), at(5.0, view()), 7) == 7
    assert wide(registry.make("static", widths={"v": 3}), at(5.0, view()), 7) == 3


def test_peak_load_provides_for_the_announced_peak_and_never_less() -> None:
    policy = registry.make("peak-load", peak_per_s=3000.0, utilisation=0.8)
    assert wide(policy, at(5.0, view()), 8) == math.ceil(3000 * 0.004 / 0.8)
    assert wide(policy, at(10.0, view(service_s=0.008)), 15) == 30
    assert wide(policy, at(15.0, view(service_s=0.004)), 30) == 30
    behind = Observation(5.0, 5.0, {"a": view("a"), "b": view("b", arrivals_per_s=400.0)})
    decided = registry.make("peak-load", peak_per_s=3200.0).decide(behind, Decision({"a": 8, "b": 8}))
    assert decided.widths == {"a": 16, "b": 4}  # a quarter of the items reach b, so a quarter of the peak does


def test_the_clairvoyant_follows_its_plan_and_refuses_one_out_of_order() -> None:
    policy = registry.make("clairvoyant", plan=[(0.0, {"v": 2}), (10.0, {"v": 9})])
    assert [wide(policy, at(now, view()), 5) for now in (5.0, 9.9, 10.0, 500.0)] == [2, 2, 9, 9]
    assert policy.decide(None, Decision({"v": 5})).widths["v"] == 2
    for plan in ([], [(5.0, {"v": 1}), (1.0, {"v": 2})]):
        with pytest.raises(PolicyError, match="in order of time"):
            registry.make("clairvoyant", plan=plan)


# --- rules of thumb ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("busy", "width"), [(0.7, 10), (0.76, 10), (0.64, 10), (0.8, 12), (1.0, 15), (1.7, 15)])
def test_the_utilisation_rule_up(busy: float, width: int) -> None:
    """wanted = ceil(width x utilisation / 0.7), nothing within 10 %; a processor is never more than fully busy."""
    assert wide(registry.make("utilisation"), at(5.0, view(width=10, utilisation=busy)), 10) == width


def test_the_utilisation_rule_goes_down_only_to_the_greatest_wish_of_its_hold() -> None:
    policy = registry.make("utilisation", hold_s=60.0)
    assert wide(policy, at(0.0, view(width=10, utilisation=0.7)), 10) == 10
    for now in range(5, 60, 5):
        assert wide(policy, at(float(now), view(width=10, utilisation=0.2)), 10) == 10
    assert wide(policy, at(60.0, view(width=10, utilisation=0.2)), 10) == 3


@pytest.mark.parametrize(("mean_s", "width"), [(0.09, 8), (0.11, 12), (0.21, 16)])
def test_the_latency_rule_up(mean_s: float, width: int) -> None:
    assert wide(registry.make("latency"), at(5.0, view(), mean_s), 8) == width


def test_the_latency_rule_rests_after_a_rise_and_gives_back_one_at_a_time() -> None:
    policy = registry.make("latency", patience=3, cool_down=2)
    assert wide(policy, at(5.0, view(), 0.3), 8) == 16
    assert [wide(policy, at(now, view(), 0.3), 16) for now in (10.0, 15.0)] == [16, 16]
    quiet = [wide(policy, at(20.0 + 5 * i, view(width=16), 0.02), 16) for i in range(6)]
    assert quiet == [16, 16, 15, 16, 16, 15]
    assert wide(registry.make("latency"), at(5.0, view()), 8) == 8  # nothing measured, nothing done


def test_strain_is_that_of_the_limit_nearest_to_breaking() -> None:
    bound = Bound("b", ("v",), mean_s=1.0, p99_s=2.0)
    assert strain_of(bound, (0.5, 9.0, 1.8, 9.0)) == pytest.approx(0.9)
    assert strain_of(Bound("b", ("v",)), (0.5, 9.0, 1.8, 9.0)) is None


# --- DS2, Flink, Spark ------------------------------------------------------------------------------------------------


def test_ds2_is_one_pass_with_the_true_rates() -> None:
    """OSDI 2018: ceil(rate into the operator / true rate of one instance); operators behind a filter get its ratio."""
    seen = Observation(
        5.0, 5.0, {"a": view("a", arrivals_per_s=3100.0), "b": view("b", arrivals_per_s=775.0, service_s=0.01)}
    )
    assert registry.make("ds2").decide(seen, Decision({"a": 8, "b": 8})).widths == {"a": 13, "b": 8}
    roomy = registry.make("ds2", utilisation=0.8).decide(seen, Decision({"a": 8, "b": 8}))
    assert roomy.widths == {"a": 16, "b": 10}


def test_ds2_waits_for_its_decision_to_work_and_then_warms_up() -> None:
    policy = registry.make("ds2", warm_up=1)
    decision = policy.decide(at(5.0, view(arrivals_per_s=4000.0)), Decision({"v": 8}))
    assert decision.widths["v"] == 16
    late = policy.decide(at(10.0, view(arrivals_per_s=9000.0)), decision)  # still at width 8
    assert late == decision
    assert policy.decide(at(15.0, view(width=16, arrivals_per_s=9000.0)), decision) == decision  # warming up
    assert policy.decide(at(20.0, view(width=16, arrivals_per_s=9000.0)), decision).widths["v"] == 36


def flink(**given: Any) -> Any:
    times = {"window_s": 10.0, "stabilise_s": 0.0, "catch_up_s": 1000.0, "restart_s": 0.0, "down_delay_s": 0.0}
    return registry.make("flink", **{**times, **given})


@pytest.mark.parametrize(
    ("rate", "queue", "width"),
    [
        (1600.0, 0.0, 8),  # utilisation 0.8: inside 0.7 +- 0.3
        (2400.0, 0.0, 14),  # 2400 / 0.7 over 250 per subtask
        (2400.0, 1e6, 18),  # and a lag of 1 M in 1000 s
        (600.0, 0.0, 4),  # 600 / 0.7 / 250 = 3.4
        (100.0, 0.0, 4),  # a step down keeps 40 %
    ],
)
def test_the_flink_autoscalers_rule(rate: float, queue: float, width: int) -> None:
    assert wide(flink(), at(10.0, view(arrivals_per_s=rate, queue_items=queue)), 8) == width


def test_the_flink_autoscaler_waits_to_stabilise_and_delays_scale_downs() -> None:
    policy = flink(stabilise_s=20.0)
    widths = [wide(policy, at(now, view(arrivals_per_s=2400.0)), 8) for now in (5.0, 10.0, 15.0, 20.0)]
    assert widths == [8, 8, 8, 14]
    slow = flink(down_delay_s=60.0)
    assert wide(slow, at(50.0, view(arrivals_per_s=600.0)), 8) == 8
    assert wide(slow, at(55.0, view(arrivals_per_s=1600.0)), 8) == 8
    assert wide(slow, at(100.0, view(arrivals_per_s=600.0)), 8) == 8  # 8 was wanted within the last minute
    assert wide(slow, at(116.0, view(arrivals_per_s=600.0)), 8) == 4


def test_flinks_defaults_react_in_minutes_and_the_quick_ones_in_seconds() -> None:
    slow, quick = registry.make("flink"), registry.make("flink-quick")
    reacted: dict[str, float] = {}
    for now in range(5, 1000, 5):
        for name, policy in (("slow", slow), ("quick", quick)):
            if name not in reacted and wide(policy, at(float(now), view(arrivals_per_s=2600.0)), 8) > 8:
                reacted[name] = float(now)
    assert reacted["slow"] >= 300.0
    assert reacted["quick"] <= 30.0


def test_spark_adds_1_2_4_while_work_waits_and_starts_over() -> None:
    policy, width, widths = registry.make("spark"), 8, []
    for i, queue in enumerate((500.0, 500.0, 500.0, 0.0, 500.0)):
        width = wide(policy, at(5.0 * i, view(width=width, queue_items=queue, utilisation=1.0)), width)
        widths.append(width)
    assert widths == [9, 11, 15, 15, 16]


def test_spark_gives_back_what_has_been_idle_for_the_timeout() -> None:
    policy = registry.make("spark", idle_timeout_s=30.0)
    widths = [wide(policy, at(5.0 * i, view(utilisation=u, queue_items=0.0)), 8) for i, u in enumerate([0.3] * 7)]
    assert widths == [8] * 6 + [3]
    policy.reset()
    busy = [0.3, 0.3, 0.3, 1.0, 0.3, 0.3, 0.3, 0.3]  # once busy, the clock starts again
    widths = [wide(policy, at(5.0 * i, view(utilisation=u, queue_items=0.0)), 8) for i, u in enumerate(busy)]
    assert widths == [8] * 8


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("static", {"widths": {"v": 0}}),
        ("peak-load", {"peak_per_s": 0.0}),
        ("peak-load", {"peak_per_s": math.nan}),
        ("utilisation", {"target": 0.0}),
        ("utilisation", {"hold_s": -1.0}),
        ("latency", {"patience": 0}),
        ("ds2", {"utilisation": 0.0}),
        ("flink", {"window_s": 0.0}),
        ("flink", {"catch_up_s": math.inf}),
        ("flink-quick", {"restart_s": -1.0}),
        ("spark", {"idle_timeout_s": 0.0}),
        ("adaptive", {"price": 0.0}),
        ("adaptive", {"price": math.nan}),
    ],
)
def test_bad_parameters_are_refused_with_the_rule(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=r"must be (at least|greater than)"):
        registry.make(name, **given)


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="its parameters are"):
        registry.make("ds2", colour="blue")
