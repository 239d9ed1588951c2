"""When `Adaptive` chains farms on a micro-batch host, and when it keeps them apart."""

from __future__ import annotations

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive import Adaptive

FIXED_S, EXCHANGE_S, LIFETIME_S = 0.2, 0.02, 0.4


def farm(name: str, hi: int, service_s: float, rate: float, width: int) -> OperatorView:
    return OperatorView(
        name, width, 1, hi, arrivals_per_s=rate, completed_per_s=rate, service_s=service_s, service_cv=0.5,
        interarrival_s=1.0 / rate, arrival_cv=1.0, wait_s=0.0, batch_wait_s=0.0, queue_items=0.0, utilisation=0.1,
    )  # fmt: skip


def decisions(
    policy: Adaptive, most: dict[str, int], service_s: dict[str, float], rate: float, bound_s: float, batches: int = 30
) -> list[Decision]:
    """What is decided batch after batch on a host whose batches take what the model of the design says."""
    now, current, found = 0.0, Decision(dict.fromkeys(most, 1)), []
    for _ in range(batches):
        views = {n: farm(n, most[n], service_s[n], rate, current.widths[n]) for n in most}
        chained = sum(len(chain) - 1 for chain in current.chains)
        fixed = FIXED_S + EXCHANGE_S * (len(most) - 1 - chained)
        cycle = max(current.lifetime_s, LIFETIME_S)
        work = fixed + sum(rate * cycle * service_s[n] / current.widths[n] for n in most)
        mean = cycle / 2 + work
        now += max(cycle, work)
        seen = Observation(
            now, cycle, views, (Bound("fast", tuple(most), mean_s=bound_s),), {"fast": (mean, mean, mean, mean)},
            fixed_s=fixed, task_s=0.002, micro_batch=True, parallelism=16, backlog_items=rate * cycle,
            pipelines=(tuple(most),),
        )  # fmt: skip
        current = policy.decide(seen, current)
        found.append(current)
    return found


def test_farms_that_may_be_alike_wide_are_chained_and_have_one_width() -> None:
    last = decisions(Adaptive(), {"a": 8, "b": 8}, {"a": 0.0004, "b": 0.0002}, rate=1000.0, bound_s=0.8)[-1]
    assert last.chains == (("a", "b"),)
    assert last.widths["a"] == last.widths["b"]


def test_a_farm_that_may_not_be_wide_is_left_alone_only_where_the_other_must_be() -> None:
    most, service = {"a": 2, "b": 12}, {"a": 0.0001, "b": 0.002}
    quiet = decisions(Adaptive(), most, service, rate=200.0, bound_s=0.8)[-1]
    assert quiet.chains == (("a", "b"),), "two tasks of both are enough"
    busy = decisions(Adaptive(), most, service, rate=2000.0, bound_s=0.8)[-1]
    assert busy.chains == ()
    assert busy.widths["a"] <= 2 < busy.widths["b"]


def test_apart_costs_an_exchange_so_a_bound_may_hold_only_in_a_chain() -> None:
    """F + X leaves no room under the bound, F does."""
    last = decisions(Adaptive(), {"a": 2, "b": 12}, {"a": 0.0, "b": 0.0}, rate=10.0, bound_s=0.34)[-1]
    assert last.chains == (("a", "b"),)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("scaling", [True, False])
@pytest.mark.parametrize("routing", [True, False])
@pytest.mark.parametrize("chaining", [True, False])
def test_every_technique_can_be_switched_off(batching: bool, scaling: bool, routing: bool, chaining: bool) -> None:
    policy = Adaptive(batching=batching, scaling=scaling, routing=routing, chaining=chaining)
    last = decisions(policy, {"a": 8, "b": 8}, {"a": 0.002, "b": 0.001}, rate=1000.0, bound_s=0.9)[-1]
    assert last.chains == ((("a", "b"),) if chaining else ())
    assert (last.widths["a"] > 1) == scaling
    assert (last.lifetime_s > 0.0) == (batching and scaling), "too narrow, there is no time to wait"


def test_chains_do_not_flap() -> None:
    made = decisions(Adaptive(), {"a": 2, "b": 12}, {"a": 0.0001, "b": 0.002}, rate=700.0, bound_s=0.8, batches=60)
    changes = sum(one.chains != other.chains for one, other in zip(made[1:], made, strict=False))
    assert changes <= 4
