"""Ordered delivery after a parallel stage (thesis 004, 5.6; thesis 003's ordered collector)."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from penstock.control.protocol.kernel import ProtocolError

T = TypeVar("T")


class OrderHeap(Generic[T]):
    """Gives items back in the order of their ids, without gaps; those that come early are held.

    >>> heap = OrderHeap()
    >>> [heap.put(1, "b"), heap.put(2, "c"), heap.put(0, "a")]
    [[], [], [(0, 'a'), (1, 'b'), (2, 'c')]]
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._held: list[tuple[int, T]] = []
        self._ids: set[int] = set()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, item_id: int, item: T) -> list[tuple[int, T]]:
        """Take an item; return those that may now be delivered."""
        if item_id < self._next or item_id in self._ids:
            raise ProtocolError(f"item {item_id} came twice")
        heapq.heappush(self._held, (item_id, item))
        self._ids.add(item_id)
        out: list[tuple[int, T]] = []
        while self._held and self._held[0][0] == self._next:
            out.append(heapq.heappop(self._held))
            self._ids.discard(self._next)
            self._next += 1
        return out

    def end(self) -> None:
        """Say that the stream has ended: an item still held means that one before it was lost."""
        if self._held:
            raise ProtocolError(f"item {self._next} never came; {len(self._held)} items wait for it")
