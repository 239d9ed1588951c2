"""How long a job waits from one cut of a batch to the next.

The lifetime that was decided, but less where the load has risen, a window ends, or a user asks for something; and a
little more where the next batch would still be at work when a window ends.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from penstock.control.decision import Decision
from penstock.control.models.batch_service import worth_waiting_s
from penstock.engine.spark.controller import Controller, slide_s
from penstock.engine.spark.measure import arrived_by
from penstock.engine.spark.watermarks import awaits_a_cut
from penstock.flow import operators as op
from penstock.flow.flow import Flow

LOOK_S = 0.01  # how often it looks at what has arrived
SELDOM_S = 0.2  # how often, if only a user can end the wait
_LONGEST_GAP_S = 1.0  # a longer one is a stream without rows
_GAPS = 5  # batches of which the median tells how long Spark takes to begin the next one

Entries = Mapping[str, dict[str, Any]]  # of window operators, in the manifest of the last batch


class Pause:
    """Waits for the next cut; `stopping` ends it, and so does `hurry`: something was required, or a flush."""

    def __init__(
        self, flow: Flow, controller: Controller, windows: Mapping[str, op.Window], stopping: threading.Event
    ) -> None:
        self.flow, self.controller, self.windows, self.stopping = flow, controller, windows, stopping
        self.hurry = threading.Event()
        self._cut_for: dict[str, Any] = {}  # the clocks of windows when a batch was last cut as one of them ended
        self._gaps: deque[float] = deque(maxlen=_GAPS)

    def took(self, gap_s: float) -> None:
        """Take in how long Spark took from the end of a wait to the batch that it then began."""
        if gap_s < _LONGEST_GAP_S:
            self._gaps.append(gap_s)

    def next_cut_s(self, begun_s: float, now_s: float, lifetime_s: float) -> float:
        """When the batch after one that began at a moment, and is done now, will begin."""
        return max(begun_s + lifetime_s, now_s + self._gap_s)

    @property
    def _gap_s(self) -> float:
        return statistics.median(self._gaps) if self._gaps else 0.0

    def wait(self, decision: Decision, begun_s: float, offsets: list[Any], entries: Entries) -> bool:
        """Wait for the lifetime of the batch that was begun at a moment and read up to these offsets.

        The lifetime is from cut to cut: what Spark takes to begin the next batch is part of it. Returns whether a user
        ended the wait, so that the next batch is not the one that was planned.
        """
        end, work_s = begun_s + decision.lifetime_s - self._gap_s, time.monotonic() - begun_s
        look_s = LOOK_S if decision.cut_rows or decision.at_ends else SELDOM_S
        while not self.hurry.is_set():
            left, held = end - time.monotonic(), self._window_ends(decision, entries, work_s)
            if left <= 0 and not held:
                break
            if self._window_ends(decision, entries):
                self._cut_for = {name: _clock(entry) for name, entry in entries.items()}
                break
            if not held and self._has_enough(decision, offsets):
                break
            if self.stopping.wait(min(left, look_s) if left > 0 else look_s):
                return True
        if not self.hurry.is_set():
            return False
        self.hurry.clear()  # only then: what is asked for from now on ends the next wait
        return True

    def _has_enough(self, decision: Decision, offsets: list[Any]) -> bool:
        """Whether so many rows wait that the next batch is cut before its time: the load has risen."""
        if decision.cut_rows is None:
            return False
        arrived = arrived_by(self.flow, offsets, int(time.time() * 1e6))
        return arrived is not None and arrived - sum(offset["row"] for offset in offsets) >= decision.cut_rows

    def _window_ends(self, decision: Decision, entries: Entries, work_s: float = 0.0) -> bool:
        """Whether the next batch is cut before its time for the sake of a window that a latency counts on.

        Or, given how long a batch works, after its time: one that is still at work when a window ends makes it wait.
        """
        if not decision.at_ends:
            return False
        now = time.time()
        for name in self.controller.awaited & entries.keys():
            every_s = slide_s(self.windows[name]) or 0.0
            at_us = int((now + worth_waiting_s(work_s, decision.lifetime_s, every_s)) * 1e6)
            # Where a batch was cut for it and its clock did not move, its rows stay behind: it is not cut for anew.
            moves = self._cut_for.get(name) != _clock(entries[name])
            if awaits_a_cut(self.windows[name], entries[name], at_us, goes_on=moves):
                return True
        return False


def _clock(entry: dict[str, Any]) -> tuple[int | None, int | None]:
    """How far a window operator has come."""
    return entry.get("max_event"), entry.get("watermark")
