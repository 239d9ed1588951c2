"""A stage process: the data protocol in normal execution, and its part in adding and banning (thesis 004, 5.4).

The code follows listings 5.1 (check-in), 5.2 (add) and 5.3 (ban) with the digest's corrections: READY is awaited from
*all* upstream peers and END is answered to *all* downstream ones (the listings stop at the first), END is sent only
once it came from all upstream (so that a drain cascades), outstanding requests die with their channel, and a process
that has finished goes on checking in until the whole pipeline is done, so that it can take part in a reconfiguration
that was already announced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

from penstock.control.protocol.kernel import Body, Hold, Meet, Message, ProtocolError, Receive, Tag, Wait
from penstock.control.protocol.ordering import OrderHeap
from penstock.control.protocol.world import Action, Members, World

Step = Generator[Wait, Any, None]

_INPUTS = frozenset({Tag.HEADER, Tag.READY, Tag.STOP, Tag.END})
_ANY = _INPUTS | {Tag.REQUEST}
_PART = frozenset({Tag.DATA})
_ACTION = frozenset({Tag.ACTION})
_RANKS = frozenset({Tag.RANKS})
_REMOVAL = frozenset({Tag.REMOVAL})
_SPAWN_INFO = frozenset({Tag.SPAWN_INFO})
_CONFIG = frozenset({Tag.CONFIG})


class _Left(Exception):
    """Unwinds a process that was banned, or told that the pipeline is done."""


class StageProcess:
    """One process of one stage. ``body()`` is what the kernel runs."""

    def __init__(self, world: World, rank: int, stage: int, members: Members, epoch: int) -> None:
        self.world, self.rank, self.stage = world, rank, stage
        self.data: deque[tuple[int, int]] = deque()  # dataBuf: (upstream peer, item id)
        self.requests: deque[int] = deque()  # reqBuf: downstream peers
        self.important: list[tuple[Tag, int]] = []  # READY and END that came early
        self.order: OrderHeap[int] = OrderHeap()
        self.consumed = self.produced = 0  # since the last check-in
        self.total_consumed = self.total_produced = 0
        self.finished = False
        self.next_item = 0  # Source: id of the next item
        self.last_check = 0.0
        self._connect(members, epoch)

    # --- channels ---------------------------------------------------------------------------------------------------

    def _connect(self, members: Members, epoch: int) -> None:
        """(Re)build the channels: requests that were under way are gone with the old ones, on both sides."""
        self.members, self.epoch = dict(members), epoch
        self.up = self.members.get(self.stage - 1, ())
        self.down = self.members.get(self.stage + 1, ())
        self.outstanding = dict.fromkeys(self.up, 0)
        self.stopped: set[int] = set()
        self.requests.clear()

    @property
    def is_source(self) -> bool:
        """Whether the stage is the first."""
        return self.stage == 1

    @property
    def is_sink(self) -> bool:
        """Whether the stage is the last."""
        return self.stage + 1 not in self.members

    def _send(self, dst: int, tag: Tag, body: Any = None) -> None:
        self.world.send(self.rank, dst, tag, body, self.epoch)

    def _send_all(self, tag: Tag) -> None:
        for peer in self.down:
            self._send(peer, tag)

    def _issue(self) -> None:
        """Request up to B items from every upstream peer that has not stopped (4.6: credits per peer)."""
        held = dict.fromkeys(self.up, 0)
        for peer, _ in self.data:
            held[peer] = held.get(peer, 0) + 1
        for peer in self.up:
            if peer not in self.stopped:
                while self.outstanding[peer] + held[peer] < self.world.settings.buffer:
                    self._send(peer, Tag.REQUEST)
                    self.outstanding[peer] += 1

    # --- normal execution -------------------------------------------------------------------------------------------

    def body(self, *, newcomer: bool = False) -> Body:
        """Run from the start (or from being spawned) to the end."""
        try:
            yield from self._join() if newcomer else self._first_barrier()
            self.last_check = self.world.kernel.now
            self._resume_data()
            if self.is_source:
                yield from self._produce_all()
            while True:
                yield from self._handle((yield from self._next_message()))
                if not self.finished and self.up and self.stopped.issuperset(self.up) and not self.data:
                    yield from self._finish()
        except _Left:
            self.world.note(self.rank, "ended", (self.stage, self.total_consumed, self.total_produced))

    def _first_barrier(self) -> Step:
        yield Meet(("start",), self._everyone(self.members), 0.0)

    def _next_message(self) -> Generator[Wait, Any, Message]:
        """Listing 5.1: the check-in comes before the next message is taken, never within user code."""
        while True:
            if self.data and self.requests:
                raise ProtocolError(f"rank {self.rank} rests with both data and requests")
            due = self.last_check + self.world.settings.check_s
            if self.world.kernel.now >= due:
                yield from self._check_in()
                continue
            message = yield Receive(_ANY, until=due)
            if message is None:
                continue
            if message.epoch < self.epoch:
                self.world.discard(message)
            elif message.epoch > self.epoch:
                raise ProtocolError(f"rank {self.rank} got {message.tag} before its channels were rebuilt")
            else:
                return message  # type: ignore[no-any-return]

    def _handle(self, message: Message) -> Step:
        peer = message.src
        if message.tag is Tag.REQUEST:
            if self.finished:
                return  # asked before our STOP arrived there
            self.requests.append(peer)
            yield from self._match()
        elif message.tag is Tag.HEADER:
            item = yield from self._take(message)
            if self.is_sink:
                yield from self._deliver(item)
                self._issue()  # only after the user's code has returned
            elif self.requests:
                self.world.note(self.rank, "immediate", item)
                yield from self._compute(item, self.requests.popleft())
                self._issue()
            else:
                self.world.note(self.rank, "buffered", item)
                self.data.append((peer, item))
        elif message.tag is Tag.STOP:
            self.stopped.add(peer)
        else:
            self.important.append((message.tag, peer))

    def _match(self) -> Step:
        """Serve remembered requests from the buffer."""
        while self.requests and self.data:
            _, item = self.data.popleft()
            yield from self._compute(item, self.requests.popleft())
            if not self.finished:
                self._issue()

    def _take(self, header: Message) -> Generator[Wait, Any, int]:
        """Listing 5.10: the header, then its parts, all from the same sender."""
        item, parts = header.body
        for _ in range(parts):
            yield Receive(_PART, header.src)
        self.outstanding[header.src] -= 1
        if self.outstanding[header.src] < 0:
            raise ProtocolError(f"rank {self.rank} got item {item} that it never asked for")
        self.consumed += 1
        self.total_consumed += 1
        return int(item)

    def _compute(self, item: int, target: int) -> Step:
        """Run the user's code for one item and publish its result to the peer that asked."""
        yield Hold(self.world.settings.cost(self.stage, item, self.world.kernel.now))
        self._publish(item, target)

    def _publish(self, item: int, target: int) -> None:
        parts = self.world.settings.parts
        self._send(target, Tag.HEADER, (item, parts))
        for _ in range(parts):
            self._send(target, Tag.DATA, item)
        self.produced += 1  # once per item, not per part
        self.total_produced += 1

    def _deliver(self, item: int) -> Step:
        """Sink: the user's code, in the order of ids if that was asked for."""
        ready = [i for i, _ in self.order.put(item, item)] if self.world.settings.ordered else [item]
        for one in ready:
            yield Hold(self.world.settings.cost(self.stage, one, self.world.kernel.now))
            self.produced += 1
            self.total_produced += 1
            self.world.delivered.append(one)
            self.world.note(self.rank, "delivered", one)

    def _produce_all(self) -> Step:
        """Source: generate, wait for demand, send."""
        settings = self.world.settings
        while self.next_item < settings.items:
            yield Hold(settings.cost(self.stage, self.next_item, self.world.kernel.now))
            while (target := self._choose()) is None:
                yield from self._handle((yield from self._next_message()))
            self._publish(self.next_item, target)
            self.next_item += 1
        yield from self._finish()

    def _choose(self) -> int | None:
        """The peer for the next item: first come, first served; or strictly in turn (DSParLib's default)."""
        if self.world.settings.scheduling == "round_robin":
            peer = self.down[self.next_item % len(self.down)]
            if peer not in self.requests:
                return None
            self.requests.remove(peer)
            return peer
        return self.requests.popleft() if self.requests else None

    def _finish(self) -> Step:
        """End of stream here (4.16): STOP downstream, tell the manager at once, stay until the pipeline is done."""
        if self.is_sink and self.world.settings.ordered:
            self.order.end()
        self.finished = True
        self.requests.clear()
        self._send_all(Tag.STOP)
        self.world.note(self.rank, "finished", self.stage)
        yield from self._check_in()

    # --- configuration protocol -------------------------------------------------------------------------------------

    def _check_in(self) -> Step:
        self._tell_manager(Action.EOS if self.finished else Action.ALIVE)
        action, sizes = (yield Receive(_ACTION, self.stage)).body
        if action in (Action.ADD, Action.BAN):
            self.world.note(self.rank, "enter", (action, self.epoch))
            yield from self._flush()
            self._send_all(Tag.READY)
            yield from self._add(sizes) if action is Action.ADD else self._ban(sizes)
            self._resume_data()
            if self.is_sink:  # items that were only buffered while the channels were flushed
                while self.data:
                    yield from self._deliver(self.data.popleft()[1])
                self._issue()
        elif action is Action.EOS:
            raise _Left
        self.last_check = self.world.kernel.now  # after the reconfiguration: its pause is in no interval

    def _tell_manager(self, code: Action, tag: Tag = Tag.CHECK_IN) -> None:
        seconds = self.world.kernel.now - self.last_check
        self.world.send(self.rank, self.stage, tag, (code, self.consumed, self.produced, seconds))
        self.consumed = self.produced = 0
        self.last_check = self.world.kernel.now

    def _flush(self) -> Step:
        """Step 1 of both: buffer what still comes, unprocessed, until READY came from every upstream peer."""
        ready = self._early(Tag.READY)
        enough = 1 if self.world.settings.single_ready else len(self.up)
        while len(ready) < min(enough, len(self.up)):
            message = yield Receive(_INPUTS)
            yield from self._buffer(message, ready, Tag.READY)
        self.world.note(self.rank, "flushed", (tuple(sorted(ready)), self.up))

    def _buffer(self, message: Message, marked: set[int], mark: Tag) -> Step:
        """Take one input without processing it."""
        if message.tag is Tag.HEADER:
            item = yield from self._take(message)
            self.data.append((message.src, item))
        elif message.tag is Tag.STOP:
            self.stopped.add(message.src)
        elif message.tag is mark:
            marked.add(message.src)
        else:
            self.important.append((message.tag, message.src))

    def _early(self, tag: Tag) -> set[int]:
        found = {src for kind, src in self.important if kind is tag}
        self.important = [entry for entry in self.important if entry[0] is not tag]
        return found

    def _add(self, sizes: tuple[int, ...]) -> Step:
        """Steps 3-7 of listing 5.2."""
        old = self._everyone(self.members)
        for i in range(self._everyone_of(sizes) - old):  # one at a time, so that each can be removed alone
            yield Meet(("spawn", self.epoch, i), old + i, self.world.settings.spawn_s)
        yield from self._rebuild((yield Receive(_RANKS)).body)

    def _ban(self, sizes: tuple[int, ...]) -> Step:
        """Steps 3-7 of listing 5.3."""
        removed: tuple[int, ...] = (yield Receive(_REMOVAL)).body
        ranks: Members = (yield Receive(_RANKS)).body
        yield from self._drain()
        if self.rank in removed:
            self._tell_manager(Action.EOS, Tag.FAREWELL)  # or the statistics would lose its last counters
            self.world.note(self.rank, "banned", len(self.data))
            raise _Left
        yield from self._rebuild(ranks)

    def _drain(self) -> Step:
        """Step 5 of listing 5.3: everyone works until all buffers are empty.

        A request is answered with an item while there is one, and with END once none can come any more: the buffer is
        empty and END came from all upstream peers. A peer that has stopped needs no END, and gives none.
        """
        ended_up = self._early(Tag.END) | self.stopped
        ended_down = set(self.down) if self.finished else set()
        self._issue()
        while True:
            if self.is_sink:
                while self.data:
                    yield from self._deliver(self.data.popleft()[1])
                self._issue_unless(ended_up)
            else:
                while self.requests and self.data:
                    _, item = self.data.popleft()
                    yield from self._compute(item, self.requests.popleft())
                    self._issue_unless(ended_up)
            if not self.data and ended_up.issuperset(self.up):
                while self.requests:
                    peer = self.requests.popleft()
                    if peer not in ended_down:
                        self._send(peer, Tag.END)
                        ended_down.add(peer)
                if ended_down.issuperset(self.down):
                    break
            message = yield Receive(_ANY)
            if message.tag is not Tag.REQUEST:
                yield from self._buffer(message, ended_up, Tag.END)
            elif message.epoch < self.epoch:
                self.world.discard(message)
            else:
                self.requests.append(message.src)
        self.world.note(self.rank, "drained", self.epoch)

    def _issue_unless(self, ended: set[int]) -> None:
        before, self.stopped = self.stopped, self.stopped | ended
        self._issue()
        self.stopped = before

    def _rebuild(self, ranks: Members) -> Step:
        """Steps 6 and 7: new channels, then the closing barrier; nobody sends data before it."""
        for message in list(self.world.kernel.unread(self.rank)):
            if message.tag in _ANY or message.tag is Tag.DATA:
                self.world.kernel.unread(self.rank).remove(message)
                self.world.discard(message)
        self._connect(ranks, self.epoch + 1)
        self.world.note(self.rank, "rebuilt", self.epoch)
        yield Meet(("barrier", self.epoch), self._everyone(ranks), 0.0)
        self.world.note(self.rank, "resumed", self.epoch)

    def _resume_data(self) -> None:
        """After the barrier: a finished process says STOP again, on the new channels; others request anew."""
        if self.finished:
            self._send_all(Tag.STOP)
        else:
            self._issue()

    def _join(self) -> Step:
        """A newcomer helps with the spawns that are left (action 6), learns its job (action 5), joins the barrier."""
        remaining, first, epoch, parties = (yield Receive(_SPAWN_INFO)).body
        for i in range(remaining):
            yield Meet(("spawn", epoch, first + i), parties + i, self.world.settings.spawn_s)
        self.stage, self.epoch = (yield Receive(_CONFIG)).body
        yield from self._rebuild((yield Receive(_RANKS)).body)
        self.world.note(self.rank, "joined", self.stage)

    def _everyone(self, members: Members) -> int:
        return 1 + len(members) + sum(len(ranks) for ranks in members.values())

    @staticmethod
    def _everyone_of(sizes: tuple[int, ...]) -> int:
        return 1 + len(sizes) + sum(sizes)
