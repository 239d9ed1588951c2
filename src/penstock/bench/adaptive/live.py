"""One live run of one policy on one scenario, and what it showed.

A run is open loop: rows fall due by the schedule, whatever the job does, and latency counts from then. Time is cut
into spans of `OVER_S`; a span is fulfilled if the statistic of all rows that became visible in it is within the
bound; of several bounds, within each. The first `SETTLE_S` seconds of a run (the query starts, workers fork) are not
judged. CPU seconds are those of this process and all below it: driver, JVM, Python workers.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.bench.adaptive.description import Build, Built, Scenario
from penstock.bench.adaptive.judging import (
    Spans,
    chained,
    changes,
    falls_to,
    in_spans,
    judge,
    latency_verdicts,
    rates,
    unevenness,
    worst,
)
from penstock.bench.adaptive.replays import replayed_share
from penstock.control.decision import Decision
from penstock.control.histogram import LogHistogram
from penstock.observe.processor import cpu_seconds
from penstock.observe.promise import off_by
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import telemetry_dir
from penstock.sources.schedule import Schedule

SETTLE_S = 6.0


@dataclass
class Outcome:
    """What a run showed. Costs are per second of the part that was judged, times its length."""

    bound_s: float  # by which it was judged
    spans: Spans
    latency: LogHistogram
    cpu_seconds: float
    width_seconds: float
    reconfigurations: int
    model_error: float | None
    uneven: list[float]  # busiest task / mean task of the chosen operator, per batch, later than 3 spans after a step
    seconds: float
    each: dict[str, Spans] = field(default_factory=dict)  # by sink, where several latencies are required
    more: dict[str, Any] = field(default_factory=dict)  # what only this scenario shows

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        out = asdict(self)
        out["latency"] = self.latency.to_json()
        return out

    @staticmethod
    def from_json(value: dict[str, Any]) -> Outcome:
        """What `to_json` wrote."""
        each = {sink: Spans(**spans) for sink, spans in value.get("each", {}).items()}
        known = {**value, "spans": Spans(**value["spans"]), "latency": LogHistogram.from_json(value["latency"])}
        return Outcome(**{**known, "each": each})


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
    build: Build | None = None,
    keep: Path | None = None,
) -> Outcome:
    """Run a policy (an object, a name, or None for the default) and measure it.

    `load`, `seconds` and `build` take the place of the scenario's own. What is required is so of every policy, also of
    one that does not look at it: windows that a latency counts on close a batch sooner. `keep` is a folder for the
    run's telemetry, laid out like a checkpoint: `penstock report` and `simulate replay` read it.
    """
    built = (build or scenario.build)(spark, load or scenario.load)
    lasts = seconds or scenario.seconds
    state_requirements(built, scenario, bound_s)
    records: list[BatchRecord] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        job = built.flow.start(spark, checkpoint=checkpoint, policy=policy)
        began = time.time()

        def hold_until(at_s: float) -> None:
            job.await_end(max(0.0, began + at_s - time.time()))

        try:
            job.on_batch(records.append)
            hold_until(SETTLE_S)
            before = cpu_seconds()
            if built.target is not None and built.target.until_s < lasts:
                hold_until(built.target.until_s)
                job.require(built.target.none())
            hold_until(lasts)
            spent = cpu_seconds() - before
        finally:
            job.stop()
        if keep is not None:
            shutil.copytree(telemetry_dir(checkpoint), telemetry_dir(keep), dirs_exist_ok=True)
    start, end = began + SETTLE_S, began + lasts
    judged = seen_within(records, start, end)
    steps = [began + at for at in scenario.steps_s]
    outcome = Outcome(
        bound_s=bound_s,
        spans=Spans(),
        # Where there is always more to do than is done, rows wait the longer the later they come: that says nothing.
        latency=latency_at(judged, built.promises[0].sink) if built.promises else LogHistogram(),
        cpu_seconds=spent,
        width_seconds=sum(record.decision["widths"].get(built.operator, 0) * record.cycle_s for record in judged),
        reconfigurations=changes(judged),
        model_error=off_by(judged),
        uneven=unevenness(judged, built.operator, steps),
        seconds=end - start,
        more={"chained": chained(judged)} if scenario.variants else {},
    )
    if built.target is not None:
        judge_target(outcome, built, records, start, end, began)
        return outcome

    def spans(found: Sequence[BatchRecord]) -> Spans:
        return kept_spans(built, scenario, bound_s, seen_within(found, start, end), start, steps)[0]

    judge_promises(outcome, built, scenario, bound_s, judged, start, steps, end)
    outcome.more["replayed"] = replayed_share(records, "static" if isinstance(policy, Fixed) else policy, spans)
    return outcome


def seen_within(records: Sequence[BatchRecord], start: float, end: float) -> list[BatchRecord]:
    """The batches whose results became visible between two moments."""
    return [record for record in records if start <= record.visible < end]


def state_requirements(built: Built, scenario: Scenario, bound_s: float) -> None:
    """Require of the flow what it is judged by."""
    for promise, limit in zip(built.promises, scenario.bounds_s(built, bound_s), strict=True):
        built.flow.require(promise.require(limit))
    if built.target is not None:
        built.flow.require(built.target.require())


def latency_at(records: Sequence[BatchRecord], sink: str) -> LogHistogram:
    """All latencies of a sink."""
    return LogHistogram.total(record.latency[sink] for record in records if sink in record.latency)


def judge_promises(
    outcome: Outcome,
    built: Built,
    scenario: Scenario,
    bound_s: float,
    records: Sequence[BatchRecord],
    start: float,
    steps: Sequence[float],
    end: float | None = None,
) -> None:
    """Put into an outcome which spans kept the bounds, and of several bounds, what each showed."""
    outcome.spans, outcome.each = kept_spans(built, scenario, bound_s, records, start, steps, end)
    if outcome.each:
        outcome.more["statistics"] = {one.sink: one.statistic for one in built.promises}
        outcome.more["latency"] = {one.sink: latency_at(records, one.sink).to_json() for one in built.promises}


def kept_spans(
    built: Built,
    scenario: Scenario,
    bound_s: float,
    records: Sequence[BatchRecord],
    start: float,
    steps: Sequence[float],
    end: float | None = None,
) -> tuple[Spans, dict[str, Spans]]:
    """Which spans kept the bounds: all of them, and where there are several, each by its sink."""
    if len(built.promises) == 1:
        return judge(records, start, steps, scenario.statistic, bound_s, end), {}
    found = {
        promise.sink: latency_verdicts(records, start, promise.statistic, limit, promise.sink, end)
        for promise, limit in zip(built.promises, scenario.bounds_s(built, bound_s), strict=True)
    }
    each = {sink: in_spans(verdicts, start, steps) for sink, verdicts in found.items()}
    return in_spans(worst(list(found.values())), start, steps), each


def judge_target(
    outcome: Outcome, built: Built, records: Sequence[BatchRecord], start: float, end: float, began: float
) -> None:
    """Put into an outcome which spans reached the target while it held, and how soon the width fell when none did."""
    target = built.target
    assert target is not None
    until = min(began + target.until_s, end)
    reached = rates(records, start, until)
    outcome.spans = in_spans([rate >= target.per_s for rate in reached], start, [])
    least = built.flow.operators[built.operator].width.lo  # type: ignore[attr-defined]
    outcome.more["target_per_s"] = target.per_s
    outcome.more["rates_per_s"] = [round(rate, 1) for rate in reached]
    outcome.more["least_width_after_s"] = falls_to(records, built.operator, least, until) if until < end else None
