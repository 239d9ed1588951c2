"""What the processes of one modelled pipeline share: settings, the virtual clock, the trace, the statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.control.checks import at_least
from penstock.control.protocol.jobs import check_sizes
from penstock.control.protocol.kernel import DATA_PLANE, Kernel, Message, ProtocolError, Tag
from penstock.control.protocol.stage_statistics import Sample
from penstock.errors import PolicyError

Members = Mapping[int, tuple[int, ...]]


class Action(IntEnum):
    """The configuration protocol's codes (004, 5.4.2). Downwards, 2 answers "all is done, end" (our reading of EOS).

    >>> [action.value for action in (Action.CONTINUE, Action.ADD, Action.BAN)]
    [0, 3, 4]
    """

    CONTINUE = 0
    ALIVE = 1
    EOS = 2
    ADD = 3
    BAN = 4
    NEW_PROCESS = 5
    SPAWN_INFO = 6


@dataclass(frozen=True)
class Settings:
    """One pipeline: sizes, items, costs, cadences (thesis 004, 7.2: 100 ms, 300 ms, 500 ms).

    >>> Settings(sizes=(1, 3, 1), items=100).buffer
    1
    """

    sizes: Sequence[int] = (1, 1, 1)
    items: int = 100
    cost: Callable[[int, int, float], float] = lambda stage, item, now: 1e-3  # seconds of user code
    desired: Callable[[float], Sequence[int]] | None = None  # parameters.json as read at an instant
    ordered: bool = False  # the Sink delivers in the order of ids
    buffer: int = 1  # B: credits per upstream peer
    parts: int = 1  # payload messages per item
    scheduling: str = "on_demand"  # or "round_robin": item i goes to peer i mod n, whoever asked
    check_s: float = 0.1  # T_hb, stage process -> stage manager
    statistics_s: float = 0.3  # T_st
    read_s: float = 0.5  # T_pm
    spawn_s: float = 0.02
    latency_s: float = 1e-4
    jitter: float = 1.0  # a message takes latency * (1 .. 1 + jitter)
    seed: int = 0
    single_ready: bool = False  # the listings' slip: go on after the first READY. Only to show that it breaks

    def __post_init__(self) -> None:
        where = "protocol model"
        check_sizes(self.sizes)
        if self.sizes[0] != 1 or (self.ordered and self.sizes[-1] != 1):
            raise PolicyError(where, "one Source, and one Sink if it is ordered", "replicate Compute stages only")
        if self.scheduling not in ("on_demand", "round_robin"):
            raise PolicyError(where, f"no scheduling {self.scheduling!r}", "use 'on_demand' or 'round_robin'")
        for name in ("items", "statistics_s", "spawn_s", "latency_s", "jitter"):
            at_least(where, name, getattr(self, name), 0)
        for name in ("buffer", "parts"):
            at_least(where, name, getattr(self, name), 1)
        for name in ("check_s", "read_s"):
            at_least(where, name, getattr(self, name), 1e-6)


class Event(NamedTuple):
    """One line of the trace.

    >>> Event(0.25, 6, "buffered", 17).rank
    6
    """

    time: float
    rank: int
    kind: str
    detail: Any = None


@dataclass
class World:
    """The common ground of the processes. It holds no knowledge that they exchange by messages."""

    settings: Settings
    kernel: Kernel
    trace: list[Event] = field(default_factory=list)
    samples: dict[int, dict[int, Sample]] = field(default_factory=dict)  # stage -> milliseconds -> sample
    delivered: list[int] = field(default_factory=list)  # ids as the Sinks' user code saw them
    launch: Callable[[int, World], Any] | None = None  # body of a newly spawned process
    ranks_used: int = 0

    def note(self, rank: int, kind: str, detail: Any = None) -> None:
        """Add a line to the trace."""
        self.trace.append(Event(self.kernel.now, rank, kind, detail))

    def send(self, src: int, dst: int, tag: Tag, body: Any = None, epoch: int = 0) -> None:
        """Send a message and, on the data plane, note it."""
        if tag in DATA_PLANE:
            self.trace.append(Event(self.kernel.now, src, tag, (dst, body, epoch)))
        self.kernel.send(Message(src, dst, tag, body, epoch))

    def discard(self, message: Message) -> None:
        """Drop a message of a channel that was torn down: only requests may be there (invariant "no data lost")."""
        if message.tag is not Tag.REQUEST and message.tag in DATA_PLANE:
            raise ProtocolError(
                f"{message.tag} {message.body} from {message.src} to {message.dst} is lost with its channel"
            )
        self.note(message.dst, "discarded", message.src)

    def spawn(self) -> int:
        """Start one more process; ranks are never used again."""
        assert self.launch is not None
        rank = self.ranks_used
        self.ranks_used += 1
        self.kernel.start(rank, self.launch(rank, self))
        return rank
