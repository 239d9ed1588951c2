"""What latency bounds mean to `Adaptive` on a micro-batch host: limits by kind, and what a model expects of each.

A kind of limit is a statistic (mean, p95, p99), and whether batches are cut for it as windows end
(`models.batch_service`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from penstock.control.models.batch_service import BatchService
from penstock.control.observation import Bound

WEIGHTS = {"mean_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}  # of a cycle, in the latency of each kind
_SELDOM = 2.0  # windows that end more often than every so many times F have no batches of their own

Key = tuple[str, float]
"""The kind of a limit, and how often those windows end that have batches of their own (0: none do)."""

Limits = Mapping[Key, float]


def tightest(bounds: Sequence[Bound], fixed_s: float | None = None) -> dict[Key, float]:
    """The least limit of each kind: all rows of a batch leave together, so every bound counts for the whole of it.

    With the fixed cost F of a batch given, windows have batches of their own, one for each end, where that makes fewer
    of them than cycles that suit the bound, C = (l - F) / weight, and leaves time for them.

    >>> tightest([Bound("a", ("x",), mean_s=2.0), Bound("b", ("y",), mean_s=1.0, p95_s=3.0)])
    {('mean_s', 0.0): 1.0, ('p95_s', 0.0): 3.0}
    >>> tightest([Bound("bars", ("x",), p95_s=0.9, every_s=1.0)], fixed_s=0.15)   # C = 0.79
    {('p95_s', 1.0): 0.9}
    >>> tightest([Bound("bars", ("x",), p95_s=2.0, every_s=1.0)], fixed_s=0.15)   # C = 1.95
    {('p95_s', 0.0): 2.0}
    """
    found: dict[Key, float] = {}
    for bound in bounds:
        for kind, waits in WEIGHTS.items():
            limit = getattr(bound, kind)
            if limit is not None:
                every_s = bound.every_s or 0.0
                if fixed_s is None or every_s < max(_SELDOM * fixed_s, (limit - fixed_s) / waits):
                    every_s = 0.0
                key = (kind, every_s)
                found[key] = min(limit, found.get(key, math.inf))
    return found


def weight(key: Key) -> float:
    """How much of a cycle a row waits until it is cut.

    >>> weight(("mean_s", 0.0)), weight(("p95_s", 0.0))
    (0.5, 0.95)
    """
    return WEIGHTS[key[0]]


def latency_s(model: BatchService, lifetime_s: float, key: Key) -> float:
    """What a model gives for a kind of latency.

    >>> model = BatchService(fixed_s=0.2, row_s=0.0, rate_per_s=1000.0)
    >>> latency_s(model, 0.5, ("p95_s", 0.0)), latency_s(model, 0.5, ("p95_s", 1.0))
    (0.675, 0.2)
    """
    if has_ends(key):
        return model.closing_s(lifetime_s, key[1])
    return weight(key) * model.cycle_s(lifetime_s) + model.work_s(lifetime_s)


def cycle_of(limits: Limits) -> float:
    """About how long a cycle is that keeps the bounds: what a task saves per second, it saves so many times."""
    return min(limit if has_ends(key) else limit / (1.0 + weight(key)) for key, limit in limits.items())


def has_ends(key: Key) -> bool:
    """Whether a limit is one of windows that have batches of their own.

    >>> has_ends(("p95_s", 1.0)), has_ends(("p95_s", 0.0))
    (True, False)
    """
    return key[1] > 0.0
