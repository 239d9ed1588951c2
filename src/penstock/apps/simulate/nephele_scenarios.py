"""The evaluations of thesis 001 in virtual time: PrimeTest, its batching comparison, TwitterSentiments, Livestream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.apps.simulate.frozen import FROZEN
from penstock.control.decision import Policy
from penstock.control.observation import Bound
from penstock.control.policies import registry
from penstock.engine.sim.loads import Floats, Load, steps
from penstock.engine.sim.loop import Trace, run
from penstock.engine.sim.measures import Row, measure
from penstock.engine.sim.spec import SOURCE, Machine, Operator
from penstock.engine.sim.stream import StreamHost

PRIME_BOUNDS = (20.0, 30.0, 40.0, 50.0, 100.0)
_SOURCES = 32
_PER_STEP_S = 60.0


def stair_case(sources: int, peak: int = 80, down: bool = True) -> Load:
    """Warm-up, increment, plateau and decrement in steps of 10 000 items/s per source, a minute each (001, 5.1.2).

    The decrement begins with a step at the peak: 17 minutes are what the thesis' worker-hours add up to (`frozen`).

    >>> stair_case(32).duration_s, stair_case(32).peak()
    (1020.0, 2560000.0)
    """
    levels = [10, *range(20, peak + 1, 10)]
    if down:
        levels += [peak, *range(peak, 9, -10)]
    at = [(_PER_STEP_S * i, 1000.0 * sources * level) for i, level in enumerate(levels)]
    return Load("stair case", _PER_STEP_S * len(levels), steps(at), events=tuple(t for t, _ in at[1:]))


def prime_host(bound_ms: float, seed: int, *, start: int | None = None, most_customers: int = 12_000) -> StreamHost:
    """PrimeTest with one bound from source to sink; fewer customers drawn per second: quicker, with more scatter.

    >>> prime_host(20.0, 1).widths()
    {'tester': 128, 'sink': 32}
    """
    p = FROZEN.primetest
    tester = Operator(
        "tester", p.service_s, p.service_cv, width=start or p.start, hi=392, ship_s=p.ship_s, net_s=p.net_s,
        buffer_items=p.buffer_items, queue=p.queue, arrival_cv=p.arrival_cv, coalesce=p.coalesce,
    )  # fmt: skip
    sink = Operator(
        "sink", p.sink_s, 0.5, width=_SOURCES, lo=_SOURCES, hi=_SOURCES, inputs=("tester",), net_s=p.net_s,
        buffer_items=p.buffer_items, ship_s=p.sink_ship_s,
    )  # fmt: skip
    machine = Machine(
        sources=_SOURCES, scale_up_s=p.scale_up_s, scale_down_s=p.scale_down_s, open_source=False, noise=p.noise
    )
    bound = Bound("fast", (SOURCE, "tester", "sink"), mean_s=bound_ms / 1000.0)
    return StreamHost(
        [tester, sink], stair_case(_SOURCES), seed=seed, bounds=(bound,), machine=machine,
        most_customers=most_customers,
    )  # fmt: skip


def prime_policy(name: str) -> Policy:
    """A policy for PrimeTest; what thesis 001 leaves open of its own policy is in the frozen file.

    >>> type(prime_policy("adaptive")).__name__
    'Adaptive'
    """
    if name == "nephele":
        return registry.make(name, elastic={"saturation": FROZEN.primetest.saturation})
    if name == "peak-load":
        return registry.make(name, peak_per_s=stair_case(_SOURCES).peak())
    return registry.make(name)


def primetest(policy: str, seed: int, bounds: Sequence[float] = PRIME_BOUNDS) -> list[tuple[Row, Trace]]:
    """PrimeTest under one policy, once per bound; hours count the testers only, as the thesis' do."""
    found = []
    for bound in bounds:
        trace = run(prime_host(bound, seed), prime_policy(policy))
        row = measure(trace, scenario="primetest", policy=policy, seed=seed, counted=("tester",), per_worker=4.0)
        workers = (row.worker_hours or 0.0) + _SOURCES * trace.duration_s / 3600.0  # sources have workers of their own
        found.append((replace(row, worker_hours=workers), trace))
    return found


# --- four ways of shipping ------------------------------------------------------------------------------------------


def batching_host(seed: int, *, bound_ms: float = 20.0, load: Load | None = None) -> StreamHost:
    """The motivation experiment: 50 sources, 200 testers, a rate that rises until nothing keeps up.

    >>> batching_host(1).widths()["tester"]
    200
    """
    p = FROZEN.batching
    tester = Operator(
        "tester", p.service_s, p.service_cv, width=200, lo=200, hi=200, ship_s=p.ship_s, net_s=p.net_s,
        buffer_items=p.buffer_items, queue=p.queue, arrival_cv=p.arrival_cv, coalesce=p.coalesce,
    )  # fmt: skip
    sink = Operator(
        "sink", p.sink_s, 0.5, width=50, lo=50, hi=50, inputs=("tester",), net_s=p.net_s, ship_s=1e-6,
        buffer_items=p.buffer_items,
    )  # fmt: skip
    bound = Bound("fast", (SOURCE, "tester", "sink"), mean_s=bound_ms / 1000.0)
    machine = Machine(sources=50, open_source=False)
    return StreamHost(
        [tester, sink], load or stair_case(50, 80, down=False), seed=seed, bounds=(bound,), machine=machine,
        most_customers=12_000,
    )  # fmt: skip


def batching(policy: str, seed: int) -> list[tuple[Row, Trace]]:
    """One way of shipping; `throughput_per_s` is the greatest effective rate per source (001, section 4.6)."""
    trace = run(batching_host(seed), registry.make(policy))
    row = measure(trace, scenario="batching", policy=policy, seed=seed, counted=("tester",), per_worker=4.0)
    warm = [i.latency["fast"][0] for i in trace.intervals if 20.0 <= i.begin_s < 60.0 and "fast" in i.latency]
    best = max(i.completed for i in trace.intervals) / 50.0
    fields = {**row.__dict__, "mean_ms": 1000.0 * float(np.mean(warm)), "throughput_per_s": best}
    return [(Row(**fields), trace)]


def steady_until(trace: Trace) -> float:
    """When the sources were first held back for good: the rate stays below 97 % of what was attempted.

    >>> steady_until(Trace(()))
    0.0
    """
    wanted = stair_case(50, 80, down=False).rate
    for interval in trace.intervals:
        middle = np.array([(interval.begin_s + interval.end_s) / 2.0])
        if interval.rate < 0.97 * float(wanted(middle)[0]):
            return interval.begin_s
    return trace.duration_s


# --- tweets -----------------------------------------------------------------------------------------------------------


def tweets(seed: int) -> Load:
    """Two weeks at 200 times their speed: days of 432 s, bursts, and at 2400 s the peak of 6734/s on few topics.

    >>> round(tweets(1).peak())
    6734
    """
    p = FROZEN.twitter
    rng = np.random.default_rng([seed, 89])
    phase = 2.0 * np.pi * rng.random()
    at = np.sort(rng.uniform(0.0, 6000.0, p.bursts))
    high = p.mean_rate * p.burst_height * rng.exponential(1.0, p.bursts)
    fade = rng.uniform(15.0, 60.0, p.bursts)

    def rate(t: Floats) -> Floats:
        day = p.mean_rate * (1.0 + p.swing * np.sin(2.0 * np.pi * t / 432.0 + phase))
        for start, height, decay in zip(at, high, fade, strict=True):
            day = day + np.where(t >= start, height * np.exp(-np.maximum(t - start, 0.0) / decay), 0.0)
        day = np.minimum(day, 0.9 * 6734.0)
        return np.where((t >= 2400.0) & (t < 2430.0), 6734.0, day)

    def selectivity(t: Floats) -> Floats:
        few = np.exp(-np.maximum(t - 2430.0, 0.0) / 40.0)
        return np.where(t >= 2400.0, 1.0 + (0.9 / p.selectivity - 1.0) * few, 1.0)

    return Load("tweets", 6000.0, rate, events=(2400.0,), selectivity=selectivity)


def twitter_host(seed: int, load: Load | None = None) -> StreamHost:
    """TwitterSentiments: hot topics up to the merger's list (215 ms), sentiments of tweets (30 ms).

    >>> sorted(twitter_host(1).widths())
    ['filter', 'merger', 'sentiment', 'sink', 'topics']
    """
    p = FROZEN.twitter
    common: dict[str, Any] = {"ship_s": p.ship_s, "net_s": p.net_s, "buffer_items": p.buffer_items}
    elastic: dict[str, Any] = {"width": 4, "hi": 100, "queue": p.queue, **common}
    operators = [
        Operator("topics", p.topics_s, p.service_cv, window_s=p.window_s, **elastic),
        Operator(
            "merger",
            p.merger_s,
            p.service_cv,
            inputs=("topics",),
            window_s=p.window_s,
            **{**common, "net_s": p.net_s + p.list_s},
        ),
        Operator("filter", p.filter_s, p.service_cv, selectivity=p.selectivity, **elastic),
        Operator("sentiment", p.sentiment_s, p.service_cv, inputs=("filter",), **elastic),
        Operator("sink", 0.0001, 0.5, inputs=("sentiment",), **common),
    ]
    bounds = (
        Bound("topics", (SOURCE, "topics", "merger"), mean_s=0.215),
        Bound("sentiment", (SOURCE, "filter", "sentiment", "sink"), mean_s=0.030),
    )
    machine = Machine(scale_up_s=p.scale_up_s, scale_down_s=p.scale_down_s, open_source=False, noise=p.noise)
    return StreamHost(operators, load or tweets(seed), seed=seed, bounds=bounds, machine=machine, most_customers=8_000)


def twitter_policy(name: str) -> Policy:
    """A policy for TwitterSentiments.

    >>> type(twitter_policy("nephele")).__name__
    'Nephele'
    """
    if name == "nephele":
        return registry.make(name, elastic={"saturation": FROZEN.twitter.saturation})
    return registry.make(name, peak_per_s=6734.0) if name == "peak-load" else registry.make(name)


def twitter(policy: str, seed: int) -> list[tuple[Row, Trace]]:
    """TwitterSentiments under one policy: a row per constraint."""
    trace = run(twitter_host(seed), twitter_policy(policy))
    counted = ("topics", "filter", "sentiment")
    return [
        (
            measure(trace, scenario="twitter", policy=policy, seed=seed, bound=bound, counted=counted, per_worker=4.0),
            trace,
        )
        for bound in ("topics", "sentiment")
    ]


# --- video ------------------------------------------------------------------------------------------------------------

CHAIN = ("decoder", "merger", "overlay", "encoder")


def video_host(seed: int) -> StreamHost:
    """Livestream: four stages of 400 subtasks each, wired one to one, and a bound of 50 ms from source to sink.

    >>> video_host(1).widths()["encoder"]
    400
    """
    p = FROZEN.livestream
    n = p.pipelines
    fixed: dict[str, Any] = {"width": n, "lo": n, "hi": n, "one_to_one": True, "service_cv": p.service_cv}
    step: dict[str, Any] = {"ship_s": p.ship_s, "handover_s": p.handover_s}
    operators = [
        Operator("decoder", p.decode_s, ship_s=p.ship_s, net_s=p.net_s, buffer_items=2, **fixed),
        Operator(
            "merger", p.merge_s, inputs=("decoder",), selectivity=1.0 / p.group, buffer_items=1, **fixed, **step
        ),
        Operator("overlay", p.overlay_s, inputs=("merger",), **fixed, **step),
        Operator("encoder", p.encode_s, inputs=("overlay",), **fixed, **step),
        Operator(
            "sink", 0.0001, 0.3, width=100, lo=100, hi=100, inputs=("encoder",), ship_s=p.ship_s, buffer_items=1,
            net_s=p.net_s + p.merge_hold_s,
        ),
    ]  # fmt: skip
    load = Load("feeds", 180.0, lambda t: np.full_like(t, p.feeds * p.frames_per_s))
    bound = Bound("fast", (SOURCE, *CHAIN, "sink"), mean_s=0.05)
    return StreamHost(
        operators, load, seed=seed, bounds=(bound,), machine=Machine(sources=100, noise=p.noise), most_customers=6_000
    )


def video_policy(name: str) -> Policy:
    """A policy for Livestream: thesis 001's may chain, and scales nothing (codecs have state).

    >>> type(video_policy("batching")).__name__
    'AdaptiveBatching'
    """
    return registry.make(name, scaling=False, pipelines=[CHAIN]) if name == "nephele" else registry.make(name)


def livestream(policy: str, seed: int) -> list[tuple[Row, Trace]]:
    """Livestream under output batching alone (`batching`) or with chaining (`nephele`), and others."""
    trace = run(video_host(seed), video_policy(policy))
    row = measure(trace, scenario="livestream", policy=policy, seed=seed, counted=CHAIN, per_worker=4.0, skip_s=30.0)
    return [(row, trace)]
