"""The subtasks of one operator in the fast simulator: customers are batches, moved by Lindley's recursion slot by slot.

In a slot (about a second) rate, cost and width hold still. Every subtask gets its batches, all of them leave at the
times of `lindley.departures`; what leaves after the slot is kept as pending. Where a slot would hold too many
customers, only some subtasks are drawn: subtasks are ranked by the work they will have at the end, cut into groups, and
the middle one stands for its group, which is exact in law because ranked neighbours have the same load and backlog.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.engine.sim.draws import service_times
from penstock.engine.sim.lindley import departures, last_of_each, renewal_times

Floats = NDArray[np.float64]
_COLUMNS = ("arrive", "depart", "wait", "service", "items", "batch", "work")


@dataclass
class Customers:
    """Batches that were taken in: parallel arrays. `items` counts what each stands for (a number with a fraction)."""

    arrive: Floats = field(default_factory=lambda: np.empty(0))
    depart: Floats = field(default_factory=lambda: np.empty(0))
    wait: Floats = field(default_factory=lambda: np.empty(0))  # mean wait of its items before their own service
    service: Floats = field(default_factory=lambda: np.empty(0))  # per item
    items: Floats = field(default_factory=lambda: np.empty(0))
    batch: Floats = field(default_factory=lambda: np.empty(0))  # mean wait of its items in the output batch
    work: Floats = field(default_factory=lambda: np.empty(0))  # how long it keeps its subtask busy

    def __post_init__(self) -> None:
        # When the first and the last of them leave: most groups are asked only that.
        self.first_out = float(self.depart.min()) if self.depart.size else np.inf
        self.last_out = float(self.depart.max()) if self.depart.size else -np.inf

    def take(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Customers:
        """Those where the mask is true, or at these places.

        >>> Customers().take(np.zeros(0, dtype=bool)).arrive.size
        0
        """
        return Customers(*(getattr(self, name)[mask] for name in _COLUMNS))

    @staticmethod
    def joined(parts: list[Customers]) -> Customers:
        """All in one.

        >>> Customers.joined([Customers(), Customers()]).arrive.size
        0
        """
        if len(parts) == 1:
            return parts[0]
        return (
            Customers(*(np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS))
            if parts
            else Customers()
        )


@dataclass(frozen=True)
class Slot:
    """What an operator meets in one slot: rates, costs and how its input batches look."""

    start: float
    length: float
    rate: float  # items per second, all subtasks together
    service_s: float  # per item, before shipping cost
    service_cv: float
    arrival_cv: float
    ship_s: float
    mean_batch: float  # items in a batch, at least 1
    most_batch: float
    batch_wait_s: float
    hot: float = 0.0
    hot_at: int = 0
    noise: float = 0.0


class Servers:
    """The subtasks of one operator and when each will be free.

    >>> servers = Servers(2, rng=np.random.default_rng(1))
    >>> slot = Slot(0.0, 1.0, 10.0, 0.01, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0)
    >>> float(servers.step(slot).items.sum())
    10.0
    """

    def __init__(self, width: int, rng: np.random.Generator, most_customers: int = 40_000, at: float = 0.0) -> None:
        self.free = np.full(width, at)
        self.rng = rng
        self.most = most_customers
        self.load_of_busiest = 1.0
        self.all_drawn = True  # whether every subtask was drawn in the last slot, so that every customer is a real one

    @property
    def width(self) -> int:
        """How many subtasks take items now."""
        return int(self.free.size)

    def resize(self, width: int, now: float) -> float:
        """Change the number of subtasks; returns the seconds that removed ones still need to drain.

        >>> servers = Servers(2, rng=np.random.default_rng(1))
        >>> servers.resize(1, 0.0), servers.width
        (0.0, 1)
        """
        if width > self.width:
            self.free = np.concatenate([self.free, np.full(width - self.width, now)])
            return 0.0
        gone, self.free = self.free[width:], self.free[:width]
        return float(np.maximum(gone - now, 0.0).sum())

    def pause(self, now: float, seconds: float) -> None:
        """All subtasks stand still for a while.

        >>> servers = Servers(1, rng=np.random.default_rng(1))
        >>> servers.pause(1.0, 0.5); servers.free.tolist()
        [1.5]
        """
        self.free = np.maximum(self.free, now) + seconds

    def backlog_s(self, now: float) -> Floats:
        """Seconds of work that each subtask has before it.

        >>> Servers(1, rng=np.random.default_rng(1)).backlog_s(0.0).tolist()
        [0.0]
        """
        return np.maximum(self.free - now, 0.0)

    def shares(self, slot: Slot) -> Floats:
        """Each subtask's share of the load: even, but for the subtask that has the hottest key.

        >>> slot = Slot(0.0, 1.0, 10.0, 0.01, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, hot=0.5)
        >>> Servers(2, rng=np.random.default_rng(1)).shares(slot).tolist()
        [0.75, 0.25]
        """
        share = np.full(self.width, (1.0 - slot.hot) / self.width)
        share[slot.hot_at % self.width] += slot.hot
        return share

    def step(self, slot: Slot) -> Customers:
        """Let the slot's items arrive and return them with the times at which they leave."""
        share = self.shares(slot)
        self.load_of_busiest = float(share.max()) * self.width
        batches = slot.rate * slot.length * share / slot.mean_batch  # expected, per subtask
        work = slot.service_s + slot.ship_s / slot.mean_batch
        if slot.rate <= 0.0:
            return Customers()
        chosen, weight, owner = self._chosen(batches, share, work, slot)
        at, counts = renewal_times(self.rng, batches[chosen], slot.arrival_cv)
        arrive = slot.start + slot.length * at
        items = self._sizes(arrive.size, slot)
        service = service_times(self.rng, arrive.size, slot.service_s, slot.service_cv, items) + slot.ship_s
        if slot.noise > 0.0:
            speed = np.maximum(1.0 + slot.noise * self.rng.standard_normal(chosen.size), 0.2)
            service = service * np.repeat(speed, counts)
        free = self.free[chosen]
        depart = departures(arrive, service, counts, free)
        end = last_of_each(depart, counts, free)
        self.free = end[owner] if owner.size != chosen.size else end
        per_item = service / items
        # An item in the middle of its batch waits for the batch and for half of the others.
        wait = depart - service - arrive + (items - 1.0) * per_item / 2.0
        scale = np.repeat(weight, counts)
        held = np.full(arrive.size, slot.batch_wait_s)
        self.all_drawn = chosen.size == owner.size
        return Customers(arrive, depart, np.maximum(wait, 0.0), per_item, items * scale, held, service)

    def spread(self, waiting: Customers, now: float) -> Customers:
        """Put customers that wait (from whichever queue) before the subtasks in turn, oldest first.

        >>> servers = Servers(2, rng=np.random.default_rng(1))
        >>> one = np.ones(2)
        >>> servers.spread(Customers(one * 0, one * 9, one * 8, one, one, one * 0, one), 1.0).depart.tolist()
        [2.0, 2.0]
        """
        order = np.argsort(waiting.arrive, kind="stable")
        turn = np.arange(order.size) % self.width
        by_subtask = order[np.argsort(turn, kind="stable")]
        counts = np.bincount(turn, minlength=self.width)
        queue = waiting.take(by_subtask)
        depart = departures(np.full(order.size, now), queue.work, counts, np.maximum(self.free, now))
        self.free = last_of_each(depart, counts, np.maximum(self.free, now))
        moved = queue.wait + depart - queue.depart  # what it waited is longer or shorter by what its departure moved
        return Customers(
            queue.arrive, depart, np.maximum(moved, 0.0), queue.service, queue.items, queue.batch, queue.work
        )

    def _sizes(self, size: int, slot: Slot) -> NDArray[np.int64]:
        """Items per batch: the one that opened it and those that came while it was open."""
        if slot.mean_batch <= 1.0:
            return np.ones(size, dtype=np.int64)
        if slot.mean_batch >= slot.most_batch:
            return np.full(size, max(int(slot.most_batch), 1), dtype=np.int64)
        mean = slot.mean_batch
        if mean + 4.0 * np.sqrt(mean) > slot.most_batch:  # cut off at the buffer: keep the mean, not the spread
            return int(mean) + (self.rng.random(size) < mean - int(mean)).astype(np.int64)
        return 1 + self.rng.poisson(mean - 1.0, size)

    def _chosen(
        self, batches: Floats, share: Floats, work: float, slot: Slot
    ) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
        """Which subtasks are drawn, how many items each item of theirs stands for, and who stands for whom."""
        width = self.width
        expected = float(batches.sum())
        count = width if expected <= self.most else max(int(width * self.most / expected), min(width, 6))
        if count >= width:
            everyone = np.arange(width)
            return everyone, np.ones(width), everyone
        ahead = np.maximum(self.free - slot.start, 0.0) + slot.rate * share * work * slot.length
        order = np.argsort(ahead, kind="stable")
        # The busiest is always drawn itself: with a hot key it is the one that matters.
        group = np.minimum(np.arange(width) * (count - 1) // (width - 1), count - 1)
        group[-1] = count - 1
        starts = np.searchsorted(group, np.arange(count))
        ends = np.searchsorted(group, np.arange(count), side="right")
        chosen = order[(starts + ends - 1) // 2]
        owner = np.empty(width, dtype=np.int64)
        owner[order] = group
        total = np.bincount(owner, weights=share, minlength=count)
        return chosen, total / share[chosen], owner
