"""The subtasks of one operator in the fast simulator: customers are batches, moved by Lindley's recursion slot by slot.

In a slot (about a second) rate, cost and width hold still. Every subtask gets its batches, all of them leave at the
times of `lindley.departures`; what leaves after the slot is kept as pending. Where a slot would hold too many
customers, only some subtasks are drawn: subtasks are ranked by the work they will have at the end, cut into groups, and
the middle one stands for its group, since ranked neighbours have the same load and nearly the same backlog. Where even
one subtask has too many, and queues are short, a part of the slot stands for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.engine.sim.draws import service_times
from penstock.engine.sim.lindley import departures, last_of_each, renewal_times
from penstock.engine.sim.shipping import channel_batches

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
    arrival_cv: float  # of single items; batches come as their channels send them
    ship_s: float  # per batch
    mean_batch: float = 1.0  # items in a batch, at least 1
    batch_wait_s: float = 0.0
    channels: int = 1  # into each subtask
    lifetime_s: float = 0.0
    buffer_items: int | None = None
    hot: float = 0.0
    hot_at: int = 0
    noise: float = 0.0


class Servers:
    """The subtasks of one operator and when each will be free.

    >>> servers = Servers(2, rng=np.random.default_rng(1))
    >>> slot = Slot(0.0, 1.0, 10.0, 0.01, 0.0, 0.0, 0.0)
    >>> float(servers.step(slot).items.sum())
    10.0
    """

    def __init__(self, width: int, rng: np.random.Generator, most_customers: int = 40_000, at: float = 0.0) -> None:
        self.free = np.full(width, at)
        self.rng = rng
        self.most = most_customers
        self.load_of_busiest = 1.0
        self.gaps = np.zeros(3)  # items, sum and sum of squares of the gaps between batches
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

        >>> slot = Slot(0.0, 1.0, 10.0, 0.01, 0.0, 0.0, 0.0, hot=0.5)
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
        part = self._part(batches[chosen], chosen, work, slot)
        span = part * slot.length
        weight = weight / part
        if slot.lifetime_s > 0.0:
            each = slot.rate * share[chosen] / slot.channels
            at, items, counts = channel_batches(self.rng, each, slot.channels, slot.lifetime_s, slot.buffer_items, span)
            arrive = slot.start + at
            self._note_gaps(arrive, items, counts)
        else:
            at, counts = renewal_times(self.rng, part * batches[chosen], slot.arrival_cv)
            arrive = slot.start + span * at
            items = np.ones(arrive.size, dtype=np.int64)
        service = service_times(self.rng, arrive.size, slot.service_s, slot.service_cv, items) + slot.ship_s
        if slot.noise > 0.0:
            speed = np.maximum(1.0 + slot.noise * self.rng.standard_normal(chosen.size), 0.2)
            service = service * np.repeat(speed, counts)
        free = self.free[chosen]
        depart = departures(arrive, service, counts, free)
        end = last_of_each(depart, counts, free)
        self.free = end[owner] if owner.size != chosen.size else end
        per_item = service / items
        # In a batch of n each waits for the shipping (but the first, whose service it counts as) and half the others.
        wait = depart - service - arrive + (items - 1.0) / items * (service + slot.ship_s) / 2.0
        scale = np.repeat(weight, counts)
        held = np.full(arrive.size, slot.batch_wait_s)
        self.all_drawn = chosen.size == owner.size and part == 1.0
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

    def _note_gaps(self, arrive: Floats, items: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Add to the sums that `item_arrival_cv` needs: gaps between the batches of a subtask."""
        gap = np.diff(arrive)
        gap[np.cumsum(counts)[counts > 0][:-1] - 1] = 0.0  # from one subtask's last to the next one's first
        self.gaps += np.array([float(items.sum()), float(gap.sum()), float((gap * gap).sum())])

    def _part(self, batches: Floats, chosen: NDArray[np.int64], work: float, slot: Slot) -> float:
        """The part of the slot that is drawn and stands for the whole: less than all only where queues forget fast.

        A queue forgets within about S / (1 - rho)^2; a thousand of these are enough, however many customers come.
        """
        expected = float(batches.sum())
        if expected <= self.most or slot.hot > 0.0:
            return 1.0
        busy = slot.rate * work / self.width
        memory = work * slot.mean_batch / max(1.0 - busy, 1e-6) ** 2
        if busy > 0.7 or float(self.backlog_s(slot.start)[chosen].max()) > 10.0 * memory:
            return 1.0
        return float(min(1.0, max(self.most / expected, 1000.0 * memory / slot.length, slot.lifetime_s / slot.length)))

    def _chosen(
        self, batches: Floats, share: Floats, work: float, slot: Slot
    ) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
        """Which subtasks are drawn, how many items each item of theirs stands for, and who stands for whom."""
        width = self.width
        expected = float(batches.sum())
        count = width if expected <= self.most else max(int(width * self.most / expected), 1)
        if count >= width:
            everyone = np.arange(width)
            return everyone, np.ones(width), everyone
        ahead = np.maximum(self.free - slot.start, 0.0) + slot.rate * share * work * slot.length
        order = np.argsort(ahead, kind="stable")
        # The busiest is a group of its own (if there are several): with a hot key it is the one that matters.
        group = np.minimum(np.arange(width) * (count - 1) // (width - 1), count - 1)
        group[-1] = count - 1
        starts = np.searchsorted(group, np.arange(count))
        ends = np.searchsorted(group, np.arange(count), side="right")
        chosen = order[(starts + ends - 1) // 2]
        owner = np.empty(width, dtype=np.int64)
        owner[order] = group
        total = np.bincount(owner, weights=share, minlength=count)
        return chosen, total / share[chosen], owner
