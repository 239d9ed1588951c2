"""All policies over all load shapes on one simulated operator: who keeps the bound, and what it costs.

The set-up: an operator of 20 ms (exponential) per item, 400 items/s to begin with, 1 to 64 subtasks; a bound of 100
ms on
the mean latency, judged every 5 s; a new subtask works after 8 s, and every change of width stops the operator for
0.3 s and spreads what waits over the new subtasks. It starts with the width that suits the load of the first moment.
The clairvoyant plan knows the load: per interval the least width that keeps the bound, ordered in time.

Score over all shapes: violated intervals + k x worker-hours, for k = 0.1, 1 and 10. A policy is *causal* if it knows
nothing of the load to come; `peak-load` and `clairvoyant` are listed, not ranked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

from penstock.control.decision import Policy
from penstock.control.models.kingman import kingman_wait
from penstock.control.observation import Bound
from penstock.control.policies import registry
from penstock.control.policies.adaptive_learner import scatter
from penstock.engine.sim.loads import SHAPES, Load, shape
from penstock.engine.sim.loop import Trace, run
from penstock.engine.sim.measures import Row, measure
from penstock.engine.sim.spec import Machine, Operator
from penstock.engine.sim.stream import StreamHost

NAME = "score"
SERVICE_S = 0.02
BOUND = Bound("fast", (NAME,), mean_s=0.1)
MACHINE = Machine(scale_up_s=8.0, pause_s=0.3, rebalance=True)
INTERVAL_S = 5.0
WIDEST = 64
SEEDS = tuple(range(10))
WEIGHTS = (0.1, 1.0, 10.0)
_BROKEN = 3600.0 / INTERVAL_S  # a broken interval in the clairvoyant's plan: one worker-hour, the score's k = 1

# Parameters where a policy needs some, or where its defaults are meant for another set-up: no output batches here, so
# thesis 001's scaling gets the whole budget.
PARAMETERS: dict[str, dict[str, Any]] = {"elastic": {"batching_share": 0.0}}
CAUSAL = ("static", "utilisation", "latency", "ds2", "ds2-roomy", "flink", "flink-quick", "spark", "elastic")
KNOWING = ("peak-load", "clairvoyant")
OURS = "adaptive"


def host(load: Load, seed: int) -> StreamHost:
    """The simulated operator under a load.

    >>> host(shape("step2", 0), 0).widths()
    {'score': 11}
    """
    start = least_width(float(load.rate(np.zeros(1))[0]), 1.0, 0.0)
    operator = Operator(NAME, SERVICE_S, width=start, hi=WIDEST)
    return StreamHost([operator], load, seed=seed, bounds=(BOUND,), machine=MACHINE, interval_s=INTERVAL_S)


@functools.lru_cache(maxsize=8192)
def least_width(rate: float, cost: float, hot: float, stop_s: float = 0.0) -> int:
    """The fewest subtasks that keep the bound in nearly every interval of a steady state (exact for this operator).

    >>> least_width(400.0, 1.0, 0.0)
    11
    """
    service = SERVICE_S * cost
    allowed = (BOUND.mean_s or 0.0) - service
    for width in range(1, WIDEST + 1):
        busiest = hot + (1.0 - hot) / width
        others = (1.0 - hot) / width
        waits = [
            kingman_wait(service, 1.0 / (rate * x), 1.0, 1.0)
            * (1.0 + 2.6 * scatter(rate * x * service, INTERVAL_S / service * n, 1.0, 1.0))
            for x, n in ((busiest, 1 if hot > 0.0 else width), (others, width))
        ]
        share = busiest if hot > 0.0 else 1.0
        wait = waits[0] if share == 1.0 else share * waits[0] + (1.0 - share) * waits[1]
        stop = 1.5 * stop_s * stop_s / (2.0 * INTERVAL_S * max(1.0 - rate * service / width, 1e-6))
        if wait + stop <= allowed:
            return width
    return WIDEST


def clairvoyant_plan(load: Load) -> list[tuple[float, Mapping[str, int]]]:
    """(time, widths) steps from the load to come: wide enough before it is needed, narrow as soon as it is not.

    >>> len(clairvoyant_plan(shape("step2", 0))) > 2
    True
    """
    edges = np.arange(0.0, load.duration_s, INTERVAL_S)
    need, change = [], []
    for begin in edges:
        t = np.arange(begin, begin + INTERVAL_S, 0.5)
        rate, cost, hot = float(load.rate(t).max()), float(load.cost(t).max()), float(load.hot(t).max())
        need.append(least_width(max(rate, 1e-6), cost, hot))
        change.append(least_width(max(rate, 1e-6), cost, hot, stop_s=MACHINE.pause_s))
    ahead = math.ceil(MACHINE.scale_up_s / INTERVAL_S)
    needed = [max(need[i : i + ahead + 1]) for i in range(len(need))]
    # fewer subtasks stop the operator at once, more of them when they begin to work
    chosen = _cheapest_path(needed, [max(change[i : i + ahead]) for i in range(len(change))])
    plan: list[tuple[float, Mapping[str, int]]] = []
    for begin, want in zip(edges, chosen, strict=True):
        if not plan or plan[-1][1][NAME] != want:
            plan.append((float(begin), {NAME: want}))
    return plan


def _cheapest_path(need: Sequence[int], change: Sequence[int]) -> list[int]:
    """Widths over time at the least cost: dynamic programming over all widths.

    An interval costs its width; one that breaks the bound costs `_BROKEN` more, be it too narrow for its load or, when
    the width changes in it, too narrow before or after for its load and the stop.
    """
    widths = np.arange(1, WIDEST + 1)
    cost = np.where(widths < need[0], _BROKEN, 0.0) + widths
    came_from = []
    for i in range(1, len(need)):
        here = np.where(widths < need[i], _BROKEN, 0.0) + widths
        narrow = widths < change[i]
        best, safe = int(np.argmin(cost)), int(np.argmin(np.where(narrow, np.inf, cost)))
        bad, good = cost[best] + _BROKEN, cost[safe] if not narrow[safe] else np.inf
        move = np.where(narrow, bad, min(bad, good))
        source = np.where(narrow | (bad < good), best, safe)
        came_from.append(np.where(cost <= move, np.arange(WIDEST), source))
        cost = np.minimum(cost, move) + here
    at = int(np.argmin(cost))
    path = [at + 1]
    for back in reversed(came_from):
        at = int(back[at])
        path.append(at + 1)
    return path[::-1]


def policy_for(name: str, load: Load) -> Policy:
    """A policy by name, with what it needs to know.

    >>> type(policy_for("ds2", shape("step2", 0))).__name__
    'DS2'
    """
    params = dict(PARAMETERS.get(name, {}))
    if name == "peak-load":
        params["peak_per_s"] = load.peak() * float(load.cost(np.arange(0.0, load.duration_s, 1.0)).max())
    if name == "clairvoyant":
        params["plan"] = clairvoyant_plan(load)
    return registry.make(name, **params)


def one(task: tuple[str, str, int]) -> Row:
    """One shape under one policy with one seed.

    >>> one(("step2", "clairvoyant", 0)).scenario
    'step2'
    """
    name, policy, seed = task
    return measured(name, policy, seed)[0]


def measured(name: str, policy: str, seed: int) -> tuple[Row, Trace]:
    """The same with its trace, for plots.

    >>> measured("step2", "peak-load", 0)[1].duration_s
    1400.0
    """
    load = shape(name, seed)
    trace = run(host(load, seed), policy_for(policy, load))
    return measure(trace, scenario=name, policy=policy, seed=seed, best_width=_planned_peak(name, seed)), trace


@functools.lru_cache(maxsize=256)
def _planned_peak(name: str, seed: int) -> int:
    """The greatest width of the clairvoyant's plan: what overshoot is measured against."""
    return max(widths[NAME] for _, widths in clairvoyant_plan(shape(name, seed)))


def compare(
    policies: Sequence[str],
    shapes: Sequence[str] = tuple(SHAPES),
    seeds: Sequence[int] = SEEDS,
    *,
    processes: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Every policy on every shape with every seed; `progress` is told after each shape and policy.

    >>> len(compare(["peak-load"], ["step2"], [0], progress=print))
    step2, peak-load: 1 of 1 runs done
    1
    """
    tasks = [(s, p, n) for s in shapes for p in policies for n in seeds]
    rows = []
    with ExitStack() as stack:
        if processes > 1:
            pool = stack.enter_context(ProcessPoolExecutor(processes))
            results: Iterator[Row] = pool.map(one, tasks, chunksize=4)
        else:
            results = map(one, tasks)
        for task, row in zip(tasks, results, strict=True):
            rows.append(row)
            if progress is not None and task[2] == seeds[-1]:
                progress(f"{task[0]}, {task[1]}: {len(rows)} of {len(tasks)} runs done")
    return rows


def totals(rows: Sequence[Row]) -> dict[tuple[str, str], tuple[float, float]]:
    """(shape, policy) -> mean violations and mean worker-hours over the seeds.

    >>> totals([Row("a", "p", 0, violations=2, worker_hours=1.0), Row("a", "p", 1, violations=4, worker_hours=3.0)])
    {('a', 'p'): (3.0, 2.0)}
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.scenario, row.policy), []).append(row)
    return {
        key: (
            float(np.mean([r.violations or 0 for r in group])),
            float(np.mean([r.worker_hours or 0.0 for r in group])),
        )
        for key, group in groups.items()
    }


def dominated(rows: Sequence[Row], causal: Sequence[str] = CAUSAL) -> list[tuple[str, str]]:
    """(shape, policy) where a causal policy has both fewer violations and fewer worker-hours than ours.

    >>> ours = Row("a", "adaptive", 0, violations=2, worker_hours=1.0)
    >>> rows = [ours, Row("a", "ds2", 0, violations=1, worker_hours=0.5)]
    >>> dominated(rows)
    [('a', 'ds2')]
    """
    means = totals(rows)
    found = []
    for (name, policy), (violations, hours) in means.items():
        ours = means.get((name, OURS))
        if policy in causal and ours is not None and violations < ours[0] and hours < ours[1]:
            found.append((name, policy))
    return found


def scores(rows: Sequence[Row], k: float) -> dict[str, float]:
    """Per policy, summed over the shapes: violations + k x worker-hours.

    >>> scores([Row("a", "p", 0, violations=2, worker_hours=1.0)], 10.0)
    {'p': 12.0}
    """
    result: dict[str, float] = {}
    for (_, policy), (violations, hours) in totals(rows).items():
        result[policy] = result.get(policy, 0.0) + violations + k * hours
    return result
