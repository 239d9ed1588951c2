"""A farm whose source always has the next item ready, on a machine with few cores: the set-up of theses 003 and 004.

Speed in units of one core, for N replicas on P cores with H hardware threads (003 leaves the machine's curve to be read
off its figures; the form is the digest's):

    S(N) = min(N, P) + h max(0, min(N, H - 2) - P)            hyper-threads add h of a core
    S(N) = S(H - 2) (1 - c (N - (H - 2)))       for N > H - 2  emitter and collector are crowded out
    S(N) = min(S(N), cap)                                      a shared link or sink (004: Lane, Prime)

Items come out at S(N) / cost; an item is inside for cost N / S(N). Adding and removing replicas may stop the farm for a
while, as 004's protocol does.

Measuring has a price. 003 measures every item inside the emitter, and that takes the share `tax` of the speed (it does
not say how it splits; here all of it is taken for the price of timing items: *modelled*). Items are counted for
nothing. A policy that can do with the times of some items says so (`timed_share`); the farm then times a Bernoulli
sample (001, section 4.4.1), charges tax x share, and shows service times and their variation from that sample alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.control.checks import above, between
from penstock.control.decision import Decision, Policy
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.statistics.sampling import BernoulliSampler
from penstock.engine.sim.checks import SimulationError, little

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cores:
    """The machine's speed curve.

    >>> machine = Cores(8, 16, smt=0.3)
    >>> [round(machine.speed(n), 2) for n in (1, 8, 14, 16)]
    [1.0, 8.0, 9.8, 7.84]
    """

    physical: int
    threads: int
    smt: float = 0.3  # h: what a hyper-thread adds
    crowd: float = 0.1  # c: what each replica too many costs
    cap: float = float("inf")
    overhead: float = 0.0  # what coordination of one further replica takes from the total

    def speed(self, replicas: int) -> float:
        """Cores' worth of work per second with so many replicas."""
        roomy = max(self.threads - 2, 1)
        inside = min(replicas, roomy)
        speed = min(inside, self.physical) + self.smt * max(0, inside - self.physical)
        if replicas > roomy:
            speed *= max(1.0 - self.crowd * (replicas - roomy), 0.05)
        return max(min(speed, self.cap) * (1.0 - self.overhead * (replicas - 1)), 0.01)


@dataclass(frozen=True)
class Pauses:
    """How long the farm stands still when its size changes: a fixed part and one per replica."""

    add_s: float = 0.0
    add_each_s: float = 0.0
    remove_s: float = 0.0
    remove_each_s: float = 0.0


_NEVER_STOPS = Pauses()


def timed_share(policy: Policy) -> float:
    """The share of the items that a policy needs timed: its attribute of that name; all, if it has none.

    >>> from penstock.control.decision import Static
    >>> timed_share(Static())
    1.0
    """
    share = float(getattr(policy, "timed_share", 1.0))
    return above("policy", "timed_share", between("policy", "timed_share", share, 0.0, 1.0), 0.0)


class FarmHost:
    """A stream of items of known cost through a farm; `advance` runs one sampling period.

    >>> host = FarmHost(np.full(1000, 0.1), Cores(8, 16), seed=1, width=8, hi=14, interval_s=1.0, noise=0.0)
    >>> host.advance(Decision({"farm": 8})).operators["farm"].completed_per_s
    80.0
    """

    name = "farm"

    def __init__(
        self,
        costs: Floats,
        machine: Cores,
        *,
        seed: int,
        width: int,
        hi: int,
        lo: int = 1,
        interval_s: float = 0.5,
        pauses: Pauses = _NEVER_STOPS,
        noise: float = 0.03,
        tax: float = 0.0,
        timed: float = 1.0,
        goal_per_s: float | None = None,
        bounds: tuple[Bound, ...] = (),
    ) -> None:
        self.costs, self.machine, self.pauses = costs, machine, pauses
        self.total = np.cumsum(costs)
        self.width, self.lo, self.hi = width, lo, hi
        self.interval_s, self.noise = interval_s, noise
        self.tax = tax * timed  # share of the speed that measuring takes, where so many of the items are timed
        self._sampler = BernoulliSampler(timed, seed) if timed < 1.0 else None
        self.goal, self.bounds = goal_per_s, bounds
        self.rng = np.random.default_rng(seed)
        self._first = width
        self.now = 0.0
        self.work = 0.0  # core-seconds done
        self.done = 0
        self.paused_s = self.added_s = self.removed_s = 0.0
        self.area = self.spent = 0.0  # number inside over time, and times inside of those that left
        self._still = 0.0  # how long it will still stand
        self._paid = 0.0

    @property
    def finished(self) -> bool:
        """Whether all items are through."""
        return self.done >= self.costs.size

    def start(self) -> Decision:
        """The width it starts with."""
        return Decision({self.name: self._first})

    def widths(self) -> dict[str, int]:
        """Replicas at work."""
        return {self.name: self.width}

    def paid(self) -> dict[str, float]:
        """Replica-seconds of the last period."""
        return {self.name: self._paid}

    def check(self) -> None:
        """All items came out, the work done is the work there was, and Little's law holds.

        Replicas are never idle but when the farm stands still, so the number inside is the width. An item that was
        begun in one period and finished in another is counted with the speed of the latter: hence the tolerance.
        """
        if self.done != self.costs.size or abs(self.work - float(self.total[-1])) > 1e-6 * float(self.total[-1]):
            raise SimulationError(f"farm: {self.done} of {self.costs.size} items, work {self.work:g}")
        begun = self.hi * float(self.costs.max()) / float(self.total[-1])
        little("farm", self.area, self.spent, tolerance=0.02 + begun)

    def advance(self, decision: Decision) -> Observation:
        """Run one sampling period under a decision; the last one ends with the last item."""
        self._resize(min(max(int(decision.widths.get(self.name, self.width)), self.lo), self.hi))
        stood = min(self._still, self.interval_s)
        self._still -= stood
        factor = max(1.0 + self.noise * float(self.rng.standard_normal()), 0.1)
        speed = self.machine.speed(self.width) * factor * (1.0 - self.tax)
        left = float(self.total[-1]) - self.work
        length = self.interval_s
        if left <= speed * (self.interval_s - stood) + 1e-12:
            length = stood + left / speed
            self.work = float(self.total[-1])
        else:
            self.work += speed * (self.interval_s - stood)
        before = self.done
        self.done = int(np.searchsorted(self.total, self.work * (1.0 + 1e-12), side="right"))
        self.now += length
        self._paid = self.width * length
        self.area += self.width * (length - stood)
        self.spent += float(self.costs[before : self.done].sum()) * self.width / speed
        return self._observe(before, length, speed)

    def _resize(self, width: int) -> None:
        change = width - self.width
        if change == 0:
            return
        p = self.pauses
        stop = p.add_s + p.add_each_s * change if change > 0 else p.remove_s - p.remove_each_s * change
        self.added_s += stop if change > 0 else 0.0
        self.removed_s += stop if change < 0 else 0.0
        self._still += stop
        self.width = width

    def _observe(self, before: int, length: float, speed: float) -> Observation:
        items = self.done - before
        at = self.costs[before : self.done] if items else self.costs[before : before + 1]
        if self._sampler is not None:
            at = self.costs[before : self.done][self._sampler.mask(items)]
        inside = float(at.mean()) * self.width / speed if at.size else 0.0  # 0: no item was timed, so it is not known
        rate = items / length if length > 0.0 else 0.0
        view = OperatorView(
            name=self.name,
            width=self.width,
            lo=self.lo,
            hi=self.hi,
            arrivals_per_s=rate,
            completed_per_s=rate,
            service_s=inside,
            service_cv=float(at.std() / at.mean()) if at.size > 1 and at.mean() > 0.0 else 0.0,
            interarrival_s=self.width / rate if rate > 0.0 else 0.0,
            arrival_cv=0.0,
            wait_s=0.0,
            batch_wait_s=0.0,
            queue_items=float(min(self.costs.size - self.done, self.width)),
            utilisation=1.0,
        )
        return Observation(
            now_s=self.now,
            interval_s=max(length, 1e-9),
            operators={self.name: view},
            bounds=self.bounds,
            latency={b.name: (inside, inside, inside, inside) for b in self.bounds if items and at.size},
            target_per_s={self.name: self.goal} if self.goal is not None else {},
            backlog_items=float(self.costs.size - self.done),
            parallelism=self.machine.threads,
        )
