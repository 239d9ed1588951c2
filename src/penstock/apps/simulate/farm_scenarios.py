"""The evaluations of theses 003 (SPar) and 004 (MPR) in virtual time: one farm, and a source that is always ready."""

from __future__ import annotations

import functools
import statistics
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from penstock.apps.simulate.frozen_farm import MPR, SPAR
from penstock.control.decision import Policy
from penstock.control.policies import registry
from penstock.engine.sim.farm import Cores, FarmHost, Pauses, timed_share
from penstock.engine.sim.loop import Trace, run
from penstock.engine.sim.measures import Row, measure

Floats = NDArray[np.float64]
_PHYSICAL = 8
_WIDEST = 16
_MPR_WIDEST = 48
_UNREACHABLE = 1e9  # 003, chapter 6: a target that is out of reach means "as fast as possible"


def spar_costs(program: str, seed: int) -> Floats:
    """Seconds of one core per item, as 003 describes its programs.

    Lane Detection alone handles 7 to 20 frames/s, wandering; Person Recognition has 0 to 5 faces a frame,
    5.9 frames/s with 8 replicas; Pbzip2 takes even blocks of 900 kB, 3.5 MB/s (its second input: 6.3 GB).

    >>> [spar_costs(p, 1).size for p in ("lane", "person", "bzip2")]
    [4500, 700, 7000]
    """
    p = SPAR[program]
    rng = np.random.default_rng([seed, sum(program.encode())])
    if program == "lane":
        t = np.arange(p.items) / 110.0
        rate = 13.5 + 6.5 * np.sin(2.0 * np.pi * (t / 15.0 + rng.random())) + rng.normal(0.0, 1.0, p.items)
        return 1.0 / np.clip(rate, 7.0, 20.0)
    if program == "person":
        cost = 0.5 + 0.25 * rng.integers(0, 6, p.items)
        return cost / cost.mean() * _PHYSICAL / 5.9
    return 0.9 / 3.5 * np.maximum(rng.normal(1.0, 0.03, p.items), 0.5)


def spar_host(program: str, seed: int, width: int, *, adaptive: bool, timed: float = 1.0) -> FarmHost:
    """A SPar program on the simulated machine; the one that does not adapt is needed for its mean only: no noise.

    `timed` is the share of its items that are timed.

    >>> spar_host("lane", 1, 8, adaptive=True).widths()
    {'farm': 8}
    """
    p = SPAR[program]
    machine = Cores(_PHYSICAL, p.threads, smt=p.smt, crowd=p.crowd, overhead=p.overhead)
    pauses = Pauses(add_s=p.change_s, remove_s=p.change_s)
    every_s, noise, tax = (p.every_s, p.noise, p.tax) if adaptive else (10.0, 0.0, 0.0)
    return FarmHost(
        spar_costs(program, seed), machine, seed=seed, width=width, lo=2, hi=_WIDEST, interval_s=every_s,
        pauses=pauses, noise=noise, tax=tax, timed=timed,
    )  # fmt: skip


def spar_policy(name: str, program: str) -> Policy:
    """A policy for a SPar program: 003's get its bounds (two hardware threads kept free) and its steps.

    >>> type(spar_policy("spar-wudp", "lane")).__name__
    'Wudp'
    """
    p = SPAR[program]
    own = {"scaling_factor": p.scaling_factor, "every_s": p.every_s, "most": 14}
    if name == "spar-throughput":
        return registry.make(name, target_per_s=_UNREACHABLE, **own)
    if name in ("spar-wudp", "spar-queue"):
        return registry.make(name, **own)
    return registry.make(name)


@functools.lru_cache(maxsize=64)
def best_static(program: str, seed: int) -> tuple[float, int]:
    """Items per second at the best of the static widths 2 to 16, without measuring or regulating, and that width.

    >>> best_static("person", 1)[1]
    8
    """
    rates = {}
    for width in range(2, _WIDEST + 1):
        host = spar_host(program, seed, width, adaptive=False)
        run(host, registry.make("static"))
        rates[width] = host.costs.size / host.now
    best = max(rates, key=lambda width: rates[width])
    return rates[best], best


def spar(program: str, policy: str, seed: int) -> list[tuple[Row, Trace]]:
    """A SPar program under one policy, against the best of the static widths.

    `loss_vs_best_static` is the thesis' measure: the adaptive program against the static one, so it has the cost of
    measuring in it. `deciding_loss` leaves that out: against the best static width of a program that measures as well.
    """
    best, best_width = best_static(program, seed)
    made = spar_policy(policy, program)
    host = spar_host(program, seed, _PHYSICAL, adaptive=policy != "static", timed=timed_share(made))
    trace = run(host, made)
    rate = host.costs.size / host.now
    row = measure(trace, scenario=f"spar-{program}", policy=policy, seed=seed, best_width=best_width)
    fair = best * (1.0 - host.tax)
    found = replace(
        row,
        loss_vs_best_static=100.0 * (best - rate) / best,
        deciding_loss=100.0 * (fair - rate) / fair,
        throughput_per_s=rate,
        settle_s=settled_s(trace),
    )
    return [(found, trace)]


def settled_s(trace: Trace) -> float | None:
    """When the width that the second half of a run has most of the time was first reached.

    >>> settled_s(Trace(())) is None
    True
    """
    late = [i.widths[FarmHost.name] for i in trace.intervals[len(trace.intervals) // 2 :]]
    if not late:
        return None
    usual = statistics.mode(late)
    return next(i.begin_s for i in trace.intervals if i.widths[FarmHost.name] == usual)


def mpr_costs(program: str, seed: int) -> Floats:
    """Seconds of one core per item: Mandelbrot's lines are cheap at both ends; primes cost more and more.

    >>> mpr_costs("mandelbrot", 1).size
    6000
    """
    p = MPR[program]
    rng = np.random.default_rng([seed, sum(program.encode())])
    x = np.linspace(0.0, 1.0, p.items)
    if program == "mandelbrot":
        cost = 0.05 + np.exp(-(((x - 0.5) / 0.2) ** 2))
    else:  # trial division: composites stop early, a prime near n costs n; primes thin out as 1 / ln n
        number = np.maximum(x * p.items, 3.0)
        prime = rng.random(p.items) < 1.0 / np.log(number)
        cost = np.where(prime, number, 0.03 * number * rng.exponential(1.0, p.items))
    return cost * p.mean_cost_s / cost.mean()


def mpr_host(program: str, seed: int, width: int, goal_per_s: float | None) -> FarmHost:
    """An MPR farm with its pauses.

    >>> mpr_host("prime", 1, 1, None).widths()
    {'farm': 1}
    """
    p = MPR[program]
    machine = Cores(_MPR_WIDEST, _MPR_WIDEST + 2, smt=0.0, crowd=0.0, cap=p.cap)
    return FarmHost(
        mpr_costs(program, seed), machine, seed=seed, width=width, lo=1, hi=_MPR_WIDEST, interval_s=1.0,
        pauses=Pauses(add_s=p.add_s, remove_s=p.remove_s), noise=p.noise, goal_per_s=goal_per_s,
    )  # fmt: skip


def mpr(program: str, policy: str, seed: int) -> list[tuple[Row, Trace]]:
    """An MPR program that starts with one process and is to reach a share of the best static throughput."""
    p = MPR[program]
    still = mpr_host(program, seed, _MPR_WIDEST, None)
    run(still, registry.make("static"))
    goal = p.goal_share * still.costs.size / still.now
    host = mpr_host(program, seed, 1 if policy != "static" else _MPR_WIDEST, goal)
    trace = run(host, registry.make(policy))
    row = measure(trace, scenario=f"mpr-{program}", policy=policy, seed=seed)
    found = replace(
        row,
        throughput_per_s=host.costs.size / host.now,
        adding_percent=100.0 * host.added_s / host.now,
        removing_percent=100.0 * host.removed_s / host.now,
    )
    return [(found, trace)]
