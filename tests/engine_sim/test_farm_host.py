"""The farm host against a farm that is simulated item by item, and its books."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from penstock.control.decision import Decision, Static
from penstock.control.observation import Bound, OperatorView
from penstock.engine.sim.checks import SimulationError
from penstock.engine.sim.farm import Cores, FarmHost, Pauses, timed_share
from penstock.engine.sim.loop import run
from penstock.errors import PolicyError


def item_by_item(costs: np.ndarray, machine: Cores, width: int) -> float:
    """When the last item is done: on-demand scheduling, every replica at an equal share of the machine's speed."""
    each = machine.speed(width) / width
    free = [0.0] * width
    for cost in costs:
        heapq.heapreplace(free, free[0] + cost / each)
    return max(free)


@pytest.mark.parametrize("width", [1, 5, 8, 12, 14, 16])
def test_within_2_percent_of_item_level(width: int) -> None:
    machine = Cores(8, 16, smt=0.3)
    costs = np.random.default_rng(width).exponential(0.05, 4000)
    host = FarmHost(costs, machine, seed=1, width=width, hi=16, noise=0.0)
    trace = run(host, Static())
    assert trace.duration_s == pytest.approx(item_by_item(costs, machine, width), rel=0.02)
    paid = sum(interval.paid_s["farm"] for interval in trace.intervals)
    assert paid == pytest.approx(width * trace.duration_s)


@pytest.mark.parametrize(
    ("machine", "best"),
    [(Cores(8, 16, smt=0.3), 14), (Cores(8, 16, smt=-0.1), 8), (Cores(8, 18, smt=0.3), 16), (Cores(8, 16, cap=5.0), 5)],
)
def test_the_speed_curve_has_its_top_where_the_thesis_sees_it(machine: Cores, best: int) -> None:
    """003, section 6: 14 for Lane Detection, 8 for Person Recognition, 16 for Pbzip2; 004: a link caps the speed."""
    speeds = {n: machine.speed(n) for n in range(1, 17)}
    assert max(speeds, key=lambda n: (round(speeds[n], 9), -n)) == best
    assert all(speed > 0.0 for speed in speeds.values())


def test_a_change_of_width_stops_the_farm_for_as_long_as_it_should() -> None:
    pauses = Pauses(add_s=0.5, add_each_s=0.1, remove_s=1.0, remove_each_s=0.2)
    host = FarmHost(
        np.full(1000, 0.1), Cores(64, 128), seed=1, width=4, hi=10, interval_s=1.0, noise=0.0, pauses=pauses
    )
    assert host.advance(Decision({"farm": 4})).operators["farm"].completed_per_s == 40.0
    assert host.advance(Decision({"farm": 8})).operators["farm"].completed_per_s == pytest.approx(8.0, abs=1.1)  # 0.9 s
    assert host.advance(Decision({"farm": 6})).operators["farm"].completed_per_s == 0.0  # 1.4 s: all of this second
    assert host.advance(Decision({"farm": 6})).operators["farm"].completed_per_s == pytest.approx(36.0, abs=1.1)
    assert (host.added_s, host.removed_s) == pytest.approx((0.9, 1.4))


def test_widths_are_cut_to_the_bounds_and_books_must_balance() -> None:
    host = FarmHost(np.full(100, 0.1), Cores(8, 16), seed=1, width=4, lo=2, hi=8, noise=0.0)
    host.advance(Decision({"farm": 99}))
    assert host.widths() == {"farm": 8}
    host.advance(Decision({"farm": 0}))
    assert host.widths() == {"farm": 2}
    with pytest.raises(SimulationError, match="of 100 items"):
        host.check()
    while not host.finished:
        host.advance(Decision({"farm": 8}))
    host.check()
    host.spent *= 1.2
    with pytest.raises(SimulationError, match="times inside add up"):
        host.check()


def test_latency_goal_and_seed() -> None:
    bound = Bound("fast", ("farm",), mean_s=1.0)

    def go(seed: int) -> list[float]:
        host = FarmHost(np.full(500, 0.1), Cores(8, 16), seed=seed, width=12, hi=14, bounds=(bound,), goal_per_s=200.0)
        trace = run(host, Static())
        assert all(interval.goals_met is False for interval in trace.intervals)
        return [interval.latency["fast"][0] for interval in trace.intervals]

    assert go(1) == go(1) != go(2)
    # an item is inside for cost x N / S(N) = 0.1 x 12 / 9.2
    assert np.mean(go(1)) == pytest.approx(0.13, rel=0.05)


class Sparing(Static):
    """A policy that can do with the times of a quarter of the items."""

    timed_share = 0.25


def test_a_policy_says_which_share_of_the_items_it_needs_timed() -> None:
    assert (timed_share(Static()), timed_share(Sparing())) == (1.0, 0.25)
    for wrong in (0.0, -0.1, 1.5, float("nan")):
        policy = Sparing()
        policy.timed_share = wrong
        with pytest.raises(PolicyError, match="timed_share"):
            timed_share(policy)


def test_timing_fewer_items_costs_in_proportion_and_shows_only_those() -> None:
    """The speed is 1 - tax x share; counts stay exact, service times are means of a sample, 0 where none was timed."""
    costs = np.random.default_rng(5).exponential(0.1, 20_000)

    def go(share: float) -> tuple[float, list[OperatorView], int]:
        host = FarmHost(costs, Cores(8, 16), seed=3, width=8, hi=8, interval_s=1.0, noise=0.0, tax=0.2, timed=share)
        views, decision = [], host.start()
        while not host.finished:
            views.append(host.advance(decision).operators["farm"])
        host.check()
        return host.now, views[:-1], host.done

    times = {share: go(share) for share in (1.0, 0.5, 0.02)}
    for share, (took, views, done) in times.items():
        assert took == pytest.approx(costs.sum() / 8 / (1.0 - 0.2 * share), rel=1e-9)
        assert done == costs.size
        shown = np.array([view.service_s for view in views])
        # an item takes its cost / (speed of one replica): exact for all items, a mean of some of them for a sample
        exact = 0.1 / (1.0 - 0.2 * share)
        known = shown[shown > 0.0]
        assert np.mean(known) == pytest.approx(exact, rel=0.05)
        expected = 1.0 / np.sqrt(80.0 * share)  # 80 items a second, exponential: cv of a mean
        if share > 0.1:
            assert np.std(known) / exact == pytest.approx(expected, rel=0.25)
            assert known.size == shown.size
        else:  # 1.6 items per interval are timed on average: in exp(-1.6) of the intervals there is none
            assert 1.0 - known.size / shown.size == pytest.approx(np.exp(-1.6), abs=0.07)
