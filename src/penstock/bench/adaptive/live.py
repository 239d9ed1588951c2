"""One live run of one policy on one scenario, and what it showed.

A run is open loop: rows fall due by the schedule, whatever the job does, and latency counts from then. Time is cut
into spans of `OVER_S`; a span is fulfilled if the statistic of all rows that became visible in it is within the
bound. The first `SETTLE_S` seconds of a run (the query starts, workers fork) are not judged. CPU seconds are those of
this process and all below it: driver, JVM, Python workers.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import psutil
from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.adaptive.scenarios import Scenario
from penstock.control.decision import Decision
from penstock.control.histogram import LogHistogram
from penstock.observe.observer import stages_of
from penstock.observe.record import BatchRecord
from penstock.sources.schedule import Schedule

OVER_S = 3.0
SETTLE_S = 6.0


@dataclass
class Spans:
    """The latency histograms of consecutive spans; those of several runs are pooled by adding the lists."""

    fulfilled: list[bool] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)  # without the first two spans after a step

    def add(self, other: Spans) -> None:
        """Pool the spans of another run."""
        self.fulfilled += other.fulfilled
        self.settled += other.settled


@dataclass
class Outcome:
    """What a run showed. Costs are per second of the part that was judged, times its length."""

    spans: Spans
    latency: LogHistogram
    cpu_seconds: float
    width_seconds: float
    reconfigurations: int
    model_error: float | None
    uneven: list[float]  # busiest task / mean task of the chosen operator, per batch, later than 3 spans after a step
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        out = asdict(self)
        out["latency"] = self.latency.to_json()
        return out

    @staticmethod
    def from_json(value: dict[str, Any]) -> Outcome:
        """What `to_json` wrote."""
        known = {**value, "spans": Spans(**value["spans"]), "latency": LogHistogram.from_json(value["latency"])}
        return Outcome(**known)


def cpu_seconds() -> float:
    """CPU seconds so far of this process and all below it, those that ended included."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Fixed:
    """The width and the lifetime of a static set-up."""

    def __init__(self, operator: str, width: int, lifetime_s: float) -> None:
        self.operator, self.width, self.lifetime_s = operator, width, lifetime_s

    def decide(self, observed: Any, current: Decision) -> Decision:
        """Always the same."""
        return Decision({**current.widths, self.operator: self.width}, self.lifetime_s, current.row_cap)


def run(
    spark: SparkSession,
    scenario: Scenario,
    policy: Any,
    bound_s: float,
    *,
    load: Schedule | None = None,
    seconds: float | None = None,
    requires: bool = True,
) -> Outcome:
    """Run a policy (an object, a name, or None for the default) and measure it."""
    built = scenario.build(spark, load or scenario.load)
    if requires:
        bound = f"{bound_s * 1e6:.0f} us"
        limit: dict[str, Any] = {scenario.statistic: bound}
        built.flow.require(ps.Latency(built.start, built.end, over=f"{OVER_S:g} s", **limit))
    records: list[BatchRecord] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        job = built.flow.start(spark, checkpoint=checkpoint, policy=policy)
        began = time.time()
        try:
            job.on_batch(records.append)
            job.await_end(SETTLE_S)
            before = cpu_seconds()
            job.await_end((seconds or scenario.seconds) - SETTLE_S)
            spent = cpu_seconds() - before
            error = job.host.controller.predictions.mape()
        finally:
            job.stop()
    start = began + SETTLE_S
    end = began + (seconds or scenario.seconds)
    judged = [record for record in records if start <= record.visible < end]
    return Outcome(
        spans=judge(judged, start, [began + at for at in scenario.steps_s], scenario.statistic, bound_s),
        latency=LogHistogram.total(record.latency["out"] for record in judged if "out" in record.latency),
        cpu_seconds=spent,
        width_seconds=sum(record.decision["widths"].get(built.operator, 0) * record.cycle_s for record in judged),
        reconfigurations=changes(judged),
        model_error=error,
        uneven=unevenness(judged, built.operator, [began + at for at in scenario.steps_s]),
        seconds=end - start,
    )


def judge(
    records: Sequence[BatchRecord], start: float, steps: Sequence[float], statistic: str, bound_s: float
) -> Spans:
    """Whether each span kept the bound; a span in which nothing became visible did not, if rows were waiting.

    >>> fast = BatchRecord(1, visible=1.0, rows_in=1, latency={"out": LogHistogram.of([0.2])})
    >>> slow = BatchRecord(2, visible=4.0, rows_in=1, latency={"out": LogHistogram.of([0.8])})
    >>> judge([fast, slow], 0.0, [2.5], "mean", 0.5)
    Spans(fulfilled=[True, False], settled=[])
    """
    spans = Spans()
    if not records:
        return spans
    last = max(record.visible for record in records)
    for number in range(int((last - start) // OVER_S) + 1):
        low, high = start + number * OVER_S, start + (number + 1) * OVER_S
        seen = [r.latency["out"] for r in records if low <= r.visible < high and "out" in r.latency]
        histogram = LogHistogram.total(seen)
        value = histogram.mean if statistic == "mean" else histogram.quantile(0.95)
        if value is None and any(low <= r.visible < high for r in records):
            continue  # batches ran, but no window closed: nothing to judge
        kept = value is not None and value <= bound_s
        spans.fulfilled.append(kept)
        if not any(low < step + 2.0 * OVER_S and step < high for step in steps if step > start):
            spans.settled.append(kept)
    return spans


def changes(records: Sequence[BatchRecord]) -> int:
    """How often the widths changed."""
    widths = [record.decision["widths"] for record in records]
    return sum(a != b for a, b in pairwise(widths))


def unevenness(records: Sequence[BatchRecord], operator: str, steps: Sequence[float]) -> list[float]:
    """Busiest over mean task of an operator, for batches later than three spans after every step."""
    found = []
    for record in records:
        if any(0.0 <= record.visible - step < 3.0 * OVER_S for step in steps):
            continue
        for stage in stages_of(record):
            if stage.name == operator and stage.width > 1 and stage.rows > 0:
                found.append(stage.skew)
    return found


def wilson(successes: int, tries: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson's score interval).

    >>> tuple(round(x, 3) for x in wilson(96, 100))
    (0.902, 0.984)
    """
    if tries == 0:
        return 0.0, 1.0
    z, p = 1.96, successes / tries
    middle = (p + z * z / (2 * tries)) / (1 + z * z / tries)
    half = z / (1 + z * z / tries) * math.sqrt(p * (1 - p) / tries + z * z / (4 * tries * tries))
    return max(0.0, middle - half), min(1.0, middle + half)
