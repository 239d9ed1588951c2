"""A small job whose every figure can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.histogram import LogHistogram
from penstock.control.moments import Moments
from penstock.observe.record import BatchRecord, OperatorStats


def batch(number: int, run: str = "a", width: int = 2, **changes: object) -> BatchRecord:
    """Batch `number` of a job of one batch per second and 1000 rows per batch."""
    score = OperatorStats(
        "score", "map", width=width, tasks=2, rows_in=1000, rows_out=500, calls=10, skipped=1, busy_s=0.5, wait_s=0.25,
        idle_s=0.3, service=Moments.of([0.04, 0.06] * 5), arrivals=Moments.of([0.1] * 9), concurrency=2,
        task_max_s=0.3, setups=1, state_rows=0,
    )  # fmt: skip
    bars = OperatorStats("bars", "window", width=1, tasks=1, rows_in=500, rows_out=5, calls=5, busy_s=0.1,
                         concurrency=1, state_rows=40 + number, state_bytes=2048)  # fmt: skip
    record = BatchRecord(
        number, run=run, started=100.0 + number, visible=100.8 + number, rows_in=1000, rows_out=5,
        due=1000 * (number + 1), backlog=10 * number,
        parts={"spark": 0.05, "log": 0.01, "plan": 0.04, "run": 0.5, "manifest": 0.05, "sink": 0.1, "control": 0.05,
               "wait": 0.2},
        operators=(score, bars),
        latency={"bars.parquet": LogHistogram.of([0.5, 0.9], weights=[3, 2])}, latency_from="arrival",
        decision={"width": {"score": width}}, watermark=1_000_000 * number, late=1,
    )  # fmt: skip
    return replace(record, **changes)


@pytest.fixture
def job() -> list[BatchRecord]:
    """Five batches; the width of `score` goes 2, 2, 4, 4, 3; batch 3 was killed once and replayed in a second run."""
    return [
        batch(0),
        batch(1),
        batch(2, width=4),
        batch(3, width=4, rows_in=999),
        batch(3, run="b", width=4, started=110.0, visible=110.8, replayed=True),
        batch(4, run="b", width=3, started=111.0, visible=111.8),
    ]
