"""Named crash points: where a test can make a job die, to show that nothing is lost or doubled.

`PENSTOCK_CRASH=point:batch` kills the process there with SIGKILL; a test in the same process passes
`crash=CrashPlan({batch: point})` instead and gets a fault, from which the job restarts. Points, in the order
of a batch: log, state, output, manifest, sink, commit (after everything, before Spark commits).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

POINTS = ("log", "state", "output", "manifest", "sink", "commit")
VARIABLE = "PENSTOCK_CRASH"


class Crashed(RuntimeError):
    """Raised at a crash point that a test asked for."""


class CrashPlan:
    """Die once at each (batch, point) asked for; `kill` sends SIGKILL to this process instead of raising.

    >>> plan = CrashPlan({3: "log"})
    >>> plan.here("log", 2)
    >>> plan.here("log", 3)
    Traceback (most recent call last):
    penstock.engine.spark.crash.Crashed: crash point log in batch 3
    >>> plan.here("log", 3)  # once only
    """

    def __init__(self, points: Mapping[int, str], kill: bool = False) -> None:
        for point in points.values():
            if point not in POINTS:
                raise ValueError(f"crash point {point!r} is not one of {', '.join(POINTS)}")
        self.left, self.kill = dict(points), kill

    @staticmethod
    def from_environment() -> CrashPlan | None:
        """Return the plan that the environment asks for."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        point, _, batch = text.partition(":")
        return CrashPlan({int(batch or 0): point}, kill=True)

    def in_task(self, batch: int) -> str | None:
        """Return the point at which every task of this attempt at a batch must fail."""
        if self.kill or self.left.get(batch) not in ("state", "output"):
            return None
        return self.left.pop(batch)

    def here(self, point: str, batch: int) -> None:
        """Die if this is the place and it has not happened yet."""
        if self.left.get(batch) == point:
            del self.left[batch]
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Crashed(f"crash point {point} in batch {batch}")
