"""Two policies that do not react: the width that was given, and the width for a peak that was announced.

`static` is what most people run. `peak-load` is told the greatest rate beforehand and provides for it for good: no
policy without that knowledge can be blamed for not matching it, so comparisons list it apart from the causal ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.baseline_common import clamped, elastic_views, with_widths
from penstock.control.policies.registry import Registration


class FixedWidth:
    """Keeps the widths it is given, or those it finds.

    >>> FixedWidth(widths={"score": 4}).decide(None, Decision({"score": 1})).widths
    {'score': 4}
    """

    def __init__(self, *, widths: Mapping[str, int] | None = None) -> None:
        self._widths = {name: int(at_least("policy 'static'", name, w, 1)) for name, w in (widths or {}).items()}

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The same widths whatever happens."""
        return with_widths(current, self._widths) if self._widths else current


class PeakLoad:
    """Provides each operator for an announced peak: ceil(peak x S x skew / utilisation), the most ever needed so far.

    >>> from penstock.control.observation import OperatorView
    >>> view = OperatorView("a", 2, 1, 64, 100.0, 100.0, 0.01, 1.0, 0.02, 1.0, 0.0, 0.0, 0.0, 0.5)
    >>> PeakLoad(peak_per_s=800.0).decide(Observation(5.0, 5.0, {"a": view}), Decision({"a": 2})).widths
    {'a': 10}
    """

    def __init__(self, *, peak_per_s: float, utilisation: float = 0.8) -> None:
        self._peak = above("policy 'peak-load'", "peak_per_s", peak_per_s, 0.0)
        self._utilisation = above("policy 'peak-load'", "utilisation", utilisation, 0.0)
        self.reset()

    def reset(self) -> None:
        """Forget the greatest need seen."""
        self._most: dict[str, int] = {}
        self._seen = 0.0

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The width for the peak; it only ever grows (service times may rise too)."""
        if observed is None:
            return current
        views = elastic_views(observed)
        first = max((v.arrivals_per_s for v in observed.operators.values()), default=0.0)
        for view in views:
            if view.service_s <= 0.0 or first <= 0.0:
                continue
            peak = self._peak * view.arrivals_per_s / first  # operators behind a filter get their share of the peak
            need = clamped(view, math.ceil(peak * view.service_s * view.skew / self._utilisation))
            self._most[view.name] = max(self._most.get(view.name, 0), need)
        return with_widths(current, self._most)


REGISTRATIONS = (
    Registration("static", FixedWidth, thesis="baseline", observes=(), decides=("widths",)),
    Registration(
        "peak-load",
        PeakLoad,
        thesis="baseline: knows the peak beforehand",
        observes=("arrivals_per_s", "service_s", "skew"),
        decides=("widths",),
        needs=("peak_per_s: the greatest rate to come",),
    ),
)
