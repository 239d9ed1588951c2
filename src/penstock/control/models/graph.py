"""The two-level application graph of thesis 001, section 2.3.1: what the developer wrote, and what runs.

The template graph G = (V, E, p, w) has tasks, streams, a parallelism p(v) per task and a wiring per stream. It induces
the runtime graph: the subtasks v_1 .. v_p(v) of every task, and a channel (v_i, u_j) for every stream (v, u) and pair
for which the wiring w(i, j) holds. Subtasks are numbered from 1, as in the thesis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from penstock.control.checks import at_least
from penstock.errors import PolicyError

Stream = tuple[str, str]  # sending task, receiving task
Subtask = tuple[str, int]  # task, number from 1
Channel = tuple[Subtask, Subtask]
Wiring = Callable[[int, int], bool]  # may subtask i of the sender send to subtask j of the receiver?


def all_to_all(sender: int, receiver: int) -> bool:
    """Every subtask may send to every subtask.

    >>> all_to_all(1, 2)
    True
    """
    return True


def one_to_one(sender: int, receiver: int) -> bool:
    """A subtask may send to the one of its own number.

    >>> one_to_one(1, 2), one_to_one(2, 2)
    (False, True)
    """
    return sender == receiver


@dataclass(frozen=True)
class RuntimeGraph:
    """Subtasks and the channels between them.

    >>> graph = TemplateGraph({"a": 1, "b": 2}, {("a", "b"): all_to_all}).runtime()
    >>> len(graph.subtasks), len(graph.channels)
    (3, 2)
    """

    subtasks: tuple[Subtask, ...]
    channels: tuple[Channel, ...]

    @cached_property
    def _by_stream(self) -> dict[Stream, tuple[Channel, ...]]:
        found: dict[Stream, list[Channel]] = {}
        for channel in self.channels:
            found.setdefault((channel[0][0], channel[1][0]), []).append(channel)
        return {stream: tuple(channels) for stream, channels in found.items()}

    def channels_of(self, stream: Stream) -> tuple[Channel, ...]:
        """The channels of a stream.

        >>> TemplateGraph({"a": 1, "b": 1}, {("a", "b"): all_to_all}).runtime().channels_of(("a", "b"))
        ((('a', 1), ('b', 1)),)
        """
        return self._by_stream.get(stream, ())

    @cached_property
    def outgoing(self) -> Mapping[Subtask, tuple[Channel, ...]]:
        """The channels that leave each subtask (absent: none)."""
        return _grouped(self.channels, 0)

    @cached_property
    def incoming(self) -> Mapping[Subtask, tuple[Channel, ...]]:
        """The channels that enter each subtask (absent: none)."""
        return _grouped(self.channels, 1)


@dataclass(frozen=True)
class TemplateGraph:
    """Tasks with their parallelism, and streams with their wiring; acyclic.

    >>> graph = TemplateGraph({"source": 1, "score": 2, "sink": 1},
    ...     {("source", "score"): all_to_all, ("score", "sink"): all_to_all})
    >>> graph.sources, graph.sinks
    (('source',), ('sink',))
    >>> graph.streams_of_path("source", "score", "sink")
    (('source', 'score'), ('score', 'sink'))
    """

    parallelism: Mapping[str, int]
    wiring: Mapping[Stream, Wiring] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for task, width in self.parallelism.items():
            at_least(f"task '{task}'", "parallelism", width, 1)
        for sender, receiver in self.wiring:
            for task in (sender, receiver):
                if task not in self.parallelism:
                    where = f"stream '{sender}->{receiver}'"
                    raise PolicyError(where, f"there is no task '{task}'", "give every task its parallelism")
        self._refuse_cycles()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in the order given."""
        return tuple(self.parallelism)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams, in the order given."""
        return tuple(self.wiring)

    @property
    def sources(self) -> tuple[str, ...]:
        """The tasks that nothing flows into."""
        fed = {receiver for _, receiver in self.wiring}
        return tuple(task for task in self.parallelism if task not in fed)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The tasks that nothing flows out of."""
        feeding = {sender for sender, _ in self.wiring}
        return tuple(task for task in self.parallelism if task not in feeding)

    def streams_of_path(self, *tasks: str) -> tuple[Stream, ...]:
        """The streams between neighbours on a path; an error names the one that is missing."""
        path = tuple(pairwise(tasks))
        for sender, receiver in path:
            if (sender, receiver) not in self.wiring:
                raise PolicyError(
                    f"stream '{sender}->{receiver}'", "there is no such stream", "name neighbours in flow order"
                )
        return path

    def runtime(self) -> RuntimeGraph:
        """The runtime graph it induces: sum of p subtasks, one channel per pair that the wiring allows."""
        subtasks = tuple((task, i) for task, p in self.parallelism.items() for i in range(1, p + 1))
        channels = tuple(
            ((sender, i), (receiver, j))
            for (sender, receiver), wired in self.wiring.items()
            for i in range(1, self.parallelism[sender] + 1)
            for j in range(1, self.parallelism[receiver] + 1)
            if wired(i, j)
        )
        return RuntimeGraph(subtasks, channels)

    def _refuse_cycles(self) -> None:
        left = set(self.parallelism)
        while left:
            free = {task for task in left if not any(b == task and a in left for a, b in self.wiring)}
            if not free:
                names = ", ".join(sorted(left))
                raise PolicyError("template graph", f"it has a cycle among {names}", "a flow must be acyclic")
            left -= free


def _grouped(channels: tuple[Channel, ...], end: int) -> dict[Subtask, tuple[Channel, ...]]:
    found: dict[Subtask, list[Channel]] = {}
    for channel in channels:
        found.setdefault(channel[end], []).append(channel)
    return {subtask: tuple(group) for subtask, group in found.items()}
