"""What a user function may know of where it runs (thesis 001 F3: a UDF sees its environment)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Replica:
    """The replica that calls: which operator, which number of how many, in which batch."""

    operator: str = ""
    number: int = 0
    width: int = 1
    batch: int = -1


_current = Replica()


def replica() -> Replica:
    """Return the replica in which the calling function runs.

    >>> replica()
    Replica(operator='', number=0, width=1, batch=-1)
    """
    return _current


def enter(current: Replica) -> None:
    """Set the replica; the engine calls this before a user function."""
    global _current  # noqa: PLW0603 - a worker process runs one task at a time
    _current = current
