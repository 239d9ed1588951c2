"""The figures of a report, worked out by hand, and its text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.control.histogram import LogHistogram
from penstock.observe.record import PARTS, BatchRecord, OperatorStats
from penstock.observe.report import Report

GOLDEN = Path(__file__).with_name("golden_report.txt")


def test_totals_count_a_replayed_batch_once(job: list[BatchRecord]) -> None:
    report = Report.of(job)
    assert (report.batches, report.runs, report.replays, report.superseded) == (5, 2, 1, 1)
    assert (report.rows_in, report.rows_out, report.late, report.dead) == (5000, 25, 5, 0)
    assert report.duration_s == pytest.approx(11.8)
    assert (report.backlog_now, report.backlog_max) == (40, 40)


def test_rates_leave_out_down_time_and_what_piled_up_before_a_run(job: list[BatchRecord]) -> None:
    report = Report.of(job)
    # run a: batches 1, 2 in 2 s; run b: batch 4 in 1 s; 1000 rows each, in spite of 7 s between the runs
    assert report.effective_rows_per_s == pytest.approx(1000.0)
    assert report.attempted_rows_per_s == pytest.approx(1000.0)


def test_an_overloaded_job_shows_attempted_above_effective() -> None:
    records = [BatchRecord(n, started=n, visible=n + 0.9, rows_in=600, due=1000 * n, backlog=400 * n) for n in range(6)]
    report = Report.of(records)
    assert report.attempted_rows_per_s == pytest.approx(1000.0)
    assert report.effective_rows_per_s == pytest.approx(600.0)
    assert (report.backlog_now, report.backlog_max) == (2000, 2000)


def test_latency_per_sink_and_over_all() -> None:
    record = BatchRecord(
        1,
        latency={"a": LogHistogram.of([0.1] * 99 + [7.0]), "b": LogHistogram.of([2.0])},
        latency_from="arrival",
    )
    report = Report.of([record])
    a, b = report.sinks
    assert (a.sink, a.rows, a.max_ms, b.sink, b.rows, b.max_ms) == ("a", 100, 7000.0, "b", 1, 2000.0)
    assert a.p50_ms == pytest.approx(100.0, rel=0.01)
    assert a.p99_ms == pytest.approx(100.0, rel=0.01)
    assert (report.latency.rows, report.latency.max_ms, report.latency_from) == (101, 7000.0, "arrival")
    assert report.latency.p99_ms == pytest.approx(2000.0, rel=0.01)


def test_it_says_from_where_latency_runs() -> None:
    histogram = {"out": LogHistogram.of([1.0])}
    cut, arrival = BatchRecord(1, latency=histogram), BatchRecord(2, latency=histogram, latency_from="arrival")
    assert "from the cut of a row's batch" in Report.of([cut]).text()
    assert "from a row's arrival" in Report.of([arrival]).text()
    assert Report.of([cut, arrival]).latency_from == "mixed"
    assert Report.of([BatchRecord(3, latency_from="arrival")]).latency_from == ""


def test_parts_are_complete_in_order_and_sum_to_one(job: list[BatchRecord]) -> None:
    parts = Report.of(job).parts
    assert tuple(p.part for p in parts) == PARTS
    assert sum(p.share or 0.0 for p in parts) == pytest.approx(1.0)
    assert {p.part: round(p.mean_ms) for p in parts}["run"] == 500


def test_trigger_time_is_the_cycle_and_work_leaves_the_wait_out(job: list[BatchRecord]) -> None:
    report = Report.of(job)
    assert (round(report.cycle_median_ms), round(report.work_p95_ms)) == (1000, 800)


def test_operators(job: list[BatchRecord]) -> None:
    score, bars = Report.of(job).operators
    assert (score.name, score.kind, bars.name, bars.kind) == ("score", "map", "bars", "window")
    assert (score.width_now, score.width_min, score.width_max, score.width_changes) == (3, 2, 4, 2)
    assert (score.rows_in_per_s, bars.rows_out_per_s) == (pytest.approx(1000.0), pytest.approx(5.0))
    assert (score.calls, score.skipped, score.setups, score.teardowns) == (50, 5, 5, 0)
    assert score.service_mean_ms == pytest.approx(50.0)
    assert score.service_cv == pytest.approx((0.01**2 * 50 / 49) ** 0.5 / 0.05)
    assert score.utilisation == pytest.approx(5 * 0.5 / (2 + 2 + 4 + 4 + 3))  # cycles of 1 s
    assert (bars.state_rows, bars.state_bytes, bars.concurrency_max) == (44, 2048, 1)
    assert bars.service_mean_ms is None
    assert bars.service_cv is None


def test_width_changes_are_summed_over_operators_and_unknown_widths_skipped() -> None:
    widths = [1, 0, 1, 2, 2, 1]
    records = [BatchRecord(n, operators=(OperatorStats("f", width=w),)) for n, w in enumerate(widths)]
    assert Report.of(records).width_changes == 2


def test_last_seconds(job: list[BatchRecord]) -> None:
    recent = Report.of(job, last=1.5)
    assert (recent.batches, recent.runs, recent.superseded, recent.rows_in) == (2, 1, 0, 2000)


def test_one_batch_has_rates_by_its_own_time() -> None:
    assert Report.of([BatchRecord(0, rows_in=50, parts={"run": 0.5})]).effective_rows_per_s == 100.0


def test_nothing_known_is_none_and_prints() -> None:
    report = Report.of([BatchRecord(0, operators=(OperatorStats("f"),))])
    assert report.effective_rows_per_s is report.attempted_rows_per_s is report.cycle_p95_ms is None
    assert report.operators[0].utilisation is None
    assert "Latency: none measured." in report.text()


def test_empty_telemetry_is_a_sentence() -> None:
    assert str(Report.of([])) == (
        "Penstock report: nothing measured yet (no batch has ended, or none in the time asked for)."
    )
    assert Report.of([], last=5.0).to_json()["batches"] == 0


def test_to_json_is_plain_json(job: list[BatchRecord]) -> None:
    value = Report.of(job).to_json()
    again = json.loads(json.dumps(value, allow_nan=False))
    assert again["basis"] == "measured"
    assert again["operators"][0]["width_now"] == 3
    assert again["sinks"][0]["sink"] == "bars.parquet"


def test_the_text_is_the_golden_one(job: list[BatchRecord]) -> None:
    assert Report.of(job).text() + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_names_are_never_markup_and_never_lost() -> None:
    long = "an_operator_with_a_very_long_name_" * 5
    marked = Report.of([BatchRecord(0, operators=(OperatorStats("f[bold]:smile:"),))]).text()
    assert marked.count("f[bold]:smile:") == 3  # once per table
    text = Report.of([BatchRecord(0, operators=(OperatorStats(long),))]).text()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 116
    folded = text[text.index("Operators: state") :]
    assert long in "".join(re.findall(r"[a-z_]+", folded[folded.rindex("─") :]))


def test_large_figures_are_folded_not_cut_off() -> None:
    big = 123_456_789_012
    stats = OperatorStats("f", "map", calls=big, skipped=big, busy_s=big, wait_s=big, idle_s=big, task_max_s=big)
    text = Report.of([BatchRecord(0, operators=(stats,))]).text(width=100)
    assert max(map(len, text.splitlines())) <= 100
    effort = text[text.index("Operators: effort") : text.index("Operators: state")]
    digits = re.findall(r"\d", effort[effort.rindex("─") :])
    assert len(digits) == 2 * 12 + 4 * 14 + 1  # calls and skipped; four times of seconds with cents; congested 0


def test_the_text_has_a_unit_for_every_operator_figure(job: list[BatchRecord]) -> None:
    text = Report.of(job).text()
    for heading in ("rows/s in", "service ms", "utilisation %", "busy s", "wait s", "idle s", "state KiB", "share %"):
        assert heading in text
