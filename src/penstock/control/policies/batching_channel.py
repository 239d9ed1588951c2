"""The output batch of one channel: thesis 001, section 4.5.2. The mechanism that the batching policies steer.

    ship(item):  no open batch -> open one, with the deadline now + lifetime
                 append; if the lifetime is 0 or the buffer is full, the batch leaves at once
    flush(now):  a batch whose deadline has passed leaves

There is at most one open batch. Its deadline is fixed when it is opened: a changed lifetime acts on the next one. Time
is passed in; whoever owns the channel calls `flush` at `deadline` (the thesis' flush thread).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.control.checks import at_least

T = TypeVar("T")


@dataclass(frozen=True)
class Shipped(Generic[T]):
    """A batch that left: its items with the time each entered, when it left, and why.

    >>> Shipped((("a", 1.0), ("b", 3.0)), at=5.0, reason="deadline").mean_delay
    3.0
    """

    items: tuple[tuple[T, float], ...]
    at: float
    reason: str  # "immediate", "full", "deadline" or "end"

    @property
    def mean_delay(self) -> float:
        """Mean output-batch latency of its items (obl)."""
        return sum(self.at - entered for _, entered in self.items) / len(self.items)


class OutputChannel(Generic[T]):
    """One channel's open batch, its lifetime and its buffer.

    >>> channel = OutputChannel(lifetime=10.0, buffer=100)
    >>> channel.ship("a", size=40, now=0.0), channel.deadline
    (None, 10.0)
    >>> channel.flush(now=9.0) is None, channel.flush(now=10.0).reason
    (True, 'deadline')
    >>> channel.lifetime = 0.0
    >>> channel.ship("b", size=40, now=11.0).reason
    'immediate'
    """

    def __init__(self, *, lifetime: float = 0.0, buffer: float | None = None) -> None:
        self._lifetime = at_least("output channel", "lifetime", lifetime, 0.0)
        self._buffer = buffer if buffer is None else at_least("output channel", "buffer", buffer, 1)
        self._items: list[tuple[T, float]] = []
        self._size = 0.0
        self.deadline: float | None = None  # of the open batch; None: there is none

    @property
    def lifetime(self) -> float:
        """How long the next batch stays open."""
        return self._lifetime

    @lifetime.setter
    def lifetime(self, value: float) -> None:
        self._lifetime = at_least("output channel", "lifetime", value, 0.0)

    def ship(self, item: T, *, size: float, now: float) -> Shipped[T] | None:
        """Put an item into the open batch; the batch, if it leaves by that."""
        if not self._items:
            self.deadline = now + self._lifetime
        self._items.append((item, now))
        self._size += size
        if self.deadline is not None and self.deadline <= now:
            return self._leave(now, "immediate" if len(self._items) == 1 else "deadline")
        if self._buffer is not None and self._size >= self._buffer:
            return self._leave(now, "full")
        return None

    def flush(self, now: float) -> Shipped[T] | None:
        """The open batch, if its time is up."""
        if self._items and self.deadline is not None and self.deadline <= now:
            return self._leave(now, "deadline")
        return None

    def close(self, now: float) -> Shipped[T] | None:
        """The open batch, whatever its time: the channel ends.

        >>> OutputChannel(lifetime=1.0).close(0.0) is None
        True
        """
        return self._leave(now, "end") if self._items else None

    def _leave(self, now: float, reason: str) -> Shipped[T]:
        batch = Shipped(tuple(self._items), now, reason)
        self._items, self._size, self.deadline = [], 0.0, None
        return batch
