"""Where the batching managers run, and what each of them looks after: thesis 001, section 4.5.4, Algorithms 4 to 6.

The constrained part of the runtime graph is split into subgraphs, one per worker that hosts subtasks of the *anchor
task*, so that each runtime sequence lies in exactly one subgraph (it passes exactly one anchor subtask) and no subgraph
holds an element that belongs to none of its sequences. As many managers as possible come first, little overlap second:

    anchor: of the sequence's tasks, those on the most workers; of those, with the fewest channels; of those, the first
    one manager per worker with anchor subtasks; its subgraph is what is reached from them, forwards and backwards

Recomputed after every completed scaling: the placement changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.control.models.constraints import Constraint
from penstock.control.models.graph import Channel, RuntimeGraph, Stream, Subtask
from penstock.errors import PolicyError

Schedule = Mapping[Subtask, str]  # the worker of each subtask


@dataclass(frozen=True)
class Subgraph:
    """What one manager looks after.

    >>> Subgraph(frozenset({("a", 1)}), frozenset()).merge(Subgraph(frozenset({("b", 1)}), frozenset())).size
    2
    """

    subtasks: frozenset[Subtask]
    channels: frozenset[Channel]

    def merge(self, other: Subgraph) -> Subgraph:
        """Both together."""
        return Subgraph(self.subtasks | other.subtasks, self.channels | other.channels)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return len(self.subtasks) + len(self.channels)

    def as_graph(self, whole: RuntimeGraph) -> RuntimeGraph:
        """It as a runtime graph, in the order of the whole one."""
        return RuntimeGraph(
            tuple(subtask for subtask in whole.subtasks if subtask in self.subtasks),
            tuple(channel for channel in whole.channels if channel in self.channels),
        )


def compute_setup(graph: RuntimeGraph, constraints: Sequence[Constraint], schedule: Schedule) -> dict[str, Subgraph]:
    """Algorithm 4: worker -> the subgraph of its manager; subgraphs of several constraints on one worker are merged.

    >>> from penstock.control.models.constraints import between
    >>> from penstock.control.models.graph import TemplateGraph, all_to_all
    >>> wiring = {("src", "v"): all_to_all, ("v", "snk"): all_to_all}
    >>> graph = TemplateGraph({"src": 1, "v": 2, "snk": 1}, wiring).runtime()
    >>> schedule = {("src", 1): "w1", ("v", 1): "w1", ("v", 2): "w2", ("snk", 1): "w2"}
    >>> setup = compute_setup(graph, [between("fast", ("src", "v", "snk"), 20.0)], schedule)
    >>> sorted((worker, part.size) for worker, part in setup.items())
    [('w1', 5), ('w2', 5)]
    """
    for subtask in graph.subtasks:
        if subtask not in schedule:
            where = f"subtask {subtask[0]} {subtask[1]}"
            raise PolicyError(where, "it has no worker", "give every subtask its place in the schedule")
    managers: dict[str, Subgraph] = {}
    for constraint in constraints:
        for worker, part in _of_sequence(graph, constraint, schedule):
            managers[worker] = managers[worker].merge(part) if worker in managers else part
    return managers


def anchor_task(graph: RuntimeGraph, constraint: Constraint, schedule: Schedule) -> str:
    """Algorithm 6: most workers first, then fewest channels, then the first on the path.

    >>> from penstock.control.models.constraints import between
    >>> from penstock.control.models.graph import TemplateGraph, all_to_all
    >>> wiring = {("s", "a"): all_to_all, ("a", "b"): all_to_all, ("b", "t"): all_to_all}
    >>> graph = TemplateGraph({"s": 1, "a": 2, "b": 2, "t": 2}, wiring).runtime()
    >>> schedule = {subtask: f"w{subtask[1]}" for subtask in graph.subtasks}
    >>> anchor_task(graph, between("c", ("s", "a", "b", "t"), 20.0), schedule)
    'a'
    """
    # A sequence of one stream has no task of its own: its ends stand in (the thesis does not say).
    candidates = constraint.tasks or constraint.streams[0]

    def rank(task: str) -> tuple[int, int]:
        workers = {schedule[subtask] for subtask in graph.subtasks if subtask[0] == task}
        channels = sum(len(graph.channels_of(stream)) for stream in constraint.streams if task in stream)
        return -len(workers), channels

    return min(candidates, key=rank)  # min takes the first of equals


def _of_sequence(graph: RuntimeGraph, constraint: Constraint, schedule: Schedule) -> Iterable[tuple[str, Subgraph]]:
    """Algorithm 5: the anchor's subtasks grouped by worker, each group with what is reached from it."""
    live = _on_complete_sequences(graph, constraint)
    anchor = anchor_task(graph, constraint, schedule)
    groups: dict[str, set[Subtask]] = {}
    for subtask in graph.subtasks:
        if subtask[0] == anchor:
            groups.setdefault(schedule[subtask], set()).add(subtask)
    for worker, group in groups.items():
        yield worker, _expand(group, anchor, constraint.streams, live)


def _expand(
    group: set[Subtask], anchor: str, streams: Sequence[Stream], live: Mapping[Stream, tuple[Channel, ...]]
) -> Subgraph:
    """RuntimeGraphExpand: everything on a sequence through the group. Streams are walked in path order."""
    subtasks: set[Subtask] = set(group)
    channels: set[Channel] = set()
    after = _from(streams, anchor, end=0)
    before = _from(streams, anchor, end=1)
    for walk, near, far in ((after, 0, 1), (before[::-1], 1, 0)):
        reached = set(group)
        for stream in walk:
            met = [channel for channel in live[stream] if channel[near] in reached]
            channels.update(met)
            reached = {channel[far] for channel in met}
            subtasks |= reached
    if streams:  # an anchor subtask that no sequence passes is no element either
        subtasks &= {end for channel in channels for end in channel}
    return Subgraph(frozenset(subtasks), frozenset(channels))


def _from(streams: Sequence[Stream], anchor: str, end: int) -> list[Stream]:
    """The streams after the anchor (`end` 0: from the one it sends on) or before it (1: up to the one it reads)."""
    for i, stream in enumerate(streams):
        if stream[end] == anchor:
            return list(streams[i:]) if end == 0 else list(streams[: i + 1])
    return []


def _on_complete_sequences(graph: RuntimeGraph, constraint: Constraint) -> dict[Stream, tuple[Channel, ...]]:
    """Per stream the channels that lie on a whole runtime sequence: a dead end belongs to none (4.5.4, condition 2)."""
    live = {stream: graph.channels_of(stream) for stream in constraint.streams}
    for walk, near, far in ((constraint.streams, 0, 1), (constraint.streams[::-1], 1, 0)):
        reached: set[Subtask] | None = None
        for stream in walk:
            if reached is not None:
                live[stream] = tuple(channel for channel in live[stream] if channel[near] in reached)
            reached = {channel[far] for channel in live[stream]}
    return live
