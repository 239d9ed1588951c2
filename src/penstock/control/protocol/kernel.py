"""Single-threaded processes that exchange messages in virtual time: what the protocol model runs on.

A process is a generator. It yields what it waits for, and is resumed when that has come:

- ``Hold(seconds)``: user code runs; nothing interrupts it (thesis 004, 5.4.3);
- ``Receive(tags, src, until)``: the earliest message that arrived with one of the tags, or None at ``until``;
- ``Meet(key, parties, cost)``: a collective (spawn, barrier): all go on together, ``cost`` after the last came.

Assumptions of thesis 004, 5.4.2: nothing is lost, messages between two processes keep their order, clocks are local.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from enum import StrEnum
from math import inf
from random import Random
from typing import Any, NamedTuple

from penstock.errors import PenstockError


class ProtocolError(PenstockError):
    """An invariant of the protocol does not hold: the model, or the reading of the thesis that it runs, is wrong."""


class Tag(StrEnum):
    """The kinds of messages: first the data plane (004, 5.4.9), then control."""

    HEADER = "header"  # start of an item
    DATA = "data"  # one payload part of it
    REQUEST = "request"  # downstream asks for one item
    STOP = "stop"  # end of stream from that peer
    READY = "ready"  # all I sent before the reconfiguration precedes this
    END = "end"  # my drain is complete
    CHECK_IN = "check-in"  # stage process -> stage manager: action 1 or 2 and the counters
    FAREWELL = "farewell"  # stage process -> stage manager: the last counters of one that was banned
    REPORT = "report"  # stage manager -> pipeline manager
    ACTION = "action"  # the answer to both
    SPAWN_INFO = "spawn-info"  # action 6, to a newcomer
    CONFIG = "config"  # action 5, to a newcomer
    REMOVAL = "removal"  # the ranks to remove
    RANKS = "ranks"  # the new rank list of every stage


DATA_PLANE = frozenset({Tag.HEADER, Tag.DATA, Tag.REQUEST, Tag.STOP, Tag.READY, Tag.END})


class Message(NamedTuple):
    """One message; ``epoch`` is the generation of the data channel it was sent on (0 for control)."""

    src: int
    dst: int
    tag: Tag
    body: Any = None
    epoch: int = 0


class Hold(NamedTuple):
    """Be busy for so many seconds."""

    seconds: float


class Receive(NamedTuple):
    """Wait for a message with one of the tags (from ``src`` only, if given), at most until the given instant."""

    tags: frozenset[Tag]
    src: int | None = None
    until: float = inf

    def takes(self, message: Message) -> bool:
        """Return whether this wait is for the message."""
        return message.tag in self.tags and (self.src is None or message.src == self.src)


class Meet(NamedTuple):
    """Wait until ``parties`` processes have come to the same key; then all go on after ``cost`` seconds."""

    key: tuple[Any, ...]
    parties: int
    cost: float = 0.0


Wait = Hold | Receive | Meet
Body = Generator[Wait, Any, None]


class Kernel:
    """Runs processes in virtual time, deterministic by seed.

    >>> kernel, heard = Kernel(seed=1, latency_s=0.5, jitter=0), []
    >>> def ask():
    ...     kernel.send(Message(0, 1, Tag.REQUEST))
    ...     answer = yield Receive(frozenset({Tag.HEADER}))
    ...     heard.append((kernel.now, answer.body))
    >>> def serve():
    ...     request = yield Receive(frozenset({Tag.REQUEST}))
    ...     yield Hold(2.0)
    ...     kernel.send(Message(1, request.src, Tag.HEADER, body="item 0"))
    >>> kernel.start(0, ask()); kernel.start(1, serve()); kernel.run()
    >>> heard
    [(3.0, 'item 0')]
    """

    def __init__(self, *, seed: int = 0, latency_s: float = 1e-3, jitter: float = 1.0) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.lost: Callable[[Message], None] = lambda message: None  # told of messages to processes that have ended
        self._latency_s, self._jitter = latency_s, jitter
        self._events: list[tuple[float, int, Callable[..., None], Any]] = []
        self._count = 0
        self._bodies: dict[int, Body] = {}
        self._waits: dict[int, tuple[int, Wait]] = {}  # rank -> (token, what it waits for)
        self._boxes: dict[int, list[Message]] = {}
        self._last_arrival: dict[tuple[int, int], float] = {}
        self._meetings: dict[tuple[Any, ...], list[int]] = {}

    @property
    def alive(self) -> frozenset[int]:
        """The ranks of the processes that have not ended."""
        return frozenset(self._bodies)

    def start(self, rank: int, body: Body) -> None:
        """Start a process now."""
        self._bodies[rank], self._boxes[rank] = body, []
        self._at(self.now, self._resume, (rank, None))

    def send(self, message: Message) -> None:
        """Send without waiting; the order between the same two processes is kept."""
        pair = (message.src, message.dst)
        delay = self._latency_s * (1.0 + self._jitter * self.random.random())
        arrival = max(self._last_arrival.get(pair, 0.0), self.now + delay)
        self._last_arrival[pair] = arrival
        self._at(arrival, self._deliver, message)

    def unread(self, rank: int) -> list[Message]:
        """Return the messages that arrived and were not received yet, oldest first; the caller may edit the list."""
        return self._boxes[rank]

    def run(self, *, until: float = inf, most_events: int = 5_000_000) -> None:
        """Run to the end of all processes, or to an instant; a deadlock is a ProtocolError."""
        events = self._events
        for _ in range(most_events):
            if not self._bodies or (events and events[0][0] > until):
                return
            if not events:
                raise ProtocolError(f"deadlock at {self.now:.6f} s: {self._waiting()}")
            self.now, _, act, argument = heapq.heappop(events)
            act(argument)
        raise ProtocolError(f"no end after {most_events} events, at {self.now:.6f} s: {self._waiting()}")

    def _waiting(self) -> str:
        return "; ".join(f"rank {rank} waits for {wait}" for rank, (_, wait) in sorted(self._waits.items()))

    def _at(self, time: float, act: Callable[..., None], argument: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, act, argument))

    def _deliver(self, message: Message) -> None:
        if message.dst not in self._bodies:
            self.lost(message)
            return
        _, wait = self._waits.get(message.dst, (0, None))
        if isinstance(wait, Receive) and wait.takes(message):
            self._resume((message.dst, message))
        else:
            self._boxes[message.dst].append(message)

    def _timeout(self, argument: tuple[int, int]) -> None:
        rank, token = argument
        if self._waits.get(rank, (0, None))[0] == token:  # else it was resumed by a message meanwhile
            self._resume((rank, None))

    def _resume(self, argument: tuple[int, Any]) -> None:
        rank, value = argument
        self._waits.pop(rank, None)
        while True:
            try:
                wait = self._bodies[rank].send(value)
            except StopIteration:
                for message in self._boxes.pop(rank):
                    self.lost(message)
                del self._bodies[rank]
                return
            if isinstance(wait, Receive):
                box = self._boxes[rank]
                at = next((i for i, message in enumerate(box) if wait.takes(message)), None)
                if at is not None:
                    value = box.pop(at)
                    continue
                self._count += 1
                self._waits[rank] = (self._count, wait)
                if wait.until < inf:
                    self._at(max(wait.until, self.now), self._timeout, (rank, self._count))
            elif isinstance(wait, Hold):
                self._waits[rank] = (0, wait)
                self._at(self.now + wait.seconds, self._resume, (rank, None))
            else:
                self._meet(rank, wait)
            return

    def _meet(self, rank: int, meet: Meet) -> None:
        present = self._meetings.setdefault(meet.key, [])
        present.append(rank)
        self._waits[rank] = (0, meet)
        if len(present) == meet.parties:
            del self._meetings[meet.key]
            for party in present:
                self._at(self.now + meet.cost, self._resume, (party, None))
        elif len(present) > meet.parties:
            raise ProtocolError(f"{len(present)} processes came to {meet.key}, {meet.parties} were expected")
