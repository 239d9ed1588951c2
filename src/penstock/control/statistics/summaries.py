"""From what subtasks and channels report to one summary per constraint: thesis 001, section 4.4.2.

The value of a stream is the *unweighted* mean over its channels of each channel's mean (Eq. 4.2); of a task likewise
over its subtasks, coefficients of variation included (the mean of the subtasks', not that of the pooled data):

    l_e = 1/n sum_i l_{e_i},        rho^max_v = max over v's subtasks

A worker's aggregator makes a *partial* summary of its own elements; the master merges partial summaries into the
*global* one. What is carried is (count, mean), so merging is exact. Subgraphs of managers overlap, so each element has
one *owner* and is counted there only. An element without samples is left out; a summary is *fresh* if every task and
stream of the constraint has data, and nobody acts on one that is not.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields

from penstock.control.models.constraints import Constraint
from penstock.control.models.graph import Channel, Stream, Subtask
from penstock.control.moments import Moments
from penstock.control.observation import OperatorView
from penstock.control.statistics.reporter import ChannelStatistics, SubtaskStatistics
from penstock.errors import PolicyError


@dataclass(frozen=True)
class MeanOf:
    """The mean over `count` elements; merging weights by count.

    >>> MeanOf(1, 4.0).merge(MeanOf(3, 8.0))
    MeanOf(count=4, mean=7.0)
    """

    count: int = 0
    mean: float = 0.0

    def add(self, value: float | None) -> MeanOf:
        """With one more element; None is an element that was not measured."""
        return self if value is None else self.merge(MeanOf(1, value))

    def merge(self, other: MeanOf) -> MeanOf:
        """Of both sets of elements, which must be disjoint."""
        count = self.count + other.count
        if count == 0:
            return self
        return MeanOf(count, self.mean + (other.mean - self.mean) * other.count / count)


@dataclass(frozen=True)
class TaskSummary:
    """One task over one interval: means over its subtasks, and the busiest of them.

    >>> subtask = SubtaskStatistics()
    >>> TaskSummary.of([subtask]).fresh
    False
    """

    latency: MeanOf = MeanOf()  # l_v
    service: MeanOf = MeanOf()  # S_v
    service_cv: MeanOf = MeanOf()
    interarrival: MeanOf = MeanOf()  # A_v
    arrival_cv: MeanOf = MeanOf()
    wait: MeanOf = MeanOf()  # w_v
    busiest: float | None = None  # rho^max

    @staticmethod
    def of(subtasks: Iterable[SubtaskStatistics]) -> TaskSummary:
        """Of these subtasks' statistics."""
        total = TaskSummary()
        for one in subtasks:
            total = total.merge(
                TaskSummary(
                    MeanOf().add(_mean(one.latency)),
                    MeanOf().add(_mean(one.service)),
                    MeanOf().add(_cv(one.service)),
                    MeanOf().add(_mean(one.interarrival)),
                    MeanOf().add(_cv(one.interarrival)),
                    MeanOf().add(_mean(one.wait)),
                    one.utilisation,
                )
            )
        return total

    def merge(self, other: TaskSummary) -> TaskSummary:
        """With other subtasks of the same task."""
        means = {
            f.name: getattr(self, f.name).merge(getattr(other, f.name)) for f in fields(self) if f.name != "busiest"
        }
        known = [value for value in (self.busiest, other.busiest) if value is not None]
        return TaskSummary(**means, busiest=max(known, default=None))

    @property
    def fresh(self) -> bool:
        """Whether the latency model has all it needs."""
        return all(getattr(self, f.name).count for f in fields(self) if f.name != "busiest")

    @property
    def utilisation(self) -> float:
        """The ratio of the means, S_v / A_v: elastic scaling's utilisation."""
        return self.service.mean / self.interarrival.mean if self.interarrival.mean > 0.0 else 0.0


@dataclass(frozen=True)
class StreamSummary:
    """One stream over one interval: means over its channels.

    >>> from penstock.control.moments import Moments
    >>> StreamSummary.of([ChannelStatistics(latency=Moments.of([2.0])), ChannelStatistics()]).latency
    MeanOf(count=1, mean=2.0)
    """

    latency: MeanOf = MeanOf()  # l_e
    batching: MeanOf = MeanOf()  # obl_e

    @staticmethod
    def of(channels: Iterable[ChannelStatistics]) -> StreamSummary:
        """Of these channels' statistics."""
        total = StreamSummary()
        for one in channels:
            latency = MeanOf().add(_mean(one.latency))
            total = total.merge(StreamSummary(latency, MeanOf().add(_mean(one.batching))))
        return total

    def merge(self, other: StreamSummary) -> StreamSummary:
        """With other channels of the same stream."""
        return StreamSummary(self.latency.merge(other.latency), self.batching.merge(other.batching))

    @property
    def fresh(self) -> bool:
        """Whether a channel latency was measured."""
        return self.latency.count > 0


@dataclass(frozen=True)
class Summary:
    """One constraint over one interval, partial or global.

    >>> Summary("fast", {}, {("a", "b"): StreamSummary(latency=MeanOf(1, 3.0))}).sequence_latency
    3.0
    """

    constraint: str
    tasks: Mapping[str, TaskSummary] = field(default_factory=dict)
    streams: Mapping[Stream, StreamSummary] = field(default_factory=dict)

    def merge(self, other: Summary) -> Summary:
        """With the summary of other elements of the same constraint."""
        if other.constraint != self.constraint:
            where = f"summary of '{self.constraint}'"
            raise PolicyError(where, f"it cannot be merged with one of '{other.constraint}'", "merge per constraint")
        return Summary(
            self.constraint,
            {name: task.merge(other.tasks[name]) for name, task in self.tasks.items()},
            {name: stream.merge(other.streams[name]) for name, stream in self.streams.items()},
        )

    @property
    def fresh(self) -> bool:
        """Whether every task and stream of the constraint has data."""
        return all(t.fresh for t in self.tasks.values()) and all(s.fresh for s in self.streams.values())

    @property
    def sequence_latency(self) -> float | None:
        """The interval's mean sequence latency, sum of l_v and l_e (4.2); None if something was not measured."""
        parts = [task.latency for task in self.tasks.values()] + [stream.latency for stream in self.streams.values()]
        return sum(part.mean for part in parts) if all(part.count for part in parts) else None


def summarise(
    constraint: Constraint,
    subtasks: Mapping[Subtask, SubtaskStatistics],
    channels: Mapping[Channel, ChannelStatistics],
    *,
    owned: Collection[Hashable] | None = None,
) -> Summary:
    """The summary of the elements reported here; with `owned`, of those only (a partial summary).

    >>> from penstock.control.models.constraints import between
    >>> summarise(between("fast", ("a", "b"), 20.0), {}, {}).fresh
    False
    """

    def mine(element: Hashable) -> bool:
        return owned is None or element in owned

    return Summary(
        constraint.name,
        {
            task: TaskSummary.of(s for subtask, s in subtasks.items() if subtask[0] == task and mine(subtask))
            for task in constraint.tasks
        },
        {
            stream: StreamSummary.of(
                s for channel, s in channels.items() if (channel[0][0], channel[1][0]) == stream and mine(channel)
            )
            for stream in constraint.streams
        },
    )


def merge_summaries(partial: Iterable[Summary]) -> dict[str, Summary]:
    """One global summary per constraint, from partial ones over disjoint elements.

    >>> parts = [Summary("c", {}, {("a", "b"): StreamSummary(latency=MeanOf(1, x))}) for x in (2.0, 4.0)]
    >>> merge_summaries(parts)["c"].sequence_latency
    3.0
    """
    merged: dict[str, Summary] = {}
    for summary in partial:
        known = merged.get(summary.constraint)
        merged[summary.constraint] = summary if known is None else known.merge(summary)
    return merged


def owners(watched: Mapping[str, Collection[Hashable]]) -> dict[str, frozenset[Hashable]]:
    """Give each element one of the aggregators that watch it, the first by name: nothing is counted twice.

    >>> parts = owners({"w2": {"x", "y"}, "w1": {"x"}})
    >>> sorted(parts["w1"]), sorted(parts["w2"])
    (['x'], ['y'])
    """
    taken: set[Hashable] = set()
    owned = {}
    for worker in sorted(watched):
        owned[worker] = frozenset(element for element in watched[worker] if element not in taken)
        taken |= owned[worker]
    return owned


def operator_view(name: str, task: TaskSummary, into: StreamSummary, *, width: int, lo: int, hi: int) -> OperatorView:
    """A task's summary as a policy sees it; rates from the mean inter-arrival time of its `width` subtasks.

    >>> task = TaskSummary(*(MeanOf(1, x) for x in (0.004, 0.004, 0.5, 0.005, 1.0, 0.014)), busiest=0.9)
    >>> view = operator_view("score", task, StreamSummary(), width=8, lo=1, hi=64)
    >>> view.arrivals_per_s, view.utilisation, round(view.busiest, 3)
    (1600.0, 0.8, 0.9)
    """
    rate = width / task.interarrival.mean if task.interarrival.mean > 0.0 else 0.0
    rho = task.utilisation
    return OperatorView(
        name,
        width,
        lo,
        hi,
        arrivals_per_s=rate,
        completed_per_s=min(rate, width / task.service.mean) if task.service.mean > 0.0 else rate,
        service_s=task.service.mean,
        service_cv=task.service_cv.mean,
        interarrival_s=task.interarrival.mean,
        arrival_cv=task.arrival_cv.mean,
        wait_s=task.wait.mean,
        batch_wait_s=into.batching.mean,
        queue_items=rate * task.wait.mean,  # Little's law
        utilisation=rho,
        skew=task.busiest / rho if task.busiest and rho > 0.0 else 1.0,
        latency_s=task.latency.mean if task.latency.count else None,
    )


def _mean(of: Moments) -> float | None:
    return of.mean if of.n else None


def _cv(of: Moments) -> float | None:
    """The coefficient of variation, 0 for what always takes no time; None below two samples."""
    return 0.0 if of.n > 1 and of.mean == 0.0 else of.cv
