"""Output batching of thesis 001: the shipping mechanism, Algorithms 1-3, and how lifetimes converge."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from penstock.control.decision import Decision
from penstock.control.models.constraints import Constraint, between
from penstock.control.models.graph import TemplateGraph, all_to_all
from penstock.control.observation import Bound, Observation
from penstock.control.policies.batching import AdaptiveBatching
from penstock.control.policies.batching_baselines import FOREVER_S, ImmediateShipping, ShipWhenFull
from penstock.control.policies.batching_channel import OutputChannel, Shipped
from penstock.control.policies.batching_lifetimes import (
    adjust_lifetimes,
    adjusted,
    lowest,
    positions,
    target_delay,
)
from penstock.errors import PolicyError
from tests.control.cases import view
from tests.control.runtime_sequences import is_channel, random_path, runtime_sequences

# --- the mechanism ----------------------------------------------------------------------------------------------------


def played(channel: OutputChannel[int], arrivals: list[float], sizes: list[float]) -> list[Shipped[int]]:
    """All batches of these arrivals, the flush thread firing at each deadline."""
    out: list[Shipped[int]] = []
    for number, (now, size) in enumerate(zip(arrivals, sizes, strict=True)):
        while channel.deadline is not None and channel.deadline <= now:
            due = channel.flush(channel.deadline)
            assert due is not None
            out.append(due)
        shipped = channel.ship(number, size=size, now=now)
        if shipped is not None:
            out.append(shipped)
    last = channel.close(channel.deadline if channel.deadline is not None else arrivals[-1])
    return [*out, last] if last is not None else out


def test_acceptance_8_lifetime_0_ships_every_item_by_itself() -> None:
    batches = played(OutputChannel(), [0.0, 0.0, 1.0], [10.0] * 3)
    assert [[item for item, _ in batch.items] for batch in batches] == [[0], [1], [2]]
    assert all(batch.mean_delay == 0.0 for batch in batches)


def test_acceptance_8_nobody_waits_longer_than_the_lifetime_and_full_ships_early() -> None:
    random = np.random.default_rng(8)
    reasons = set()
    for lifetime in (0.5, 3.0, 20.0):
        arrivals = np.cumsum(random.exponential(1.0, 500)).tolist()
        sizes = random.uniform(1, 40, 500).tolist()
        batches = played(OutputChannel(lifetime=lifetime, buffer=100), arrivals, sizes)
        for batch in batches:
            assert max(batch.at - entered for _, entered in batch.items) <= lifetime + 1e-9
            if batch.reason == "deadline":
                assert batch.at - batch.items[0][1] == pytest.approx(lifetime)
            held = [sizes[item] for item, _ in batch.items]
            assert sum(held[:-1]) < 100 and (sum(held) >= 100) == (batch.reason == "full")
            reasons.add(batch.reason)
    assert {"full", "deadline"} <= reasons


def test_acceptance_9_fifo_without_loss_or_duplicates_under_changing_lifetimes_and_full_buffers() -> None:
    random = np.random.default_rng(9)
    channel: OutputChannel[int] = OutputChannel(lifetime=2.0, buffer=60)
    now, left = 0.0, []
    for number in range(3000):
        now += float(random.exponential(0.4))
        if random.random() < 0.1:
            channel.lifetime = float(random.choice([0.0, 0.5, 2.0, 9.0]))
        if channel.deadline is not None and channel.deadline <= now:
            left.append(channel.flush(channel.deadline))
        left.append(channel.ship(number, size=float(random.uniform(1, 70)), now=now))
    left.append(channel.close(now))
    batches = [batch for batch in left if batch is not None]
    assert [item for batch in batches for item, _ in batch.items] == list(range(3000))
    assert all(a.at <= b.at for a, b in pairwise(batches))


def test_a_changed_lifetime_acts_on_the_next_batch() -> None:
    channel: OutputChannel[str] = OutputChannel(lifetime=10.0)
    channel.ship("a", size=1, now=0.0)
    channel.lifetime = 0.0
    assert channel.deadline == 10.0 and channel.ship("b", size=1, now=5.0) is None
    due = channel.flush(10.0)
    assert due is not None and len(due.items) == 2
    assert channel.ship("c", size=1, now=11.0) is not None


# --- Algorithms 1 to 3 ------------------------------------------------------------------------------------------------

TABLE = {  # digest, section 4.4: dsl, usl, target
    ("src", "a"): (6, 0, 11.733),
    ("src", "b"): (9, 0, 10.933),
    ("a", "c"): (1, 2, 12.533),
    ("a", "d"): (4, 2, 11.733),
    ("b", "c"): (1, 5, 11.733),
    ("b", "d"): (4, 5, 10.933),
    ("c", "snk"): (0, 6, 11.733),
    ("d", "snk"): (0, 9, 10.933),
}
LETTERS = {("v1", 1): "a", ("v1", 2): "b", ("v2", 1): "c", ("v2", 2): "d", ("src", 1): "src", ("snk", 1): "snk"}
GRAPH = TemplateGraph(
    {"src": 1, "v1": 2, "v2": 2, "snk": 1},
    dict.fromkeys([("src", "v1"), ("v1", "v2"), ("v2", "snk")], all_to_all),
).runtime()
LATENCY = {("v1", 1): 2.0, ("v1", 2): 5.0, ("v2", 1): 1.0, ("v2", 2): 4.0}
WHOLE = between("c", ("src", "v1", "v2", "snk"), 50.0)


def test_acceptance_10_the_table() -> None:
    found = {}
    for (sender, receiver), at in positions(GRAPH, WHOLE, LATENCY).items():
        target = target_delay(50.0, at.others, 3, 0.8)
        found[LETTERS[sender], LETTERS[receiver]] = (at.downstream, at.upstream, round(target, 3))
    assert found == TABLE
    asked = adjust_lifetimes(GRAPH, WHOLE, latency=LATENCY, delay=dict.fromkeys(GRAPH.channels, 0.0), lifetimes={})
    assert {(LETTERS[a], LETTERS[b]): round(value, 3) for (a, b), value in asked.items()} == {
        edge: target for edge, (_, _, target) in TABLE.items()
    }


def test_acceptance_10_sequences_that_begin_or_end_with_a_task() -> None:
    inner = Constraint("c", ("v1", ("v1", "v2"), "v2"), 50.0)
    at = positions(GRAPH, inner, LATENCY)
    assert at[("v1", 2), ("v2", 2)].others == 9.0 and at[("v1", 1), ("v2", 1)].others == 3.0
    random = np.random.default_rng(10)
    for _ in range(150):
        graph, constraint = random_path(random, int(random.integers(2, 5)), dead_ends=False)
        runtime = graph.runtime()
        latency = {subtask: float(random.integers(0, 30)) for subtask in runtime.subtasks}
        worst: dict[object, float] = {}
        for sequence in runtime_sequences(runtime, constraint):
            whole = sum(latency[e] for e in sequence if not is_channel(e))  # type: ignore[index]
            for element in filter(is_channel, sequence):
                worst[element] = max(worst.get(element, 0.0), whole)
        found = positions(runtime, constraint, latency)
        assert {channel: at.others for channel, at in found.items()} == worst


def measured(lifetime: float, gap: float, *, buffer: float | None = None, seed: int = 0) -> float:
    """The mean output-batch delay of Poisson arrivals over an interval."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(gap, 4000)).tolist()
    batches = played(OutputChannel(lifetime=lifetime, buffer=buffer), arrivals, [1.0] * len(arrivals))
    items = [batch.at - entered for batch in batches[:-1] for _, entered in batch.items]
    return sum(items) / len(items)


def test_acceptance_11_one_item_per_batch_reaches_the_target_in_two_intervals() -> None:
    lifetime, seen = 0.0, []
    for step in range(4):
        delay = measured(lifetime, gap=1e6, seed=step)
        seen.append(delay)
        lifetime = adjusted(lifetime, delay, 10.0)
    assert seen == pytest.approx([0.0, 10.0, 10.0, 10.0], abs=0.01)


def test_acceptance_11_dense_arrivals_halve_the_error_and_tend_to_twice_the_target() -> None:
    lifetime, seen = 0.0, []
    for step in range(9):
        delay = measured(lifetime, gap=0.01, seed=step)
        seen.append(delay)
        lifetime = adjusted(lifetime, delay, 10.0)
    assert seen[:5] == pytest.approx([0.0, 5.0, 7.5, 8.75, 9.375], rel=0.05)
    assert lifetime == pytest.approx(20.0, rel=0.02) and seen[-1] == pytest.approx(10.0, rel=0.03)


def test_acceptance_11_batches_that_leave_full_stay_at_the_clamp() -> None:
    lifetime = 0.0
    for step in range(12):
        lifetime = adjusted(lifetime, measured(lifetime, gap=0.1, buffer=30, seed=step), 10.0)
        assert lifetime <= 20.0
    assert lifetime == 20.0


def test_acceptance_12_the_lowest_lifetime_wins() -> None:
    edge, other = (("a", 1), ("b", 1)), (("a", 1), ("b", 2))
    assert lowest([{edge: 8.0, other: 3.0}, {edge: 5.0}]) == {edge: 5.0, other: 3.0}


def test_acceptance_13_no_slack_means_immediate_shipping() -> None:
    slow = dict.fromkeys(LATENCY, 40.0)
    held = dict.fromkeys(GRAPH.channels, 12.0)
    asked = adjust_lifetimes(GRAPH, WHOLE, latency=slow, delay=dict.fromkeys(GRAPH.channels, 6.0), lifetimes=held)
    assert set(asked.values()) == {0.0} and len(asked) == len(GRAPH.channels)


def test_chained_streams_carry_no_batch_and_take_no_share() -> None:
    asked = adjust_lifetimes(
        GRAPH,
        WHOLE,
        latency=LATENCY,
        delay=dict.fromkeys(GRAPH.channels, 0.0),
        lifetimes={},
        chained={("v1", "v2")},
    )
    assert {(a[0], b[0]) for a, b in asked} == {("src", "v1"), ("v2", "snk")}
    assert asked[("src", 1), ("v1", 2)] == pytest.approx(0.8 * (50 - 9) / 2)


def test_a_channel_without_samples_is_left_alone_and_a_stale_subtask_is_refused() -> None:
    some = {GRAPH.channels[0]: 1.0}
    assert set(adjust_lifetimes(GRAPH, WHOLE, latency=LATENCY, delay=some, lifetimes={})) == set(some)
    with pytest.raises(PolicyError, match="there is no latency of v2 2"):
        adjust_lifetimes(
            GRAPH, WHOLE, latency={k: v for k, v in LATENCY.items() if k != ("v2", 2)}, delay=some, lifetimes={}
        )
    for wrong in (math.nan, -1.0, math.inf):
        with pytest.raises(PolicyError):
            adjusted(1.0, wrong, 1.0)


# --- the policies -----------------------------------------------------------------------------------------------------

PATH = Bound("fast", ("source", "v", "sink"), mean_s=0.050)


def observe(now_s: float, first: float, second: float, *, service_s: float = 0.010, bound: Bound = PATH) -> Observation:
    views = {
        "v": view("v", service_s=service_s, batch_wait_s=first, wait_s=0.0),
        "sink": view("sink", service_s=0.0, batch_wait_s=second, wait_s=0.0),
    }
    return Observation(now_s, 5.0, views, (bound,))


@pytest.mark.parametrize("gap_ms", [0.05, 2.0, 1000.0])
def test_acceptance_14_the_latency_settles_between_60_and_100_percent_of_the_bound(gap_ms: float) -> None:
    policy, decision, latencies = AdaptiveBatching(), Decision(), []
    for step in range(14):
        delays = [
            measured(decision.lifetimes.get(stream, 0.0) * 1000.0, gap_ms, seed=step * 2 + i) / 1000.0
            for i, stream in enumerate(("source->v", "v->sink"))
        ]
        latencies.append(0.010 + sum(delays))
        decision = policy.decide(observe(5.0 * step, *delays), decision)
    assert all(0.6 * 0.050 <= latency <= 0.050 for latency in latencies[6:])


def test_acceptance_13_the_policy_too_ships_at_once_when_operators_alone_are_too_slow() -> None:
    decided = AdaptiveBatching().decide(observe(0.0, 0.01, 0.01, service_s=0.06), Decision(lifetimes={"v->sink": 0.02}))
    assert decided.lifetimes == {"source->v": 0.0, "v->sink": 0.0}


def test_acceptance_7_a_stale_bound_keeps_its_lifetimes() -> None:
    current = Decision({"v": 3}, lifetimes={"source->v": 0.02, "v->sink": 0.03})
    policy = AdaptiveBatching()
    assert policy.decide(None, current) is current
    stale = Observation(5.0, 5.0, {"v": view("v")}, (PATH,))
    assert policy.decide(stale, current) == current


def test_a_chained_stream_gets_no_lifetime() -> None:
    decided = AdaptiveBatching().decide(observe(0.0, 0.0, 0.0), Decision(chains=(("v", "sink"),)))
    assert decided.lifetimes == {"source->v": pytest.approx(0.8 * 0.040)}


def test_the_stream_into_a_path_is_known_by_its_sender_if_the_host_names_it() -> None:
    seen = observe(0.0, 0.0, 0.0, bound=Bound("fast", ("v", "sink"), mean_s=0.050))
    wanted = pytest.approx(0.8 * 0.040 / 2)
    assert AdaptiveBatching().decide(seen, Decision()).lifetimes == {"->v": wanted, "v->sink": wanted}
    held = Decision(lifetimes={"source->v": 0.0, "x->sink": 0.0, "a->vv": 0.0})
    named = AdaptiveBatching().decide(seen, held).lifetimes
    assert named == {"source->v": wanted, "v->sink": wanted, "x->sink": 0.0, "a->vv": 0.0}


def test_on_micro_batches_the_cut_is_the_batch_and_settles_below_the_bound() -> None:
    fixed, busy, lifetime = 0.2, 0.4, 0.0
    policy, bound = AdaptiveBatching(), Bound("fast", ("source", "v"), mean_s=1.5)
    for _ in range(25):
        cycle = max(lifetime, fixed / (1 - busy))
        seen = Observation(
            0.0,
            5.0,
            {"v": view("v", service_s=1e-5, batch_wait_s=cycle / 2, wait_s=busy * cycle)},
            (bound,),
            fixed_s=fixed,
            micro_batch=True,
        )
        decided = policy.decide(seen, Decision(lifetime_s=lifetime))
        assert not decided.lifetimes
        lifetime = decided.lifetime_s
    latency = cycle / 2 + fixed + busy * cycle
    assert 0.6 * 1.5 <= latency <= 1.5


def test_the_baselines() -> None:
    seen = observe(0.0, 0.0, 0.0)
    held = Decision({"v": 2}, 1.0, lifetimes={"v->sink": 0.5, "x->y": 0.5})
    decided = ImmediateShipping().decide(seen, held)
    assert decided == Decision({"v": 2}, 0.0, lifetimes=dict.fromkeys(("v->sink", "x->y", "source->v"), 0.0))
    full = ShipWhenFull(rows=64).decide(seen, held)
    assert set(full.lifetimes.values()) == {FOREVER_S} and full.row_cap == 64
    micro = ShipWhenFull(rows=800).decide(replace(seen, micro_batch=True), held)
    assert micro.lifetime_s == 0.5 and micro.row_cap == 800
    with pytest.raises(PolicyError, match="rows must be at least 1"):
        ShipWhenFull(rows=0)


def test_fixed_buffers_wait_as_the_digest_says() -> None:
    # N items of a full buffer at rate r wait (N - 1) / (2 r).
    arrivals = [float(i) for i in range(512)]
    batches = played(OutputChannel(lifetime=FOREVER_S, buffer=64 * 1024), arrivals, [128.0] * 512)
    assert [batch.reason for batch in batches] == ["full"]
    assert batches[0].mean_delay == pytest.approx(511 / 2)


def test_bad_parameters_are_refused() -> None:
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(PolicyError, match="batching_share must be from 0 to 1"):
            AdaptiveBatching(batching_share=wrong)
    with pytest.raises(PolicyError, match="lifetime must be at least 0"):
        OutputChannel(lifetime=math.inf)
    with pytest.raises(PolicyError, match="streams must be greater than 0"):
        target_delay(50.0, 1.0, 0, 0.8)
