"""The continuous host in virtual time: long-running subtasks with queues, output batches, chains, scaling delays.

It plays the part of the engine that a policy controls: `advance(decision)` runs one adjustment interval under a
decision and returns the `Observation` that a real host would make of it. Fast because queues move by Lindley's
recursion on whole slots (`servers`); rates, widths and costs hold still within a slot. Approximations against the
item-level simulator (the tests hold both together): what an operator sends in a slot reaches the next one evenly
over the slot, and the waits of one item at several operators are taken as independent for the percentiles, not for the
mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.engine.sim.checks import conserved
from penstock.engine.sim.loads import Load
from penstock.engine.sim.node import Node
from penstock.engine.sim.seen import InChain, path_latency, view
from penstock.engine.sim.servers import Customers, Servers, Slot
from penstock.engine.sim.shipping import batch_shape
from penstock.engine.sim.spec import SOURCE, Machine, Operator

_INSTANT = Machine()


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
            spec.name: Node(spec, Servers(spec.width, self.rng, most_customers), spec.width) for spec in operators
        }
        self.order = tuple(self.nodes)
        self.now = 0.0
        self.source_backlog = 0.0
        self.source_wait = 0.0
        self.unsent = 0.0  # items that a closed source never made
        self.attempted = self.sent = 0.0
        self.chains: tuple[tuple[str, ...], ...] = ()
        self.pipelines = pipelines(operators)

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
        for node in self.nodes.values():
            node.check(self.now)
        conserved("source", self.attempted, self.sent + self.unsent, self.source_backlog)

    # --- one interval ---------------------------------------------------------------------------------------------

    def advance(self, decision: Decision) -> Observation:
        """Run one interval under a decision; what was measured in it."""
        self._order(decision)
        begin = self.now
        end = min(begin + self.interval_s, self.load.duration_s)
        for node in self.nodes.values():
            node.begin()
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

    def _resize(self, node: Node) -> None:
        """Apply at a slot's beginning what has become due."""
        due = sum(n for ready, n in node.coming if ready <= self.now + 1e-9)
        node.coming = [(ready, n) for ready, n in node.coming if ready > self.now + 1e-9]
        width = node.servers.width + due
        if due == 0 and node.going_from >= 0.0 and node.ordered < width:
            step = self.machine.scale_down_s
            gone = width - node.ordered if step <= 0.0 else int((self.now + self.slot_s - node.going_from) / step)
            width = max(node.ordered, width - gone)
            node.going_from = -1.0 if width == node.ordered else node.going_from + gone * step
        if width != node.servers.width:
            node.changed += abs(width - node.servers.width)
            if self.machine.rebalance and node.servers.all_drawn:
                self._rebalance(node, width)
            else:
                node.drained_s += node.servers.resize(width, self.now)
            if self.machine.pause_s > 0.0:
                node.servers.pause(self.now, self.machine.pause_s)

    def _rebalance(self, node: Node, width: int) -> None:
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
        members = self._members()
        taken = self._intake(length, cost, passed, members)
        sent = min([wants, *(taken[n.spec.name] / length for n in heads)])
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

    def _idle(self, node: Node, length: float) -> None:
        """A chained operator has no queue of its own; what it had is worked off."""
        end = self.now + length
        node.book(Customers(), self.now, end)

    def _intake(
        self, length: float, cost: float, passed: float, members: Mapping[str, tuple[str, ...]]
    ) -> dict[str, float]:
        """Items that each operator can take in this slot: what its queues have room for and what it will send on.

        From the last operator to the first, since an operator sends on no more than those after it take: it then stands
        still inside "send", which its service time shows (001, section 4.6: the second anomaly; the first one, a
        utilisation above 1 while queues fill, follows from what is taken in).
        """
        taken: dict[str, float] = {}
        for name in reversed(self.order):
            node = self.nodes[name]
            chain = members.get(name, (name,))
            after = [n for n in self.nodes.values() if chain[-1] in n.spec.inputs]
            sent = self._ratio(chain, passed)
            windowed = self.nodes[chain[-1]].spec.window_s > 0.0
            most = np.inf
            for receiver in after if sent > 0.0 and not windowed else ():
                both = sum(self.nodes[i].out_rate for i in receiver.spec.inputs if i != SOURCE)
                mine = self.nodes[chain[0]].out_rate / both if both > 0.0 else 1.0
                most = min(most, mine * taken.get(receiver.spec.name, np.inf) / sent)
            node.most_s = most / length
            if node.spec.queue is None:
                taken[name] = np.inf
                continue
            work = node.spec.service_s * cost + node.spec.ship_s / max(node.batch_items, node.spec.coalesce)
            room = node.spec.queue * node.servers.width - (node.inside)
            room = max(room, 0.3 * room)  # what is too many (costs are random) is taken back over a few slots
            taken[name] = max(room + min(most, node.servers.width * length / max(work, 1e-12)), 0.0)
        return taken

    def _ratio(self, chain: tuple[str, ...], passed: float) -> float:
        """Items that leave a chain per item that enters it."""
        ratio = 1.0
        for name in chain:
            ratio *= self.nodes[name].spec.selectivity
        return ratio * (passed if self.nodes[chain[-1]].spec.selectivity != 1.0 else 1.0)

    def _serve(
        self,
        node: Node,
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
        ship = spec.ship_s * min(batch / spec.coalesce, 1.0)
        if node.most_s * length < node.inside + rate * length:  # more than can be sent on: wait in "send"
            spacing = node.servers.width / max(node.most_s, 1e-9)
            service += min(max(spacing - service - ship / batch, 0.0), length)
        slot = Slot(
            self.now, length, rate, service, spec.service_cv, spec.arrival_cv, ship, batch, delay,
            channels // node.servers.width, lifetime, spec.buffer_items, hot, hot_at, self.machine.noise,
        )  # fmt: skip
        fresh = node.servers.step(slot)
        before = node.left
        node.book(fresh, self.now, self.now + length)
        done = (node.left - before) / length
        last = members[-1].spec
        if last.window_s > 0.0:  # one emission per window and subtask, whatever came in
            node.out_rate = self.nodes[last.name].servers.width / last.window_s
        else:
            node.out_rate = done * ratio * (passed if last.selectivity != 1.0 else 1.0)
        return node.out_rate

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _observe(self, begin: float, end: float) -> Observation:
        length = end - begin
        seen: dict[str, OperatorView] = {}
        done: dict[str, Customers] = {}
        members = self._members()
        for name, node in self.nodes.items():
            done[name] = Customers.joined(node.fresh)
            node.fresh = []
            chain = members.get(name)
            place = None if chain is None else InChain(self.nodes[chain[0]], self._passed(chain, name))
            left = done[name if chain is None else chain[0]]
            measured = view(node, left, length, self.now, self.machine.noise, place)
            node.paid_s += node.drained_s
            if measured is not None:
                seen[name] = measured
        latency = {}
        for bound in self.bounds:
            known = [n for n in bound.operators if n in self.nodes]
            heads = [n for n in known if members.get(n, (n,))[0] == n]  # the cost of the others is in their head's
            path = [(self.nodes[n], done[n], self.nodes[members.get(n, (n,))[-1]].spec) for n in heads]
            if known:
                latency[bound.name] = path_latency(self.rng, self.source_wait, path, self.now)
        return Observation(
            now_s=end,
            interval_s=length,
            operators=seen,
            bounds=self.bounds,
            latency=latency,
            target_per_s=self.target_per_s,
            backlog_items=sum(max(n.inside, 0.0) for n in self.nodes.values()) + self.source_backlog,
            pipelines=self.pipelines,
        )

    def _passed(self, chain: tuple[str, ...], name: str) -> float:
        """Items that reach a chained operator per item that enters its chain."""
        return float(np.prod([self.nodes[n].spec.selectivity for n in chain[: chain.index(name)]]))


def pipelines(operators: Sequence[Operator]) -> tuple[tuple[str, ...], ...]:
    """Runs of operators that can be fused: wired one to one, one stream out of the one into the other, and no other.

    Equal widths are needed as well, but may change: the policy looks at them (001, section 4.7.3).

    >>> def step(name, before, **given):
    ...     return Operator(name, 0.01, inputs=(before,), one_to_one=True, **given)
    >>> pipelines([step("a", "source"), step("b", "a"), step("c", "b"), Operator("sink", 0.01, inputs=("c",))])
    (('a', 'b', 'c'),)
    >>> pipelines([step("a", "source"), step("b", "a"), step("c", "a")])
    ()
    """
    readers = {o.name: [r for r in operators if o.name in r.inputs] for o in operators}
    after = {
        name: next_[0].name
        for name, next_ in readers.items()
        if len(next_) == 1 and next_[0].one_to_one and next_[0].inputs == (name,)
    }
    found = []
    for head in readers:
        if head in after and head not in after.values():
            run = [head]
            while run[-1] in after:
                run.append(after[run[-1]])
            found.append(tuple(run))
    return tuple(found)


def _lifetime(decision: Decision, source: str, spec: Operator) -> float:
    """The lifetime of the batches on a stream: named "a->b", or "->b" if it is the first of a path."""
    for name in (f"{source}->{spec.name}", f"->{spec.name}"):
        if name in decision.lifetimes:
            return max(float(decision.lifetimes[name]), 0.0)
    return spec.lifetime_s
