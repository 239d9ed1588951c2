"""Thesis 003's farm in virtual time: emitter, replicas that sleep and wake, collector (sections 2.3.2, 4.4, 5.2).

- Each replica has a bounded queue. *Round robin* pushes in turn; *on demand* tries one active replica after the other.
  An attempt that finds a full queue is a push lost; a replica that finds its own empty has lost a pop. Both spin, once
  per ``spin_s``.
- All replicas exist from the start, suspended; the regulator wakes those with the lowest numbers and suspends the
  highest. A suspended one gets no more items, finishes those in its queue, and freezes.
- The regulator runs in the emitter every TI seconds, also while it is blocked; the monitor in the collector feeds it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.control.checks import above, at_least, ordered
from penstock.control.decision import Decision, Policy
from penstock.control.observation import Observation, OperatorView
from penstock.control.protocol.machine import Machine
from penstock.control.protocol.ordering import OrderHeap
from penstock.errors import PolicyError


@dataclass(frozen=True)
class Reading:
    """What the regulator reads at one iteration.

    >>> Reading(1.0, seconds=0.5, width=8, items=30, latency_s=0.2, service_s=0.1, queued=8, push_losses=0).throughput
    60.0
    """

    now_s: float
    seconds: float  # since the last iteration
    width: int
    items: int  # completed since then
    latency_s: float  # their mean, from leaving the emitter to reaching the collector
    service_s: float  # their mean time on a replica
    queued: int  # in the replicas' queues now
    push_losses: int  # of the active replicas since the last iteration

    @property
    def throughput(self) -> float:
        """Items per second."""
        return self.items / self.seconds if self.seconds > 0 else 0.0


Regulate = Callable[[Reading], int]
_UNSHARED = Machine(1_000_000, 1_000_002)  # every replica has a core of its own


@dataclass(frozen=True)
class FarmSettings:
    """One farm and its load.

    Args:
        items: how many the emitter makes; it also stops at ``until_s``.
        emit_s: time to make one (f1).
        service_s: time of the replicated stage for an item begun at an instant, on a core of its own.
        work: what the replicated stage computes (f2).
        slowness: a factor per replica.
        others: bounds, first width, queue slots per replica, TI, scheduling, order, machine.

    >>> FarmSettings(items=100, lo=2, hi=14, start=8).scheduling
    'on_demand'
    """

    items: int = 1_000_000_000
    until_s: float = float("inf")
    emit_s: float = 0.0
    service_s: Callable[[int, float], float] = lambda item, now: 0.1
    work: Callable[[int], Any] = lambda item: item
    slowness: Callable[[int], float] = lambda replica: 1.0
    lo: int = 2
    hi: int = 14
    start: int = 8
    slots: int = 1
    every_s: float = 0.5
    spin_s: float = 1e-5
    scheduling: str = "on_demand"
    ordered: bool = False
    machine: Machine = _UNSHARED

    def __post_init__(self) -> None:
        ordered("farm", "lo", self.lo, "start", self.start)
        ordered("farm", "start", self.start, "hi", self.hi)
        at_least("farm", "lo", self.lo, 1)
        at_least("farm", "slots", self.slots, 1)
        above("farm", "every_s", self.every_s, 0.0)
        above("farm", "spin_s", self.spin_s, 0.0)
        if self.scheduling not in ("on_demand", "round_robin"):
            raise PolicyError("farm", f"no scheduling {self.scheduling!r}", "use 'on_demand' or 'round_robin'")


@dataclass
class FarmRun:
    """What a run showed.

    >>> run = run_farm(FarmSettings(until_s=2.6), lambda reading: 10)
    >>> run.widths, run.iterations, run.adaptations
    ([10, 10, 10, 10, 10], 5, 1)
    """

    output: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    readings: list[Reading] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)  # after each reading
    received: list[int] = field(default_factory=list)  # items per replica
    push_lost: list[int] = field(default_factory=list)  # per replica, whole run
    pop_lost: list[int] = field(default_factory=list)
    terminated: int = 0  # replicas that saw the end of stream

    @property
    def iterations(self) -> int:
        """How often the regulator ran."""
        return len(self.readings)

    @property
    def adaptations(self) -> int:
        """How often it changed the width."""
        return sum(reading.width != width for reading, width in zip(self.readings, self.widths, strict=True))


def by_policy(policy: Policy, settings: FarmSettings, target: Callable[[float], float] | None = None) -> Regulate:
    """Return a regulator that asks a policy, which sees the farm as one operator called 'farm'.

    >>> from penstock.control.policies.spar_throughput import TargetThroughput
    >>> settings = FarmSettings(until_s=6.0)                        # each replica does 10 items per second
    >>> run = run_farm(settings, by_policy(TargetThroughput(target_per_s=115.0, scaling_factor=1), settings))
    >>> run.widths[-1]
    12
    """

    def regulate(reading: Reading) -> int:
        rate = reading.throughput
        view = OperatorView(
            "farm", reading.width, settings.lo, settings.hi, arrivals_per_s=rate, completed_per_s=rate,
            service_s=reading.service_s, service_cv=0.0, interarrival_s=0.0, arrival_cv=0.0,
            wait_s=max(0.0, reading.latency_s - reading.service_s), batch_wait_s=0.0,
            queue_items=reading.queued, utilisation=1.0,
        )  # fmt: skip
        goals = {} if target is None else {"farm": target(reading.now_s)}
        seen = Observation(reading.now_s, reading.seconds, {"farm": view}, target_per_s=goals)
        return policy.decide(seen, Decision({"farm": reading.width})).widths["farm"]

    return regulate


def run_farm(settings: FarmSettings, regulate: Regulate | None = None) -> FarmRun:
    """Run a farm to the end of its stream; without a regulator its width is fixed.

    >>> run = run_farm(FarmSettings(items=6, lo=2, start=2, ordered=True, work=lambda item: item * item))
    >>> run.output, round(run.seconds, 6)
    ([0, 1, 4, 9, 16, 25], 0.3)
    """
    return _Farm(settings, regulate).run()


class _Farm:
    def __init__(self, settings: FarmSettings, regulate: Regulate | None) -> None:
        self.settings, self.regulate = settings, regulate
        hi = settings.hi
        self.now, self.width = 0.0, settings.start
        self.queues: list[deque[tuple[int, float]]] = [deque() for _ in range(hi)]
        self.busy = [False] * hi
        self.idle_since: list[float | None] = [0.0 if i < settings.start else None for i in range(hi)]
        self.result = FarmRun(received=[0] * hi, push_lost=[0] * hi, pop_lost=[0] * hi)
        self.order: OrderHeap[Any] = OrderHeap()
        self.events: list[tuple[float, int, Callable[..., None], Any]] = []
        self.count = 0
        self.made = self.done = 0
        self.held: tuple[int, float] | None = None  # the item that the emitter could not push yet
        self.blocked_since = 0.0
        self.turn = 0
        self.ended = False
        self.last_s, self.last_done, self.latency_sum, self.service_sum = 0.0, 0, 0.0, 0.0
        self.last_push = [0] * hi

    def run(self) -> FarmRun:
        self._at(self.settings.emit_s, self._emit)
        if self.regulate is not None:
            self._at(self.settings.every_s, self._check)
        while self.events and not (self.ended and self.done == self.made):
            self.now, _, act, argument = heapq.heappop(self.events)
            act(argument)
        if self.settings.ordered:
            self.order.end()
        self.result.seconds = self.now
        self.result.terminated = len(self.queues)  # the suspended ones are woken to see the end
        return self.result

    def _at(self, time: float, act: Callable[..., None], argument: Any = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, act, argument))

    # --- emitter ----------------------------------------------------------------------------------------------------

    def _emit(self, _: Any) -> None:
        if self.made >= self.settings.items or self.now >= self.settings.until_s:
            self.ended = True
            return
        self.held, self.blocked_since = (self.made, self.now), self.now
        self.made += 1
        self._push()

    def _push(self) -> None:
        """Try to push the held item; if all queues are full, wait for room (the losses are counted when it comes)."""
        if self.held is None:
            return
        tries = [(self.turn + i) % self.width for i in range(self.width)]
        if self.settings.scheduling == "round_robin":
            tries = tries[:1]
        for replica in tries:
            if len(self.queues[replica]) < self.settings.slots:
                self._count_push_losses()
                self.queues[replica].append(self.held)
                self.result.received[replica] += 1
                self.held = None
                self.turn = replica + 1
                self._start(replica)
                self._at(self.now + self.settings.emit_s, self._emit)
                return

    def _count_push_losses(self) -> None:
        """One loss per attempt while blocked: on demand tries every active queue, round robin the one in turn."""
        attempts = int((self.now - self.blocked_since) / self.settings.spin_s)
        tried = range(self.width) if self.settings.scheduling == "on_demand" else (self.turn % self.width,)
        for replica in tried:
            self.result.push_lost[replica] += attempts
        self.blocked_since = self.now

    # --- replicas ---------------------------------------------------------------------------------------------------

    def _start(self, replica: int) -> None:
        if self.busy[replica]:
            return
        if not self.queues[replica]:
            self.idle_since[replica] = self.now if replica < self.width else None  # else it freezes
            return
        self._count_pop_losses(replica)
        item, stamp = self.queues[replica].popleft()
        self.busy[replica] = True
        alone = self.settings.service_s(item, self.now) * self.settings.slowness(replica)
        service = alone * self.settings.machine.slowdown(self.width)
        self._at(self.now + service, self._finish, (replica, item, stamp, service))

    def _count_pop_losses(self, replica: int) -> None:
        since = self.idle_since[replica]
        if since is not None:
            self.result.pop_lost[replica] += int((self.now - since) / self.settings.spin_s)
        self.idle_since[replica] = None

    def _finish(self, argument: tuple[int, int, float, float]) -> None:
        replica, item, stamp, service = argument
        self.busy[replica] = False
        self._collect(item, self.settings.work(item))
        self.done += 1
        self.latency_sum += self.now - stamp
        self.service_sum += service
        self._start(replica)
        self._push()

    # --- collector and regulator ------------------------------------------------------------------------------------

    def _collect(self, item: int, value: Any) -> None:
        ready = self.order.put(item, value) if self.settings.ordered else [(item, value)]
        self.result.output.extend(value for _, value in ready)

    def _check(self, _: Any) -> None:
        assert self.regulate is not None
        if self.held is not None:
            self._count_push_losses()
        items = self.done - self.last_done
        lost = sum(self.result.push_lost[i] - self.last_push[i] for i in range(self.width))
        reading = Reading(
            self.now,
            self.now - self.last_s,
            self.width,
            items,
            self.latency_sum / items if items else 0.0,
            self.service_sum / items if items else 0.0,
            sum(len(queue) for queue in self.queues),
            lost,
        )
        self.last_s, self.last_done, self.last_push = self.now, self.done, list(self.result.push_lost)
        self.latency_sum = self.service_sum = 0.0
        self._resize(min(max(self.regulate(reading), self.settings.lo), self.settings.hi))
        self.result.readings.append(reading)
        self.result.widths.append(self.width)
        self._at(self.now + self.settings.every_s, self._check)

    def _resize(self, width: int) -> None:
        for replica in range(width, self.width):  # suspended: the highest numbers first
            if not self.busy[replica]:
                self._count_pop_losses(replica)
        woken, self.width = range(self.width, width), width
        for replica in woken:
            if not self.busy[replica] and not self.queues[replica]:
                self.idle_since[replica] = self.now
        self._push()
