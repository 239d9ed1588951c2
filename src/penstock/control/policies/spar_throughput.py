"""Target throughput, strategy TT of thesis 003 (section 4.5, algorithm 4.2; monitor: algorithm 4.3).

::

    T < target                  up
    T > target + 0.20 target    down
    else                        keep       (both ends of the band included)

The 20 % are an empirical best for video; it stays a parameter. The target may change while the stream runs: it is
read at each iteration. Where the target cannot be reached N stays at Nmax: accepted behaviour, not a failure. An
unreachable target is the thesis' maximum-performance mode.
"""

from __future__ import annotations

from penstock.control.checks import above, at_least
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.registry import Registration
from penstock.control.policies.spar_regulator import DOWN, KEEP, UP, Monitor, Regulator


def throughput_step(throughput: float, target: float, tolerance: float = 0.20) -> int:
    """Return UP, KEEP or DOWN for a measured throughput.

    >>> [throughput_step(t, 60.0) for t in (0.0, 59.9, 60.0, 66.0, 72.0, 72.1)]
    [1, 1, 0, 0, 0, -1]
    """
    if throughput < target:
        return UP
    return DOWN if throughput > target + tolerance * target else KEEP


class TargetThroughput(Regulator):
    """Holds the throughput of an operator between its target and 20 % above.

    Args:
        target_per_s: items per second; None takes the observation's requirement for the operator.
        tolerance: the width of the band above the target.
        cap_at_arrivals: also count the target as met when nothing waits and all that arrives is completed. Not in the
            thesis,
            whose sources are always ready: with a slower source its rule drives N to Nmax for nothing.
        others: see ``Regulator``.

    >>> from penstock.control.decision import Decision
    >>> view = OperatorView("score", 8, 2, 14, 50.0, 50.0, 0.1, 0, 0.16, 0, 0, 0, 0, 1.0)
    >>> policy = TargetThroughput(target_per_s=60.0)
    >>> policy.decide(Observation(0.5, 0.5, {"score": view}), Decision({"score": 8})).widths
    {'score': 10}
    >>> policy.set_target(40.0)                      # 50 is above 1.2 x 40
    >>> policy.decide(Observation(1.0, 0.5, {"score": view}), Decision({"score": 10})).widths
    {'score': 8}
    """

    name = "spar-throughput"

    def __init__(
        self,
        *,
        target_per_s: float | None = None,
        tolerance: float = 0.20,
        cap_at_arrivals: bool = False,
        operator: str | None = None,
        scaling_factor: int = 2,
        every_s: float = 0.5,
        most: int | None = None,
    ) -> None:
        super().__init__(operator=operator, scaling_factor=scaling_factor, every_s=every_s, most=most)
        self._tolerance = at_least(f"policy '{self.name}'", "tolerance", tolerance, 0.0)
        self._cap_at_arrivals = cap_at_arrivals
        self._target: float | None = None
        if target_per_s is not None:
            self.set_target(target_per_s)

    def set_target(self, target_per_s: float) -> None:
        """Change the target of the running stream; it holds from the next iteration."""
        self._target = above(f"policy '{self.name}'", "target_per_s", target_per_s, 0.0)

    def _step(self, view: OperatorView, monitor: Monitor, observed: Observation) -> int:
        target = self._target if self._target is not None else observed.target_per_s.get(view.name)
        throughput = monitor.throughput
        if target is None or throughput is None:
            return KEEP
        if self._cap_at_arrivals and view.queue_items + observed.backlog_items <= 0:
            target = min(target, throughput)
        return throughput_step(throughput, target, self._tolerance)


REGISTRATIONS = [
    Registration(
        TargetThroughput.name,
        TargetThroughput,
        thesis="003, section 4.5",
        observes=("completed_per_s", "target_per_s", "queue_items", "backlog_items"),
        decides=("widths",),
        needs=("target_per_s, or a throughput requirement",),
    )
]
