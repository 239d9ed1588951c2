"""What policies see and decide: refusals, the registry, the limiter, and thesis 001's techniques together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.control.decision import Decision, Static
from penstock.control.limiter import Limited, Limiter
from penstock.control.observation import Bound, Observation
from penstock.control.policies import registry
from penstock.control.policies.nephele import Nephele
from penstock.errors import PolicyError
from tests.control.cases import view

BAD = [math.nan, math.inf, -1.0]


@pytest.mark.parametrize(
    "name",
    ["arrivals_per_s", "service_s", "service_cv", "interarrival_s", "arrival_cv", "wait_s", "utilisation", "latency_s"],
)
@pytest.mark.parametrize("value", BAD)
def test_statistics_that_are_no_numbers_are_refused(name: str, value: float) -> None:
    with pytest.raises(PolicyError, match=f"operator 'v': {name} must be at least 0, got"):
        view(**{name: value})


def test_bounds_of_widths_and_latencies_are_refused_with_their_rule() -> None:
    with pytest.raises(PolicyError, match="lo must not be above hi, got lo=9 and hi=8"):
        view(lo=9, hi=8)
    with pytest.raises(PolicyError, match="lo must be at least 1"):
        view(lo=0)
    with pytest.raises(PolicyError, match="skew must be greater than 0"):
        view(skew=math.nan)
    for value in (0.0, *BAD):
        with pytest.raises(PolicyError, match="bound 'b': mean_s must be greater than 0"):
            Bound("b", ("v",), mean_s=value)
        with pytest.raises(PolicyError, match="interval_s must be greater than 0"):
            Observation(0.0, value)
    with pytest.raises(PolicyError, match="names each operator once"):
        Bound("b", ("v", "v"))
    with pytest.raises(PolicyError, match="measured p95 must be at least 0"):
        Observation(0.0, 5.0, latency={"b": (1.0, math.nan, 1.0, 1.0)})
    with pytest.raises(PolicyError, match="target_per_s must be at least 0"):
        Observation(0.0, 5.0, target_per_s={"v": -1.0})


@pytest.mark.parametrize(
    "given",
    [
        {"lifetime_s": math.nan},
        {"lifetime_s": math.inf},
        {"widths": {"v": math.inf}},
        {"lifetimes": {"a->b": math.nan}},
        {"row_cap": math.inf},
    ],
)
def test_no_nan_or_infinity_leaves_as_a_decision(given: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="must be a finite number"):
        Decision(**given)


# --- registry ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine() -> Iterator[str]:
    registry.register("mine", Static, thesis="ours", observes=(), decides=())
    yield "mine"
    registry.forget("mine")


def test_policies_of_thesis_001_are_registered_and_made_by_name() -> None:
    names = registry.names()
    assert {"batching", "immediate", "ship-when-full", "elastic", "chaining", "nephele"} <= set(names)
    assert list(names) == sorted(names)
    for name in names:
        entry = registry.entry_of(name)
        assert entry.thesis and callable(entry.factory)
    assert registry.make("elastic", pause_intervals=5).pause_intervals == 5  # type: ignore[attr-defined]


def test_wrong_names_and_parameters_are_refused_with_the_right_ones(mine: str) -> None:
    with pytest.raises(PolicyError, match="use one of elastic"):
        registry.make("elastics")
    with pytest.raises(
        PolicyError, match="policy 'elastic': got an unexpected keyword argument 'speed'.*pause_intervals"
    ):
        registry.make("elastic", speed=1)
    with pytest.raises(PolicyError, match="missing a required argument: 'pipelines'"):
        registry.make("chaining")
    with pytest.raises(PolicyError, match="the name is taken"):
        registry.register(mine, dict, thesis="ours", observes=(), decides=())
    assert isinstance(registry.make(mine), Static)


# --- limiter ----------------------------------------------------------------------------------------------------------


def seen(now_s: float, **given: Any) -> Observation:
    return Observation(now_s, 5.0, {"v": view("v", **given)})


def run(limiter: Limiter, wanted: list[int], width: int, step_s: float = 5.0, **given: Any) -> list[int]:
    widths = []
    for i, want in enumerate(wanted):
        width = limiter.admit(Decision({"v": want}), Decision({"v": width}), seen(i * step_s, **given)).widths["v"]
        widths.append(width)
    return widths


def test_limits_steps_and_factors() -> None:
    assert run(Limiter(), [99, 0], 8, lo=2, hi=16) == [16, 2]
    assert run(Limiter(max_step=3), [20, 20, 20, 1], 8) == [11, 14, 17, 14]
    assert run(Limiter(max_factor=2.0), [64, 64, 1, 1], 3) == [6, 12, 6, 3]
    assert run(Limiter(max_factor=1.1), [9, 9], 1) == [2, 3]  # at least one is always open
    assert run(Limiter(max_step=2), [9], 40, hi=16) == [9]  # outside its limits a width is mended at once


def test_cool_down_is_longer_before_a_decrease() -> None:
    limiter = Limiter(cool_down_s=10.0, cool_down_before_decrease_s=20.0)
    assert run(limiter, [9, 10, 11, 8, 8, 8, 8], 8) == [9, 9, 11, 11, 11, 11, 8]
    limiter.reset()
    assert run(limiter, [9], 8) == [9]


def test_hysteresis_drops_small_changes() -> None:
    assert run(Limiter(hysteresis=0.1), [52, 54, 55, 52], 50) == [50, 50, 55, 55]
    limiter = Limiter(hysteresis=0.1, longest_lifetime_s=2.0)
    held = Decision(lifetime_s=1.0, lifetimes={"a->b": 0.5})
    admitted = limiter.admit(Decision(lifetime_s=1.05, lifetimes={"a->b": 9.0, "b->c": 0.1}), held, seen(0.0))
    assert admitted.lifetime_s == 1.0 and admitted.lifetimes == {"a->b": 2.0, "b->c": 0.1}


def test_a_policy_behind_a_limiter_is_a_policy() -> None:
    bound = (Bound("fast", ("v",), mean_s=0.010),)
    policy = Limited(registry.make("elastic"), Limiter(max_step=1))
    observed = Observation(5.0, 5.0, {"v": view("v")}, bound)
    assert registry.make("elastic").decide(observed, Decision({"v": 8})).widths["v"] > 9
    assert policy.decide(observed, Decision({"v": 8})).widths == {"v": 9}
    policy.reset()
    assert policy.decide(None, Decision({"v": 3})).widths == {"v": 3}


def test_a_limiter_with_wrong_numbers_is_refused() -> None:
    for wrong in (
        {"max_step": 0},
        {"max_factor": 0.5},
        {"cool_down_s": -1.0},
        {"hysteresis": math.nan},
        {"longest_lifetime_s": math.inf},
        {"cool_down_s": 9.0, "cool_down_before_decrease_s": 3.0},
    ):
        with pytest.raises(PolicyError, match="limiter"):
            Limiter(**wrong)  # type: ignore[arg-type]


# --- the three techniques together -----------------------------------------------------------------------------------


def pipeline(**given: Any) -> Observation:
    views = {name: view(name, **given) for name in ("v", "u")}
    return Observation(5.0, 5.0, views, (Bound("fast", ("source", "v", "u"), mean_s=0.2),))


@pytest.mark.parametrize(("batching", "scaling", "chaining"), list(itertools.product([False, True], repeat=3)))
def test_acceptance_37_each_technique_can_be_switched_off(batching: bool, scaling: bool, chaining: bool) -> None:
    policy = Nephele(batching=batching, scaling=scaling, pipelines=[("v", "u")] if chaining else ())
    seen = pipeline(utilisation=0.2, interarrival_s=0.02)
    views = dict(seen.operators) | {"u": view("u", utilisation=0.3, interarrival_s=0.02)}
    seen = Observation(5.0, 5.0, views, seen.bounds)
    decided = policy.decide(seen, Decision({"v": 8, "u": 8}))
    assert bool(decided.lifetimes) == batching
    assert (decided.widths != {"v": 8, "u": 8}) == scaling
    assert bool(decided.chains) == chaining
    policy.reset()
    assert policy.predictions.models == ()


def test_a_standing_chain_is_scaled_as_one() -> None:
    policy = Nephele(batching=False, pipelines=[("v", "u")])
    views = {"v": view("v", utilisation=0.4, wait_s=0.05), "u": view("u", utilisation=0.2, interarrival_s=0.02)}
    seen = Observation(5.0, 5.0, views, (Bound("fast", ("source", "v", "u"), mean_s=0.08),))
    alone = Nephele(batching=False).decide(seen, Decision({"v": 8, "u": 8})).widths
    assert alone["v"] > alone["u"]
    together = policy.decide(seen, Decision({"v": 8, "u": 8}, chains=(("v", "u"),))).widths
    assert together == {"v": alone["v"], "u": alone["v"]}


def test_nothing_but_finite_numbers_is_ever_decided() -> None:
    random = np.random.default_rng(9)
    extremes = [0.0, 1e-300, 1e-6, 0.01, 1.0, 1e9, 1e300]
    for _ in range(300):
        views = {
            name: view(
                name,
                **{
                    key: float(random.choice(extremes))
                    for key in ("service_s", "interarrival_s", "arrival_cv", "service_cv", "wait_s", "batch_wait_s")
                },
                utilisation=float(random.choice([0.0, 0.3, 0.95, 1.4])),
            )
            for name in ("v", "u")
        }
        bound = Bound("fast", ("source", "v", "u"), mean_s=float(random.choice([1e-9, 0.01, 1.0, 1e6])))
        seen = Observation(5.0, 5.0, views, (bound,), micro_batch=bool(random.integers(2)), fixed_s=0.2)
        decided = Nephele(pipelines=[("v", "u")]).decide(seen, Decision({"v": 8, "u": 8}))  # Decision refuses others
        assert all(1 <= width <= 64 for width in decided.widths.values())
        assert all(lifetime >= 0.0 for lifetime in (decided.lifetime_s, *decided.lifetimes.values()))
