"""How long a row takes through a micro-batch engine, what that costs, and what cannot be had at any price.

Ours (design section 6): a micro-batch is not a queue. With F the fixed time of a batch, the busy share of the width

    rho = rate * cost * skew / width

(skew: the busiest task's load over the mean), and the lifetime L, the least time from one cut to the next:

    cycle      C = max(L, w),        work   w = F + rho C
    hence      C = max(L, F / (1 - rho)),   and no cycle at all if rho >= 1

A row arrives anywhere in a cycle, waits until it is cut, and then for the work of its whole batch:

    mean = C / 2 + w,        quantile q = q C + w          (p95 = 0.95 C + w)

Both grow with C, so the least mean is at C = w = F / (1 - rho): 1.5 F / (1 - rho); a tighter bound is infeasible. In
the other direction a longer cycle pays the fixed cost more rarely: CPU seconds per second are

    cpu = rate * cost + fixed_cpu / C

so the cheapest plan is the least width and the longest cycle that keep the bound:

    mean bound l:  C = (l - F) / (1/2 + rho),     quantile bound l:  C = (l - F) / (q + rho),     if C >= F / (1 - rho)

Windows that end every S seconds are closed by the batch that reads past their end. If one is cut at each end, with the
rows since the last cut, results wait for no cycle, only for its work:

    latency = F + rho min(L, S)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.control.checks import above, at_least, between
from penstock.errors import PolicyError

BUSIEST = 0.85
"""No plan is busier than this: a small rise in load would stall it."""

_WORTH_S = 0.04  # of work make a task worth it, where fewer would do: a task costs 4 ms, twice that on busy cores
_ROUNDING = 1e-9  # relative: a bound that is exactly the least latency is feasible
_ROWS_SHARE = 0.6  # of a batch's work, where a bound of a few fixed costs governs: what grows with its rows
_MOST_WAITED = 0.34  # of a slide, by batches that follow each other at once


def launches(width: int, each: int = 1) -> int:
    """What a stage starts in a batch, in tasks: its own, and an exchange in front of several, which costs as much.

    Farms on demand have several tasks for `each` replica, if there are several replicas to share them.

    >>> [launches(width) for width in (1, 2, 3)], [launches(width, each=4) for width in (1, 2, 3)]
    ([1, 3, 4], [1, 9, 13])
    """
    return width * each + 1 if width > 1 else 1


def worth_tasks(busy_s: float) -> int:
    """Into how many tasks work is worth being split: each is to do far more than it costs to start.

    >>> [worth_tasks(busy_s) for busy_s in (0.0, 0.03, 0.1)]
    [0, 0, 2]
    """
    return int(busy_s / _WORTH_S)


def hottest_share(skew: float, width: int) -> float:
    """The share h of the load on a key that stays on one task, from the skew 1 + h (p - 1) seen at a width p.

    >>> round(hottest_share(skew=1.3, width=4), 3), hottest_share(skew=1.0, width=1)
    (0.1, 0.0)
    """
    return min(max((skew - 1.0) / (width - 1.0), 0.0), 1.0) if width > 1 else 0.0


def paced_by_hottest(service_s: float, hot: float, width: int) -> float:
    """Seconds that a row adds to a batch at a width, if a share `hot` of the rows stays on one task.

    >>> round(paced_by_hottest(0.001, hot=0.1, width=2), 6)
    0.00055
    """
    return service_s * (1.0 + hot * (width - 1)) / width


@dataclass(frozen=True)
class BatchService:
    """One operator (or chain) under a steady load: what each lifetime and width would give. Times in seconds.

    >>> model = BatchService(fixed_s=0.2, row_s=0.0001, rate_per_s=4000.0, width=2)
    >>> model.utilisation, model.least_cycle_s, model.least_mean_s
    (0.2, 0.25, 0.375)
    >>> model.mean_s(lifetime_s=1.0), round(model.quantile_s(0.95, lifetime_s=1.0), 3)
    (0.9, 1.35)
    >>> model.longest_lifetime_s(mean_s=0.9), model.longest_lifetime_s(mean_s=0.3) is None
    (1.0, True)
    """

    fixed_s: float  # F
    row_s: float  # CPU seconds of one row
    rate_per_s: float
    width: int = 1
    skew: float = 1.0
    fixed_cpu_s: float | None = None  # CPU seconds of an empty batch; None: one core busy for all of F

    def __post_init__(self) -> None:
        where = "batch-service model"
        for name in ("fixed_s", "row_s", "rate_per_s"):
            at_least(where, name, getattr(self, name), 0.0)
        at_least(where, "width", self.width, 1)
        at_least(where, "skew", self.skew, 1.0)
        if self.fixed_cpu_s is not None:
            at_least(where, "fixed_cpu_s", self.fixed_cpu_s, 0.0)

    @property
    def utilisation(self) -> float:
        """rho: the busy share of the busiest task.

        >>> BatchService(0.2, 0.001, 500.0, width=2, skew=1.5).utilisation
        0.375
        """
        return self.rate_per_s * self.row_s * self.skew / self.width

    @property
    def least_cycle_s(self) -> float:
        """F / (1 - rho): how long a batch takes that starts as soon as the one before it is done.

        >>> BatchService(0.2, 0.001, 1000.0).least_cycle_s
        inf
        """
        return self.fixed_s / (1.0 - self.utilisation) if self.utilisation < 1.0 else math.inf

    @property
    def least_mean_s(self) -> float:
        """1.5 F / (1 - rho): no lifetime gives a lower mean latency.

        >>> BatchService(0.2, 0.0, 1000.0).least_mean_s
        0.30000000000000004
        """
        return 1.5 * self.least_cycle_s

    def least_quantile_s(self, q: float) -> float:
        """(1 + q) F / (1 - rho): no lifetime gives a lower quantile.

        >>> round(BatchService(0.2, 0.0, 1000.0).least_quantile_s(0.95), 6)
        0.39
        """
        return (1.0 + _quantile(q)) * self.least_cycle_s

    def cycle_s(self, lifetime_s: float) -> float:
        """C = max(L, F / (1 - rho)): the time from cut to cut.

        >>> BatchService(0.2, 0.001, 500.0).cycle_s(0.1)
        0.4
        """
        return max(at_least("batch-service model", "lifetime_s", lifetime_s, 0.0), self.least_cycle_s)

    def work_s(self, lifetime_s: float) -> float:
        """W = F + rho C: how long one batch is worked on.

        >>> BatchService(0.2, 0.001, 500.0).work_s(1.0)
        0.7
        """
        cycle = self.cycle_s(lifetime_s)
        return self.fixed_s + self.utilisation * cycle if math.isfinite(cycle) else math.inf

    def mean_s(self, lifetime_s: float) -> float:
        """Mean latency C / 2 + w; infinite from utilisation 1 on."""
        return self.cycle_s(lifetime_s) / 2.0 + self.work_s(lifetime_s)

    def quantile_s(self, q: float, lifetime_s: float) -> float:
        """Latency that a share q of the rows stays within: q C + w."""
        return _quantile(q) * self.cycle_s(lifetime_s) + self.work_s(lifetime_s)

    def cpu_per_s(self, lifetime_s: float) -> float:
        """CPU seconds spent per second: the rows' own and the fixed cost, paid once a cycle.

        >>> BatchService(0.2, 0.001, 500.0).cpu_per_s(1.0)
        0.7
        """
        fixed = self.fixed_s if self.fixed_cpu_s is None else self.fixed_cpu_s
        cycle = self.cycle_s(lifetime_s)
        return self.rate_per_s * self.row_s + (fixed / cycle if cycle > 0.0 else 0.0)

    def cpu_per_row_s(self, lifetime_s: float) -> float | None:
        """CPU seconds per row; None if no row arrives.

        >>> round(BatchService(0.2, 0.001, 500.0).cpu_per_row_s(1.0), 6)
        0.0014
        """
        return self.cpu_per_s(lifetime_s) / self.rate_per_s if self.rate_per_s > 0.0 else None

    def longest_lifetime_s(
        self, *, mean_s: float | None = None, p95_s: float | None = None, p99_s: float | None = None
    ) -> float | None:
        """The longest, hence cheapest, lifetime that keeps all the bounds given; None if there is none.

        >>> BatchService(0.2, 0.0, 1000.0).longest_lifetime_s(mean_s=1.2, p95_s=1.15)
        1.0
        """
        if mean_s is None and p95_s is None and p99_s is None:
            raise PolicyError("batch-service model", "there is no bound", "give mean_s, p95_s or p99_s")
        weighed = ((0.5, mean_s), (0.95, p95_s), (0.99, p99_s))
        return self.longest_lifetime_within([(weight, bound) for weight, bound in weighed if bound is not None])

    def longest_lifetime_within(self, bounds: Iterable[tuple[float, float]]) -> float | None:
        """The longest lifetime under which (weight x cycle + work) keeps each bound; None if there is none.

        >>> BatchService(0.2, 0.0, 1000.0).longest_lifetime_within([(1.5, 1.7)])  # a row waits one more cycle
        1.0
        """
        longest = math.inf
        for weight, bound in bounds:
            above("batch-service model", "the bound", bound, 0.0)
            longest = min(longest, (bound - self.fixed_s) / (weight + self.utilisation))
        least = self.least_cycle_s
        if not math.isfinite(least) or longest < least * (1.0 - _ROUNDING):
            return None
        return max(longest, least)

    def closing_s(self, lifetime_s: float, every_s: float) -> float:
        """The longest that windows wait which end every so many seconds, where a batch is cut at each end.

        Where batches are cut in between, too, the one that takes in the end may come late by as much as `late_cut_s`.

        >>> round(BatchService(0.2, 0.0001, 2000.0).closing_s(lifetime_s=2.0, every_s=1.0), 6)   # 0.2 + 0.2 * 1.0
        0.4
        >>> round(BatchService(0.2, 0.0001, 2000.0).closing_s(0.3, every_s=1.0), 3)  # 0.217 late: as of 0.517 s
        0.303
        """
        rho = self.utilisation
        if rho >= 1.0:
            return math.inf
        late = late_cut_s(self.work_s(lifetime_s), rho)
        return self.fixed_s + rho * min(self.cycle_s(lifetime_s) + late, max(every_s, self.least_cycle_s))

    def longest_lifetime_closing(self, bound_s: float, every_s: float) -> float | None:
        """The longest lifetime, at most `every_s`, under which such windows keep a bound; None if there is none.

        >>> BatchService(0.2, 0.0001, 2000.0).longest_lifetime_closing(0.4, every_s=1.0)
        1.0
        >>> round(BatchService(0.2, 0.0001, 2000.0).longest_lifetime_closing(0.31, every_s=1.0), 3)
        0.329
        """
        rho, least = self.utilisation, self.least_cycle_s
        if rho >= 1.0:
            return None
        bound_s = min(bound_s, every_s)  # the next window must find the batch done
        longest = every_s
        if rho > 0.0:
            taken_in = (bound_s - self.fixed_s) / rho  # seconds of rows
            if taken_in < every_s:  # C + (F + rho C) pays <= that
                pays = late_cut_s(1.0, rho)
                longest = (taken_in - pays * self.fixed_s) / (1.0 + pays * rho)
        longest = max(longest, least)
        return longest if self.closing_s(longest, every_s) <= bound_s * (1.0 + _ROUNDING) else None

    def at_width(self, width: int) -> BatchService:
        """The same load on another width.

        >>> BatchService(0.2, 0.001, 500.0).at_width(2).utilisation
        0.25
        """
        return replace(self, width=width)


def late_cut_s(work_s: float, utilisation: float) -> float:
    """Return how long after its time the next batch may be cut so that it takes in the end of a window.

    A window's result is made by the batch that takes in its end. A batch works W = F + rho (time since the cut before).
    Cut x late, at the end, it works W + rho x. Cut in time, it is at work for W - x more when the window ends, and then
    another one follows, for about W. To wait is the better way if x (1 + rho) < W. (Our own; the theses' windows have
    no batches.)

    >>> round(late_cut_s(0.150, 0.5), 3), late_cut_s(0.150, 0.0)
    (0.1, 0.15)
    """
    return work_s / (1.0 + utilisation)


def worth_waiting_s(work_s: float, lifetime_s: float, every_s: float) -> float:
    """Return the same for a host that knows how long its last batch worked, but not how much of that the rows took.

    Batches that follow each other at once are in a hurry: they wait for no end if that could take much of a slide.

    >>> round(worth_waiting_s(0.150, lifetime_s=0.150, every_s=1.0), 3)
    0.094
    >>> worth_waiting_s(0.800, lifetime_s=0.0, every_s=1.0)
    0.0
    """
    busy = min(1.0, work_s / lifetime_s) if lifetime_s > 0.0 else 1.0
    late = late_cut_s(work_s, _ROWS_SHARE * busy)
    return late if lifetime_s > 0.0 or late <= _MOST_WAITED * every_s else 0.0


def _quantile(q: float) -> float:
    return between("batch-service model", "q", q, 0.0, 1.0)
