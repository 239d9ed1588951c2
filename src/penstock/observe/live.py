"""What a job does right now, in the terminal: a table kept up to date, or a line per second where there is none."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.observe.record import BatchRecord
from penstock.observe.render import number, percent, table
from penstock.observe.report import Report

_REASONS = 5  # decisions that are shown


class LiveView:
    """Shows the batches of the last few seconds; a context manager, fed by `update` from any thread.

    `total_s`: how long the whole will take, for a progress bar. `window_s`: how far back rates and latencies look.
    Where the console is not a terminal, `update` prints at most one plain line per second instead.

    >>> import io
    >>> out = Console(file=io.StringIO(), width=100)
    >>> with LiveView(console=out, clock=lambda: 0.0) as view:
    ...     view.update(BatchRecord(3, rows_in=50, backlog=7, parts={"run": 0.5}))
    >>> print(out.file.getvalue().strip())
    batch 3 | effective 100 rows/s | backlog 7 rows | latency p50/p95/p99 -/-/- ms | trigger 500 ms
    """

    def __init__(
        self,
        total_s: float | None = None,
        window_s: float = 5.0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_s, self._window_s = total_s, window_s
        self._console = console or Console()
        self._clock = clock
        self._began = clock()
        self._printed: float | None = None  # when the last plain line was
        self._recent: deque[BatchRecord] = deque()
        self._bounds: list[Any] | None = None  # as they were last stated: a policy may state them rarely
        self._reasons: deque[str] = deque(maxlen=_REASONS)
        # rich refreshes from a thread of its own while the job's thread updates
        self._lock = threading.Lock()
        self._live = (
            Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> LiveView:
        self._began = self._clock()
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, record: BatchRecord) -> None:
        """Take one more batch in."""
        with self._lock:
            self._bounds = record.control.get("bounds", self._bounds)
            if self._bounds is not None:
                record = replace(record, control={**record.control, "bounds": self._bounds})
            self._recent.append(record)
            if "reason" in record.control:
                self._reasons.append(f"{record.control['reason']} (batch {record.batch})")
            # The batch before the window stays: a rate needs the moment from which it counts.
            while len(self._recent) > 2 and self._recent[1].visible < record.visible - self._window_s:
                self._recent.popleft()
        if self._live is None and (self._printed is None or self._clock() - self._printed >= 1.0):
            self._printed = self._clock()
            self._console.print(Text(self._line()), soft_wrap=True)

    def _report(self) -> tuple[BatchRecord | None, Report]:
        with self._lock:
            recent = tuple(self._recent)
        return (recent[-1] if recent else None), Report.of(recent)

    def _line(self) -> str:
        last, report = self._report()
        reasons = list(self._reasons)
        self._reasons.clear()  # a line has those since the line before
        return " | ".join(_figures(last, report, reasons)) if last else "no batch yet"

    def _render(self) -> RenderableType:
        last, report = self._report()
        if last is None:
            blocks: list[RenderableType] = [Text("waiting for the first batch")]
        else:
            with self._lock:
                reasons = tuple(self._reasons)
            blocks = [Text("\n".join(_figures(last, report, reasons)))]
            if report.operators:
                blocks.append(_operators(report))
        if self._total_s:
            done = min(self._clock() - self._began, self._total_s)
            bar = Table.grid(padding=(0, 1))
            bar.add_row(
                ProgressBar(total=self._total_s, completed=done, width=40), f"{done:.0f} of {self._total_s:.0f} s"
            )
            blocks.append(bar)
        return Group(*blocks)


def _figures(last: BatchRecord, report: Report, reasons: Iterable[str]) -> list[str]:
    latency = report.latency
    quantiles = "/".join(number(ms) for ms in (latency.p50_ms, latency.p95_ms, latency.p99_ms))
    figures = [f"batch {last.batch}"]
    if report.attempted_rows_per_s is not None:  # only sources with a schedule say what was attempted
        figures.append(f"in {number(report.attempted_rows_per_s)} rows/s")
    return [
        *figures,
        f"effective {number(report.effective_rows_per_s)} rows/s",
        f"backlog {number(last.backlog)} rows",
        f"latency p50/p95/p99 {quantiles} ms",
        f"trigger {number(report.cycle_median_ms)} ms",
        *_control(last, report, reasons),
    ]


def _control(last: BatchRecord, report: Report, reasons: Iterable[str]) -> list[str]:
    """Latencies against their bounds, the knobs as they stand, and decisions with their reasons."""
    words = [
        f"{kept.name} {kept.statistic} {number(kept.measured_ms)} of {number(kept.bound_ms)} ms"
        + (f", NOT FEASIBLE here (least {number(kept.least_ms)} ms)" if kept.feasible is False else "")
        for kept in report.promises
    ]
    if words:
        widths = ", ".join(f"{name} {width}" for name, width in last.decision.get("widths", {}).items())
        words += [f"lifetime {number(last.decision.get('lifetime_s', 0.0) * 1e3)} ms", *([widths] if widths else [])]
    return words + [f"decided: {reason}" for reason in reasons]


def _operators(report: Report) -> Table:
    return table(
        ["operator", "width", "rows/s in", "rows/s out", "service ms", "busy %"],
        (
            [
                o.name,
                number(o.width_now),
                number(o.rows_in_per_s),
                number(o.rows_out_per_s),
                number(o.service_mean_ms, 2),
                percent(o.utilisation),
            ]
            for o in report.operators
        ),
    )
