"""Every registered policy under made-up observations: decisions are whole, finite and within bounds, always."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies import registry
from penstock.errors import PolicyError
from tests.control.cases import view

# What a policy cannot be made without.
PARAMETERS: dict[str, dict[str, Any]] = {
    "clairvoyant": {"plan": [(0.0, {"a": 2}), (20.0, {"a": 5, "b": 3})]},
    "peak-load": {"peak_per_s": 1e4},
    "chaining": {"pipelines": [("a", "b")]},
    "nephele": {"pipelines": [("a", "b")]},
    "spar-throughput": {"target_per_s": 100.0},
    "spar-latency": {"constraint_s": 0.1},
    "mpr-mape": {"goal_per_s": 100.0},
    "mpr-mape-guarded": {"goal_per_s": 100.0},
}

_rates = st.one_of(st.just(0.0), st.floats(1e-6, 1e7))
_times = st.one_of(st.just(0.0), st.floats(1e-9, 1e4))
_spreads = st.floats(0.0, 20.0)


@st.composite
def views(draw: st.DrawFn, name: str, lo: int, hi: int) -> OperatorView:
    """Any view that the rules of `OperatorView` let in, contradictory ones included."""
    return OperatorView(
        name=name,
        width=draw(st.integers(lo, hi)),
        lo=lo,
        hi=hi,
        arrivals_per_s=draw(_rates),
        completed_per_s=draw(_rates),
        service_s=draw(_times),
        service_cv=draw(_spreads),
        interarrival_s=draw(_times),
        arrival_cv=draw(_spreads),
        wait_s=draw(_times),
        batch_wait_s=draw(_times),
        queue_items=draw(_rates),
        utilisation=draw(st.floats(0.0, 50.0)),
        skew=draw(st.floats(1.0, 64.0)),
        latency_s=draw(st.none() | _times),
    )


@st.composite
def runs(draw: st.DrawFn) -> list[Observation]:
    """A few intervals of one host; operators come and go, as they do when nothing was measured."""
    limit = draw(st.fixed_dictionaries({}, optional={k: st.floats(1e-4, 1e3) for k in ("mean_s", "p95_s", "p99_s")}))
    bounds = (Bound("fast", ("a", "b"), **limit),) if draw(st.booleans()) else ()
    micro_batch, now, seen = draw(st.booleans()), 0.0, []
    spans = {name: (lo := draw(st.integers(1, 2)), lo + draw(st.integers(1, 60))) for name in ("a", "b")}
    for _ in range(draw(st.integers(1, 5))):
        interval = draw(st.floats(1e-3, 600.0))
        now += interval
        names = draw(st.sampled_from((("a", "b"), ("a", "b"), ("a",), ())))
        operators = {name: draw(views(name, *spans[name])) for name in names}
        measured = {b.name: tuple(sorted(draw(st.tuples(*[_times] * 4)))) for b in bounds if draw(st.booleans())}
        seen.append(
            Observation(
                now, interval, operators, bounds, measured,  # type: ignore[arg-type]
                target_per_s={"a": draw(_rates)} if draw(st.booleans()) and "a" in operators else {},
                backlog_items=draw(_rates),
                fixed_s=draw(_times) if micro_batch else 0.0,
                micro_batch=micro_batch,
                parallelism=draw(st.integers(0, 64)),
            )
        )  # fmt: skip
    return seen


@settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(run=runs(), lifetimes=st.booleans())
def test_decisions_are_finite_whole_and_within_bounds(run: list[Observation], lifetimes: bool) -> None:
    for name in registry.names():
        means_only = "a bound with mean_s" in registry.entry_of(name).needs
        if not (means_only and any(bound.mean_s is None for bound in run[0].bounds)):
            follow(name, run, {"a->b": 0.01} if lifetimes else {})


def follow(name: str, run: list[Observation], lifetimes: dict[str, float]) -> None:
    """Let a policy decide interval by interval, and check every decision."""
    policy = registry.make(name, **PARAMETERS.get(name, {}))
    current = policy.decide(None, Decision({"a": 2, "b": 2}, lifetimes=lifetimes))
    for seen in run:
        decided = policy.decide(seen, current)
        for operator, width in decided.widths.items():
            assert float(width).is_integer(), (name, operator, width)
            view = seen.operators.get(operator)
            moved = width != current.widths.get(operator)
            if view is not None and moved and name != "clairvoyant":  # a plan is followed as given; the host cuts it
                assert view.lo <= width <= view.hi, (name, operator, width)
        numbers = [decided.lifetime_s, *decided.lifetimes.values(), *decided.widths.values()]
        assert all(math.isfinite(x) and x >= 0.0 for x in numbers), (name, decided)
        current = decided


def test_a_bound_that_a_policy_cannot_work_with_is_refused_with_the_rule() -> None:
    seen = Observation(5.0, 5.0, {"a": view("a"), "b": view("b")}, (Bound("fast", ("a", "b"), p95_s=0.1),))
    for name in ("batching", "elastic", "nephele"):
        with pytest.raises(PolicyError, match="bound 'fast'"):
            registry.make(name, **PARAMETERS.get(name, {})).decide(seen, Decision({"a": 2, "b": 2}))


def test_every_policy_says_what_it_is() -> None:
    for name in registry.names():
        entry = registry.entry_of(name)
        assert entry.thesis, name
        made = registry.make(name, **PARAMETERS.get(name, {}))
        known = set(OperatorView.__dataclass_fields__) | set(Observation.__dataclass_fields__)
        told = set(entry.observes)
        assert told <= known or any(" " in word for word in told), (name, told - known)
        assert set(entry.decides) <= set(Decision.__dataclass_fields__), name
        assert type(made).__doc__, name
