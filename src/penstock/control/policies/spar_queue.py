"""Queue congestion, strategy QM of thesis 003 (section 4.4; its algorithm is on a lost page: rebuilt from the prose).

::

    index > high    up        the emitter finds the replicas' queues full
    index < low     down      they are drained easily
    else            keep      (both ends of the band included)

In the thesis the index is the number of failed pushes (push losses) of all active replicas within one iteration, and
the band is 150 000 to 200 000. Such counts belong to one machine's spin loop and one application. A host without spin
loops gives a share instead: what waits at the end of the interval against what waits and what was done, from 0
(nothing waits) to nearly 1. The band for it is ours; as in the thesis, it is to be tuned per application.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.control.checks import at_least, ordered
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.registry import Registration
from penstock.control.policies.spar_regulator import DOWN, KEEP, UP, Monitor, Regulator


def queue_step(index: float, low: float, high: float) -> int:
    """Return UP, KEEP or DOWN for a congestion index.

    >>> [queue_step(lost, 150_000, 200_000) for lost in (149_999, 150_000, 200_000, 200_001)]
    [-1, 0, 0, 1]
    """
    if index > high:
        return UP
    return DOWN if index < low else KEEP


class PushLosses:
    """Push losses of one iteration, from counters that only grow: summed over the replicas that are active now.

    >>> losses = PushLosses()
    >>> losses.since_last({0: 70_000, 1: 90_000}, active=[0, 1]), losses.since_last({0: 80_000, 1: 90_500}, active=[0])
    (160000, 10000)
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def since_last(self, counters: Mapping[int, int], active: Iterable[int]) -> int:
        """Return the growth since the last call and remember the counters."""
        grown = sum(counters[replica] - self._last.get(replica, 0) for replica in active)
        self._last = dict(counters)
        return grown


def waiting_share(queue_items: float, completed_items: float) -> float:
    """Return the share of the interval's items that still wait: the index of a host that counts no failed pushes.

    >>> waiting_share(10.0, 30.0), waiting_share(0.0, 0.0)
    (0.25, 0.0)
    """
    total = queue_items + completed_items
    return queue_items / total if total > 0 else 0.0


class QueueCongestion(Regulator):
    """Holds the share of an operator's items that wait within a band; needs no collector: for two-stage farms.

    Args:
        low: below this share, fewer replicas.
        high: above it, more.
        others: see ``Regulator``.

    >>> from penstock.control.decision import Decision
    >>> view = OperatorView("score", 8, 2, 14, 50.0, 50.0, 0.1, 0, 0, 0, 0, 0, queue_items=25.0, utilisation=1.0)
    >>> QueueCongestion().decide(Observation(0.5, 0.5, {"score": view}), Decision({"score": 8})).widths
    {'score': 10}
    """

    name = "spar-queue"

    def __init__(
        self,
        *,
        low: float = 0.05,
        high: float = 0.25,
        operator: str | None = None,
        scaling_factor: int = 2,
        every_s: float = 0.5,
        most: int | None = None,
    ) -> None:
        where = f"policy '{self.name}'"
        at_least(where, "low", low, 0.0)
        at_least(where, "high", high, 0.0)
        ordered(where, "low", low, "high", high)
        self._low, self._high = low, high
        super().__init__(operator=operator, scaling_factor=scaling_factor, every_s=every_s, most=most)

    def _step(self, view: OperatorView, monitor: Monitor, observed: Observation) -> int:
        return queue_step(waiting_share(view.queue_items, monitor.items), self._low, self._high)


REGISTRATIONS = [
    Registration(
        QueueCongestion.name,
        QueueCongestion,
        thesis="003, section 4.4",
        observes=("queue_items", "completed_per_s"),
        decides=("widths",),
        needs=("a band that fits the application",),
    )
]
