"""The Planner of thesis 004's MAPE loop (section 7.1, listing 7.2): a step that depends on the distance from the goal.

With r = throughput / goal and n processes::

    r > 2              -4   if n > 4            0.75 <= r < 0.9375   +1   if n + 1 < 48
    1.5 < r <= 2       -2   if n > 2            0.5  <= r < 0.75     +2   if n + 2 < 48
    1.25 < r <= 1.5    -1   if n > 1            r < 0.5              +4   if n + 4 < 48
    0.9375 <= r <= 1.25  nothing

Removing is the dearer protocol, so it asks for the larger deviation. Printed as it is, the bound is strict (47 is the
most, though the text says 48) and a step is taken whole or not at all: far below its goal a stage climbs 1, 5, ...,
45 and stays; far above it falls to 4 and stays. ``literal`` keeps that; ``clamped`` stops at the bounds instead and
reaches 48 and 1.
"""

from __future__ import annotations

from penstock.control.checks import above, at_least


def planned_step(ratio: float) -> int:
    """Return how many processes to add (or, negative, to remove) for throughput / goal.

    >>> [planned_step(r) for r in (0, 0.49, 0.5, 0.74, 0.75, 0.93, 0.9375, 1, 1.25, 1.26, 1.5, 1.51, 2, 2.01)]
    [4, 4, 2, 2, 1, 1, 0, 0, 0, -1, -1, -2, -2, -4]
    """
    at_least("MAPE planner", "throughput / goal", ratio, 0.0)
    if ratio > 1:
        return -4 if ratio > 2 else -2 if ratio > 1.5 else -1 if ratio > 1.25 else 0
    return 4 if ratio < 0.5 else 2 if ratio < 0.75 else 1 if ratio < 0.9375 else 0


def plan_literal(processes: int, ratio: float, bound: int = 48) -> int:
    """Return the next number of processes as the listing has it.

    >>> [plan_literal(45, 0.4), plan_literal(4, 2.5), plan_literal(46, 0.9), plan_literal(47, 0.9)]
    [45, 4, 47, 47]
    """
    step = planned_step(ratio)
    if step < 0:
        return processes + step if processes > -step else processes
    return processes + step if processes + step < bound else processes


def plan_clamped(processes: int, ratio: float, lo: int = 1, hi: int = 48) -> int:
    """Return the next number of processes, stopping at the bounds (an extension).

    >>> [plan_clamped(45, 0.4), plan_clamped(4, 2.5), plan_clamped(47, 0.9)]
    [48, 1, 48]
    """
    return min(max(processes + planned_step(ratio), lo), hi)


def ratio_of(throughput: float, goal: float) -> float:
    """Return r, with the goal refused where it is not above 0.

    >>> ratio_of(30.0, 40.0)
    0.75
    """
    return at_least("MAPE planner", "throughput", throughput, 0.0) / above("MAPE planner", "goal", goal, 0.0)
