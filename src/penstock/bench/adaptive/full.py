"""The scenarios that run in full: ours and static three times, the other policies once (not where a hot key moves).

Rates are set so that the peak needs several replicas (waiting stages, `local[16,4]`) or most of two cores (computing
stages, `local[2,4]`), and the low level a fraction of one.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate

from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.adaptive.description import COMPUTES, OURS_AND_STATIC, WAITS, Built, Promise, Scenario
from penstock.bench.adaptive.functions import call_outside, keyed_call, rows
from penstock.bench.functions import nothing
from penstock.sources.schedule import Schedule

HOT_MOVES_S = 20.0


def waiting(spark: SparkSession, load: Schedule) -> Built:
    """A farm that waits outside for every row (PrimeTest's shape, thesis 001: source, farm, sink)."""
    flow = ps.Flow("waiting")
    source = flow.read(ps.sources.replay(spark, rows, schema="i bigint, price double", schedule=load))
    farm = source.map(call_outside, replicas=ps.elastic(1, 12), chunk=32, name="farm")
    farm.write("function", fn=nothing, name="out")
    return Built(flow, (Promise(source, farm),), "farm")


def quotes(spark: SparkSession, load: Schedule) -> Built:
    """Windows over quotes with a hot symbol that moves (thesis 000): sums, highs and counts per symbol."""
    flow = ps.Flow("trading")
    keys = {"k": ps.sources.hot(1000, share=0.3, every_s=HOT_MOVES_S)}
    read = ps.sources.replay(spark, rows, schema="i bigint, price double", keys=keys, schedule=load)
    source = flow.read(read, time="scheduled")
    bars = source.window(ps.Time("4 s", slide="1 s"), key="k", replicas=ps.elastic(1, 2), name="bars")
    out = bars.aggregate(total=ps.sum("price"), high=ps.max("price"), n=ps.count())
    out.write("function", fn=nothing, name="out")
    return Built(flow, (Promise(source, out, statistic="p95"),), "bars")


def keyed(spark: SparkSession, load: Schedule) -> Built:
    """Keyed state behind a hot key that moves: every row waits outside, so an uneven route shows."""
    flow = ps.Flow("keyed")
    keys = {"k": ps.sources.hot(200, share=0.25, every_s=HOT_MOVES_S)}
    source = flow.read(ps.sources.replay(spark, rows, schema="i bigint, price double", keys=keys, schedule=load))
    sums = source.stateful(
        keyed_call, "k bigint, so_far double", "total double", key="k", replicas=ps.elastic(1, 12), name="sums"
    )
    sums.write("function", fn=nothing, name="out")
    return Built(flow, (Promise(source, sums),), "sums")


def staircase() -> Scenario:
    """Up and down in steps (001, section 5.1.2)."""
    load = ps.sources.staircase(300, 3000, steps=3, step_seconds=16)
    return Scenario(
        "staircase",
        WAITS,
        load,
        112.0,
        tuple(16.0 * n for n in range(1, 7)),
        300,
        3000,
        waiting,
        (1, 2, 3, 4, 6, 8, 12),
    )


def burst() -> Scenario:
    """A quiet load with bursts of six seconds every thirty."""
    load = ps.sources.burst(500, 2500, length=6, every=30, seconds=111)
    steps = tuple(t for n in range(4) for t in (24.0 + 30.0 * n, 30.0 + 30.0 * n) if t < 111.0)
    return Scenario("burst", WAITS, load, 111.0, steps, 500, 2500, waiting, (1, 2, 3, 4, 6, 8, 12))


def trading() -> Scenario:
    """A day of quotes in steps, with a hot symbol that moves: busy when it opens and closes, quiet in between.

    The U shape of the day and its peak near 60 000 quotes/s are those of thesis 000, chapter 7.
    """
    day = ((5_000, 15), (60_000, 15), (20_000, 20), (5_000, 30), (20_000, 15), (60_000, 15))
    phases: list[Schedule] = [ps.sources.constant(*phase) for phase in day]
    load = reduce(lambda so_far, phase: so_far.then(phase), phases)
    steps = tuple(float(at) for at in accumulate(seconds for _, seconds in day[:-1]))
    lasts = float(sum(seconds for _, seconds in day))
    # The policies of 001 and 003 know no p95: they would leave the widths as they are.
    policies = ("adaptive", "static", "at-once")
    rates = 5_000, 60_000
    return Scenario("trading", COMPUTES, load, lasts, steps, *rates, quotes, (1, 2), "p95", "cpu", policies=policies)


def hotkey() -> Scenario:
    """A steady load whose hot key moves every twenty seconds."""
    steps = tuple(HOT_MOVES_S * n for n in range(1, 4))
    return Scenario(
        "hotkey",
        WAITS,
        ps.sources.constant(2500, 75),
        75.0,
        steps,
        250,
        2500,
        keyed,
        (2, 3, 4, 6, 8),
        policies=OURS_AND_STATIC,
        probe_s=46.0,  # the key moves twice
    )
