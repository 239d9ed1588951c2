"""The curves of a run: every value can be worked out by hand from the records."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.control.histogram import LogHistogram
from penstock.observe.promise import in_force, promises
from penstock.observe.record import BatchRecord, OperatorStats
from penstock.observe.timeline import Curve, Timeline

BOUND = {"name": "a->b", "mean_s": 0.5, "over_s": 2.0, "sinks": ["out"]}


def batch(number: int, latency_s: float = 0.2, run: str = "a", at: float | None = None, **more: object) -> BatchRecord:
    """Batch `number` of a job of one batch per second, visible 0.25 s after its start."""
    start = 100.0 + number if at is None else at
    given = {
        "rows_in": 100, "due": 100 * (number + 1), "backlog": number, "parts": {"run": 0.25, "wait": 0.75},
        "latency": {"out": LogHistogram.of([latency_s])}, "latency_from": "arrival",
        "decision": {"widths": {"score": 2}, "lifetime_s": 1.0},
    } | more  # fmt: skip
    return BatchRecord(number, run=run, started=start, visible=start + 0.25, **given)  # type: ignore[arg-type]


def curve(curves: tuple[Curve, ...], label: str) -> dict[float, float]:
    (found,) = [c for c in curves if c.label == label]
    return dict(zip(found.at_s, found.values, strict=True))


def test_rates_are_what_fell_due_between_cuts_and_what_was_processed_between_visibilities() -> None:
    records = [batch(0, due=50), batch(1, due=250, rows_in=120), batch(2, due=300, rows_in=60, at=103.0)]
    shown = Timeline.of(records)
    due, processed = curve(shown.rates, "due"), curve(shown.rates, "processed")
    assert math.isnan(due.pop(0.25))
    assert math.isnan(processed.pop(0.25)), "what the first batch reads had piled up before"
    assert due == {1.25: 200.0, 3.25: 25.0}
    assert processed == {1.25: 120.0, 3.25: 30.0}
    assert shown.backlog == Curve("backlog", (0.25, 1.25, 3.25), (0.0, 1.0, 2.0))


def test_a_source_that_does_not_say_what_is_due_has_one_rate_and_no_backlog() -> None:
    shown = Timeline.of([batch(n, due=None, backlog=None) for n in range(3)])
    assert [c.label for c in shown.rates] == ["processed"]
    assert shown.backlog is None


def test_latency_is_drawn_where_its_bound_is_measured() -> None:
    two = {"out": LogHistogram.of([0.1, 0.3]), "other": LogHistogram.of([9.0])}
    shown = Timeline.of([batch(0, latency=two, control={"bounds": [BOUND]})])
    assert curve(shown.latency, "mean")[0.25] == pytest.approx(200, rel=0.02)
    assert curve(shown.latency, "p95")[0.25] == pytest.approx(300, rel=0.02)
    assert len(shown.latency) == 2, "p99 only where it is bounded"
    everywhere = Timeline.of([batch(0, latency=two)])
    assert curve(everywhere.latency, "p95")[0.25] == pytest.approx(9000, rel=0.02)
    assert shown.latency_from == "arrival"


def test_two_bounds_at_two_sinks_have_their_own_curves() -> None:
    other = {"name": "a->c", "p99_s": 2.0, "over_s": 2.0, "sinks": ["other"]}
    seen = {"out": LogHistogram.of([0.1]), "other": LogHistogram.of([0.4])}
    shown = Timeline.of([batch(n, latency=seen, control={"bounds": [BOUND, other]}) for n in range(2)])
    assert [c.label for c in shown.latency] == [f"{n} {k}" for n in ("a->b", "a->c") for k in ("mean", "p95", "p99")]
    assert curve(shown.latency, "a->c mean")[1.25] == pytest.approx(400, rel=0.02)
    assert curve(shown.bounds, "a->c p99 at most") == {0.0: 2000.0, 1.25: 2000.0}


def test_a_bound_that_was_changed_live_is_a_step() -> None:
    tighter = BOUND | {"mean_s": 0.3}
    stated = [BOUND, BOUND, tighter, tighter]
    shown = Timeline.of([batch(n, control={"bounds": [bound]}) for n, bound in enumerate(stated)])
    assert shown.bounds == (Curve("mean at most", (0.0, 2.25, 3.25), (500.0, 300.0, 300.0)),)


def test_the_spans_shown_as_broken_are_those_that_the_report_counts() -> None:
    random = np.random.default_rng(3)
    records = [batch(n, float(random.uniform(0.2, 0.8)), control={"bounds": [BOUND]}) for n in range(40)]
    (promise,) = promises(records)
    shown = Timeline.of(records)
    assert len(shown.broken) == round((1.0 - (promise.kept or 0.0)) * promise.intervals) > 3
    for began, ended in shown.broken:
        inside = [r.latency["out"].mean for r in records if began <= r.started - 100.0 and r.visible - 100.0 <= ended]
        assert np.mean([value for value in inside if value is not None]) > 0.5


def test_bounds_hold_for_the_batches_between_two_looks_and_not_for_another_run() -> None:
    """A policy that decides every second batch: each batch's latency counts all the same."""
    records = [batch(n, 0.9 if n % 2 else 0.1, control={} if n % 2 else {"bounds": [BOUND]}) for n in range(6)]
    (found,) = promises(records)
    assert (found.intervals, found.kept) == (3, 1.0)
    assert found.measured_ms == pytest.approx(500, rel=0.02)
    later = [*records, batch(6, run="b")]
    assert [bool(bounds) for _, bounds in in_force(later)] == [True] * 6 + [False]


def test_widths_are_steps_as_decided_or_else_as_they_ran() -> None:
    widths = [2, 2, 4, 4, 3]
    shown = Timeline.of([batch(n, decision={"widths": {"score": w}}) for n, w in enumerate(widths)])
    assert shown.widths == (Curve("score", (0.0, 2.0, 4.0, 4.25), (2.0, 4.0, 3.0, 3.0)),)
    ran = Timeline.of([batch(0, decision={}, operators=(OperatorStats("score", width=5), OperatorStats("fused")))])
    assert ran.widths == (Curve("score", (0.0, 0.25), (5.0, 5.0)),)


def test_lifetime_cycle_and_work() -> None:
    shown = Timeline.of([batch(0)])
    assert [(c.label, c.values) for c in shown.lifetimes] == [
        ("lifetime", (1000.0,)), ("cycle", (1000.0,)), ("work", (250.0,)),
    ]  # fmt: skip


def test_decisions_and_restarts_are_marked_and_down_time_is_left_out() -> None:
    records = [
        batch(0, control={"reason": "score 1 -> 2"}),
        batch(1),
        batch(2),  # superseded
        batch(2, run="b", at=500.0, replayed=True),
        batch(3, run="b", at=501.0, control={"reason": "score 2 -> 3"}),
        batch(4, run="b", at=502.0, replayed=True),  # Spark's query was started again within the run
    ]
    shown = Timeline.of(records)
    assert (shown.runs, shown.batches, shown.end_s) == (2, 5, 3.5)
    assert shown.decisions == ((0.25, "score 1 -> 2"), (2.5, "score 2 -> 3"))
    assert shown.restarts == (1.25, 3.25)
    work = next(c for c in shown.lifetimes if c.label == "work")
    assert [math.isnan(v) for v in work.values] == [False, False, True, False, False, False], "the line breaks"
    assert list(work.at_s) == sorted(work.at_s)


def test_only_the_last_seconds() -> None:
    shown = Timeline.of([batch(n) for n in range(10)], last=2.5)
    assert (shown.batches, shown.end_s) == (3, 2.25)


def test_a_long_run_has_few_points_and_the_same_totals() -> None:
    """1200 batches, 3 to a point: rates, the slowest backlog, and the pooled latency of each three."""
    records = [batch(n, 0.1 * (1 + n % 3), rows_in=n % 3, backlog=n % 3) for n in range(1200)]
    shown = Timeline.of(records)
    processed = curve(shown.rates, "processed")
    assert len(processed) == 400
    assert set(list(processed.values())[1:]) == {1.0}
    assert shown.backlog is not None
    assert set(shown.backlog.values) == {2.0}
    assert curve(shown.latency, "mean")[2.25] == pytest.approx(200, rel=0.02)


def test_no_records_no_curves() -> None:
    shown = Timeline.of([])
    assert (shown.batches, shown.rates, shown.latency, shown.widths, shown.restarts) == (0, (), (), (), ())


def test_the_title_says_what_ran_and_whether_it_was_kept() -> None:
    shown = Timeline.of([batch(n, control={"bounds": [BOUND], "policy": "Adaptive"}) for n in range(4)])
    assert shown.title.splitlines()[0] == "Adaptive, 4 batches, measured"
    assert "at most 500 ms required; kept in 100.0 % of 2 intervals" in shown.title
