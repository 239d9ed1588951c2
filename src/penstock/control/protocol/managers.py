"""The two kinds of managers: one per stage, one for the pipeline (thesis 004, 5.4.1-5.4.5).

Notification is in two phases: a manager hands an action to all its subordinates, each at that one's own check-in, and
only then enters configuration mode itself. An action so needs at least two rounds of check-ins to reach the workers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from penstock.control.protocol.jobs import PIPELINE_MANAGER, next_change, removals
from penstock.control.protocol.kernel import Body, Meet, Receive, Tag, Wait
from penstock.control.protocol.stage_statistics import StageStatistics
from penstock.control.protocol.world import Action, Members, World

Step = Generator[Wait, Any, None]

_CHECK_IN = frozenset({Tag.CHECK_IN})
_FAREWELL = frozenset({Tag.FAREWELL})  # a tag of its own: it may come before this manager has told all the others
_REPORT = frozenset({Tag.REPORT})
_ACTION = frozenset({Tag.ACTION})
_RANKS = frozenset({Tag.RANKS})
_REMOVAL = frozenset({Tag.REMOVAL})


def everyone(members: Members) -> int:
    """Return how many processes there are: the pipeline manager, the stage managers, the stage processes.

    >>> everyone({1: (4,), 2: (6, 7, 8), 3: (5,)})
    9
    """
    return 1 + len(members) + sum(len(ranks) for ranks in members.values())


class StageManager:
    """Hears the processes of its stage, writes their statistics, relays actions (4.5)."""

    def __init__(self, world: World, stage: int, members: Members) -> None:
        self.world, self.stage, self.members, self.epoch = world, stage, dict(members), 1
        self.statistics = StageStatistics(least_s=world.settings.statistics_s)
        self.finished: set[int] = set()

    def body(self) -> Body:
        """Run to the end of the pipeline."""
        yield Meet(("start",), everyone(self.members), 0.0)
        action, heard = Action.CONTINUE, set[int]()
        sizes: tuple[int, ...] = ()
        while True:
            message = yield Receive(_CHECK_IN)
            self._count(message.src, message.body)
            self.world.send(self.stage, message.src, Tag.ACTION, (action, sizes))
            self.world.note(self.stage, "handed", (message.src, action))
            heard.add(message.src)
            if not heard.issuperset(self.members[self.stage]):
                continue
            heard = set()
            if action in (Action.ADD, Action.BAN):
                yield from self._reconfigure(action, sizes)
                action, sizes = Action.CONTINUE, ()
            elif action is Action.EOS:
                return
            else:
                all_done = self.finished.issuperset(self.members[self.stage])
                self._write(final=all_done)
                self.world.send(self.stage, PIPELINE_MANAGER, Tag.REPORT, all_done)
                action, sizes = (yield Receive(_ACTION, PIPELINE_MANAGER)).body

    def _count(self, rank: int, body: tuple[Action, int, int, float]) -> None:
        code, consumed, produced, seconds = body
        self.statistics.report(self._name(rank), consumed=consumed, produced=produced, seconds=seconds)
        if code is Action.EOS:
            self.finished.add(rank)

    def _name(self, rank: int) -> str:
        kind = {1: "Source", len(self.members): "Sink"}.get(self.stage, "Compute")
        return f"{kind}{self.members[self.stage].index(rank)}"

    def _write(self, *, final: bool) -> None:
        now = self.world.kernel.now
        sample = self.statistics.sample(now, [self._name(rank) for rank in self.members[self.stage]], final=final)
        if sample is not None:
            stamps = self.world.samples.setdefault(self.stage, {})
            stamp = max(round(now * 1000), max(stamps, default=-1) + 1)  # keys are milliseconds, and never the same
            stamps[stamp] = sample

    def _reconfigure(self, action: Action, sizes: Sequence[int]) -> Step:
        self.world.note(self.stage, "enter", (action, self.epoch))
        if action is Action.ADD:
            old = everyone(self.members)
            for i in range(1 + len(sizes) + sum(sizes) - old):
                yield Meet(("spawn", self.epoch, i), old + i, self.world.settings.spawn_s)
        else:
            for rank in (yield Receive(_REMOVAL)).body:
                if rank in self.members[self.stage]:
                    self._count(rank, (yield Receive(_FAREWELL, rank)).body)
        self.members = dict((yield Receive(_RANKS)).body)
        self.epoch += 1
        yield Meet(("barrier", self.epoch), everyone(self.members), 0.0)
        self.world.note(self.stage, "resumed", self.epoch)


class PipelineManager:
    """Reads the desired sizes, decides what to do, leads it (4.5, 4.9, 4.10)."""

    def __init__(self, world: World, members: Members) -> None:
        self.world, self.members, self.epoch = world, dict(members), 1
        self.done: set[int] = set()

    def body(self) -> Body:
        """Run to the end of the pipeline."""
        settings, kernel = self.world.settings, self.world.kernel
        yield Meet(("start",), everyone(self.members), 0.0)
        self.world.note(PIPELINE_MANAGER, "started")
        pending, told = Action.CONTINUE, set[int]()
        sizes: tuple[int, ...] = ()
        next_read = kernel.now
        while True:
            message = yield Receive(_REPORT, until=next_read)
            if message is None:
                next_read = kernel.now + settings.read_s
                if pending is Action.CONTINUE:  # an action under way is completed first
                    pending, sizes = self._wanted()
                continue
            if message.body:
                self.done.add(message.src)
            else:
                self.done.discard(message.src)
            if pending is Action.CONTINUE and len(self.done) == len(self.members):
                pending, told = Action.EOS, set()
            self.world.send(PIPELINE_MANAGER, message.src, Tag.ACTION, (pending, sizes))
            self.world.note(PIPELINE_MANAGER, "handed", (message.src, pending))
            if pending is not Action.CONTINUE:
                told.add(message.src)
            if len(told) < len(self.members):
                continue
            if pending is Action.EOS:
                return
            yield from self._reconfigure(pending, sizes)
            pending, sizes, told = Action.CONTINUE, (), set()

    def _wanted(self) -> tuple[Action, tuple[int, ...]]:
        """What parameters.json asks for; nothing once the Source has ended (our reading, 4.5)."""
        settings = self.world.settings
        if settings.desired is None or 1 in self.done:
            return Action.CONTINUE, ()
        actual = tuple(len(self.members[stage]) for stage in sorted(self.members))
        desired = list(settings.desired(self.world.kernel.now))
        desired[0] = 1
        if settings.ordered:
            desired[-1] = 1
        sizes = next_change(actual, desired)
        if sizes is None:
            return Action.CONTINUE, ()
        action = Action.ADD if sum(sizes) > sum(actual) else Action.BAN
        self.world.note(PIPELINE_MANAGER, "wanted", (action, sizes))
        return action, sizes

    def _reconfigure(self, action: Action, sizes: tuple[int, ...]) -> Step:
        self.world.note(PIPELINE_MANAGER, "enter", (action, self.epoch))
        old_ranks = list(range(1, len(self.members) + 1))
        old_ranks += [rank for ranks in self.members.values() for rank in ranks]
        if action is Action.ADD:
            ranks = yield from self._spawn(sizes)
        else:
            removed = removals(self.members, sizes)
            for rank in old_ranks:
                self.world.send(PIPELINE_MANAGER, rank, Tag.REMOVAL, removed)
            ranks = {stage: held[: sizes[stage - 1]] for stage, held in self.members.items()}
        new_ranks = [rank for held in ranks.values() for rank in held if rank not in old_ranks]
        for rank in old_ranks + new_ranks:
            self.world.send(PIPELINE_MANAGER, rank, Tag.RANKS, ranks)
        self.members = dict(ranks)
        self.epoch += 1
        yield Meet(("barrier", self.epoch), everyone(self.members), 0.0)
        self.done.clear()  # those who joined have not ended; everyone reports again
        self.world.note(PIPELINE_MANAGER, "resumed", self.epoch)
        self.world.note(PIPELINE_MANAGER, "sizes", sizes)

    def _spawn(self, sizes: tuple[int, ...]) -> Generator[Wait, Any, dict[int, tuple[int, ...]]]:
        """One newcomer at a time; all the others, and the newcomers before it, take part in each spawn."""
        old = everyone(self.members)
        homes = [stage for stage, held in self.members.items() for _ in range(sizes[stage - 1] - len(held))]
        ranks = {stage: list(held) for stage, held in self.members.items()}
        for i, stage in enumerate(homes):
            yield Meet(("spawn", self.epoch, i), old + i, self.world.settings.spawn_s)
            rank = self.world.spawn()
            ranks[stage].append(rank)
            left = len(homes) - 1 - i
            self.world.send(PIPELINE_MANAGER, rank, Tag.SPAWN_INFO, (left, i + 1, self.epoch, old + i + 1))
            self.world.send(PIPELINE_MANAGER, rank, Tag.CONFIG, (stage, self.epoch))
            self.world.note(rank, "spawned", stage)
        return {stage: tuple(held) for stage, held in ranks.items()}
