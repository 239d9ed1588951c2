"""A report as rich tables, and those tables as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from penstock.observe.promise import PromiseReport
    from penstock.observe.report import LatencyReport, Report

_FROM = {
    "arrival": "from a row's arrival until its result is visible",
    "cut": "from the cut of a row's batch until its result is visible; what it waited before the cut is not in it",
    "mixed": "until a row's result is visible; from its arrival in some batches, from the cut in others",
}


def number(value: float | None, digits: int = 0) -> str:
    """A figure for reading; a dash where it is not known.

    >>> number(12345.6), number(0.123, 2), number(None)
    ('12,346', '0.12', '-')
    """
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """A share of 0 to 1 as a figure for a column of percents.

    >>> percent(0.125)
    '12.5'
    """
    return "-" if share is None else f"{100.0 * share:.1f}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """A table whose first `left` columns are names and whose others are figures.

    >>> table(["operator", "rows/s"], [["f", "10"]]).row_count
    1
    """
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        # fold: where the width does not do, a heading or a name takes two lines, and no digit is cut off
        out.add_column(Text(column), justify="left" if position < left else "right", overflow="fold")
    for row in rows:
        out.add_row(*(Text(cell) for cell in row))  # Text: an operator named "f[bold]" is a name, not markup
    return out


def to_text(report: Report, width: int) -> str:
    """The report as text without colour codes; see `Report.text`.

    >>> from penstock.observe.report import Report
    >>> to_text(Report.of([]), 100).startswith("Penstock report")
    True
    """
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False, color_system=None, legacy_windows=False).print(report)
    # rich pads every line to the width: of no use in a file or a diff
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()


def promise_lines(promises: Iterable[PromiseReport]) -> list[str]:
    r"""A line per bound, where a row's time goes, how far predictions were off, and what would help.

    >>> from penstock.observe.promise import PromiseReport
    >>> parts = {"wait": 100.0, "fixed": 300.0}
    >>> late = PromiseReport("a->b", "mean", 200.0, 5.0, 4, 0.0, 420.0, 0.05, False, 380.0, parts, "fewer stages")
    >>> print("\n".join(promise_lines([late])))
    a->b: mean 420 ms, at most 200 ms required; kept in 0.0 % of 4 intervals of 5 s; NOT FEASIBLE here (least 380 ms)
      a row's time, as modelled: wait 100 ms, fixed 300 ms
      predictions of the next batch's mean were off by 5.0 %
      fewer stages
    """
    lines = []
    for promise in promises:
        lines.append(promise.line())
        if promise.parts_ms:
            parts = ", ".join(f"{name} {value:.0f} ms" for name, value in promise.parts_ms.items() if value >= 0.5)
            lines.append(f"  a row's time, as modelled: {parts}")
        if promise.predicted_off_by is not None:
            lines.append(f"  predictions of the next batch's mean were off by {100 * promise.predicted_off_by:.1f} %")
        if promise.advice:
            lines.append(f"  {promise.advice}")
    return lines


def _promises(report: Report) -> list[Text]:
    lines = promise_lines(report.promises)
    if report.policy_errors:
        lines.append(f"the policy raised {report.policy_errors} times; the last decision stayed")
    return [Text(line) for line in lines]


def render(report: Report) -> Group:
    """The report as something rich can print.

    >>> from penstock.observe.report import Report
    >>> len(render(Report.of([])).renderables)
    1
    """
    if report.batches == 0:
        return Group(Text("Penstock report: nothing measured yet (no batch has ended, or none in the time asked for)."))
    blocks: list[RenderableType] = [_header(report), _overall(report)]
    if report.promises or report.policy_errors:
        blocks += [Text("\nWhat was required"), *_promises(report)]
    if report.latency.rows:
        blocks += [Text(f"Latency, {_FROM.get(report.latency_from, report.latency_from)}"), _latency(report)]
    else:
        blocks.append(Text("Latency: none measured."))
    if report.parts:
        blocks += [Text("Where a batch's time goes"), _parts(report)]
    if report.operators:
        blocks += [Text("Operators: flow"), _flow(report), Text("Operators: effort"), _effort(report)]
        blocks += [Text("Operators: state"), _state(report)]
    return Group(*blocks)


def _header(report: Report) -> Text:
    batches = f"{report.batches:,} batch{'' if report.batches == 1 else 'es'}"
    runs = f"{report.runs:,} run{'' if report.runs == 1 else 's'}"
    return Text(f"Penstock report: measured, {batches} of {runs}, {report.duration_s:,.1f} s")


def _overall(report: Report) -> Table:
    rows = [
        ["replays", f"{report.replays:,} of the batches; earlier records not counted: {report.superseded:,}"],
        ["rows", f"{report.rows_in:,} rows in, {report.rows_out:,} rows out"],
        ["attempted rate", f"{number(report.attempted_rows_per_s)} rows/s"],
        ["effective rate", f"{number(report.effective_rows_per_s)} rows/s"],
        ["backlog", f"{number(report.backlog_now)} rows now, {number(report.backlog_max)} rows at most"],
        ["trigger time", f"{number(report.cycle_median_ms)} ms median, {number(report.cycle_p95_ms)} ms p95"],
        ["of it work", f"{number(report.work_median_ms)} ms median, {number(report.work_p95_ms)} ms p95"],
        ["set aside", f"{report.late:,} rows late, {report.dead:,} rows dead"],
        ["decisions", f"{report.width_changes:,} width changes"],
    ]
    if report.time_shares is not None:
        rows.append(["time", report.time_shares.line()])
    out = Table(box=None, show_header=False, pad_edge=False)
    for name, figures in rows:
        out.add_row(Text(name), Text(figures))
    return out


def _latency(report: Report) -> Table:
    # With a single sink "all sinks" would be the same line twice.
    shown: list[LatencyReport] = [*report.sinks] if len(report.sinks) == 1 else [*report.sinks, report.latency]
    return table(
        ["sink", "rows", "mean ms", "p50 ms", "p95 ms", "p99 ms", "max ms"],
        (
            [s.sink, number(s.rows)] + [number(ms, 1) for ms in (s.mean_ms, s.p50_ms, s.p95_ms, s.p99_ms, s.max_ms)]
            for s in shown
        ),
    )


def _parts(report: Report) -> Table:
    return table(
        ["part", "ms per batch", "share %"], ([p.part, number(p.mean_ms, 1), percent(p.share)] for p in report.parts)
    )


def _flow(report: Report) -> Table:
    columns = ["operator", "kind", "rows/s in", "rows/s out", "width", "min-max", "service ms", "cv", "utilisation %"]
    return table(
        [*columns, "tasks at once"],
        (
            [
                o.name,
                o.kind,
                number(o.rows_in_per_s),
                number(o.rows_out_per_s),
                number(o.width_now),
                f"{o.width_min}-{o.width_max}",
                number(o.service_mean_ms, 2),
                number(o.service_cv, 2),
                percent(o.utilisation),
                number(o.concurrency_max),
            ]
            for o in report.operators
        ),
        left=2,
    )


def _effort(report: Report) -> Table:
    columns = ["operator", "calls", "skipped", "busy s", "wait s", "idle s", "longest task s", "congested"]
    return table(
        [*columns, "chunk gap ms", "cv"],
        (
            [
                o.name,
                number(o.calls),
                number(o.skipped),
                number(o.busy_s, 2),
                number(o.wait_s, 2),
                number(o.idle_s, 2),
                number(o.task_max_s, 2),
                number(o.congested),
                number(o.arrivals_mean_ms, 1),
                number(o.arrivals_cv, 2),
            ]
            for o in report.operators
        ),
    )


def _state(report: Report) -> Table:
    return table(
        ["operator", "state rows", "state KiB", "setups", "teardowns"],
        (
            [o.name, number(o.state_rows), number(o.state_bytes / 1024, 1), number(o.setups), number(o.teardowns)]
            for o in report.operators
        ),
    )
