"""What a policy decides: plain values, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.control.checks import finite
from penstock.errors import PolicyError

__all__ = ["MOST_AHEAD", "Decision", "Policy", "PolicyError", "Static", "ahead_s"]

MOST_AHEAD = 0.34
"""Of a slide: batches that follow each other at once wait for a window's end no longer than this."""
_GROWS = 0.6  # of a batch's work: what grows with its rows, while a bound of some fixed costs governs


def ahead_s(work_s: float, lifetime_s: float) -> float:
    """Return how long after its time the next batch may be cut so that it takes in the end of a window.

    A window's result is made by the batch after the one that takes in its end. Let a batch work W = F + rho x (time
    since the cut before). Cut x late, at the end, the two batches work W + rho x and F + rho (W + rho x). Cut in time,
    the batch is at work for W - x more when the window ends, and two follow it: F + rho W, and about W. To wait is
    the better way if x (1 + rho + rho^2) < W. (On our own account; thesis 000 has no batches.)

    >>> round(ahead_s(0.150, lifetime_s=0.150), 3), round(ahead_s(0.090, lifetime_s=1.0), 3)
    (0.077, 0.085)
    """
    busy = min(1.0, work_s / lifetime_s) if lifetime_s > 0.0 else 1.0
    rho = _GROWS * busy
    return work_s / (1.0 + rho + rho * rho)


@dataclass(frozen=True)
class Decision:
    """How the next batch runs: width per operator, least time between two cuts, most rows in a batch.

    A batch is also cut once `cut_rows` rows wait, where the source can tell: a lifetime suits the rate it was made for.
    `at_ends` cuts one when windows end, too, and the next right after it, whose watermark closes them.
    `routes` moves key groups between the tasks of a keyed operator; left out, group g goes to task g modulo width.
    `chains` are runs of operators that share their tasks. Continuous hosts also take `lifetimes`, the output-batch
    lifetime of each stream ``"a->b"`` in seconds. A NaN or an infinity is refused here, whoever decided it.

    >>> Decision({"score": 2}, lifetime_s=0.5).widths["score"]
    2
    >>> Decision(lifetimes={"score->sink": 0.01}, chains=(("decode", "merge"),)).chains
    (('decode', 'merge'),)
    """

    widths: Mapping[str, int] = field(default_factory=dict)
    lifetime_s: float = 0.0
    row_cap: int | None = None
    lifetimes: Mapping[str, float] = field(default_factory=dict)
    chains: tuple[tuple[str, ...], ...] = ()
    routes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # per operator, the task of each key group
    cut_rows: int | None = None  # the lifetime ends early once so many rows wait
    at_ends: bool = False  # the lifetime ends early when a window ends, and when one waits to be closed

    def __post_init__(self) -> None:
        finite("decision", "lifetime_s", self.lifetime_s)
        for name in ("row_cap", "cut_rows"):
            if getattr(self, name) is not None:
                finite("decision", name, getattr(self, name))
        for operator, width in self.widths.items():
            finite(f"decision for '{operator}'", "width", width)
        for stream, lifetime in self.lifetimes.items():
            finite(f"decision for '{stream}'", "lifetime", lifetime)


class Policy(Protocol):
    """Values in, a decision out. A policy may also have `reset()`, which forgets what it learnt."""

    def decide(self, observed: Any, current: Decision) -> Decision:
        """Return the decision for the next interval, given what the last one showed (None before the first)."""
        ...


class Static:
    """Keeps what it was given: the baseline, and the default when nothing is required.

    >>> Static().decide(None, Decision({"score": 4})).widths
    {'score': 4}
    """

    def decide(self, observed: Any, current: Decision) -> Decision:
        """Return the current decision."""
        return current
