"""Latency constraint, strategy LAT of thesis 003 (section 4.6, algorithm 4.4).

::

    latency > constraint    down       too many replicas contend for the cores
    latency < constraint    up         head-room: use it for throughput
    equal                   keep

The direction is the *opposite* of the throughput strategy, and rests on contention: in a shared-memory farm the time
of an item grows with the replicas. It says nothing of queueing: where a backlog can grow, fewer replicas make
end-to-end latency worse, and the rule runs away. So ``controls="service"`` (the time of an item on its replica) is
the default; ``controls="path"`` takes the measured mean of the bound, for hosts where the thesis' premise holds.
There is no dead band: expect a cycle of +-SF around the constraint.

Without a constraint (section 5.2 names the mode and gives no algorithm) the rule is ours: WUDP's comparison, turned
round, on mean
latency: above all of the last three, down; below their mean, up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.control.checks import above
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.registry import Registration
from penstock.control.policies.spar_regulator import DOWN, KEEP, UP, Monitor, Regulator
from penstock.errors import PolicyError


def latency_step(latency_s: float, constraint_s: float) -> int:
    """Return UP, KEEP or DOWN for a mean latency.

    >>> [latency_step(ms / 1000, 0.240) for ms in (240.1, 239.9, 240)]
    [-1, 1, 0]
    """
    if latency_s > constraint_s:
        return DOWN
    return UP if latency_s < constraint_s else KEEP


def relative_latency_step(latency_s: float, history: Sequence[float]) -> int:
    """Return UP, KEEP or DOWN for a mean latency and those before it, when nobody gave a constraint (ours).

    >>> [relative_latency_step(s, (0.2, 0.3, 0.25)) for s in (0.31, 0.3, 0.2)]
    [-1, 0, 1]
    """
    if latency_s > max(history):
        return DOWN
    return UP if sum(before - latency_s for before in history) > 0 else KEEP  # below their mean, without rounding


class LatencyConstraint(Regulator):
    """The greatest width that keeps an operator's mean latency under a constraint.

    Args:
        constraint_s: seconds; None takes the tightest mean of the bounds on the operator; where there is none,
            nothing is done.
        controls: "service" or "path": which latency is compared.
        automatic: go by the latency's own history where there is no constraint.
        others: see ``Regulator``. The thesis' Nmax for this strategy is the physical cores - 1 (``spar_bounds``).

    >>> from penstock.control.decision import Decision
    >>> view = OperatorView("score", 6, 2, 7, 40.0, 40.0, 0.25, 0, 0, 0, 0, 0, 0, 1.0)
    >>> policy = LatencyConstraint(constraint_s=0.24, scaling_factor=1)
    >>> policy.decide(Observation(0.5, 0.5, {"score": view}), Decision({"score": 6})).widths
    {'score': 5}
    """

    name = "spar-latency"

    def __init__(
        self,
        *,
        constraint_s: float | None = None,
        controls: str = "service",
        automatic: bool = False,
        operator: str | None = None,
        scaling_factor: int = 2,
        every_s: float = 0.5,
        most: int | None = None,
    ) -> None:
        where = f"policy '{self.name}'"
        if controls not in ("service", "path"):
            raise PolicyError(where, f"cannot control {controls!r}", "use 'service' or 'path'")
        self._constraint_s = None if constraint_s is None else above(where, "constraint_s", constraint_s, 0.0)
        self._controls, self._automatic = controls, automatic
        super().__init__(operator=operator, scaling_factor=scaling_factor, every_s=every_s, most=most)

    def reset(self) -> None:
        """Forget the history too."""
        super().reset()
        self._history: dict[str, deque[float]] = {}

    def _latency_s(self, view: OperatorView, observed: Observation) -> float:
        if self._controls == "service":
            return view.task_latency_s
        means = [observed.latency[bound.name][0] for bound in _on(view, observed) if bound.name in observed.latency]
        return max(means, default=view.task_latency_s)

    def _step(self, view: OperatorView, monitor: Monitor, observed: Observation) -> int:
        latency = monitor.latency_s
        if not latency:  # nothing completed, or not known: the last width stands
            return KEEP
        constraint = self._constraint_s
        if constraint is None:
            constraint = min((bound.mean_s for bound in _on(view, observed) if bound.mean_s is not None), default=None)
        if constraint is not None:
            return latency_step(latency, constraint)
        history = self._history.setdefault(view.name, deque(maxlen=3))
        step = relative_latency_step(latency, history) if self._automatic and len(history) == 3 else KEEP
        history.append(latency)
        return step


def _on(view: OperatorView, observed: Observation) -> list[Bound]:
    return [bound for bound in observed.bounds if view.name in bound.operators]


REGISTRATIONS = [
    Registration(
        LatencyConstraint.name,
        LatencyConstraint,
        thesis="003, section 4.6",
        observes=("service_s", "latency_s", "completed_per_s", "bounds", "latency"),
        decides=("widths",),
        needs=("constraint_s, a latency requirement, or automatic=True", "a host where replicas contend for the cores"),
    )
]
