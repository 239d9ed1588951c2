"""All policies over all load shapes on one simulated operator: who keeps the bound, and what it costs.

The set-up: an operator of 20 ms (exponential) per item, 400 items/s to begin with, 1 to 64 subtasks; a bound of 100 ms on
the mean latency, judged every 5 s; a new subtask works after 8 s, and every change of width stops the operator for
0.3 s. The clairvoyant plan knows the load: per interval the least width that keeps the bound, ordered in time.

Score over all shapes: violated intervals + k x worker-hours, for k = 0.1, 1 and 10. A policy is *causal* if it knows
nothing of the load to come; `peak-load` and `clairvoyant` are listed, not ranked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from penstock.control.decision import Policy
from penstock.control.models.kingman import kingman_wait
from penstock.control.observation import Bound
from penstock.control.policies import registry
from penstock.engine.sim.loads import SHAPES, Load, shape
from penstock.engine.sim.loop import Trace, run
from penstock.engine.sim.measures import Row, measure
from penstock.engine.sim.spec import Machine, Operator
from penstock.engine.sim.stream import StreamHost

NAME = "score"
SERVICE_S = 0.02
BOUND = Bound("fast", (NAME,), mean_s=0.1)
MACHINE = Machine(scale_up_s=8.0, pause_s=0.3)
INTERVAL_S = 5.0
WIDEST = 64
START = 10
SEEDS = tuple(range(10))
WEIGHTS = (0.1, 1.0, 10.0)

# Parameters where a policy needs some, or where its defaults are meant for another set-up: no output batches here, so
# thesis 001's scaling gets the whole budget.
PARAMETERS: dict[str, dict[str, Any]] = {"elastic": {"batching_share": 0.0}}
CAUSAL = ("static", "utilisation", "latency", "ds2", "flink", "flink-quick", "spark", "elastic")
KNOWING = ("peak-load", "clairvoyant")
OURS = "adaptive"


def host(load: Load, seed: int) -> StreamHost:
    """The simulated operator under a load.

    >>> host(shape("step2", 0), 0).widths()
    {'score': 10}
    """
    operator = Operator(NAME, SERVICE_S, width=START, hi=WIDEST)
    return StreamHost([operator], load, seed=seed, bounds=(BOUND,), machine=MACHINE, interval_s=INTERVAL_S)


def least_width(rate: float, cost: float, hot: float) -> int:
    """The fewest subtasks that keep the bound in a steady state, by the queueing formula (exact for this operator).

    >>> least_width(400.0, 1.0, 0.0)
    10
    """
    service = SERVICE_S * cost
    allowed = (BOUND.mean_s or 0.0) - service
    for width in range(1, WIDEST + 1):
        busiest = hot + (1.0 - hot) / width
        others = (1.0 - hot) / width
        waits = [kingman_wait(service, 1.0 / (rate * x), 1.0, 1.0) if x > 0.0 else 0.0 for x in (busiest, others)]
        share = busiest if hot > 0.0 else 1.0
        wait = waits[0] if share == 1.0 else share * waits[0] + (1.0 - share) * waits[1]
        if wait <= allowed:
            return width
    return WIDEST


def clairvoyant_plan(load: Load) -> list[tuple[float, Mapping[str, int]]]:
    """(time, widths) steps from the load to come: wide enough before it is needed, narrow as soon as it is not.

    >>> len(clairvoyant_plan(shape("step2", 0))) > 2
    True
    """
    edges = np.arange(0.0, load.duration_s, INTERVAL_S)
    need = []
    for begin in edges:
        t = np.arange(begin, begin + INTERVAL_S, 0.5)
        rate, cost, hot = float(load.rate(t).max()), float(load.cost(t).max()), float(load.hot(t).max())
        need.append(least_width(max(rate, 1e-6), cost, hot))
    ahead = math.ceil(MACHINE.scale_up_s / INTERVAL_S)
    plan: list[tuple[float, Mapping[str, int]]] = []
    for i, begin in enumerate(edges):
        want = max(need[i : i + ahead + 1])
        if not plan or plan[-1][1][NAME] != want:
            plan.append((float(begin), {NAME: want}))
    return plan


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

    >>> measured("step2", "static", 0)[1].duration_s
    1400.0
    """
    load = shape(name, seed)
    trace = run(host(load, seed), policy_for(policy, load))
    best = max(widths[NAME] for _, widths in clairvoyant_plan(load))
    return measure(trace, scenario=name, policy=policy, seed=seed, best_width=best), trace


def compare(
    policies: Sequence[str],
    shapes: Sequence[str] = tuple(SHAPES),
    seeds: Sequence[int] = SEEDS,
    *,
    processes: int = 1,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Every policy on every shape with every seed.

    >>> len(compare(["static"], ["step2"], [0]))
    1
    """
    tasks = [(s, p, n) for s in shapes for p in policies for n in seeds]
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            return list(pool.map(one, tasks, chunksize=4))
    rows = []
    for task in tasks:
        if progress is not None and task[2] == seeds[0]:
            progress(f"{task[0]} {task[1]}")
        rows.append(one(task))
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

    >>> rows = [Row("a", "adaptive", 0, violations=2, worker_hours=1.0), Row("a", "ds2", 0, violations=1, worker_hours=.5)]
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
