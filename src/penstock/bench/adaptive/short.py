"""The short scenarios: ours and one static set-up, a minute of load, one run each; three where the cost keeps changing.

Thesis 001: a service time that doubles, two latencies on one flow (TwitterSentiments), a chain that is fused or split
(Livestream). Thesis 003: frames with a throughput to reach, and then none. Thesis 004: Mandelbrot. And what a low load
costs, against batches that are cut as soon as the last one is done.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.adaptive import functions as fn
from penstock.bench.adaptive.description import COMPUTES, OURS_AND_STATIC, WAITS, Built, Promise, Scenario, Target
from penstock.bench.adaptive.full import quotes
from penstock.bench.functions import nothing
from penstock.sources.schedule import Schedule

SECONDS = 66.0  # of which the first six are not judged
SERVICE_RATE, SERVICE_DOUBLES_S = 1000.0, 46.0
FRAMES_PER_S, FRAMES_UNTIL_S, FRAMES_IN_A_BATCH = 100.0, 42.0, 128
LINES_PER_S, IMAGE_S = 500.0, 20.0  # to begin with; how long an image takes
DEAREST = (0.4, 0.5)  # of an image's height
BUSY = 0.55  # of a core, by the dearest lines: a static set-up that lets batches wait long does not survive them


def serving(spark: SparkSession, load: Schedule, *, half: int) -> Built:
    """A farm whose rows say how long they wait; from row `half` on it is twice as long."""
    flow = ps.Flow("service")
    made = partial(fn.doubling, half=half)
    source = flow.read(ps.sources.replay(spark, made, schema="i bigint, wait_us double", schedule=load))
    farm = source.map(fn.serve, replicas=ps.elastic(1, 12), chunk=16, name="farm")
    farm.write("function", fn=nothing, name="out")
    return Built(flow, (Promise(source, farm),), "farm")


def service() -> Scenario:
    """A steady load whose rows take twice as long in the last third of the time."""
    return Scenario(
        "service",
        WAITS,
        ps.sources.constant(SERVICE_RATE, SECONDS),
        SECONDS,
        (SERVICE_DOUBLES_S,),
        SERVICE_RATE / 4.0,
        SERVICE_RATE,
        partial(serving, half=round(SERVICE_RATE * SERVICE_DOUBLES_S)),
        (1, 2, 3, 4, 6, 8),
        runs=1,
        policies=OURS_AND_STATIC,
        build_peak=partial(serving, half=0),
    )


def filming(spark: SparkSession, load: Schedule, *, period: int = 3000) -> Built:
    """A farm of frames. There are always more of them: a batch takes what it may, so the farm's speed is the rate."""
    flow = ps.Flow("frames")
    made = partial(fn.frames, period=period)
    read = ps.sources.replay(spark, made, schema="i bigint, wait_us double", schedule=load, max_rows=FRAMES_IN_A_BATCH)
    farm = flow.read(read).map(fn.serve, replicas=ps.elastic(1, 12), chunk=1, ordered=True, name="farm")
    farm.write("function", fn=nothing, name="out")
    return Built(flow, (), "farm", Target(farm, FRAMES_PER_S, FRAMES_UNTIL_S))


def frames() -> Scenario:
    """Frames with a throughput to reach, and then none (003)."""
    plenty = 20.0 * FRAMES_PER_S
    return Scenario(
        "frames",
        WAITS,
        ps.sources.constant(plenty),
        SECONDS,
        (),
        5.0,
        plenty,
        filming,
        (1, 2, 3, 4, 6, 8),
        runs=1,
        policies=OURS_AND_STATIC,
        build_peak=partial(filming, period=1 << 40),  # the dearest frame, over and over
    )


def drawing(spark: SparkSession, load: Schedule, *, height: int, part: tuple[float, float] = (0.0, 1.0)) -> Built:
    """Lines of the Mandelbrot set by an on-demand farm that computes: cheap, dear, cheap, over and over (004)."""
    flow = ps.Flow("mandelbrot")
    first, last = (round(edge * height) for edge in part)
    made = partial(fn.lines, first=first, last=last)
    source = flow.read(ps.sources.replay(spark, made, schema="i bigint, line bigint", schedule=load))
    farm = source.map(
        partial(fn.mandelbrot, height=height),
        "line bigint, pixels binary",
        replicas=ps.elastic(1, 2),
        chunk=8,
        scheduling="on_demand",
        name="farm",
    )
    farm.write("function", fn=nothing, name="out")
    return Built(flow, (Promise(source, farm),), "farm")


def mandelbrot(lines_per_s: float = LINES_PER_S) -> Scenario:
    """A steady rate of lines whose cost rises and falls twentyfold.

    A quicker machine draws images of more lines in the same time: how busy it is, is part of the scenario.
    """
    height = round(IMAGE_S * lines_per_s)
    return Scenario(
        "mandelbrot",
        COMPUTES,
        ps.sources.constant(lines_per_s, SECONDS),
        SECONDS,
        (),
        lines_per_s / 4.0,
        lines_per_s,
        partial(drawing, height=height),
        (1, 2),
        pays_for="cpu",
        policies=OURS_AND_STATIC,
        build_peak=partial(drawing, height=height, part=DEAREST),
        probe_s=36.0,  # ten spans: what computes is slowed by whatever else the machine does
        sized=lambda line_s: mandelbrot(BUSY / line_s),
    )


def tweeting(spark: SparkSession, load: Schedule) -> Built:
    """Tweets go two ways: what mood each is in, and which topics are named most in the last four seconds (001)."""
    flow = ps.Flow("tweets")
    keys = {"topic": ps.sources.zipf(500)}
    read = ps.sources.replay(spark, fn.tweets, schema="i bigint, text string", keys=keys, schedule=load)
    source = flow.read(read, time="scheduled")
    moods = source.map(
        fn.sentiment, "i bigint, topic bigint, mood bigint", replicas=ps.elastic(1, 12), chunk=32, name="sentiment"
    )
    moods.write("function", fn=nothing, name="out")
    window = source.window(ps.Time("4 s", slide="1 s"), replicas=1, name="topics")
    hot = window.apply(pane=fn.topics_of, combine=fn.hottest, schema="rank bigint, topic bigint, n bigint")
    hot.write("function", fn=nothing, name="hot")
    return Built(flow, (Promise(source, moods), Promise(source, hot, "hot", "p95")), "sentiment")


def tweets() -> Scenario:
    """Day and night, twice; two latencies on one flow."""
    return Scenario(
        "tweets",
        WAITS,
        ps.sources.sine(1800.0, 1500.0, 30.0, SECONDS),
        SECONDS,
        (),
        300.0,
        3300.0,
        tweeting,
        (1, 2, 3, 4, 6, 8),
        policies=OURS_AND_STATIC,
    )


def filmed(spark: SparkSession, load: Schedule, *, split: bool) -> Built:
    """Decode, overlay, encode, pack: four steps in one task, or each behind an exchange of its own (001)."""
    flow = ps.Flow("livestream")
    source = flow.read(ps.sources.replay(spark, fn.pictures, schema="i bigint, data binary", schedule=load))
    alone: dict[str, Any] = {"replicas": 1} if split else {}
    stream = source
    for step in (fn.decode, fn.overlay, fn.encode, fn.pack):
        stream = stream.map(step, name=step.__name__, **alone)
    stream.write("function", fn=nothing, name="out")
    return Built(flow, (Promise(source, stream),), "")


def livestream() -> Scenario:
    """A chain of four steps, fused against split at the same trigger, and as `Adaptive` has it: latency and CPU.

    Fused steps are one task behind the source; split ones are farms, each behind an exchange, which `Adaptive` may let
    share their tasks.
    """
    split = partial(filmed, split=True)
    return Scenario(
        "livestream",
        COMPUTES,
        ps.sources.constant(800.0, SECONDS),
        SECONDS,
        (),
        200.0,
        800.0,
        split,  # F, and with it bound and trigger, is that of the dearer one
        (1,),
        pays_for="cpu",
        runs=1,
        policies=("adaptive", "fused", "split"),
        variants={"fused": partial(filmed, split=False), "split": split},
    )


def low_load() -> Scenario:
    """The quotes of `trading` at their low rate: what keeping the bound costs against batches that never wait."""
    return Scenario(
        "low-load",
        COMPUTES,
        ps.sources.constant(5_000, 46.0),
        46.0,
        (),
        5_000,
        5_000,
        quotes,
        (1,),
        "p95",
        "cpu",
        runs=1,
        policies=("adaptive", "at-once"),
    )
