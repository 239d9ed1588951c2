"""How much of a run's time goes into starting it and into changing its widths (thesis 004, section 7.3.5).

The thesis stops its stages to add and to ban processes, and counts that time. Here a width changes between two batches
and nothing stops; what it costs is that the first batch at the new width is slower, since workers start and code is
compiled. So the time from the first batch to the last is split into

    init     the first batch of every run
    add      what the first batch at a greater width takes longer than the batch after it
    ban      the same at a smaller width, where no other operator has a greater one
    down     between two runs
    compute  the rest: batches, and the waits between them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.observe.record import BatchRecord


@dataclass(frozen=True)
class TimeShares:
    """Shares of the time that records span; their sum is 1.

    >>> TimeShares(init=0.05, add=0.01, ban=0.0, down=0.0, compute=0.94).line()
    'init 5.0 %, wider 1.0 %, narrower 0.0 %, down 0.0 %, computing and waiting 94.0 %'
    """

    init: float
    add: float
    ban: float
    down: float
    compute: float

    @staticmethod
    def of(runs: Sequence[Sequence[BatchRecord]]) -> TimeShares | None:
        """Split the time of some runs, each its records in order; None if they took none.

        >>> first = BatchRecord(1, run="a", started=0.0, visible=1.0)
        >>> TimeShares.of([[first, BatchRecord(2, run="a", started=1.0, visible=4.0)]])
        TimeShares(init=0.25, add=0.0, ban=0.0, down=0.0, compute=0.75)
        """
        there = [run for run in runs if run]
        spans = [max(0.0, run[-1].visible - run[0].started) for run in there]
        whole = there[-1][-1].visible - there[0][0].started if there else 0.0
        whole = max(whole, sum(spans))  # the clock may have been set back between two runs
        if whole <= 0.0:
            return None
        init = sum(min(max(0.0, run[0].visible - run[0].started), span) for run, span in zip(there, spans, strict=True))
        add = ban = 0.0
        for run in there:
            for before, first, after in zip(run, run[1:], run[2:], strict=False):
                slower = max(0.0, first.work_s - after.work_s)
                wider, narrower = _changed(before, first)
                if wider:
                    add += slower
                elif narrower:
                    ban += slower
        down = whole - sum(spans)
        return TimeShares(*(s / whole for s in (init, add, ban, down, max(0.0, whole - init - add - ban - down))))

    def line(self) -> str:
        """For reading."""
        named = {"init": self.init, "wider": self.add, "narrower": self.ban, "down": self.down}
        named["computing and waiting"] = self.compute
        return ", ".join(f"{name} {100.0 * share:.1f} %" for name, share in named.items())


def _changed(before: BatchRecord, after: BatchRecord) -> tuple[bool, bool]:
    """Whether some operator became wider, and whether some became narrower."""
    was = {stats.name: stats.width for stats in before.operators}
    steps = [stats.width - was[stats.name] for stats in after.operators if stats.name in was]
    return any(step > 0 for step in steps), any(step < 0 for step in steps)
