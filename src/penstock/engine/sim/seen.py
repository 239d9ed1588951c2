"""What the continuous host measures in an interval: one view per operator, and the latency along a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.control.observation import OperatorView
from penstock.engine.sim.node import Node
from penstock.engine.sim.servers import Customers
from penstock.engine.sim.shipping import item_arrival_cv
from penstock.engine.sim.spec import Operator

Floats = NDArray[np.float64]
Latency = tuple[float, float, float, float]  # mean, p95, p99, maximum
_DRAWS = 2000  # items drawn per interval for the percentiles


@dataclass(frozen=True)
class InChain:
    """Where an operator stands in a chain: its head, and how many items reach it per item that enters the chain."""

    head: Node
    passed: float


def view(
    node: Node, done: Customers, length: float, now: float, noise: float, chain: InChain | None = None
) -> OperatorView | None:
    """An operator over the last interval, from those that left it (or left the head of its chain); None without any.

    Inside a chain an operator's own cost is known, but it has no queue, batch or hand-over of its own.
    """
    items = float(done.items.sum())
    if items <= 0.0:
        return None
    spec, width = node.spec, node.servers.width
    head = node if chain is None else chain.head
    passed = 1.0 if chain is None else chain.passed
    service = _mean(done.items, done.service)
    if chain is not None:
        service = spec.service_s + (spec.handover_s if node is head else 0.0)
    arrivals = head.offered * passed / length
    first = node is head
    gaps = node.servers.gaps
    return OperatorView(
        name=spec.name,
        width=width,
        lo=spec.lo,
        hi=spec.hi,
        arrivals_per_s=arrivals,
        completed_per_s=items / length * passed,
        service_s=service,
        service_cv=float(np.hypot(spec.service_cv, noise)),
        interarrival_s=width / arrivals if arrivals > 0.0 else 0.0,
        arrival_cv=item_arrival_cv(*gaps) if gaps[0] > 0.0 else spec.arrival_cv,
        wait_s=_mean(done.items, done.wait) if first else 0.0,
        batch_wait_s=_mean(done.items, done.batch) if first else 0.0,
        queue_items=sum(float(g.items[g.depart - g.service > now].sum()) for g in node.pending),
        utilisation=arrivals * service / width,
        skew=max(head.servers.load_of_busiest, 1.0),
        latency_s=(spec.window_s / 2.0) if spec.window_s > 0.0 else None,
    )


def path_latency(
    rng: np.random.Generator, source_wait: float, steps: Sequence[tuple[Node, Customers, Operator]], now: float
) -> Latency:
    """Latency along a path: means add up, percentiles by drawing one item per operator.

    A step is an operator (or a chain's head), those that left it, and the operator that emits (the chain's last). Where
    nobody left, the ages of those that wait stand for it.

    >>> path_latency(np.random.default_rng(1), 0.5, [], 0.0)
    (0.5, 0.5, 0.5, 0.5)
    """
    mean = source_wait
    drawn = np.full(_DRAWS, source_wait)
    for node, got, last in steps:
        if got.arrive.size == 0:
            waiting = Customers.joined(node.pending)
            if waiting.arrive.size:
                age = now - waiting.arrive
                mean += _mean(waiting.items, age)
                drawn += float(age.max())
            continue
        windowed = last.window_s > 0.0
        total = got.wait if windowed else got.wait + got.service
        mean += _mean(got.items, total + got.batch) + node.spec.net_s + last.window_s / 2.0
        at = np.searchsorted(np.cumsum(got.items), rng.random(_DRAWS) * float(got.items.sum()), side="right")
        at = np.minimum(at, got.arrive.size - 1)
        drawn += total[at] + _batch_delays(rng, node.batch_items, got.batch[at]) + node.spec.net_s
        drawn += last.window_s * rng.random(_DRAWS)
    p95, p99 = (float(x) for x in np.quantile(drawn, (0.95, 0.99)))
    return max(mean, 0.0), p95, p99, float(drawn.max())


def _batch_delays(rng: np.random.Generator, batch_items: float, mean: Floats) -> Floats:
    """Delays in output batches: who opened a batch waits its whole life, the others anything up to that."""
    if not mean.any():
        return mean
    uniform = rng.random(mean.size)
    opener = rng.random(mean.size) < 1.0 / batch_items
    whole = 2.0 * mean * batch_items / (batch_items + 1.0)  # the lifetime, from shipping.batch_shape
    return np.where(opener, whole, whole * uniform)


def _mean(weight: Floats, values: Floats) -> float:
    return float((weight * values).sum() / weight.sum())
