"""Named crash points: where a test can make a job die, to show that nothing is lost or doubled.

`PENSTOCK_CRASH=point:batch` kills the process there with SIGKILL; a test in the same process passes
`crash=CrashPlan(point, batch)` instead and gets an exception. Points, in the order of a batch: log, state,
output, manifest, sink, commit (after everything, before Spark commits).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

POINTS = ("log", "state", "output", "manifest", "sink", "commit")
VARIABLE = "PENSTOCK_CRASH"


class Crashed(RuntimeError):
    """Raised at a crash point that a test asked for."""


@dataclass
class CrashPlan:
    """Die once at `point` of batch `batch`; `kill` sends SIGKILL to this process instead of raising.

    >>> CrashPlan("log", 3).here("log", 2)
    """

    point: str
    batch: int
    kill: bool = False
    fired: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            message = f"crash point {self.point!r} is not one of {', '.join(POINTS)}"
            raise ValueError(message)

    @staticmethod
    def from_environment() -> CrashPlan | None:
        """Return the plan that the environment asks for."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        point, _, batch = text.partition(":")
        return CrashPlan(point, int(batch or 0), kill=True)

    def in_task(self, batch: int) -> str | None:
        """Return the point at which tasks of a batch must fail (their retries too)."""
        if self.point in ("state", "output") and batch == self.batch and not self.fired and not self.kill:
            return self.point
        return None

    def here(self, point: str, batch: int) -> None:
        """Die if this is the place and it has not happened yet."""
        if point == self.point and batch == self.batch and not self.fired:
            self.fired.append(batch)
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Crashed(f"crash point {point} in batch {batch}")
