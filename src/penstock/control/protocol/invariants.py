"""What must hold over every trace of the protocol, whatever the schedule (thesis 004, 5.4; digest acceptance 13-18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.control.protocol.jobs import PIPELINE_MANAGER
from penstock.control.protocol.kernel import ProtocolError
from penstock.control.protocol.world import Action, Event


def check_trace(trace: Sequence[Event], stages: int, items: int) -> None:
    """Check all invariants; the first that fails is a ProtocolError that says which.

    >>> check_trace([Event(1.0, 5, "delivered", 0)], stages=3, items=1)
    """
    once_each(trace, items)
    all_ready(trace)
    two_phases(trace, stages)
    quiet_until_barrier(trace)
    drained_before_leaving(trace)


def once_each(trace: Sequence[Event], items: int) -> None:
    """Every item is delivered exactly once.

    >>> once_each([Event(1.0, 5, "delivered", 0)], items=2)
    Traceback (most recent call last):
    ...
    penstock.control.protocol.kernel.ProtocolError: items lost or delivered twice: [1]
    """
    seen = Counter(event.detail for event in trace if event.kind == "delivered")
    if seen != Counter(range(items)):
        wrong = sorted(set(range(items)) ^ set(seen)) + sorted(i for i, times in seen.items() if times > 1)
        raise ProtocolError(f"items lost or delivered twice: {wrong[:10]}")


def all_ready(trace: Sequence[Event]) -> None:
    """Nobody goes on from the flush before READY came from all upstream peers (5.4.4).

    >>> all_ready([Event(1.0, 5, "flushed", ((6,), (6, 7)))])
    Traceback (most recent call last):
    ...
    penstock.control.protocol.kernel.ProtocolError: rank 5 went on with READY from (6,) of (6, 7)
    """
    for event in trace:
        if event.kind == "flushed":
            ready, upstream = event.detail
            if set(ready) != set(upstream):
                raise ProtocolError(f"rank {event.rank} went on with READY from {ready} of {upstream}")


def two_phases(trace: Sequence[Event], stages: int) -> None:
    """A manager enters configuration mode only after all its subordinates were handed the action (5.4.2).

    >>> two_phases([Event(1.0, 0, "enter", (Action.ADD, 1))], stages=3)
    Traceback (most recent call last):
    ...
    penstock.control.protocol.kernel.ProtocolError: manager 0 entered before all its subordinates were told
    """
    handed: dict[tuple[int, Action], set[int]] = {}
    heard: dict[int, set[int]] = {}  # stage -> its processes, as they are known to exist
    for event in trace:
        if event.kind == "handed":
            subordinate, action = event.detail
            handed.setdefault((event.rank, action), set()).add(subordinate)
            heard.setdefault(event.rank, set()).add(subordinate)
        elif event.kind == "spawned":
            heard.setdefault(event.detail, set()).add(event.rank)
        elif event.kind in ("ended", "banned"):
            for known in heard.values():
                known.discard(event.rank)
        elif event.kind == "enter" and event.rank <= stages:
            action, _ = event.detail
            needed = set(range(1, stages + 1)) if event.rank == PIPELINE_MANAGER else heard.get(event.rank, set())
            if not handed.pop((event.rank, action), set()) >= needed:
                raise ProtocolError(f"manager {event.rank} entered before all its subordinates were told")


def quiet_until_barrier(trace: Sequence[Event]) -> None:
    """No item is sent between a process's READY and the closing barrier, but by the drain; none on a channel too early.

    An add sends nothing at all in between; a ban sends what is drained, on the old channels. The first message on new
    channels comes after the barrier, that is after *every* process has rebuilt its own.

    >>> quiet_until_barrier([Event(1.0, 6, "header", (5, (17, 1), 2))])
    Traceback (most recent call last):
    ...
    penstock.control.protocol.kernel.ProtocolError: rank 6 sent item 17 before the barrier of epoch 2
    """
    inside: dict[int, Action] = {}
    rebuilt: Counter[int] = Counter()
    resumed: dict[int, int] = {}  # epoch -> processes that had rebuilt when the first one resumed
    for event in trace:
        if event.kind == "enter":
            inside[event.rank] = event.detail[0]
        elif event.kind == "rebuilt":
            rebuilt[event.detail] += 1
            if event.detail in resumed:
                raise ProtocolError(f"rank {event.rank} rebuilt its channels after the barrier of epoch {event.detail}")
        elif event.kind == "resumed":
            inside.pop(event.rank, None)
            resumed.setdefault(event.detail, rebuilt[event.detail])
        elif event.kind == "header":
            _, (item, _), epoch = event.detail
            if inside.get(event.rank) is Action.ADD:
                raise ProtocolError(f"rank {event.rank} sent item {item} while processes were being added")
            if epoch > 1 and epoch not in resumed:
                raise ProtocolError(f"rank {event.rank} sent item {item} before the barrier of epoch {epoch}")


def drained_before_leaving(trace: Sequence[Event]) -> None:
    """A banned process leaves nothing behind (5.4.5).

    >>> drained_before_leaving([Event(1.0, 8, "banned", 3)])
    Traceback (most recent call last):
    ...
    penstock.control.protocol.kernel.ProtocolError: rank 8 was removed with 3 items in its buffer
    """
    for event in trace:
        if event.kind == "banned" and event.detail:
            raise ProtocolError(f"rank {event.rank} was removed with {event.detail} items in its buffer")
