"""Judge a run by its batches: which spans kept what was required, how wide it ran, how even its tasks were.

Nothing here runs anything: records in, verdicts out. A span that is not judged (batches ran, but nothing became visible
at the sink) has the verdict None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from penstock.bench.adaptive.description import OVER_S
from penstock.control.histogram import LogHistogram
from penstock.observe.observer import stages_of
from penstock.observe.record import BatchRecord

Verdicts = list[bool | None]


@dataclass
class Spans:
    """The verdicts of consecutive spans; those of several runs are pooled by adding the lists."""

    fulfilled: list[bool] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)  # without the first two spans after a step

    def add(self, other: Spans) -> None:
        """Pool the spans of another run."""
        self.fulfilled += other.fulfilled
        self.settled += other.settled


def judge(
    records: Sequence[BatchRecord],
    start: float,
    steps: Sequence[float],
    statistic: str,
    bound_s: float,
    end: float | None = None,
) -> Spans:
    """Whether each span kept a bound; a span in which nothing became visible did not, if rows were waiting.

    >>> fast = BatchRecord(1, visible=1.0, rows_in=1, latency={"out": LogHistogram.of([0.2])})
    >>> slow = BatchRecord(2, visible=4.0, rows_in=1, latency={"out": LogHistogram.of([0.8])})
    >>> judge([fast, slow], 0.0, [2.5], "mean", 0.5)
    Spans(fulfilled=[True, False], settled=[])
    >>> judge([fast, slow], 0.0, [], "mean", 1.0, end=9.5).fulfilled  # nothing came any more: no batch ended
    [True, True, False]
    """
    return in_spans(latency_verdicts(records, start, statistic, bound_s, end=end), start, steps)


def latency_verdicts(
    records: Sequence[BatchRecord],
    start: float,
    statistic: str,
    bound_s: float,
    sink: str = "out",
    end: float | None = None,
) -> Verdicts:
    """Span by span, whether the statistic of all rows that became visible at a sink was within the bound.

    Spans that were over by `end` count, whether or not a batch came to an end in them.
    """
    found: Verdicts = []
    last = max((record.visible for record in records), default=-math.inf)
    whole = 0 if end is None else int((end - start) // OVER_S)
    for number in range(max(whole, int((last - start) // OVER_S) + 1 if records else 0)):
        low, high = start + number * OVER_S, start + (number + 1) * OVER_S
        seen = [record for record in records if low <= record.visible < high]
        histogram = LogHistogram.total(record.latency[sink] for record in seen if sink in record.latency)
        value = histogram.mean if statistic == "mean" else histogram.quantile(0.95)
        if value is None and seen:
            found.append(None)  # batches ran, but no window closed: nothing to judge
        else:
            found.append(value is not None and value <= bound_s)
    return found


def worst(verdicts: Sequence[Verdicts]) -> Verdicts:
    """Several requirements as one: a span is kept if none was broken, and not judged if none could be.

    >>> worst([[True, True, None], [True, False, None], [None, None, None]])
    [True, False, None]
    """
    return [
        None if all(one is None for one in span) else all(one is not False for one in span)
        for span in zip(*verdicts, strict=True)
    ]


def in_spans(verdicts: Verdicts, start: float, steps: Sequence[float]) -> Spans:
    """The verdicts, and those of spans that do not lie within two spans after a step.

    >>> in_spans([True, None, False, True], 0.0, [2.0])
    Spans(fulfilled=[True, False, True], settled=[True])
    """
    spans = Spans()
    for number, kept in enumerate(verdicts):
        if kept is None:
            continue
        spans.fulfilled.append(kept)
        low, high = start + number * OVER_S, start + (number + 1) * OVER_S
        if not any(low < step + 2.0 * OVER_S and step < high for step in steps if step > start):
            spans.settled.append(kept)
    return spans


def rates(records: Sequence[BatchRecord], start: float, end: float) -> list[float]:
    """Rows per second of each whole span between two moments; the rows of a batch count evenly over its cycle.

    >>> batches = [BatchRecord(n, visible=float(n), rows_in=10 * n) for n in range(7)]
    >>> rates(batches, 0.0, 6.5)
    [20.0, 50.0]
    """
    ordered = sorted(records, key=lambda record: record.visible)
    if not ordered:
        return []
    edges = start + OVER_S * np.arange(int((end - start) // OVER_S) + 1)
    done = np.cumsum([float(record.rows_in) for record in ordered])
    at_edges = np.interp(edges, [record.visible for record in ordered], done)
    return [float(rate) for rate in np.diff(at_edges) / OVER_S]


def falls_to(records: Sequence[BatchRecord], operator: str, width: int, since: float) -> float | None:
    """Seconds from a moment until an operator ran at a width, to stay there; None if it did not.

    >>> at = [BatchRecord(n, visible=float(n), decision={"widths": {"farm": w}}) for n, w in enumerate([4, 1, 4, 1, 1])]
    >>> falls_to(at, "farm", 1, since=0.5), falls_to(at[:3], "farm", 1, since=0.5)
    (2.5, None)
    """
    reached = None
    for record in sorted(records, key=lambda record: record.visible):
        if record.visible < since:
            continue
        if record.decision["widths"].get(operator) != width:
            reached = None
        elif reached is None:
            reached = record.visible - since
    return reached


def changes(records: Sequence[BatchRecord]) -> int:
    """How often widths or chains changed. Lifetimes do so with nearly every batch, and cost nothing.

    >>> ran = [{"widths": {"a": 1}}, {"widths": {"a": 2}}, {"widths": {"a": 2}, "chains": [["a", "b"]]}]
    >>> changes([BatchRecord(number, decision=decision) for number, decision in enumerate(ran)])
    2
    """
    ran = [(record.decision["widths"], record.decision.get("chains") or []) for record in records]
    return sum(a != b for a, b in pairwise(ran))


def chained(records: Sequence[BatchRecord]) -> float:
    """The share of batches in which some operators shared their tasks.

    >>> chained([BatchRecord(1, decision={"chains": []}), BatchRecord(2, decision={"chains": [["a", "b"]]})])
    0.5
    """
    return sum(bool(record.decision.get("chains")) for record in records) / max(1, len(records))


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
