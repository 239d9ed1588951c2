"""The simulator's yardstick: every item of a pipeline as an event, one after the other. Slow, obvious, exact.

Subtasks are first-come-first-served servers with a queue of their own; a sender gives its items round robin (or by
weight) to the receivers, through one output batch per channel (thesis 001, section 4.5.2: shipped when its lifetime is
over or it is full). Queues may be bounded: a batch is taken in while the queue is below its bound, otherwise it waits
in the connection and its sender stands still inside "send" until it is taken (backpressure). Hence the two measurement
anomalies of 001, section 4.6: arrivals x service time passes 1 while queues fill, and the service time of the sender
grows once they are full.

The fast simulator is `stream`; the tests hold it against this one, and this one against queueing theory.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.engine.sim.draws import service_times
from penstock.errors import FlowError

Floats = NDArray[np.float64]
MOST_ITEMS = 1_000_000
_FINISH, _FLUSH, _WIDTH, _BORN = 0, 1, 2, 3


@dataclass(frozen=True)
class Stage:
    """One task of the pipeline and the stream into it.

    >>> Stage("score", width=2, service_s=0.01).queue is None
    True
    """

    name: str
    width: int = 1
    service_s: float = 0.001
    service_cv: float = 1.0
    queue: int | None = None  # most items waiting at one subtask; None: unbounded
    weights: tuple[float, ...] | None = None  # share of each subtask; None: round robin
    lifetime_s: float = 0.0  # of the output batches on the stream into it
    buffer_items: int | None = None  # a batch of so many items is shipped at once
    ship_s: float = 0.0  # what taking in one batch costs the receiver, on top of its items


@dataclass(frozen=True)
class Measured:
    """One stage over the whole run, as its statistics reporters saw it.

    >>> Measured("a", 2.0, 2.0, 0.1, 0.0, 0.3, 0.0, 0.25).offered
    0.25
    """

    name: str
    arrivals_per_s: float
    completed_per_s: float
    service_s: float  # read to ready for the next item: includes standing still inside "send"
    service_cv: float
    wait_s: float  # in the input queue
    batch_wait_s: float  # in the output batch, and in the connection behind a full queue
    utilisation: float  # arrivals x service / width: 001's rho = S / A, which may pass 1

    @property
    def offered(self) -> float:
        """Another name for 001's utilisation, which is what is *offered*, not the busy share."""
        return self.utilisation


@dataclass
class Run:
    """What happened to every item: times per stage and item, NaN where it never got so far."""

    stages: tuple[Stage, ...]
    born: Floats  # when the source had it to send
    sent: Floats  # [stage, item]: left the sender's function
    queued: Floats  # [stage, item]: entered the input queue
    started: Floats
    finished: Floats  # ready for the next item
    end_s: float
    area: Floats = field(default_factory=lambda: np.zeros(0))  # integral of the number in each stage (queue + service)

    def latencies(self) -> Floats:
        """Born to finished at the last stage, of the items that got there.

        >>> run_items((Stage("a", service_s=1.0, service_cv=0.0),), np.array([0.0, 0.5]), seed=1).latencies().tolist()
        [1.0, 1.5]
        """
        last = self.finished[-1]
        done = np.isfinite(last)
        return last[done] - self.born[done]

    def measured(self, stage: int, since: float = 0.0, until: float | None = None) -> Measured:
        """The statistics of one stage over a span.

        >>> run = run_items((Stage("a", service_s=1.0, service_cv=0.0),), np.array([0.0, 0.5]), seed=1)
        >>> run.measured(0).wait_s
        0.25
        """
        end = self.end_s if until is None else until
        span = max(end - since, 1e-12)
        came = (self.queued[stage] >= since) & (self.queued[stage] < end)
        left = (self.finished[stage] >= since) & (self.finished[stage] < end)
        began = (self.started[stage] >= since) & (self.started[stage] < end)
        busy = self.finished[stage][left] - self.started[stage][left]
        wait = self.started[stage][began] - self.queued[stage][began]
        held = self.queued[stage][came] - self.sent[stage][came]
        mean = float(busy.mean()) if busy.size else 0.0
        arrivals = float(came.sum()) / span
        return Measured(
            self.stages[stage].name,
            arrivals,
            float(left.sum()) / span,
            mean,
            float(busy.std() / mean) if mean > 0.0 else 0.0,
            float(wait.mean()) if wait.size else 0.0,
            float(held.mean()) if held.size else 0.0,
            arrivals * mean / self.stages[stage].width,
        )


def run_items(
    stages: Sequence[Stage],
    born: Floats,
    *,
    seed: int,
    until: float | None = None,
    sources: int = 1,
    widths: Sequence[tuple[float, int, int]] = (),
    in_turn: bool = True,
) -> Run:
    """Send items that are `born` at these times through the stages; stop at `until`, or when all are through.

    `sources` subtasks share the items in turn, or at random if not `in_turn`. `widths` are changes (time, stage, new
    width): a removed subtask gets no further item and works off what it has.

    >>> run = run_items((Stage("a"), Stage("b")), np.arange(10) * 0.01, seed=7)
    >>> int(np.isfinite(run.finished[-1]).sum())
    10
    """
    if len(born) > MOST_ITEMS:
        raise FlowError("item-level simulation", f"takes at most {MOST_ITEMS} items, got {len(born)}", "use `stream`")
    if np.any(np.diff(born) < 0.0):
        raise FlowError("item-level simulation", "items must be born in order", "sort the times")
    return _Events(tuple(stages), np.asarray(born, dtype=np.float64), seed, until, sources, widths, in_turn).run()


class _Subtask:
    __slots__ = ("blocked", "busy_with", "queue", "turn", "waiting")

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.waiting: deque[tuple[int, int, list[int]]] = deque()  # batches in connections: (stage, subtask, items)
        self.busy_with = -1
        self.blocked = 0  # batches of ours that no queue has taken yet
        self.turn = 0  # round robin position


class _Events:
    """The event loop. Stage -1 is the source: its subtasks have no queue bound and no service time."""

    def __init__(
        self,
        stages: tuple[Stage, ...],
        born: Floats,
        seed: int,
        until: float | None,
        sources: int,
        widths: Sequence[tuple[float, int, int]],
        in_turn: bool,
    ) -> None:
        self.stages, self.born, self.until = stages, born, until
        n, k = born.size, len(stages)
        rng = np.random.default_rng(seed)
        self.service = [service_times(rng, n, s.service_s, s.service_cv).tolist() for s in stages]
        self.pick = [rng.random(n).tolist() if s.weights is not None else None for s in stages]
        self.edges = [None if s.weights is None else np.cumsum(s.weights) / np.sum(s.weights) for s in stages]
        self.source_of = (np.arange(n) % sources if in_turn else rng.integers(0, sources, n)).tolist()
        self.sent = [[np.nan] * n for _ in range(k)]
        self.queued = [[np.nan] * n for _ in range(k)]
        self.started = [[np.nan] * n for _ in range(k)]
        self.finished = [[np.nan] * n for _ in range(k)]
        self.width = [s.width for s in stages]
        most = [max([s.width, *(w for _, at, w in widths if at == i)]) for i, s in enumerate(stages)]
        self.tasks = [[_Subtask() for _ in range(m)] for m in most]
        self.sources = [_Subtask() for _ in range(sources)]
        self.open: dict[tuple[int, int, int], tuple[int, list[int]]] = {}  # channel -> (batch number, items)
        self.opened = 0
        self.first_of_batch: list[set[int]] = [set() for _ in stages]
        self.heap: list[tuple[float, int, int, int, int, int]] = []
        self.count = 0
        self.inside = [0] * k
        self.area = [0.0] * k
        self.moved = [0.0] * k
        for at, stage, width in widths:
            self._at(at, _WIDTH, stage, width, 0)
        self.next_born = 0

    def _at(self, time: float, kind: int, a: int, b: int, c: int) -> None:
        self.count += 1
        heapq.heappush(self.heap, (time, self.count, kind, a, b, c))

    def run(self) -> Run:
        """Take events in order of time until none is left or the end is reached."""
        end = np.inf if self.until is None else self.until
        now = 0.0
        if self.born.size:
            self._at(float(self.born[0]), _BORN, 0, 0, 0)
        while self.heap:
            now, _, kind, a, b, c = heapq.heappop(self.heap)
            if now >= end:
                now = float(end)
                break
            if kind == _FINISH:
                self._finish(now, a, b)
            elif kind == _BORN:
                self._born(now)
            elif kind == _FLUSH:
                self._flush(now, a, b, c)
            else:
                self.width[a] = b
        for stage in range(len(self.stages)):
            self._account(now, stage, 0)
        sent, queued, started, finished = (np.array(x) for x in (self.sent, self.queued, self.started, self.finished))
        return Run(self.stages, self.born, sent, queued, started, finished, now, np.array(self.area))

    def _account(self, now: float, stage: int, change: int) -> None:
        """Keep the integral of the number in a stage, for Little's law."""
        self.area[stage] += self.inside[stage] * (now - self.moved[stage])
        self.moved[stage] = now
        self.inside[stage] += change

    def _born(self, now: float) -> None:
        item = self.next_born
        self.next_born += 1
        if self.next_born < self.born.size:
            self._at(float(self.born[self.next_born]), _BORN, 0, 0, 0)
        index = self.source_of[item]
        source = self.sources[index]
        if source.blocked:
            source.queue.append(item)
        else:
            self._send(now, -1, index, item)

    def _send(self, now: float, stage: int, index: int, item: int) -> None:
        """A sender's function has given `item` away: into the batch of the channel that is next in turn."""
        to = stage + 1
        sender = self.sources[index] if stage < 0 else self.tasks[stage][index]
        spec, width, pick, edges = self.stages[to], self.width[to], self.pick[to], self.edges[to]
        if pick is None or edges is None:
            receiver = sender.turn % width
            sender.turn += 1
        else:
            receiver = min(int(np.searchsorted(edges, pick[item] * edges[width - 1], side="right")), width - 1)
        self.sent[to][item] = now
        if spec.lifetime_s <= 0.0:
            self._ship(now, stage, index, receiver, [item])
            return
        channel = (to, index, receiver)
        number, batch = self.open.get(channel, (0, []))
        if not batch:
            self.opened += 1
            number = self.opened
            self.open[channel] = (number, batch)
            self._at(now + spec.lifetime_s, _FLUSH, to, index * 1_000_000 + receiver, number)
        batch.append(item)
        if spec.buffer_items is not None and len(batch) >= spec.buffer_items:
            del self.open[channel]
            self._ship(now, stage, index, receiver, batch)

    def _flush(self, now: float, to: int, ends: int, number: int) -> None:
        index, receiver = divmod(ends, 1_000_000)
        found = self.open.get((to, index, receiver))
        if found is not None and found[0] == number:
            del self.open[(to, index, receiver)]
            self._ship(now, to - 1, index, receiver, found[1])

    def _ship(self, now: float, stage: int, index: int, receiver: int, batch: list[int]) -> None:
        to = stage + 1
        task = self.tasks[to][receiver]
        bound = self.stages[to].queue
        if bound is not None and (task.waiting or len(task.queue) >= bound):
            task.waiting.append((stage, index, batch))
            (self.sources[index] if stage < 0 else self.tasks[stage][index]).blocked += 1
            return
        self._take(now, to, receiver, batch)

    def _take(self, now: float, stage: int, index: int, batch: list[int]) -> None:
        task = self.tasks[stage][index]
        self._account(now, stage, len(batch))
        queued = self.queued[stage]
        for item in batch:
            queued[item] = now
        if self.stages[stage].ship_s > 0.0:
            self.first_of_batch[stage].add(batch[0])
        task.queue.extend(batch)
        self._start(now, stage, index)

    def _start(self, now: float, stage: int, index: int) -> None:
        """Begin the next item if the subtask is idle and not standing inside "send"."""
        task = self.tasks[stage][index]
        if task.busy_with >= 0 or task.blocked or not task.queue:
            return
        item = task.queue.popleft()
        task.busy_with = item
        self.started[stage][item] = now
        work = self.service[stage][item]
        if item in self.first_of_batch[stage]:
            work += self.stages[stage].ship_s
        self._at(now + work, _FINISH, stage, index, 0)
        bound = self.stages[stage].queue
        while task.waiting and bound is not None and len(task.queue) < bound:
            from_stage, from_index, batch = task.waiting.popleft()
            self._account(now, stage, len(batch))
            for waiting in batch:
                self.queued[stage][waiting] = now
            if self.stages[stage].ship_s > 0.0:
                self.first_of_batch[stage].add(batch[0])
            task.queue.extend(batch)
            self._release(now, from_stage, from_index)

    def _release(self, now: float, stage: int, index: int) -> None:
        """A batch of this sender was taken in at last: it goes on."""
        sender = self.sources[index] if stage < 0 else self.tasks[stage][index]
        sender.blocked -= 1
        if sender.blocked:
            return
        if stage < 0:
            while sender.queue and not sender.blocked:
                self._send(now, -1, index, sender.queue.popleft())
            return
        self._ready(now, stage, index)

    def _finish(self, now: float, stage: int, index: int) -> None:
        item = self.tasks[stage][index].busy_with
        if stage + 1 < len(self.stages):
            self._send(now, stage, index, item)
        if not self.tasks[stage][index].blocked:
            self._ready(now, stage, index)

    def _ready(self, now: float, stage: int, index: int) -> None:
        task = self.tasks[stage][index]
        if task.busy_with >= 0:
            self.finished[stage][task.busy_with] = now
            self._account(now, stage, -1)
            task.busy_with = -1
        self._start(now, stage, index)
