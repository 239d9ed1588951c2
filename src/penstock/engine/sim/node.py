"""One operator of the continuous host: its subtasks, what waits there, and the books that every run must balance."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.engine.sim.checks import conserved, little
from penstock.engine.sim.servers import Customers, Servers
from penstock.engine.sim.spec import Operator

Floats = NDArray[np.float64]


@dataclass
class Node:
    """An operator's state and the books of the interval and of the run.

    >>> node = Node(Operator("a", 0.01), Servers(1, np.random.default_rng(1)), 1)
    >>> one = np.ones(1)
    >>> node.book(Customers(0.0 * one, 0.5 * one, 0.0 * one, 0.5 * one, one, 0.0 * one, 0.5 * one), 0.0, 1.0)
    >>> node.came, node.left, node.area
    (1.0, 1.0, 0.5)
    """

    spec: Operator
    servers: Servers
    ordered: int  # width last asked for
    coming: list[tuple[float, int]] = field(default_factory=list)  # (ready at, new subtasks)
    going_from: float = -1.0  # removals are under way since
    fresh: list[Customers] = field(default_factory=list)
    pending: list[Customers] = field(default_factory=list)  # by slot of arrival
    out_rate: float = 0.0  # what it sent in the last slot, per second
    most_s: float = np.inf  # items per second that those after it can take from it
    sent: float = 0.0  # items that were sent to it; those that came are drawn around that
    came: float = 0.0
    left: float = 0.0
    area: float = 0.0
    spent: float = 0.0
    offered: float = 0.0  # items that wanted in, this interval
    batch_items: float = 1.0
    drained_s: float = 0.0  # subtask-seconds of removed subtasks that still drained
    paid_s: float = 0.0
    changed: int = 0  # how much the width moved in this interval

    def begin(self) -> None:
        """A new interval: forget what was counted in the last one.

        >>> Node(Operator("a", 0.01), Servers(1, np.random.default_rng(1)), 1).begin()
        """
        self.offered = self.drained_s = self.paid_s = 0.0
        self.changed = 0
        self.servers.gaps = np.zeros(3)

    @property
    def inside(self) -> float:
        """Items that wait or are served here.

        >>> Node(Operator("a", 0.01), Servers(1, np.random.default_rng(1)), 1).inside
        0.0
        """
        return self.came - self.left

    def book(self, fresh: Customers, begin: float, end: float) -> None:
        """Keep the books of a slot: who came, who left, the number inside and the time spent there."""
        # N(t) integrated: those inside at the beginning, plus arrivals and minus departures from when they happen.
        self.area += (self.came - self.left) * (end - begin)
        if fresh.arrive.size:
            self.came += float(fresh.items.sum())
            self.area += dot(fresh.items, end - fresh.arrive)
            self.pending.append(fresh)
        staying = []
        for group in self.pending:  # a group that wholly stays or leaves is not copied: backlogs may be long
            if group.first_out > end:
                staying.append(group)
                continue
            if group.last_out <= end:
                left = group
            else:
                gone = group.depart <= end
                left = group.take(gone)
                staying.append(group.take(~gone))
            self.left += float(left.items.sum())
            self.area -= dot(left.items, end - left.depart)
            self.spent += dot(left.items, left.depart - left.arrive)
            self.fresh.append(left)
        self.pending = staying

    def check(self, now: float) -> None:
        """Conservation of items and Little's law, over the run so far.

        >>> Node(Operator("a", 0.01), Servers(1, np.random.default_rng(1)), 1).check(0.0)
        """
        where = f"operator '{self.spec.name}' at {now:g} s"
        waiting = sum(float(group.items.sum()) for group in self.pending)
        conserved(where, self.came, self.left, waiting)
        if self.sent > 10_000.0:  # random arrivals scatter around what was sent; a bias would be a defect
            conserved(f"the stream into {where}", self.sent, self.came, 0.0, tolerance=0.02)
        still = sum(dot(group.items, now - group.arrive) for group in self.pending)
        little(where, self.area, self.spent + still)


def dot(a: Floats, b: Floats) -> float:
    """Sum of products, in one thread: a BLAS would start several, which costs more than it saves at these sizes.

    >>> dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.einsum("i,i->", a, b))
