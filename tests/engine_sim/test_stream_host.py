"""The fast continuous host against theory and against the item-level simulator: waits, batches, chains, widths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation
from penstock.engine.sim.checks import check_run
from penstock.engine.sim.items import Run, Stage, run_items
from penstock.engine.sim.loads import Load
from penstock.engine.sim.spec import SOURCE, Machine, Operator
from penstock.engine.sim.stream import StreamHost

SERVICE_S = 0.01


def flat(rate: float, seconds: float) -> Load:
    return Load("flat", seconds, lambda t: np.full_like(t, rate))


def observed(host: StreamHost, decision: Decision | None = None) -> list[Observation]:
    """Every interval of a run under one decision; the books are checked."""
    decision = decision or host.start()
    seen = []
    while not host.finished:
        seen.append(host.advance(decision))
    host.check()
    return seen


def mean_of(seen: Sequence[Observation], operator: str, what: str) -> float:
    views = [s.operators[operator] for s in seen]
    return float(np.average([getattr(v, what) for v in views], weights=[v.completed_per_s for v in views]))


def latency_of(seen: Sequence[Observation], bound: str) -> float:
    return float(np.mean([s.latency[bound][0] for s in seen]))


@pytest.mark.parametrize("utilisation", [0.5, 0.8])
@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 1.5])
def test_the_mean_wait_is_pollaczeks_and_khinchines(cv: float, utilisation: float) -> None:
    """W = rho / (1 - rho) (1 + cv^2) / 2 s, here with 20 subtasks (cv 1: M/M/1, 0: M/D/1, else M/G/1)."""
    rate = 20 * utilisation / SERVICE_S
    host = StreamHost([Operator("a", SERVICE_S, cv, width=20, hi=20)], flat(rate, 600.0), seed=3)
    theory = utilisation / (1 - utilisation) * (1 + cv * cv) / 2 * SERVICE_S
    assert mean_of(observed(host), "a", "wait_s") == pytest.approx(theory, rel=0.05)


def both(
    operators: Sequence[Operator], rate: float, items: int, *, sources: int = 1, seed: int = 5, seconds: float = 400.0
) -> tuple[list[Observation], Run]:
    """The same pipeline in both simulators: Poisson items, each given to a subtask at random."""
    path = (SOURCE, *(o.name for o in operators))
    host = StreamHost(
        operators, flat(rate, seconds), seed=seed, bounds=(Bound("all", path),), machine=Machine(sources=sources)
    )
    stages = tuple(
        Stage(
            o.name, o.width, o.service_s, o.service_cv, weights=(1.0,) * o.width, lifetime_s=o.lifetime_s,
            buffer_items=o.buffer_items, ship_s=o.ship_s,
        )
        for o in operators
    )  # fmt: skip
    born = np.cumsum(np.random.default_rng([seed, 1]).exponential(1.0 / rate, items))
    run = run_items(stages, born, seed=seed, sources=sources, in_turn=False, until=float(born[-1]))
    check_run(run)
    return observed(host), run


CASES = {
    "one operator": ([Operator("a", 0.01, 1.0, width=5, hi=5)], 250.0, 60_000, 1),
    "two in a row": (
        [Operator("a", 0.01, 0.5, width=5, hi=5), Operator("b", 0.008, 0.5, width=4, hi=4, inputs=("a",))],
        300.0, 50_000, 1,
    ),
    "batches by lifetime": (
        [Operator("a", 0.001, 0.5, width=4, hi=4, lifetime_s=0.02, ship_s=0.002)], 2000.0, 60_000, 4,
    ),
    "batches by lifetime or buffer": (
        [Operator("a", 0.001, 0.5, width=4, hi=4, lifetime_s=0.05, ship_s=0.002, buffer_items=5)], 2000.0, 60_000, 4,
    ),
    "full buffers": (
        [Operator("a", 0.001, 0.5, width=4, hi=4, lifetime_s=10.0, ship_s=0.002, buffer_items=8)], 2000.0, 50_000, 4,
    ),
}  # fmt: skip


@cache
def done(case: str) -> tuple[list[Observation], Run]:
    operators, rate, items, sources = CASES[case]
    return both(operators, rate, items, sources=sources, seconds=400.0 if rate < 1000.0 else 60.0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_agrees_with_the_item_level_simulator_within_two_percent(case: str) -> None:
    """Latency, service time, batch delay and throughput; the waits alone scatter more in runs so short."""
    operators = CASES[case][0]
    seen, run = done(case)
    assert latency_of(seen, "all") == pytest.approx(float(run.latencies().mean()), rel=0.02)
    for k, operator in enumerate(operators):
        slow = run.measured(k)
        assert mean_of(seen, operator.name, "service_s") == pytest.approx(slow.service_s, rel=0.02)
        assert mean_of(seen, operator.name, "batch_wait_s") == pytest.approx(slow.batch_wait_s, rel=0.02, abs=1e-9)
        assert mean_of(seen, operator.name, "completed_per_s") == pytest.approx(slow.completed_per_s, rel=0.02)
        assert mean_of(seen, operator.name, "utilisation") == pytest.approx(slow.utilisation, rel=0.02)


def test_the_tail_of_the_latency_agrees_too() -> None:
    seen, run = done("batches by lifetime")
    tail = float(np.quantile(run.latencies(), 0.95))
    assert np.mean([s.latency["all"][1] for s in seen]) == pytest.approx(tail, rel=0.05)


def test_a_hot_subtask_waits_by_its_own_load() -> None:
    """A key with 20 % of the items on one of 5 subtasks: 36 % of the items there, 16 % on each other one."""
    load = replace(flat(200.0, 2000.0), hot=lambda t: np.full_like(t, 0.2))
    seen = observed(StreamHost([Operator("a", 0.01, 0.5, width=5, hi=5)], load, seed=2))

    def theory(share: float) -> float:
        busy = share * 200.0 * 0.01
        return busy / (1 - busy) * (1 + 0.25) / 2 * 0.01

    expected = 0.36 * theory(0.36) + 0.64 * theory(0.16)
    assert mean_of(seen, "a", "wait_s") == pytest.approx(expected, rel=0.03)
    assert seen[-1].operators["a"].skew == pytest.approx(5 * 0.36)


def test_drawing_some_subtasks_only_changes_nothing_but_the_scatter() -> None:
    """160 subtasks at 75 %, all of them or a quarter drawn, and a light one of which a part of each slot is drawn."""
    operators = [
        Operator("a", 0.002, 1.0, width=160, hi=160, lifetime_s=0.02),
        Operator("light", 0.0001, 0.5, width=20, hi=20, inputs=("a",), lifetime_s=0.02),
    ]
    waits = {}
    for most in (100_000, 4_000):
        bounds = (Bound("all", (SOURCE, "a", "light")),)
        host = StreamHost(
            operators, flat(60_000.0, 60.0), seed=1, machine=Machine(sources=8), most_customers=most, bounds=bounds
        )
        waits[most] = latency_of(observed(host), "all")
        assert host.nodes["a"].servers.all_drawn == (most == 100_000)
    assert waits[4_000] == pytest.approx(waits[100_000], rel=0.02)


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[float]:
        host = StreamHost(
            [Operator("a", 0.01, width=4, hi=4, lifetime_s=0.01)], flat(200.0, 30.0), seed=seed,
            bounds=(Bound("all", (SOURCE, "a")),),
        )  # fmt: skip
        return [s.latency["all"][0] for s in observed(host)]

    assert run(1) == run(1) != run(2)


def test_widths_change_as_slowly_as_the_machine_does() -> None:
    """New subtasks work after `scale_up_s`; removed ones leave one at a time; nothing is lost (checked in `check`)."""
    machine = Machine(scale_up_s=7.0, scale_down_s=2.0)
    host = StreamHost([Operator("a", 0.01, width=4, hi=8)], flat(150.0, 100.0), seed=1, machine=machine)
    widths = []
    for wanted in [8, 8, 8, 4, 4, 4]:
        host.advance(Decision({"a": wanted}))
        widths.append(host.widths()["a"])
    host.check()
    assert widths == [4, 8, 8, 6, 4, 4]
    assert host.paid()["a"] == pytest.approx(4 * 5.0)


def test_ordered_subtasks_are_paid_for_before_they_work_and_removed_ones_until_they_are_empty() -> None:
    machine = Machine(scale_up_s=5.0)
    host = StreamHost([Operator("a", 0.01, 0.0, width=4, hi=8)], flat(1000.0, 60.0), seed=1, machine=machine)
    host.advance(Decision({"a": 8}))
    assert host.paid()["a"] == pytest.approx(8 * 5.0)
    for _ in range(4):
        host.advance(Decision({"a": 8}))
    host.advance(Decision({"a": 4}))  # all 8 were busy for longer than an interval: the removed ones drain
    assert host.paid()["a"] > 4 * 5.0
    host.check()


def test_a_chain_has_one_queue_and_saves_the_handing_over() -> None:
    """Chained operators show the sum of their costs; the hand-over between them is gone (001, section 4.7.2)."""
    operators = [
        Operator("a", 0.004, 0.5, width=2, hi=2, one_to_one=True),
        Operator("b", 0.003, 0.5, width=2, hi=2, inputs=("a",), handover_s=0.002, one_to_one=True),
    ]
    bounds = (Bound("all", (SOURCE, "a", "b")),)
    plain = observed(StreamHost(operators, flat(200.0, 300.0), seed=1, bounds=bounds))
    host = StreamHost(operators, flat(200.0, 300.0), seed=1, bounds=bounds)
    chained = observed(host, Decision({"a": 2, "b": 2}, chains=(("a", "b"),)))
    busy = [sum(v.completed_per_s * v.service_s for v in s.operators.values()) for s in (plain[-1], chained[-1])]
    assert busy[0] == pytest.approx(200.0 * 0.009, rel=0.06)
    assert busy[1] == pytest.approx(200.0 * 0.007, rel=0.06)
    single = observed(StreamHost([Operator("ab", 0.007, 0.36, width=2, hi=2)], flat(200.0, 300.0), seed=1))
    assert mean_of(chained, "a", "wait_s") == pytest.approx(mean_of(single, "ab", "wait_s"), rel=0.15)
    assert mean_of(chained, "b", "wait_s") == 0.0


def test_a_windowed_operator_emits_once_per_window_whatever_comes_in() -> None:
    operators = [
        Operator("topics", 0.0001, width=3, hi=3, window_s=0.2),
        Operator("merger", 0.0001, inputs=("topics",)),
    ]
    for rate in (100.0, 1000.0):
        host = StreamHost(operators, flat(rate, 100.0), seed=1, bounds=(Bound("all", (SOURCE, "topics")),))
        seen = observed(host)
        assert mean_of(seen, "merger", "completed_per_s") == pytest.approx(3 / 0.2, rel=0.05)
        assert latency_of(seen, "all") == pytest.approx(0.1, rel=0.02)  # half a window, 001 section 4.1
