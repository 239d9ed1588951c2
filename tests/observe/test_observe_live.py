"""The live view, with a console that is a string and a clock that is set by hand."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from penstock.control.histogram import LogHistogram
from penstock.observe.live import LiveView
from penstock.observe.record import BatchRecord


def test_without_a_terminal_one_plain_line_per_second(job: list[BatchRecord]) -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=60)
    with LiveView(total_s=9.0, console=console, clock=lambda: now[0]) as view:
        for n in range(20):
            now[0] = 0.25 * n
            view.update(replace(job[0], batch=n, started=0.25 * n, visible=0.25 * n + 0.2, due=250 * n))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split(" | ")[0] for line in lines] == ["batch 0", "batch 4", "batch 8", "batch 12", "batch 16"]
    assert lines[-1].split(" | ")[1:3] == ["in 1,000 rows/s", "effective 4,000 rows/s"]
    assert "\x1b" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_only_the_last_seconds_count(job: list[BatchRecord]) -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=60)
    with LiveView(window_s=2.0, console=console, clock=lambda: now[0]) as view:
        for n in range(10):
            now[0] = float(n)
            rows = 10 if n < 5 else 70
            view.update(replace(job[0], batch=n, started=n, visible=n + 0.5, rows_in=rows, due=None))
    assert "effective 70 rows/s" in console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]


def test_in_a_terminal_a_table_with_a_row_per_operator_and_a_bar(job: list[BatchRecord]) -> None:
    console = Console(file=io.StringIO(), width=110, force_terminal=True, color_system=None)
    with LiveView(total_s=30.0, console=console, clock=lambda: 0.0) as view:
        for record in job[:3]:
            view.update(record)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for word in (
        "batch 2",
        "effective 1,000 rows/s",
        "backlog 20 rows",
        "trigger 1,000 ms",
        "score",
        "bars",
        "0 of 30 s",
    ):
        assert word in shown


def test_latency_is_shown_against_its_bound_and_the_knobs_as_they_stand(job: list[BatchRecord]) -> None:
    """Of the sinks that the bound is about: others may be slower."""
    console = Console(file=io.StringIO(), width=60)
    seen = {"out": LogHistogram.of([0.25]), "other": LogHistogram.of([9.0])}
    bound = {"name": "a->b", "mean_s": 1.5, "over_s": 5.0, "sinks": ["out"]}
    with LiveView(console=console, clock=lambda: 0.0) as view:
        view.update(
            replace(
                job[0],
                latency=seen,
                decision={"widths": {"score": 3}, "lifetime_s": 1.2},
                control={"bounds": [bound], "reason": "score 1 -> 3"},
            )
        )
    shown = console.file.getvalue().strip().split(" | ")  # type: ignore[attr-defined]
    assert shown[-4:] == [
        "a->b mean 250 of 1,500 ms",
        "lifetime 1,200 ms",
        "score 3",
        "decided: score 1 -> 3 (batch 0)",
    ]


def test_every_decision_is_shown_and_bounds_that_were_stated_before_hold(job: list[BatchRecord]) -> None:
    """Lines come once a second, decisions with every batch; a policy states its bounds when it decides."""
    now = [0.0]
    console = Console(file=io.StringIO(), width=60)
    bound = {"name": "a->b", "mean_s": 1.5, "over_s": 5.0, "sinks": ["out"]}
    verdict = {"kind": "mean", "bound_s": 1.5, "feasible": False, "least_s": 2.0, "parts_s": {}}
    controls = [{"bounds": [bound], "verdict": verdict}, {"reason": "up"}, {"reason": "down"}, {}, {}, {}]
    with LiveView(window_s=1.0, console=console, clock=lambda: now[0]) as view:
        for n, control in enumerate(controls):
            now[0] = 0.4 * n
            seen = {"out": LogHistogram.of([0.25])}
            view.update(replace(job[0], batch=n, started=3.0 * n, visible=3.0 * n + 0.2, latency=seen, control=control))
    first, second = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "a->b mean 250 of 1,500 ms, NOT FEASIBLE here (least 2,000 ms)" in first
    assert "a->b mean 250 of 1,500 ms" in second
    assert second.endswith("decided: up (batch 1) | decided: down (batch 2)")
