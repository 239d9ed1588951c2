"""Without user-defined parameters, strategy WUDP of thesis 003 (section 4.7, algorithm 4.5).

::

    T < any of the previous three samples (T < their maximum)    up
    else T > their mean                                          down
    else                                                         keep

The first test wins, so *down* needs a fresh peak: rising performance frees replicas, falling performance adds them.
Exactly constant throughput keeps N for ever. "Lower than one of the previous" is read as *any*; ``compare="last"`` is
the other reading. Until three samples exist nothing is decided (our reading). Under noise the newest of four equal
samples is the largest with probability 1/4: about three iterations of four ask for more, and N hovers just below
Nmax.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.control.checks import at_least
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.registry import Registration
from penstock.control.policies.spar_regulator import DOWN, KEEP, UP, Monitor, Regulator
from penstock.errors import PolicyError


def wudp_step(throughput: float, history: Sequence[float], compare: str = "any") -> int:
    """Return UP, KEEP or DOWN for a throughput and the samples before it, oldest first.

    >>> [wudp_step(t, (50, 60, 55)) for t in (59, 60, 70)], wudp_step(61, (40, 60, 80)), wudp_step(60, (60, 60, 60))
    ([1, -1, -1], 1, 0)
    """
    if throughput < (max(history) if compare == "any" else history[-1]):
        return UP
    # T > mean, as a sum of differences: a mean of equal numbers may be rounded, their differences are exactly 0
    return DOWN if sum(throughput - before for before in history) > 0 else KEEP


class Wudp(Regulator):
    """Compares the throughput of an operator with its own last samples; needs no number from the user.

    Args:
        depth: how many samples before the current one are compared (3 in the thesis).
        compare: "any" of them, or only the "last".
        others: see ``Regulator``.

    >>> from penstock.control.decision import Decision
    >>> policy, decision = Wudp(), Decision({"score": 8})
    >>> for second, rate in enumerate((50.0, 60.0, 55.0, 59.0)):
    ...     view = OperatorView("score", 8, 2, 14, rate, rate, 0.1, 0, 0, 0, 0, 0, 0, 1.0)
    ...     decision = policy.decide(Observation(second, 1.0, {"score": view}), decision)
    >>> decision.widths, policy.iterations, policy.adaptations
    ({'score': 10}, 4, 1)
    """

    name = "spar-wudp"

    def __init__(
        self,
        *,
        depth: int = 3,
        compare: str = "any",
        operator: str | None = None,
        scaling_factor: int = 2,
        every_s: float = 0.5,
        most: int | None = None,
    ) -> None:
        self._depth = int(at_least(f"policy '{self.name}'", "depth", depth, 1))
        if compare not in ("any", "last"):
            raise PolicyError(f"policy '{self.name}'", f"cannot compare with {compare!r}", "use 'any' or 'last'")
        self._compare = compare
        super().__init__(operator=operator, scaling_factor=scaling_factor, every_s=every_s, most=most)

    def reset(self) -> None:
        """Forget the history too."""
        super().reset()
        self._history: dict[str, deque[float]] = {}

    def _step(self, view: OperatorView, monitor: Monitor, observed: Observation) -> int:
        throughput = monitor.throughput
        if throughput is None:
            return KEEP
        history = self._history.setdefault(view.name, deque(maxlen=self._depth))
        step = wudp_step(throughput, history, self._compare) if len(history) == self._depth else KEEP
        history.append(throughput)
        return step


REGISTRATIONS = [
    Registration(Wudp.name, Wudp, thesis="003, section 4.7", observes=("completed_per_s",), decides=("widths",))
]
