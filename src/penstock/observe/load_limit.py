"""Up to what load a latency bound is feasible, from what a controller noted of one batch.

The least latency goes with the least cycle over all widths p (design, section 6):

    C(r) = min over p of (F + t launches(p)) / (1 - r c(p)),    c(p): the seconds that a row adds to a batch at widths p

So with the least latency l at the rate r that was seen, it is l C(r') / C(r) at another rate r'. A bound is feasible as
long as that is within it and no task is busier than 0.85, as `Adaptive` plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.control.models.batch_service import BUSIEST, hottest_share, launches, paced_by_hottest

FAR = 10.0
"""A load so many times the one seen is not extrapolated to."""


def highest_rate(inputs: Mapping[str, Any], found: Mapping[str, Any], slots: int) -> float | None:
    """The load up to which the governing bound is feasible, at most 10 times the one seen; 0 if at none.

    None where the load seen cannot be served at all: then nothing is known of the least latency.

    >>> inputs = {"rate_per_s": 1000.0, "fixed_ms": 240.0, "row_us": 0.0, "task_ms": 0.0, "operators": {"score": {
    ...     "width": 1, "lo": 1, "hi": 4, "arrivals_per_s": 1000.0, "service_us": 800.0, "skew": 1.0}}}
    >>> round(highest_rate(inputs, {"least_s": 0.45, "bound_s": 0.9}, slots=4))    # 0.45 = 1.5 F / (1 - 0.2)
    3000
    >>> highest_rate(inputs, {"least_s": 0.45, "bound_s": 0.3}, slots=4)    # 1.5 F is 0.36
    0.0
    """
    seen = float(inputs["rate_per_s"])
    now = least_cycle(inputs, seen, slots)
    if found["least_s"] is None or seen <= 0.0 or not 0.0 < now < math.inf:
        return None
    allowed = found["bound_s"] * now / found["least_s"]  # the cycle that gives just the bound
    if least_cycle(inputs, 0.0, slots) > allowed:
        return 0.0
    return _search(inputs, slots, FAR * seen, allowed)


def highest_served(inputs: Mapping[str, Any], slots: int) -> float:
    """The load that operators keep up with at their widest, at most 10 times the one seen; latency aside.

    >>> inputs = {"rate_per_s": 9000.0, "fixed_ms": 240.0, "row_us": 0.0, "task_ms": 0.0, "operators": {"score": {
    ...     "width": 1, "lo": 1, "hi": 4, "arrivals_per_s": 9000.0, "service_us": 800.0, "skew": 1.0}}}
    >>> round(highest_served(inputs, slots=2)), round(0.85 * 2 / 0.0008)
    (2125, 2125)
    """
    return _search(inputs, slots, FAR * float(inputs["rate_per_s"]), math.inf)


def _search(inputs: Mapping[str, Any], slots: int, most: float, allowed: float) -> float:
    """The highest rate up to `most` whose least cycle is finite and within what is allowed; it grows with the rate."""

    def served(rate: float) -> bool:
        return math.isfinite(cycle := least_cycle(inputs, rate, slots)) and cycle <= allowed

    low, high = 0.0, most
    if served(high):
        return high
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if served(middle) else (low, middle)
    return low


def least_cycle(inputs: Mapping[str, Any], rate: float, slots: int) -> float:
    """C(r): the shortest cycle, in seconds, that some widths give at a rate; infinite if none serves it.

    Widths are tried as `Adaptive` does: from the least on, one task more where it saves the most.
    """
    views = {name: View.of(view, float(inputs["rate_per_s"]), slots) for name, view in inputs["operators"].items()}
    widths = {name: view.lo for name, view in views.items()}

    def cycle() -> float:
        busy = rate * (inputs["row_us"] / 1e6 + sum(view.row_s(widths[name]) for name, view in views.items()))
        tasks = sum(launches(widths[name], view.tasks_each) for name, view in views.items() if view.lo < view.hi)
        fixed = (inputs["fixed_ms"] + inputs["task_ms"] * tasks) / 1e3
        return float(fixed / (1.0 - busy)) if busy <= BUSIEST else math.inf

    best = cycle()
    while wider := [name for name, view in views.items() if widths[name] < view.hi]:
        most = max(wider, key=lambda name: views[name].row_s(widths[name]) - views[name].row_s(widths[name] + 1))
        widths[most] += 1
        best = min(best, cycle())  # a second task brings an exchange: a third may pay where the second does not
    return best


@dataclass(frozen=True)
class View:
    """What an operator adds to a batch for each row read, by its width."""

    lo: int
    hi: int  # no wider than there are slots
    row_us: float
    hot: float  # share of the hottest key, which stays on one task: skew 1 + h (p - 1)
    tasks_each: int = 1  # tasks for each of several replicas

    @staticmethod
    def of(noted: Mapping[str, Any], rate: float, slots: int) -> View:
        """From what a controller notes about an operator."""
        hi = max(min(noted["hi"], slots), noted["lo"]) if slots > 0 else noted["hi"]
        share = noted["arrivals_per_s"] / rate if rate > 0.0 else 0.0
        hot = hottest_share(noted["skew"], noted["width"])
        return View(noted["lo"], hi, share * noted["service_us"], hot, noted.get("tasks_each", 1))

    def row_s(self, width: int) -> float:
        """Seconds for one row at a width.

        >>> View(1, 8, row_us=1000.0, hot=0.1).row_s(2)
        0.00055
        """
        return paced_by_hottest(self.row_us / 1e6, self.hot, width)
