"""DS2 (Kalavri et al., OSDI 2018): the true rate of an instance, and one pass along the flow.

The *true* rate of an operator is what it would process if it never waited: 1 / S per instance. With the source's
target rate, and each operator's output per input, in flow order:

    wanted_i = ceil(target rate into i / true rate of one instance of i)

One decision, no history, no latency: it provides for the throughput exactly, so utilisation is near 1. `ds2-roomy` is
the same with a target utilisation of 0.75, as whoever has a latency to keep would set it.
"""

from __future__ import annotations

import math
from typing import Any

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.baseline_common import clamped, elastic_views, with_widths
from penstock.control.policies.registry import Registration


class DS2:
    """ceil(arrivals x S / target utilisation), after a warm-up following each change.

    The original's target is 1; `utilisation` below 1 adds room. An operator's arrivals are what it is *offered*, so the
    ratios between operators are measured, as in the original.

    >>> from penstock.control.observation import OperatorView
    >>> view = OperatorView("a", 2, 1, 64, 750.0, 200.0, 0.01, 1.0, 0.02, 1.0, 0.0, 0.0, 0.0, 1.0)
    >>> DS2().decide(Observation(5.0, 5.0, {"a": view}), Decision({"a": 2})).widths
    {'a': 8}
    """

    def __init__(self, *, utilisation: float = 1.0, warm_up: int = 1) -> None:
        self._utilisation = above("policy 'ds2'", "utilisation", utilisation, 0.0)
        self._warm_up = int(at_least("policy 'ds2'", "warm_up", warm_up, 0))
        self.reset()

    def reset(self) -> None:
        """Forget the last change."""
        self._rest = 0

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """One pass over the elastic operators."""
        if observed is None:
            return current
        views = elastic_views(observed)
        if any(view.width != int(current.widths.get(view.name, view.width)) for view in views):
            return current  # the last decision has not taken effect yet
        if self._rest > 0:
            self._rest -= 1
            return current
        widths = {
            view.name: clamped(view, max(math.ceil(view.arrivals_per_s * view.service_s / self._utilisation), 1))
            for view in views
            if view.service_s > 0.0
        }
        if any(w != int(current.widths.get(name, w)) for name, w in widths.items()):
            self._rest = self._warm_up
        return with_widths(current, widths)


def _roomy(**params: Any) -> DS2:
    """The same with room in every instance."""
    return DS2(**{"utilisation": 0.75, **params})


_OBSERVES = ("arrivals_per_s", "service_s")
REGISTRATIONS = (
    Registration("ds2", DS2, thesis="DS2 (OSDI 2018)", observes=_OBSERVES, decides=("widths",)),
    Registration("ds2-roomy", _roomy, thesis="DS2, utilisation 0.75", observes=_OBSERVES, decides=("widths",)),
)
