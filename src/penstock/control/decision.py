"""What a policy decides: plain values, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.control.checks import finite
from penstock.errors import PolicyError

__all__ = ["Decision", "Policy", "PolicyError", "Static"]


@dataclass(frozen=True)
class Decision:
    """How the next batch runs: width per operator, the time from cut to cut, most rows in a batch.

    A batch is also cut once `cut_rows` rows wait, where the source can tell: a lifetime suits the rate it was made for.
    `at_ends` cuts one when windows end, too.
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
    """Values in, a decision out.

    A policy may also have `reset()`, which forgets what it learnt, and `accept(bounds, operators)`, which raises a
    PolicyError for bounds that it cannot work on: then a job with it does not start.
    """

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
