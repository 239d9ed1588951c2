"""How long the output batches of each channel may live: thesis 001, section 4.5.3, Algorithms 1 to 3.

For a channel e of a sequence with bound l, `dsl` is the worst subtask latency still to come after it and `usl` the
worst before it. What is left of the bound is spread evenly over the sequence's streams, and the share w_ob of it is the
mean batching delay wanted; the lifetime is corrected by what was measured (Eq. 4.3):

    target   = max(0, w_ob (l - dsl - usl) / streams)
    lifetime = max(0, min(2 target, lifetime + target - obl))

With one item per batch the delay is the lifetime, and the target is met after one step. With dense arrivals the delay
is half the lifetime: the error halves with each step and the lifetime tends to 2 target, the clamp. The clamp is needed
for batches that leave full, whose delay does not answer to the lifetime.

Where the algorithms as printed read what nobody set (a sequence that begins or ends with a stream), it counts as 0.
Chained channels carry no batch: they get no lifetime and do not count among the streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from penstock.control.checks import above, at_least, between
from penstock.control.models.constraints import Constraint
from penstock.control.models.graph import Channel, RuntimeGraph, Stream, Subtask
from penstock.errors import PolicyError


@dataclass(frozen=True)
class Position:
    """Where a channel stands in its sequence: the worst subtask latency after it and before it.

    >>> Position(downstream=6.0, upstream=0.0).others
    6.0
    """

    downstream: float  # dsl
    upstream: float  # usl

    @property
    def others(self) -> float:
        """All subtask latency on the worst path through the channel."""
        return self.downstream + self.upstream


def positions(graph: RuntimeGraph, constraint: Constraint, latency: Mapping[Subtask, float]) -> dict[Channel, Position]:
    """Algorithms 1 and 2: dsl and usl of every channel of the constraint's streams that is in `graph`.

    `latency` is l_v, the mean subtask latency; a subtask without one is stale and the caller must not come here.

    >>> from penstock.control.models.constraints import between as path
    >>> from penstock.control.models.graph import TemplateGraph, all_to_all
    >>> wiring = {("src", "v"): all_to_all, ("v", "snk"): all_to_all}
    >>> graph = TemplateGraph({"src": 1, "v": 2, "snk": 1}, wiring).runtime()
    >>> at = positions(graph, path("fast", ("src", "v", "snk"), 50.0), {("v", 1): 2.0, ("v", 2): 5.0})
    >>> at[("src", 1), ("v", 2)].downstream, at[("v", 2), ("snk", 1)].upstream
    (5.0, 5.0)
    """
    inside = set(constraint.tasks)

    def own(subtask: Subtask) -> float:
        if subtask[0] not in inside:
            return 0.0  # the far end of an outer stream: not in the sequence
        if subtask not in latency:
            where = f"constraint '{constraint.name}'"
            raise PolicyError(where, f"there is no latency of {subtask[0]} {subtask[1]}", "skip stale intervals")
        return at_least(f"subtask {subtask[0]} {subtask[1]}", "latency", latency[subtask], 0.0)

    downstream: dict[Channel, float] = {}
    after: dict[Subtask, float] = {}
    for stream in reversed(constraint.streams):
        for channel in graph.channels_of(stream):
            sender, receiver = channel
            downstream[channel] = after.get(receiver, 0.0) + own(receiver)
            after[sender] = max(after.get(sender, 0.0), downstream[channel])
    upstream: dict[Channel, float] = {}
    before: dict[Subtask, float] = {}
    for stream in constraint.streams:
        for channel in graph.channels_of(stream):
            sender, receiver = channel
            upstream[channel] = before.get(sender, 0.0) + own(sender)
            before[receiver] = max(before.get(receiver, 0.0), upstream[channel])
    return {channel: Position(downstream[channel], upstream[channel]) for channel in downstream}


def target_delay(bound: float, others: float, streams: int, batching_share: float) -> float:
    """The mean batching delay wanted on a channel; 0 if the subtasks alone use the bound up.

    >>> round(target_delay(50.0, 6.0, 3, 0.8), 3), target_delay(50.0, 60.0, 3, 0.8)
    (11.733, 0.0)
    """
    above("output batching", "bound", bound, 0.0)
    above("output batching", "streams", streams, 0)
    between("output batching", "batching_share", batching_share, 0.0, 1.0)
    return max(0.0, batching_share * (bound - at_least("output batching", "others", others, 0.0)) / streams)


def adjusted(lifetime: float, delay: float, target: float) -> float:
    """The next lifetime: the last one, corrected by target minus measured delay, from 0 to twice the target.

    >>> adjusted(0.0, 0.0, 10.0), adjusted(10.0, 5.0, 10.0), adjusted(19.0, 1.0, 10.0)
    (10.0, 15.0, 20.0)
    """
    for name, value in (("lifetime", lifetime), ("delay", delay), ("target", target)):
        at_least("output batching", name, value, 0.0)
    return max(0.0, min(2.0 * target, lifetime + target - delay))


def adjust_lifetimes(
    graph: RuntimeGraph,
    constraint: Constraint,
    *,
    latency: Mapping[Subtask, float],
    delay: Mapping[Channel, float],
    lifetimes: Mapping[Channel, float],
    batching_share: float = 0.8,
    chained: AbstractSet[Stream] = frozenset(),
) -> dict[Channel, float]:
    """Algorithm 3: the lifetimes that one manager asks for on the channels of its subgraph.

    A channel without a measured delay is left alone. `chained` streams carry no batch.

    >>> from penstock.control.models.constraints import between as path
    >>> from penstock.control.models.graph import TemplateGraph, all_to_all
    >>> graph = TemplateGraph({"src": 1, "snk": 1}, {("src", "snk"): all_to_all}).runtime()
    >>> edge = graph.channels[0]
    >>> adjust_lifetimes(graph, path("fast", ("src", "snk"), 50.0), latency={}, delay={edge: 0.0}, lifetimes={})
    {(('src', 1), ('snk', 1)): 40.0}
    """
    if constraint.bound is None:
        return {}
    streams = [stream for stream in constraint.streams if stream not in chained]
    at = positions(graph, constraint, latency)
    asked = {}
    for stream in streams:
        for channel in graph.channels_of(stream):
            if channel in delay:
                target = target_delay(constraint.bound, at[channel].others, len(streams), batching_share)
                asked[channel] = adjusted(lifetimes.get(channel, 0.0), delay[channel], target)
    return asked


def lowest(asked: Iterable[Mapping[Channel, float]]) -> dict[Channel, float]:
    """The lifetime of each channel if several managers asked: the lowest wins (4.5.2).

    >>> edge = (("a", 1), ("b", 1))
    >>> lowest([{edge: 8.0}, {edge: 5.0}])
    {(('a', 1), ('b', 1)): 5.0}
    """
    least: dict[Channel, float] = {}
    for request in asked:
        for channel, lifetime in request.items():
            least[channel] = min(lifetime, least.get(channel, lifetime))
    return least
