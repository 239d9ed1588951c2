"""`Adaptive` on a micro-batch host: the least width and the longest cycle that keep the bound (design, section 6).

mean = C/2 + w with w = F + rho C and C = max(L, w): see `models.batch_service`. Rates come with room for bursts, and
the planned latency with the error that the model has shown.
"""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.control.decision import Decision
from penstock.control.models.batch_service import BatchService, cheapest_plan
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.adaptive_learner import Learner

_MARGIN = 0.9
_BUSIEST = 0.85


class BatchPlanner:
    """Width and lifetime for hosts that cut micro-batches."""

    def __init__(self, price: float) -> None:
        self.price = price
        self.learners: dict[str, Learner] = {}
        self._fixed_s: float | None = None
        self._error = 1.0  # measured / modelled mean, smoothed

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The decision for the next batch."""
        views = list(observed.operators.values())
        if not views or not observed.bounds:
            return current
        fixed = observed.fixed_s
        self._fixed_s = fixed if self._fixed_s is None else 0.8 * self._fixed_s + 0.2 * fixed
        rates: dict[str, float] = {}
        for view in views:
            learner = self.learners.setdefault(view.name, Learner(self.price))
            rates[view.name] = learner.add(view, observed.now_s, observed.interval_s).soon
        slack = [b for b in observed.bounds if b.mean_s is not None or b.p95_s is not None or b.p99_s is not None]
        if not slack:
            return current
        bound = min(slack, key=lambda b: min(x for x in (b.mean_s, b.p95_s, b.p99_s) if x is not None))
        self._learn(bound.name, observed, current)
        limits = {
            name: None if value is None else _MARGIN * value / max(self._error, 1.0)
            for name, value in (("mean_s", bound.mean_s), ("p95_s", bound.p95_s), ("p99_s", bound.p99_s))
        }
        widest = max(view.hi for view in views)
        for width in range(1, widest + 1):
            model = self._model(views, rates, width)
            plan = cheapest_plan(model, [1], most_utilisation=_BUSIEST, **limits)
            if plan is not None:
                return self._settle(views, width, plan.lifetime_s, current)
        return self._settle(views, widest, 0.0, current)

    def _model(self, views: list[OperatorView], rates: dict[str, float], width: int) -> BatchService:
        """All operators as one: stages of a batch run one after another, each as wide as it may be up to `width`."""
        first = max(rates[views[0].name], 1e-9)
        row = 0.0
        for view in views:
            here = min(max(width, view.lo), view.hi)
            hot = (view.skew - 1.0) / (view.width - 1.0) if view.width > 1 else 0.0
            row += rates[view.name] / first * view.service_s * (1.0 + hot * (here - 1)) / here
        return BatchService(self._fixed_s or 0.0, row, first)

    def _learn(self, bound: str, observed: Observation, current: Decision) -> None:
        measured = observed.latency.get(bound)
        if measured is None:
            return
        views = list(observed.operators.values())
        rates = {v.name: v.completed_per_s for v in views}
        modelled = self._model(views, rates, max(v.width for v in views)).mean_s(current.lifetime_s)
        if math.isfinite(modelled) and modelled > 0.0:
            ratio = min(max(measured[0] / modelled, 0.7), 1.5)
            self._error = 0.9 * self._error + 0.1 * ratio

    def _settle(self, views: list[OperatorView], width: int, lifetime_s: float, current: Decision) -> Decision:
        widths = dict(current.widths)
        for view in views:
            want = min(max(width, view.lo), view.hi)
            wanted = self.learners[view.name].wanted
            wanted.append(want)
            ordered = int(current.widths.get(view.name, view.width))
            widths[view.name] = want if want > ordered else min(ordered, max(wanted))
        return replace(current, widths=widths, lifetime_s=max(lifetime_s, 0.0))
