"""The two ways to choose parallelisms: thesis 001, section 4.6.3. Pure functions; `elastic.py` makes a policy of them.

**Rebalance** (Algorithm 7) minimises the total parallelism of a sequence under a budget for queue waiting:

    minimise    sum_i p*_i                                                                 (4.8-4.11)
    subject to  sum_i W_i(p*_i) <= (1 - w_ob) (l - sum_i l_i),   lo_i <= p*_i <= hi_i

Every W_i is convex and falling, so giving one subtask at a time to whoever gains most is optimal. If even the largest
parallelisms do not fit the budget, all tasks get theirs.

**ResolveBottlenecks** (Eq. 4.12) at least doubles a task that is (nearly) saturated, where statistics are not to be
trusted:

    p* = min(hi, ceil(2 p max(1, rho)))   for every task with rho >= rho_max
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.control.checks import above, at_least, between, finite, ordered
from penstock.control.models.kingman import QueueModel

_ROUNDING = 1e-9  # relative: a wait equal to its budget fits


@dataclass(frozen=True)
class ElasticTask:
    """One task of a sequence: its queue model, its latency l_v, and its limits. One unit of time throughout.

    `queue` None is a task whose wait does not depend on a decision (a sink of fixed width): it keeps `wait`.

    >>> task = ElasticTask("score", QueueModel(4.0, 5.0, 1.0, 0.5, width=8, wait=14.0), latency=4.0, lo=1, hi=64)
    >>> task.wait_at(8), task.floor(0.9)
    (14.0, 8)
    """

    name: str
    queue: QueueModel | None
    latency: float  # l_v
    lo: int
    hi: int
    wait: float = 0.0  # if `queue` is None

    def __post_init__(self) -> None:
        where = f"task '{self.name}'"
        at_least(where, "lo", self.lo, 1)
        ordered(where, "lo", self.lo, "hi", self.hi)
        at_least(where, "latency", self.latency, 0.0)
        at_least(where, "wait", self.wait, 0.0)

    @property
    def utilisation(self) -> float:
        """Utilisation rho = S / A, the ratio of the means (4.2); 0 if there is no model."""
        return 0.0 if self.queue is None else self.queue.utilisation_at(self.queue.width)

    def wait_at(self, width: int) -> float:
        """W(p*)."""
        return self.wait if self.queue is None else self.queue.wait_at(width)

    def floor(self, most_utilisation: float) -> int:
        """The least parallelism to plan with (4.6.4): the user's, or what keeps the utilisation; never above `hi`."""
        return self.lo if self.queue is None else max(self.lo, self.queue.floor(most_utilisation, most=self.hi))


def queue_budget(bound: float, latencies: Sequence[float], batching_share: float) -> float:
    """(1 - w_ob) (l - sum l_v): what may be spent waiting in queues. At or below 0 nothing fits.

    >>> queue_budget(40.0, [4.0, 2.0, 9.0], 0.8)
    4.999999999999999
    """
    above("rebalance", "bound", bound, 0.0)
    between("rebalance", "batching_share", batching_share, 0.0, 1.0)
    return (1.0 - batching_share) * (bound - math.fsum(latencies))


def total_wait(tasks: Sequence[ElasticTask], widths: Sequence[int]) -> float:
    """W_S(p*): the sum over the tasks (Eq. 4.7); infinite if one is saturated.

    >>> total_wait([ElasticTask("sink", None, 0.0, 1, 1, wait=2.0)], [1])
    2.0
    """
    return sum(task.wait_at(width) for task, width in zip(tasks, widths, strict=True))


def rebalance(
    tasks: Sequence[ElasticTask], budget: float, minima: Mapping[str, int] | None = None
) -> tuple[dict[str, int], bool]:
    """Algorithm 7: the least parallelisms whose waits fit the budget, and whether they do; else every task's maximum.

    `minima` are the least parallelisms to start from (limits, the utilisation floor, earlier constraints). Ties go to
    the lowest index. The digest's worked instance, with l = 65:

    >>> def task(name, s, a, ca, cs, w, p, latency):
    ...     return ElasticTask(name, QueueModel(s, a, ca, cs, width=p, wait=w), latency, 1, 64)
    >>> tasks = [task("v1", 4, 5, 1, 0.5, 14, 8, 4), task("v2", 2, 4, 1.2, 1, 3, 4, 2),
    ...     task("v3", 9, 10, 0.8, 0.7, 40, 10, 9)]
    >>> budget = queue_budget(65.0, [4.0, 2.0, 9.0], 0.8)
    >>> rebalance(tasks, budget, {t.name: t.floor(0.9) for t in tasks})
    ({'v1': 13, 'v2': 5, 'v3': 18}, True)
    """
    finite("rebalance", "budget", budget)
    limit = budget + _ROUNDING * abs(budget)
    top = [task.hi for task in tasks]
    if total_wait(tasks, top) > limit:
        return {task.name: task.hi for task in tasks}, False
    least = minima or {}
    widths = [min(task.hi, max(task.lo, least.get(task.name, task.lo))) for task in tasks]
    waits = [task.wait_at(width) for task, width in zip(tasks, widths, strict=True)]
    gains = [(_gain(task, widths[i], waits[i]), i) for i, task in enumerate(tasks) if widths[i] < task.hi]
    heapq.heapify(gains)
    # Not `while gains`: the loop must end by fitting, which it does at the latest with all at their maximum.
    while sum(waits) > limit and gains:
        _, i = heapq.heappop(gains)
        widths[i] += 1
        waits[i] = tasks[i].wait_at(widths[i])
        if widths[i] < tasks[i].hi:
            heapq.heappush(gains, (_gain(tasks[i], widths[i], waits[i]), i))
    return {task.name: width for task, width in zip(tasks, widths, strict=True)}, True


def _gain(task: ElasticTask, width: int, wait: float) -> float:
    """D = W(p + 1) - W(p), a negative number; minus infinity where the task is saturated (inf - inf is no number)."""
    return task.wait_at(width + 1) - wait if math.isfinite(wait) else -math.inf


def bottlenecks(tasks: Sequence[ElasticTask], saturation: float) -> tuple[ElasticTask, ...]:
    """The tasks with rho >= rho_max.

    >>> bottlenecks([ElasticTask("v", QueueModel(4.0, 5.0, 1.0, 1.0, width=2), 4.0, 1, 9)], 0.95)
    ()
    """
    return tuple(task for task in tasks if task.utilisation >= saturation)


def resolve_bottlenecks(tasks: Sequence[ElasticTask], saturation: float) -> dict[str, int]:
    """Eq. 4.12 for every bottleneck; the other tasks get no decision.

    >>> def task(rho):
    ...     return ElasticTask("v", QueueModel(rho, 1.0, 1.0, 1.0, width=10), 1.0, 1, 100)
    >>> resolve_bottlenecks([task(0.97)], 0.95), resolve_bottlenecks([task(1.6)], 0.95)
    ({'v': 20}, {'v': 32})
    """
    decided = {}
    for task in bottlenecks(tasks, saturation):
        assert task.queue is not None  # a task without a model has utilisation 0
        # The factor keeps 2 * 10 * 1.6 = 32.000000000000004 at 32.
        wanted = 2.0 * task.queue.width * max(1.0, task.utilisation) * (1.0 - 1e-12)
        decided[task.name] = max(task.lo, math.ceil(min(float(task.hi), wanted)))  # cut first: `wanted` may be infinite
    return decided


@dataclass(frozen=True)
class Sequence001:
    """The tasks of one constraint and its bound, for `scale_reactively`.

    >>> Sequence001("fast", (), 20.0).name
    'fast'
    """

    name: str
    tasks: tuple[ElasticTask, ...]
    bound: float


@dataclass(frozen=True)
class Scaling:
    """What Algorithm 8 did for one constraint.

    >>> Scaling("fast", "rebalance", {"score": 3}, budget=0.004, expected=0.003, fits=True).rule
    'rebalance'
    """

    name: str
    rule: str  # "rebalance" or "resolve"
    widths: Mapping[str, int]
    budget: float | None = None
    expected: float | None = None  # W_S at these widths; None if it is not finite, or was not asked
    fits: bool = True


def scale_reactively(
    sequences: Sequence[Sequence001],
    *,
    batching_share: float,
    saturation: float,
    most_utilisation: float,
    held: Mapping[str, int] | None = None,
) -> tuple[dict[str, int], tuple[Scaling, ...]]:
    """Algorithm 8: per constraint either resolve bottlenecks or rebalance; a later one never undoes an earlier one.

    `held` are widths not to be lowered: those of tasks that a constraint without fresh statistics also runs through.
    Returns the parallelisms (tasks not in it keep theirs) and what was done for each constraint.

    >>> queue = QueueModel(0.97, 1.0, 1.0, 1.0, width=10)
    >>> fast = Sequence001("fast", (ElasticTask("v", queue, 0.97, 1, 100),), 20.0)
    >>> scale_reactively([fast], batching_share=0.8, saturation=0.95, most_utilisation=0.9)[0]
    {'v': 20}
    """
    chosen: dict[str, int] = {}
    done: list[Scaling] = []
    for sequence in sequences:
        if bottlenecks(sequence.tasks, saturation):
            resolved = resolve_bottlenecks(sequence.tasks, saturation)
            done.append(Scaling(sequence.name, "resolve", resolved))
            for name, width in resolved.items():
                chosen[name] = max(chosen.get(name, 0), width)
            continue
        budget = queue_budget(sequence.bound, [task.latency for task in sequence.tasks], batching_share)
        minima = {
            task.name: max(task.floor(most_utilisation), chosen.get(task.name, 0), (held or {}).get(task.name, 0))
            for task in sequence.tasks
        }
        widths, fits = rebalance(sequence.tasks, budget, minima)
        expected = total_wait(sequence.tasks, [widths[task.name] for task in sequence.tasks])
        done.append(
            Scaling(sequence.name, "rebalance", widths, budget, expected if math.isfinite(expected) else None, fits)
        )
        chosen.update(widths)
    return chosen, tuple(done)
