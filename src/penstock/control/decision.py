"""What a policy sees and what it decides: plain values, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Decision:
    """How the next batch runs: width per operator, least time between two cuts, most rows in a batch.

    >>> Decision({"score": 2}, lifetime_s=0.5).widths["score"]
    2
    """

    widths: Mapping[str, int] = field(default_factory=dict)
    lifetime_s: float = 0.0
    row_cap: int | None = None


class Policy(Protocol):
    """Values in, a decision out."""

    def decide(self, observed: Any, current: Decision) -> Decision:
        """Return the decision for the next batch, given what the last one showed (None before the first)."""
        ...


class Static:
    """Keeps what it was given: the baseline, and the default when nothing is required.

    >>> Static().decide(None, Decision({"score": 4}))
    Decision(widths={'score': 4}, lifetime_s=0.0, row_cap=None)
    """

    def decide(self, observed: Any, current: Decision) -> Decision:
        """Return the current decision."""
        return current
