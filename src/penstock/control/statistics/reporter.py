"""What one subtask and one channel measure of themselves: thesis 001, section 4.4.1 and App. A.

The runtime calls a reporter when an item arrives in the queue, is read, is written, is finished; the reporter samples
(Bernoulli), keeps moments (Welford) and hands them over once per interval. Times are passed in. Memory is constant.

- service time S: from read to finished, over all items;
- inter-arrival time A: from a sampled arrival to the very *next* arrival (not to the next sampled one);
- queue wait w: the stamp put on at arrival, evaluated when the item is read;
- read-ready latency (RR): the service time;
- read-write latency (RW): from each sampled read to the next write on the output of the sequence. All open samples are
  closed by one write at t, so only the moments of the read times r are kept: the latencies have mean t - mean(r) and
  the same sum of squared distances. Reads at 0, 3, 7 and a write at 10 give 10, 7, 3;
- channel latency l_e: a tag made by the sender, evaluated by the receiver just before its function (4.4.1);
- output-batch latency obl_e: from entering the batch to its shipping.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from penstock.control.moments import Moments
from penstock.control.statistics.sampling import BernoulliSampler

LatencyMode = Literal["read_ready", "read_write"]


@dataclass(frozen=True)
class SubtaskStatistics:
    """One subtask over one interval. A statistic without samples has n = 0.

    >>> SubtaskStatistics(service=Moments.of([4.0]), interarrival=Moments.of([5.0])).utilisation
    0.8
    """

    latency: Moments = Moments()  # l_v
    service: Moments = Moments()  # S_v
    interarrival: Moments = Moments()  # A_v
    wait: Moments = Moments()  # w_v

    @property
    def utilisation(self) -> float | None:
        """Busy share rho = S / A; None if one of them was not sampled."""
        if self.service.n == 0 or self.interarrival.n == 0 or self.interarrival.mean <= 0.0:
            return None
        return self.service.mean / self.interarrival.mean


@dataclass(frozen=True)
class ChannelStatistics:
    """One channel over one interval.

    >>> ChannelStatistics(latency=Moments.of([12.0])).latency.mean
    12.0
    """

    latency: Moments = Moments()  # l_e
    batching: Moments = Moments()  # obl_e


class SubtaskReporter:
    """The statistics reporter of one subtask.

    >>> reporter = SubtaskReporter(probability=1.0, mode="read_write")
    >>> for at in (0.0, 3.0, 7.0):
    ...     reporter.read(at)
    ...     reporter.finished(at + 1.0)
    >>> reporter.wrote(10.0)
    >>> closed = reporter.close()
    >>> round(closed.latency.mean, 2), closed.latency.n, closed.service.mean
    (6.67, 3, 1.0)
    """

    def __init__(self, *, probability: float = 0.1, seed: int = 0, mode: LatencyMode = "read_ready") -> None:
        self.mode = mode
        # One sampler per kind of event: sharing one would tie whether a read is timed to whether an arrival was.
        self._arrivals, self._stamps, self._reads, self._opens = (
            BernoulliSampler(probability, seed * 4 + i) for i in range(4)
        )
        self._arrived: float | None = None  # an arrival whose successor is awaited
        self._read: float | None = None  # a read whose end is awaited
        self._base = 0.0  # read times are kept relative to the first open one: epoch seconds would lose digits
        self._open = Moments()
        self._clear()

    def _clear(self) -> None:
        self._latency = self._service = self._interarrival = self._wait = Moments()

    def arrived(self, now: float) -> float | None:
        """An item enters the queue. The stamp to keep with it, if its wait is sampled."""
        if self._arrived is not None:
            self._interarrival = self._interarrival.add(now - self._arrived)
        self._arrived = now if self._arrivals.hit() else None
        return now if self._stamps.hit() else None

    def read(self, now: float, stamp: float | None = None) -> None:
        """An item is taken from the queue, with the stamp that `arrived` gave it."""
        if stamp is not None:
            self._wait = self._wait.add(max(0.0, now - stamp))
        self._read = now if self._reads.hit() else None
        if self.mode == "read_write" and self._opens.hit():
            if self._open.n == 0:
                self._base = now
            self._open = self._open.add(now - self._base)

    def wrote(self, now: float) -> None:
        """An item is written to the output that belongs to the constrained sequence."""
        if self._open.n:
            delay = Moments(self._open.n, (now - self._base) - self._open.mean, self._open.m2)
            self._latency = self._latency.merge(delay)
            self._open = Moments()

    def finished(self, now: float) -> None:
        """The function is done with the item and its results are sent: ready to read the next."""
        if self._read is not None:
            busy = now - self._read
            self._service = self._service.add(busy)
            if self.mode == "read_ready":
                self._latency = self._latency.add(busy)
            self._read = None

    def close(self) -> SubtaskStatistics:
        """The interval's statistics; a new interval begins. Samples still open count where they end."""
        closed = SubtaskStatistics(self._latency, self._service, self._interarrival, self._wait)
        self._clear()
        return closed


@dataclass(frozen=True)
class Tag:
    """What a sampled item carries: the channel, and when it left the sender's function.

    >>> Tag(("a", "b"), 1.5).created
    1.5
    """

    channel: Hashable
    created: float


class ChannelReporter:
    """Both ends of one channel: the sender decides what is sampled, the receiver computes it.

    >>> reporter = ChannelReporter("a->b", probability=1.0)
    >>> tag = reporter.sent(now=1.0)
    >>> reporter.shipped(entered=1.0, now=1.25)
    >>> reporter.received(tag, now=1.5)
    >>> closed = reporter.close()
    >>> closed.latency.mean, closed.batching.mean
    (0.5, 0.25)
    """

    def __init__(self, channel: Hashable, *, probability: float = 0.1, seed: int = 0) -> None:
        self.channel = channel
        self.skewed = 0  # tags from the future: clocks of two machines that differ
        self._tags, self._batches = BernoulliSampler(probability, seed * 2), BernoulliSampler(probability, seed * 2 + 1)
        self._latency = self._batching = Moments()

    def sent(self, now: float) -> Tag | None:
        """An item leaves the sender's function: the tag to attach, if it is sampled."""
        return Tag(self.channel, now) if self._tags.hit() else None

    def shipped(self, entered: float, now: float) -> None:
        """An item that entered the output batch at `entered` is shipped."""
        if self._batches.hit():
            self._batching = self._batching.add(now - entered)

    def received(self, tag: Tag | None, now: float) -> None:
        """An item enters the receiver's function, with the tag it carries."""
        if tag is None:
            return
        if now < tag.created:
            self.skewed += 1
        self._latency = self._latency.add(max(0.0, now - tag.created))

    def close(self) -> ChannelStatistics:
        """The interval's statistics; a new interval begins."""
        closed = ChannelStatistics(self._latency, self._batching)
        self._latency = self._batching = Moments()
        return closed
