"""The micro-batch host against an item-level replay of its rules, and `Adaptive` deciding lifetime and widths."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.decision import Decision, Static
from penstock.control.models.batch_service import BatchService
from penstock.control.observation import Bound
from penstock.control.policies.adaptive import Adaptive
from penstock.engine.sim.batch import BatchHost
from penstock.engine.sim.checks import SimulationError
from penstock.engine.sim.loads import Load, shape, steps
from penstock.engine.sim.loop import run
from penstock.engine.sim.measures import measure
from penstock.engine.sim.spec import Operator

BOUND = Bound("fast", ("score",), mean_s=1.5, over_s=1.0)


def flat(rate: float, seconds: float = 120.0) -> Load:
    return Load("flat", seconds, lambda t: np.full_like(t, rate))


def item_by_item(rate: float, fixed_s: float, row_s: float, lifetime_s: float, seconds: float, seed: int) -> np.ndarray:
    """Latencies of single rows: the same cuts, written as a loop over batches with every row's own arrival time."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, int(1.3 * rate * seconds)))
    latencies, cut, taken = [], 0.0, 0
    while cut < seconds:
        until = int(np.searchsorted(arrivals, cut, side="right"))
        done = cut + fixed_s + (until - taken) * row_s
        latencies += [done - at for at in arrivals[taken:until]]
        taken, cut = until, max(done, cut + lifetime_s)
    return np.array(latencies)


@pytest.mark.parametrize(("lifetime_s", "row_s"), [(0.0, 0.0004), (0.5, 0.0004), (2.0, 0.0002), (0.3, 0.0008)])
def test_within_2_percent_of_item_level_and_of_the_model(lifetime_s: float, row_s: float) -> None:
    rate, fixed_s, seconds = 1000.0, 0.15, 200.0
    host = BatchHost(
        [Operator("score", row_s)], flat(rate, seconds), fixed_s=fixed_s, seed=1, bounds=(BOUND,), noise=0.0
    )
    rows = latency = slow = 0.0
    while not host.finished:
        before = host.left
        seen = host.advance(Decision({"score": 1}, lifetime_s=lifetime_s))
        if "fast" in seen.latency and seen.now_s > 10.0:
            count = host.left - before
            rows, latency = rows + count, latency + count * seen.latency["fast"][0]
            slow += count * seen.latency["fast"][1]
    host.check()
    single = item_by_item(rate, fixed_s, row_s, lifetime_s, seconds, seed=2)[int(10 * rate) :]
    assert latency / rows == pytest.approx(float(single.mean()), rel=0.02)
    assert slow / rows == pytest.approx(float(np.quantile(single, 0.95)), rel=0.02)
    model = BatchService(fixed_s, row_s, rate)
    assert latency / rows == pytest.approx(model.mean_s(lifetime_s), rel=0.02)


def test_stages_run_one_after_another_and_a_hot_key_stays_on_one_task() -> None:
    load = Load("hot", 60.0, lambda t: np.full_like(t, 1000.0), hot=lambda t: np.full_like(t, 0.25))
    operators = [Operator("a", 0.0002, width=4, hi=4), Operator("b", 0.0004, width=4, hi=4)]
    host = BatchHost(operators, load, fixed_s=0.1, seed=1, bounds=(), noise=0.0)
    host.advance(Decision({"a": 4, "b": 4}, lifetime_s=2.0))
    seen = host.advance(Decision({"a": 4, "b": 2}, lifetime_s=0.0))
    rows = host.left
    # shares of the busiest task: 1/4 + 3/4 / 4 of the rows on 4 tasks, 1/4 + 3/4 / 2 on 2
    assert seen.interval_s == pytest.approx(0.1 + rows * (0.0002 * 0.4375 + 0.0004 * 0.625), rel=1e-9)
    assert seen.operators["b"].skew == pytest.approx(1.25)
    assert seen.operators["a"].service_s == pytest.approx(0.0002, rel=1e-9)


def test_a_row_cap_leaves_the_rest_waiting_and_loses_nothing() -> None:
    host = BatchHost([Operator("score", 0.0001)], flat(1000.0, 30.0), fixed_s=0.1, seed=1, bounds=(BOUND,), noise=0.0)
    backlog = 0.0
    while not host.finished:
        before = host.left
        backlog = host.advance(Decision({"score": 1}, lifetime_s=1.0, row_cap=800)).backlog_items
        assert host.left - before <= 800
    assert backlog > 4000  # 200 rows more arrive than are taken, each second
    host.check()
    host.spent += 1.0
    with pytest.raises(SimulationError, match="times inside add up"):
        host.check()
    host.spent -= 1.0
    host.left -= 1
    with pytest.raises(SimulationError, match="items came"):
        host.check()


def test_the_same_seed_gives_the_same_run() -> None:
    def latencies(seed: int) -> list[float]:
        host = BatchHost([Operator("score", 0.0004)], flat(900.0, 20.0), fixed_s=0.1, seed=seed, bounds=(BOUND,))
        return [i.latency["fast"][0] for i in run(host, Static()).intervals if i.latency]

    assert latencies(4) == latencies(4) != latencies(5)


# --- Adaptive on it ---------------------------------------------------------------------------------------------------


def adaptive(load: Load, bound: Bound, *operators: Operator, fixed_s: float = 0.2, slots: int = 16) -> tuple:
    host = BatchHost(operators, load, fixed_s=fixed_s, seed=3, bounds=(bound,), parallelism=slots)
    policy = Adaptive()
    return run(host, policy), policy


def test_the_cheapest_plan_is_found_on_a_steady_load() -> None:
    """The least width by the model, and a cycle that spends most of the bound."""
    trace, policy = adaptive(flat(3000.0, 240.0), BOUND, Operator("score", 0.001, width=1, hi=16))
    late = [i for i in trace.intervals if i.begin_s > 60.0]
    assert {i.widths["score"] for i in late} <= {4, 5}  # load 3: 3 tasks would be busy all the time
    met = [i.met["fast"] for i in late]
    assert np.mean(met) >= 0.99
    assert np.mean([i.latency["fast"][0] for i in late]) > 0.75 * 1.5
    assert policy.batches.outlook is not None
    assert policy.batches.outlook.feasible


@pytest.mark.parametrize("limit", [{"mean_s": 1.5}, {"p95_s": 2.5}, {"p99_s": 3.0}])
def test_bounds_of_every_kind_hold_while_the_load_changes(limit: dict[str, float]) -> None:
    load = Load("steps", 400.0, steps([(0.0, 800.0), (120.0, 3200.0), (260.0, 1200.0)]))
    trace, _ = adaptive(load, Bound("fast", ("score",), over_s=1.0, **limit), Operator("score", 0.001, width=2, hi=16))
    row = measure(trace, scenario="steps", policy="adaptive", seed=3)
    assert row.fulfilled is not None
    assert row.fulfilled >= 0.95
    widths = {at: i.widths["score"] for i in trace.intervals for at in (115, 250, 395) if i.begin_s <= at < i.end_s}
    assert widths[115] <= 3
    assert 4 <= widths[250] <= 8
    assert widths[395] < widths[250]


def test_the_operator_where_it_helps_most_is_widened() -> None:
    trace, _ = adaptive(
        flat(2000.0, 120.0), BOUND, Operator("light", 0.00005, width=1, hi=16), Operator("heavy", 0.001, width=1, hi=16)
    )
    last = trace.intervals[-1].widths
    assert last["light"] == 1
    assert last["heavy"] >= 3


def test_no_more_tasks_than_slots_and_an_infeasible_bound_is_said_to_be_one() -> None:
    tight = Bound("fast", ("score",), mean_s=0.25)  # below 1.5 F = 0.3 s
    trace, policy = adaptive(flat(1500.0, 60.0), tight, Operator("score", 0.001, width=1, hi=64), slots=4)
    assert policy.batches.outlook is not None
    assert not policy.batches.outlook.feasible
    assert max(i.widths["score"] for i in trace.intervals) == 4
    assert trace.intervals[-1].end_s - trace.intervals[-1].begin_s < 0.6  # no lifetime is added on top


def test_it_beats_a_fixed_trigger_on_the_shapes_at_less_cost() -> None:
    """Against the width and trigger that a careful user would set for the peak: as good or better, for less."""
    for name in ("sine",):
        load = shape(name, 1, base=1000.0)
        trace, _ = adaptive(load, BOUND, Operator("score", 0.001, width=2, hi=16))
        peak = int(np.ceil(load.peak() * 0.001 / 0.7))
        host = BatchHost(
            [Operator("score", 0.001, width=peak, hi=16)], load, fixed_s=0.2, seed=3, bounds=(BOUND,), parallelism=16
        )
        fixed = run(host, _Fixed(Decision({"score": peak}, lifetime_s=1.0)))
        ours, theirs = (measure(t, scenario=name, policy="x", seed=3) for t in (trace, fixed))
        assert ours.fulfilled is not None
        assert theirs.fulfilled is not None
        assert ours.fulfilled >= 0.97
        assert ours.fulfilled >= theirs.fulfilled - 0.02
        assert (ours.worker_hours or 0.0) < 0.8 * (theirs.worker_hours or 0.0)


class _Fixed:
    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def decide(self, observed: object, current: Decision) -> Decision:
        return self.decision
