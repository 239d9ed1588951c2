"""`Adaptive` on a micro-batch host: the least widths and the longest cycle that keep the bounds (design, section 6).

mean = C/2 + w with w = F + rho C and C = max(L, w): see `models.batch_service`. The stages of a batch run one after
another, so the time per row is

    row = sum over operators of  items per row x service time x skew at the width / width

and the least widths in total come from the greedy rule of thesis 001 (Algorithm 7): begin at the least, give one more
where it shortens a row the most. Rates come with room for bursts, and the planned latency with the error that the model
has shown. Wider takes effect with the next batch; narrower waits until fewer have been enough for a while.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.control.decision import Decision
from penstock.control.models.batch_service import BatchPlan, BatchService, cheapest_plan
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive_learner import Learner

_MARGIN = 0.9  # share of a bound that is planned with
_BUSIEST = 0.85  # never plan busier than this
_STEADY = 0.2  # a batch as large as this of what arrived meanwhile tells something about the model
_BACKLOG = 1.5  # more rows than so many times the usual batch are a backlog
_HOLD = 20  # batches over which fewer tasks must have been enough
_SAME = 0.05  # lifetimes this close are the same


class BatchPlanner:
    """Widths and lifetime for hosts that cut micro-batches. `feasible` says whether the last plan keeps the bounds."""

    def __init__(self, price: float) -> None:
        self.price = price
        self.learners: dict[str, Learner] = {}
        self.feasible = True
        self._fixed_s: float | None = None
        self._wanted: dict[str, deque[int]] = {}
        self._error = 1.0  # measured / modelled mean, smoothed

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The decision for the next batch."""
        views = list(observed.operators.values())
        limits = tightest(observed.bounds)
        if not views or not any(limit is not None for limit in limits.values()):
            return current
        known = self._fixed_s if self._fixed_s is not None else observed.fixed_s
        self._fixed_s = 0.8 * known + 0.2 * observed.fixed_s
        rates = {view.name: self._rate(view, observed) for view in views}
        self._learn(observed, current)
        factor = _MARGIN / max(self._error, 1.0)
        allowed = {name: None if limit is None else factor * limit for name, limit in limits.items()}
        caps = {v.name: _cap(v, observed.parallelism) for v in views}
        widths = {v.name: v.lo for v in views}
        plan = self._plan(views, rates, widths, allowed)
        while plan is None:
            best = max(views, key=lambda v: _saving(v, rates[v.name], widths[v.name], caps[v.name]))
            if _saving(best, rates[best.name], widths[best.name], caps[best.name]) <= 0.0:
                break  # wider would not be faster
            widths[best.name] += 1
            plan = self._plan(views, rates, widths, allowed)
        self.feasible = plan is not None
        chosen = self._settled(views, widths, current)
        narrowed = self._plan(views, rates, chosen, allowed)
        lifetime = narrowed.lifetime_s if narrowed is not None else 0.0
        if not self._next_fits(views, observed, chosen, allowed):
            # The next batch has the rows of a longer cycle: first the cycle is shortened, then the widths are.
            chosen = {v.name: max(chosen[v.name], min(v.width, v.hi)) for v in views}
        if abs(lifetime - current.lifetime_s) <= _SAME * current.lifetime_s:
            lifetime = current.lifetime_s
        return replace(current, widths={**current.widths, **chosen}, lifetime_s=lifetime)

    def _rate(self, view: OperatorView, observed: Observation) -> float:
        """Rows per second to provide for: the rate to come, and what a backlog adds to the next batch."""
        learner = self.learners.setdefault(view.name, Learner(self.price, instant=True))
        need = learner.add(view, observed.now_s, observed.interval_s)
        soon = need.soon + need.room
        usual = max(view.arrivals_per_s, soon) * observed.interval_s
        late = observed.backlog_items / observed.interval_s if observed.backlog_items > _BACKLOG * usual else 0.0
        return max(soon, late)

    def _next_fits(
        self,
        views: Sequence[OperatorView],
        observed: Observation,
        widths: Mapping[str, int],
        allowed: Mapping[str, float | None],
    ) -> bool:
        """Whether the batch that is cut now keeps the bounds: its rows came over the last cycle, C_last.

        mean = C_last / 2 + F + rows x time per row;  quantile q = q C_last + F + rows x time per row
        """
        rates = {v.name: v.completed_per_s for v in views}
        row = self._model(views, rates, widths).row_s if rates[views[0].name] > 0.0 else 0.0
        work = (self._fixed_s or 0.0) + observed.backlog_items * row
        weights = {"mean_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
        return all(
            limit is None or weights[name] * observed.interval_s + work <= limit for name, limit in allowed.items()
        )

    def _plan(
        self,
        views: Sequence[OperatorView],
        rates: Mapping[str, float],
        widths: Mapping[str, int],
        allowed: Mapping[str, float | None],
    ) -> BatchPlan | None:
        return cheapest_plan(self._model(views, rates, widths), [1], most_utilisation=_BUSIEST, **allowed)

    def _model(
        self, views: Sequence[OperatorView], rates: Mapping[str, float], widths: Mapping[str, int]
    ) -> BatchService:
        """All operators as one, for a row of the first: stages of a batch run one after another."""
        first = max(rates[views[0].name], 1e-9)
        row = sum(rates[v.name] / first * _row_s(v, widths[v.name]) for v in views)
        return BatchService(self._fixed_s or 0.0, row, first)

    def _learn(self, observed: Observation, current: Decision) -> None:
        """How far the model's mean is off, from batches about as large as what arrived meanwhile."""
        views = list(observed.operators.values())
        rates = {v.name: v.completed_per_s for v in views}
        first = views[0]
        if abs(first.arrivals_per_s - first.completed_per_s) > _STEADY * max(first.arrivals_per_s, 1e-9):
            return
        modelled = self._model(views, rates, {v.name: v.width for v in views}).mean_s(current.lifetime_s)
        for measured in observed.latency.values():
            if math.isfinite(modelled) and modelled > 0.0:
                ratio = min(max(measured[0] / modelled, 0.7), 1.5)
                self._error = 0.9 * self._error + 0.1 * ratio

    def _settled(self, views: Sequence[OperatorView], widths: Mapping[str, int], current: Decision) -> dict[str, int]:
        """Wider at once; narrower only to what was the most needed for some batches."""
        chosen = {}
        for view in views:
            wanted = self._wanted.setdefault(view.name, deque(maxlen=_HOLD))
            wanted.append(widths[view.name])
            ordered = min(max(int(current.widths.get(view.name, view.width)), view.lo), view.hi)
            full = len(wanted) == wanted.maxlen
            chosen[view.name] = min(max(wanted) if full else max(*wanted, ordered), view.hi)
        return chosen


def tightest(bounds: Sequence[Bound]) -> dict[str, float | None]:
    """The least limit of each kind: all rows of a batch leave together, so every bound counts for the whole of it.

    >>> tightest([Bound("a", ("x",), mean_s=2.0), Bound("b", ("y",), mean_s=1.0, p95_s=3.0)])
    {'mean_s': 1.0, 'p95_s': 3.0, 'p99_s': None}
    """
    return {
        name: min((limit for b in bounds if (limit := getattr(b, name)) is not None), default=None)
        for name in ("mean_s", "p95_s", "p99_s")
    }


def _cap(view: OperatorView, slots: int) -> int:
    """The greatest width that helps: tasks beyond the machine's slots wait for others to end."""
    return max(min(view.hi, slots), view.lo) if slots > 0 else view.hi


def _row_s(view: OperatorView, width: int) -> float:
    """Seconds that a row adds to a batch; the hottest key (share h) stays on one task: skew 1 + h (p - 1)."""
    hot = min(max((view.skew - 1.0) / (view.width - 1.0), 0.0), 1.0) if view.width > 1 else 0.0
    return view.service_s * (1.0 + hot * (width - 1)) / width


def _saving(view: OperatorView, rate: float, width: int, cap: int) -> float:
    return rate * (_row_s(view, width) - _row_s(view, width + 1)) if width < cap else 0.0
