"""Thesis 004's MAPE controller as a policy (chapter 7), as printed, and with the guards that its evaluation asks for.

Literal: every second; the size it counts from is the *desired* one, which the last decision set, so two decisions can
stack before the first has taken effect (the thesis saw two +4 within one sample); steps are whole or none below a
strict bound.

Guarded (an extension): steps are clamped to the operator's bounds and count from the actual size; nothing is decided
while the last decision has not taken effect, nor by an interval in which the size changed, nor within ``cool_down_s``
of the last change; and with ``least_gain`` a stage that gained too little from its last additions is not widened
again: with Lane Detection, which does not scale beyond 8 processes, the printed rule climbs to its cap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.mpr_planner import plan_clamped, plan_literal, ratio_of
from penstock.control.policies.registry import Registration
from penstock.control.policies.spar_regulator import Cadence, Monitor


class Mape:
    """The planner as printed: throughput against a goal, one of seven steps, every second.

    Args:
        goal_per_s: items per second; None takes the observation's requirement for the operator.
        operator: the operator to control; None controls every one that has a goal.
        every_s: the loop's period (T_mape, 1 s in the thesis).
        bound: the strict upper bound of the printed rule (48). An operator's own bounds hold as well.

    >>> view = OperatorView("score", 1, 1, 64, 9.0, 3.0, 0.3, 0, 0, 0, 0, 0, 0, 1.0)
    >>> policy, decision = Mape(goal_per_s=10.0), Decision({"score": 1})
    >>> for now in (1.0, 2.0):                  # the size has not changed yet, and it decides again
    ...     decision = policy.decide(Observation(now, 1.0, {"score": view}), decision)
    >>> decision.widths
    {'score': 9}
    """

    name = "mpr-mape"

    def __init__(
        self,
        *,
        goal_per_s: float | None = None,
        operator: str | None = None,
        every_s: float = 1.0,
        bound: int = 48,
    ) -> None:
        where = f"policy '{self.name}'"
        self._goal = None if goal_per_s is None else above(where, "goal_per_s", goal_per_s, 0.0)
        self._operator = operator
        self._every_s = above(where, "every_s", every_s, 0.0)
        self._bound = int(at_least(where, "bound", bound, 2))
        self.reset()

    def reset(self) -> None:
        """Forget what was measured."""
        self._cadence = Cadence(self._every_s)
        self._monitors: dict[str, Monitor] = {}

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """Return the current decision with the planned widths."""
        if observed is None:
            return current
        views = [view for view in observed.operators.values() if self._operator in (None, view.name)]
        for view in views:
            monitor = self._monitors.setdefault(view.name, Monitor())
            monitor.add(items=view.completed_per_s * observed.interval_s, seconds=observed.interval_s)
        if not self._cadence.due(observed.now_s):
            return current
        widths = dict(current.widths)
        for view in views:
            goal = self._goal if self._goal is not None else observed.target_per_s.get(view.name)
            throughput = self._monitors.pop(view.name).throughput
            if goal and throughput is not None:
                desired = widths.get(view.name, view.width)
                widths[view.name] = self._plan(view, desired, throughput, goal, observed.now_s)
        return replace(current, widths=widths)

    def _plan(self, view: OperatorView, desired: int, throughput: float, goal: float, now_s: float) -> int:
        planned = plan_literal(desired, ratio_of(throughput, goal), min(self._bound, view.hi + 1))
        return max(planned, view.lo)


@dataclass
class _Memory:
    """What the guarded controller remembers of one operator."""

    width: int  # as last seen
    changed_s: float = float("-inf")  # when the width last changed, or was last decided to
    before: tuple[int, float] | None = None  # width and throughput when processes were last added
    futile: tuple[int, float, float] | None = None  # width, throughput and goal at which adding did not help


class GuardedMape(Mape):
    """The planner with clamped steps, the actual size, a cool-down, and an eye on whether adding helps.

    Args:
        cool_down_s: no new decision for an operator within this time of its last change.
        least_gain: an addition must bring at least this share of the throughput that the same share of processes
            promises;
            0 believes in any gain. When it did not, nothing is added until throughput or goal have moved by 25 %.
        others: see ``Mape``.

    >>> view = OperatorView("score", 1, 1, 64, 9.0, 3.0, 0.3, 0, 0, 0, 0, 0, 0, 1.0)
    >>> policy, decision = GuardedMape(goal_per_s=10.0), Decision({"score": 1})
    >>> for now in (1.0, 2.0):
    ...     decision = policy.decide(Observation(now, 1.0, {"score": view}), decision)
    >>> decision.widths
    {'score': 5}
    """

    name = "mpr-mape-guarded"

    def __init__(
        self,
        *,
        goal_per_s: float | None = None,
        operator: str | None = None,
        every_s: float = 1.0,
        cool_down_s: float = 0.0,
        least_gain: float = 0.0,
    ) -> None:
        self._cool_down_s = at_least(f"policy '{self.name}'", "cool_down_s", cool_down_s, 0.0)
        self._least_gain = at_least(f"policy '{self.name}'", "least_gain", least_gain, 0.0)
        super().__init__(goal_per_s=goal_per_s, operator=operator, every_s=every_s)
        self._patience_s = 10.0 * self._every_s  # a size that has not come by then will not come: go on from the actual

    def reset(self) -> None:
        """Forget the operators too."""
        super().reset()
        self._memory: dict[str, _Memory] = {}

    def _plan(self, view: OperatorView, desired: int, throughput: float, goal: float, now_s: float) -> int:
        memory = self._memory.setdefault(view.name, _Memory(view.width))
        if view.width != memory.width:  # the interval spans the change: its throughput belongs to neither size
            memory.width, memory.changed_s = view.width, now_s
            return desired
        waited_s = now_s - memory.changed_s
        if waited_s < self._cool_down_s or (view.width != desired and waited_s < self._patience_s):
            return desired
        self._judge(memory, view.width, throughput, goal)
        planned = plan_clamped(view.width, ratio_of(throughput, goal), view.lo, view.hi)
        if planned > view.width and memory.futile is not None:
            return desired
        if planned > view.width:
            memory.before = (view.width, throughput)
        if planned != view.width:
            memory.changed_s = now_s
        return planned

    def _judge(self, memory: _Memory, width: int, throughput: float, goal: float) -> None:
        """Note whether the last addition paid; forget an old verdict once load or goal have changed."""
        if memory.before is not None:
            old_width, old_throughput = memory.before
            promised = (width / old_width - 1.0) * self._least_gain
            if width > old_width and throughput < old_throughput * (1.0 + promised):
                memory.futile = (width, throughput, goal)
            memory.before = None
        if memory.futile is not None:
            futile_width, then, then_goal = memory.futile
            if width < futile_width or abs(throughput - then) > 0.25 * then or abs(goal - then_goal) > 0.25 * then_goal:
                memory.futile = None


_OBSERVES = ("completed_per_s", "target_per_s", "width")
_NEEDS = ("goal_per_s, or a throughput requirement",)
REGISTRATIONS = [
    Registration(
        Mape.name, Mape, thesis="004, section 7.1, as printed", observes=_OBSERVES, decides=("widths",), needs=_NEEDS
    ),
    Registration(
        GuardedMape.name,
        GuardedMape,
        thesis="004, section 7.1, with guards (ours)",
        observes=_OBSERVES,
        decides=("widths",),
        needs=_NEEDS,
    ),
]
