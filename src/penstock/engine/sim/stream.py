"""The continuous host in virtual time: long-running subtasks with queues, output batches, chains, scaling delays.

It plays the part of the engine that a policy controls: `advance(decision)` runs one adjustment interval under a
decision and returns the `Observation` that a real host would make of it. Fast because queues move by Lindley's
recursion on whole slots (`servers`); rates, widths and costs hold still within a slot. Approximations against the
item-level simulator (the tests hold both together): what an operator sends in a slot reaches the next one evenly
over the next slot, and
the waits of one item at several operators are taken as independent for the percentiles, not for the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.engine.sim.checks import conserved, little
from penstock.engine.sim.loads import Load
from penstock.engine.sim.servers import Customers, Servers, Slot
from penstock.engine.sim.shipping import batch_gap_cv, batch_shape, item_arrival_cv
from penstock.engine.sim.spec import SOURCE, Machine, Operator

Floats = NDArray[np.float64]
_INSTANT = Machine()
_DRAWS = 2000  # items drawn per interval for the percentiles


@dataclass
class _Node:
    """An operator's state and the books of the interval and of the run."""

    spec: Operator
    servers: Servers
    ordered: int  # width last asked for
    coming: list[tuple[float, int]] = field(default_factory=list)  # (ready at, new subtasks)
    going_from: float = -1.0  # removals are under way since
    fresh: list[Customers] = field(default_factory=list)
    pending: list[Customers] = field(default_factory=list)  # by slot of arrival
    out_rate: float = 0.0  # what it sent in the last slot, per second
    held: float = 0.0  # items before it that a full queue did not take
    sent: float = 0.0  # items that were sent to it; those that came are drawn around that
    came: float = 0.0
    left: float = 0.0
    area: float = 0.0
    spent: float = 0.0
    blocked_s: float = 0.0  # subtask-seconds inside "send" in this interval
    offered: float = 0.0  # items that wanted in, this interval
    batch_items: float = 1.0
    gap_cv: float = 1.0  # of the batches, at one subtask
    drained_s: float = 0.0  # subtask-seconds of removed subtasks that still drained
    paid_s: float = 0.0
    changed: int = 0  # how much the width moved in this interval


class StreamHost:
    """A pipeline under a load, one interval at a time.

    >>> from penstock.engine.sim.loads import Load
    >>> load = Load("flat", 60.0, lambda t: np.full_like(t, 100.0))
    >>> host = StreamHost([Operator("score", service_s=0.005, width=1, hi=4)], load, seed=1,
    ...     bounds=(Bound("fast", ("score",), mean_s=0.05),))
    >>> seen = host.advance(Decision({"score": 1}))
    >>> seen.now_s, seen.operators["score"].width, 80 < seen.operators["score"].arrivals_per_s < 120
    (5.0, 1, True)
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        load: Load,
        *,
        seed: int,
        bounds: tuple[Bound, ...] = (),
        machine: Machine = _INSTANT,
        interval_s: float = 5.0,
        slot_s: float = 1.0,
        most_customers: int = 40_000,
        target_per_s: Mapping[str, float] | None = None,
    ) -> None:
        self.load, self.bounds, self.machine = load, bounds, machine
        self.interval_s, self.slot_s = interval_s, slot_s
        self.target_per_s = dict(target_per_s or {})
        self.rng = np.random.default_rng(seed)
        self.nodes = {
            spec.name: _Node(spec, Servers(spec.width, self.rng, most_customers), spec.width) for spec in operators
        }
        self.order = tuple(self.nodes)
        self.now = 0.0
        self.source_backlog = 0.0
        self.source_wait = 0.0
        self.unsent = 0.0  # items that a closed source never made
        self.attempted = self.sent = 0.0
        self.chains: tuple[tuple[str, ...], ...] = ()

    # --- what a run needs to know ---------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether the load is over."""
        return self.now >= self.load.duration_s - 1e-9

    def start(self) -> Decision:
        """The decision that describes how the host starts."""
        lifetimes = {  # named where batches save something, so that a policy knows which streams it may batch
            f"{source}->{n.spec.name}": n.spec.lifetime_s
            for n in self.nodes.values()
            for source in n.spec.inputs
            if n.spec.ship_s > 0.0 or n.spec.lifetime_s > 0.0
        }
        return Decision({name: n.spec.width for name, n in self.nodes.items()}, lifetimes=lifetimes)

    def widths(self) -> dict[str, int]:
        """Subtasks at work now, per operator."""
        return {name: n.servers.width for name, n in self.nodes.items()}

    def paid(self) -> dict[str, float]:
        """Subtask-seconds paid for in the last interval, per operator, ordered and draining ones included."""
        return {name: n.paid_s for name, n in self.nodes.items()}

    def moved(self) -> dict[str, int]:
        """By how much each width moved in the last interval."""
        return {name: n.changed for name, n in self.nodes.items()}

    def check(self) -> None:
        """Conservation of items and Little's law, for every operator, over the run so far."""
        for name, node in self.nodes.items():
            where = f"operator '{name}' at {self.now:g} s"
            inside = sum(float(group.items.sum()) for group in node.pending)
            conserved(where, node.came, node.left, inside)
            # Random arrivals scatter around what was sent; a bias would be a defect.
            if node.sent > 10_000.0:
                conserved(f"the stream into {where}", node.sent, node.came, 0.0, tolerance=0.02)
            still = sum(_dot(group.items, self.now - group.arrive) for group in node.pending)
            little(where, node.area, node.spent + still)
        conserved("source", self.attempted, self.sent + self.unsent, self.source_backlog)

    # --- one interval ---------------------------------------------------------------------------------------------

    def advance(self, decision: Decision) -> Observation:
        """Run one interval under a decision; what was measured in it."""
        self._order(decision)
        begin = self.now
        end = min(begin + self.interval_s, self.load.duration_s)
        for node in self.nodes.values():
            node.blocked_s = node.offered = node.drained_s = node.paid_s = 0.0
            node.changed = 0
        waited = 0.0
        sent = self.sent
        while self.now < end - 1e-9:
            length = min(self.slot_s, end - self.now)
            waited += self._slot(length, decision)
            self.now += length
        self.source_wait = waited / max(self.sent - sent, 1e-9)
        return self._observe(begin, self.now)

    def _order(self, decision: Decision) -> None:
        """Take widths and chains from a decision; widening takes effect later."""
        self.chains = tuple(c for c in decision.chains if len(c) > 1)
        for name, node in self.nodes.items():
            want = min(max(int(decision.widths.get(name, node.ordered)), node.spec.lo), node.spec.hi)
            have = node.servers.width + sum(n for _, n in node.coming)
            node.ordered = want
            if want > have:
                node.coming.append((self.now + self.machine.scale_up_s, want - have))
            while want < have and node.coming:  # what has not started yet is cancelled first
                ready, count = node.coming.pop()
                keep = max(count - (have - want), 0)
                have -= count - keep
                if keep:
                    node.coming.append((ready, keep))
                    break
            if want >= node.servers.width:
                node.going_from = -1.0
            elif node.going_from < 0.0:
                node.going_from = self.now

    def _resize(self, node: _Node) -> None:
        """Apply at a slot's beginning what has become due."""
        due = sum(n for ready, n in node.coming if ready <= self.now + 1e-9)
        node.coming = [(ready, n) for ready, n in node.coming if ready > self.now + 1e-9]
        width = node.servers.width + due
        if due == 0 and node.going_from >= 0.0 and node.ordered < width:
            step = self.machine.scale_down_s
            gone = width - node.ordered if step <= 0.0 else int((self.now + self.slot_s - node.going_from) / step)
            width = max(node.ordered, width - gone)
            node.going_from = -1.0 if width == node.ordered else self.now + self.slot_s
        if width != node.servers.width:
            node.changed += abs(width - node.servers.width)
            if self.machine.rebalance and node.servers.all_drawn:
                self._rebalance(node, width)
            else:
                node.drained_s += node.servers.resize(width, self.now)
            if self.machine.pause_s > 0.0:
                node.servers.pause(self.now, self.machine.pause_s)

    def _rebalance(self, node: _Node, width: int) -> None:
        """Change the width and spread what waits; what is in service stays where it is."""
        everyone = Customers.joined(node.pending)
        waits = everyone.depart - everyone.work > self.now
        serving = everyone.take(~waits)
        node.servers.resize(width, self.now)
        node.servers.free = np.full(width, self.now)
        if serving.arrive.size:  # whoever is served keeps a subtask busy until it leaves
            busy = np.sort(serving.depart)[-width:]
            node.servers.free[: busy.size] = np.maximum(busy, self.now)
        moved = node.servers.spread(everyone.take(waits), self.now)
        node.pending = [group for group in (serving, moved) if group.arrive.size]

    def _slot(self, length: float, decision: Decision) -> float:
        """One slot through all operators in order; the item-seconds that items waited at the source."""
        middle = np.array([self.now + length / 2.0])
        rate = max(float(self.load.rate(middle)[0]), 0.0)
        cost = float(self.load.cost(middle)[0])
        hot, hot_at = float(self.load.hot(middle)[0]), int(self.load.hot_at(middle)[0])
        passed = float(self.load.selectivity(middle)[0])
        self.attempted += rate * length
        wants = rate + self.source_backlog / length
        heads = [n for n in self.nodes.values() if SOURCE in n.spec.inputs]
        for node in self.nodes.values():
            self._resize(node)
            node.paid_s += length * (node.servers.width + sum(n for _, n in node.coming))
        share = min((self._room(n, wants, length, cost) for n in heads), default=1.0)
        sent = wants * share
        before = self.source_backlog
        self.sent += sent * length
        left = max((wants - sent) * length, 0.0)
        if self.machine.open_source:
            self.source_backlog = left
        else:
            self.unsent += left
        waited = 0.5 * (before + self.source_backlog) * length if self.machine.open_source else 0.0
        out = {SOURCE: sent}
        outs = dict.fromkeys(self.order, 0.0)
        members = self._members()
        for name in self.order:
            node = self.nodes[name]
            rate_in = sum(out.get(i, outs.get(i, 0.0)) for i in node.spec.inputs)
            if name in members and members[name][0] != name:
                outs[name] = outs[members[name][0]] if self._head_sends(members, name) else 0.0
                self._idle(node, length)
                continue
            outs[name] = self._serve(node, rate_in, length, cost, hot, hot_at, passed, decision, members.get(name))
        return waited

    def _members(self) -> dict[str, tuple[str, ...]]:
        return {name: chain for chain in self.chains for name in chain if all(n in self.nodes for n in chain)}

    def _head_sends(self, members: dict[str, tuple[str, ...]], name: str) -> bool:
        return members[name][-1] == name

    def _idle(self, node: _Node, length: float) -> None:
        """A chained operator has no queue of its own; what it had is worked off."""
        end = self.now + length
        self._book(node, Customers(), self.now, end)

    def _room(self, node: _Node, rate: float, length: float, cost: float) -> float:
        """The share of `rate` that bounded queues take in this slot: what is served and what still fits, on average."""
        if node.spec.queue is None or rate <= 0.0:
            return 1.0
        work = (node.spec.service_s * cost + node.spec.ship_s / max(node.batch_items, 1.0)) / node.servers.width
        bound = node.spec.queue * node.spec.service_s * cost
        room = bound - float(node.servers.backlog_s(self.now).mean()) + length
        return min(1.0, max(room, 0.0) / (rate * work * length)) if work > 0.0 else 1.0

    def _serve(
        self,
        node: _Node,
        rate: float,
        length: float,
        cost: float,
        hot: float,
        hot_at: int,
        passed: float,
        decision: Decision,
        chain: tuple[str, ...] | None,
    ) -> float:
        """Let a slot's items into an operator (or a chain that it heads); what it sends on, per second."""
        spec = node.spec
        inside = SOURCE not in spec.inputs
        if inside and spec.queue is not None:
            wants = rate + node.held / length
            rate = wants * self._room(node, wants, length, cost)
            node.held = max((wants - rate) * length, 0.0)
            self._block(node, length)
        node.offered += rate * length
        node.sent += rate * length
        members = [self.nodes[n] for n in chain] if chain else [node]
        service, ratio = 0.0, 1.0
        for i, member in enumerate(members):
            handed = 0.0 if i else member.spec.handover_s
            service += ratio * (member.spec.service_s * cost + handed)
            ratio *= member.spec.selectivity
        senders = sum(self.machine.sources if i == SOURCE else self.nodes[i].servers.width for i in spec.inputs)
        channels = node.servers.width * (1 if spec.one_to_one else max(senders, 1))
        lifetime = min((_lifetime(decision, i, spec) for i in spec.inputs), default=0.0)
        batch, delay = batch_shape(rate / channels, lifetime, spec.buffer_items)
        node.batch_items = batch
        node.gap_cv = spec.arrival_cv
        if batch > 1.0:
            work = service + spec.ship_s / batch
            load = rate * work / node.servers.width
            node.gap_cv *= batch_gap_cv(batch, channels // node.servers.width, lifetime, work, load)
        most = float(spec.buffer_items) if spec.buffer_items is not None else np.inf
        slot = Slot(
            self.now, length, rate, service, spec.service_cv, node.gap_cv, spec.ship_s, batch, most, delay,
            hot, hot_at, self.machine.noise,
        )  # fmt: skip
        fresh = node.servers.step(slot)
        before = node.left
        self._book(node, fresh, self.now, self.now + length)
        done = (node.left - before) / length
        last = members[-1].spec
        if last.window_s > 0.0:  # one emission per window and subtask, whatever came in
            node.out_rate = self.nodes[last.name].servers.width / last.window_s
        else:
            node.out_rate = done * ratio * (passed if last.selectivity != 1.0 else 1.0)
        return node.out_rate

    def _block(self, node: _Node, length: float) -> None:
        """What a full queue did not take keeps its senders inside "send" (001, section 4.6: the second anomaly)."""
        if node.held <= 0.0:
            return
        capacity = node.servers.width / max(node.spec.service_s, 1e-12)
        still = min(node.held / capacity, length)
        for name in node.spec.inputs:
            sender = self.nodes[name]
            sender.servers.pause(self.now, still)
            sender.blocked_s += still * sender.servers.width

    def _book(self, node: _Node, fresh: Customers, begin: float, end: float) -> None:
        """Keep the books of a slot: who came, who left, the number inside and the time spent there."""
        # N(t) integrated: those inside at the beginning, plus arrivals and minus departures from when they happen.
        node.area += (node.came - node.left) * (end - begin)
        if fresh.arrive.size:
            node.came += float(fresh.items.sum())
            node.area += _dot(fresh.items, end - fresh.arrive)
            node.pending.append(fresh)
        staying = []
        for group in node.pending:  # a group that wholly stays or leaves is not copied: backlogs may be long
            if group.first_out > end:
                staying.append(group)
                continue
            if group.last_out <= end:
                left = group
            else:
                gone = group.depart <= end
                left = group.take(gone)
                staying.append(group.take(~gone))
            node.left += float(left.items.sum())
            node.area -= _dot(left.items, end - left.depart)
            node.spent += _dot(left.items, left.depart - left.arrive)
            node.fresh.append(left)
        node.pending = staying

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _observe(self, begin: float, end: float) -> Observation:
        length = end - begin
        seen: dict[str, OperatorView] = {}
        done: dict[str, Customers] = {}
        members = self._members()
        for name, node in self.nodes.items():
            done[name] = Customers.joined(node.fresh)
            node.fresh = []
            head = self.nodes[members[name][0]] if name in members else node
            view = self._view(node, head, done.get(head.spec.name, done[name]), length, chained=name in members)
            node.paid_s += node.drained_s
            if view is not None:
                seen[name] = view
        latency = {}
        for bound in self.bounds:
            measured = self._latency(bound, done, members)
            if measured is not None:
                latency[bound.name] = measured
        waiting = sum(max(n.came - n.left, 0.0) for n in self.nodes.values()) + self.source_backlog
        return Observation(
            now_s=end,
            interval_s=length,
            operators=seen,
            bounds=self.bounds,
            latency=latency,
            target_per_s=self.target_per_s,
            backlog_items=waiting,
        )

    def _view(self, node: _Node, head: _Node, done: Customers, length: float, *, chained: bool) -> OperatorView | None:
        items = float(done.items.sum())
        if items <= 0.0:
            return None
        spec, width = node.spec, node.servers.width
        arrivals = (head.offered * self._passed(head, node) if chained else node.offered) / length
        service = float((done.items * done.service).sum()) / items
        if (
            chained
        ):  # inside a chain an operator's own cost is known, but it has no queue, batch or hand-over of its own
            service = spec.service_s if node is not head else spec.service_s + spec.handover_s
        service += node.blocked_s / items
        first = not chained or node is head
        cv = float(np.hypot(spec.service_cv, self.machine.noise))
        queue = sum(float(g.items[g.depart - g.service > self.now].sum()) for g in node.pending)
        return OperatorView(
            name=spec.name,
            width=width,
            lo=spec.lo,
            hi=spec.hi,
            arrivals_per_s=arrivals,
            completed_per_s=items / length * (self._passed(head, node) if chained else 1.0),
            service_s=service,
            service_cv=cv,
            interarrival_s=width / arrivals if arrivals > 0.0 else 0.0,
            arrival_cv=item_arrival_cv(node.batch_items, node.gap_cv),
            wait_s=float((done.items * done.wait).sum()) / items if first else 0.0,
            batch_wait_s=float((done.items * done.batch).sum()) / items if first else 0.0,
            queue_items=queue,
            utilisation=arrivals * service / width,
            skew=max(head.servers.load_of_busiest, 1.0),
            latency_s=(spec.window_s / 2.0) if spec.window_s > 0.0 else None,
        )

    def _passed(self, head: _Node, node: _Node) -> float:
        """Items that reach a chained operator per item that enters its chain."""
        ratio = 1.0
        for name in self._members()[head.spec.name]:
            if name == node.spec.name:
                break
            ratio *= self.nodes[name].spec.selectivity
        return ratio

    def _latency(
        self, bound: Bound, done: Mapping[str, Customers], members: Mapping[str, tuple[str, ...]]
    ) -> tuple[float, float, float, float] | None:
        """Mean, p95, p99 and maximum over a path: means add up, percentiles by drawing one item per operator."""
        mean = 0.0
        drawn = np.zeros(_DRAWS)
        first = True
        for name in bound.operators:
            if name not in self.nodes:
                continue
            if first:
                mean += self.source_wait
                drawn += self.source_wait
                first = False
            node = self.nodes[name]
            if name in members and members[name][0] != name:
                continue  # its cost is in the head's
            got = done[name]
            last = self.nodes[members[name][-1]].spec if name in members else node.spec
            if got.arrive.size == 0:
                waiting = Customers.joined(node.pending)
                if waiting.arrive.size == 0:
                    continue
                age = self.now - waiting.arrive
                mean += float((waiting.items * age).sum() / waiting.items.sum())
                drawn += float(age.max())
                continue
            weight = got.items
            busy = got.service if last.window_s <= 0.0 else np.zeros(got.service.size)
            total = got.wait + busy
            mean += float((weight * (total + got.batch)).sum() / weight.sum()) + node.spec.net_s + last.window_s / 2.0
            at = np.searchsorted(np.cumsum(weight), self.rng.random(_DRAWS) * float(weight.sum()), side="right")
            at = np.minimum(at, got.arrive.size - 1)
            drawn += total[at] + self._batch_delays(node, got.batch[at]) + node.spec.net_s
            drawn += last.window_s * self.rng.random(_DRAWS)
        if first:
            return None
        p95, p99 = (float(x) for x in np.quantile(drawn, (0.95, 0.99)))
        return max(mean, 0.0), p95, p99, float(drawn.max())

    def _batch_delays(self, node: _Node, mean: Floats) -> Floats:
        """Delays in output batches: who opened a batch waits its whole life, the others anything up to that."""
        if not mean.any():
            return mean
        uniform = self.rng.random(mean.size)
        opener = self.rng.random(mean.size) < 1.0 / node.batch_items
        whole = 2.0 * mean * node.batch_items / (node.batch_items + 1.0)  # the lifetime, from shipping.batch_shape
        return np.where(opener, whole, whole * uniform)


def _dot(a: Floats, b: Floats) -> float:
    """Sum of products, in one thread: a BLAS would start several, which costs more than it saves at these sizes."""
    return float(np.einsum("i,i->", a, b))


def _lifetime(decision: Decision, source: str, spec: Operator) -> float:
    """The lifetime of the batches on a stream: named "a->b", or "->b" if it is the first of a path."""
    for name in (f"{source}->{spec.name}", f"->{spec.name}"):
        if name in decision.lifetimes:
            return max(float(decision.lifetimes[name]), 0.0)
    return spec.lifetime_s
