"""Which operators `Adaptive` fuses: thesis 001's rule, asked about what the host can fuse and a bound is set on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive import Adaptive
from penstock.control.policies.chaining_chains import partition
from penstock.engine.sim.spec import Operator
from penstock.engine.sim.stream import pipelines
from tests.control.cases import view

NAMES = ("a", "b", "c", "d")
BOUND = Bound("fast", ("source", *NAMES, "sink"), mean_s=0.1)


def fixed(name: str, utilisation: float, width: int = 4) -> OperatorView:
    return view(name, width=width, lo=width, hi=width, utilisation=utilisation, arrivals_per_s=100.0, service_s=0.001)


def seen(loads: tuple[float, ...], bound: Bound = BOUND, now_s: float = 5.0) -> Observation:
    views = [fixed(name, load) for name, load in zip(NAMES, loads, strict=True)]
    views.append(view("sink", width=1, lo=1, hi=1, service_s=0.0001, arrivals_per_s=100.0))
    latency = {bound.name: (0.02, 0.05, 0.06, 0.1)}
    return Observation(now_s, 5.0, {v.name: v for v in views}, (bound,), latency, pipelines=(NAMES,))


def chains(observed: Observation, **given: bool) -> tuple[tuple[str, ...], ...]:
    return Adaptive(**given).decide(observed, Decision(dict.fromkeys(NAMES, 4))).chains


@pytest.mark.parametrize(
    "loads", [(0.2, 0.1, 0.1, 0.3), (0.8, 0.3, 0.2, 0.6), (0.5, 0.1, 0.1, 0.5), (0.95, 0.1, 0.1, 0.1)]
)
def test_the_chains_are_those_of_thesis_001(loads: tuple[float, ...]) -> None:
    expected = partition(NAMES, dict(zip(NAMES, loads, strict=True)))
    assert chains(seen(loads)) == tuple(chain for chain in expected if len(chain) > 1)


def test_nothing_is_fused_that_has_no_bound_or_can_be_scaled_or_that_the_host_cannot_fuse() -> None:
    loads = (0.2, 0.1, 0.15, 0.3)
    assert chains(seen(loads)) == (NAMES,)
    assert chains(seen(loads), chaining=False) == ()
    assert chains(replace(seen(loads), pipelines=())) == ()
    assert chains(seen(loads, Bound("fast", ("a", "b"), mean_s=0.1))) == (("a", "b"),)
    elastic = seen(loads)
    views = {**elastic.operators, "b": replace(elastic.operators["b"], hi=8)}
    assert chains(replace(elastic, operators=views)) == (("c", "d"),)


def test_a_chain_that_becomes_too_busy_is_split_at_once_and_fused_again_only_after_a_while() -> None:
    policy, decision, found = Adaptive(), Decision(dict.fromkeys(NAMES, 4)), []
    light, heavy = (0.2, 0.1, 0.15, 0.3), (0.5, 0.2, 0.3, 0.6)
    for i, loads in enumerate([light] * 4 + [heavy] + [light] * 6):
        decision = policy.decide(seen(loads, now_s=5.0 * (i + 1)), decision)
        found.append(NAMES in decision.chains)
    assert found[:5] == [True] * 4 + [False]
    assert not any(found[5:7])
    assert found[-1]


def test_streams_inside_a_chain_take_nothing_of_the_budget_for_batches() -> None:
    streams = {f"{a}->{b}": 0.01 for a, b in zip(("source", *NAMES), (*NAMES, "sink"), strict=True)}
    start = Decision(dict.fromkeys(NAMES, 4), lifetimes=streams)
    found = {on: Adaptive(chaining=on).decide(seen((0.2, 0.1, 0.15, 0.3)), start).lifetimes for on in (True, False)}
    inside = {"a->b", "b->c", "c->d"}
    assert {s: found[True][s] for s in inside} == dict.fromkeys(inside, 0.01)  # left alone: nothing is batched there
    for stream in ("source->a", "d->sink"):
        assert found[True][stream] == pytest.approx(found[False][stream] * 5 / 2)


def test_a_host_says_what_it_can_fuse() -> None:
    def step(name: str, *inputs: str, one_to_one: bool = True) -> Operator:
        return Operator(name, 0.01, inputs=inputs, one_to_one=one_to_one)

    line = [step("a", "source"), step("b", "a"), step("c", "b")]
    assert pipelines(line) == (("a", "b", "c"),)
    assert pipelines([*line, step("d", "c", one_to_one=False), step("e", "d")]) == (("a", "b", "c"), ("d", "e"))
    assert pipelines([*line, step("side", "a")]) == (("b", "c"),)  # two streams leave a
    assert pipelines([*line, step("other", "source"), step("join", "c", "other")]) == (("a", "b", "c"),)
