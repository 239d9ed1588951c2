"""`Adaptive` on a micro-batch host: the least widths and the longest cycle that keep the bounds (design, section 6).

mean = C/2 + w with w = F + rho C and C = max(L, w): see `models.batch_service`. Where it is known when windows end, and
they do so seldom enough, batches are cut at their ends. The stages of a batch run one after another, so the time per
row is

    row = sum over operators of  items per row x service time x skew at the width / width

and each task costs a batch t more, an exchange as much as a task, so F grows with the widths. The least widths in
total come from the greedy rule of thesis 001 (Algorithm 7): begin at the least, give one more where it shortens a row
the most, as long as it saves more than t. The planned latency comes with the error that the model has shown, and with
what it scatters. Wider takes effect with the next batch; narrower waits until fewer have been enough for a while.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.control.decision import Decision
from penstock.control.models.batch_service import BUSIEST, BatchService, hottest_share, launches, paced_by_hottest
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.adaptive_fusing import (
    EXCHANGE_S,
    as_chained,
    chainings,
    exchanges_saved,
    with_members,
)
from penstock.control.policies.adaptive_learner import Learner
from penstock.control.policies.adaptive_limits import (
    WEIGHTS,
    Key,
    Limits,
    cycle_of,
    has_ends,
    latency_s,
    tightest,
    weight,
)
from penstock.control.policies.chaining_chains import Chain

_MARGIN = 0.93  # share of a bound that is planned with
_SLACK = 0.15  # by so much a cycle at the busiest is longer than the work of a batch
_AT_EASE = 0.5  # up to this utilisation it need not be: what a slow batch leaves behind halves with each after it
_FASTER = 0.97  # of a cycle: a wider plan that takes more is no faster
_COLD = 2  # first batches that tell nothing: code is compiled, workers start
_STEADY = 0.2  # a batch as large as this of what arrived meanwhile tells something about the model
_BACKLOG = 1.5  # more rows than so many times the usual batch are a backlog
_HOLD, _MOST_HOLD = 5, 40  # batches over which fewer tasks must have been enough, at first and at most
_REGRET = 12  # a narrowing that is taken back within so many batches was a mistake: the next one waits twice as long
_EARLY = 1.25  # a batch is cut before its time if so many times the rows planned for wait
_TOGETHER = 10  # batches that chains stay as they are if they keep the bounds
_SAME = 0.05  # lifetimes this close are the same
_SIGMAS = 2.4  # deviations that a span's mean may be above its expectation
_LONGEST_S = 30.0  # that a batch lives: longer saves next to nothing, and all its rows come at once
_RATIOS = 24  # batches over which the model's error is judged


@dataclass(frozen=True)
class Outlook:
    """What a plan is expected to give, and whether there is one. Seconds.

    >>> Outlook("mean_s", 0.9, predicted_s={"mean_s": 0.6}, least_s=0.3, parts_s={"wait": 0.2, "fixed": 0.4}).feasible
    True
    """

    kind: str  # the kind of bound that governs: "mean_s", "p95_s" or "p99_s"
    bound_s: float
    predicted_s: Mapping[str, float]  # by kind, at the present rate; empty if the rate cannot be served
    least_s: float | None  # the least latency of that kind that any plan gives here; None: the rate cannot be served
    parts_s: Mapping[str, float]  # where a row's mean latency goes: "wait", "fixed", and each operator
    every_s: float = 0.0  # of the bound that governs: how often its windows end, if batches are cut for them

    @property
    def feasible(self) -> bool:
        """Whether some plan keeps the governing bound."""
        return self.least_s is not None and self.least_s <= self.bound_s


class BatchPlanner:
    """Widths and lifetime for hosts that cut micro-batches. `outlook` says what the last plan is expected to give."""

    def __init__(self, price: float, *, batching: bool = True, scaling: bool = True, chaining: bool = True) -> None:
        self.price, self.batching, self.scaling, self.chaining = price, batching, scaling, chaining
        self.learners: dict[str, Learner] = {}
        self.outlook: Outlook | None = None
        self._fixed_s: float | None = None
        self._task_s = 0.0
        self._apart_s = 0.0  # what exchanges more (or fewer) than now will cost
        self._chained = 0  # batches since the chains changed
        self._batches = 0
        self._widths: dict[str, int] = {}
        self._wanted: dict[str, deque[int]] = {}
        self._hold: dict[str, int] = {}  # per operator, see _HOLD
        self._narrowed: dict[str, int] = {}  # the batch after which an operator became narrower
        self._ratios: dict[Key, deque[float]] = {}  # measured / modelled latency of the last batches

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The decision for the next batch."""
        views = list(observed.operators.values())
        if not views or not tightest(observed.bounds):
            return current
        known = self._fixed_s if self._fixed_s is not None else observed.fixed_s
        # The first batches of a job are slow: F may fall fast.
        self._fixed_s = known + (0.5 if observed.fixed_s < 0.7 * known else 0.2) * (observed.fixed_s - known)
        self._task_s = observed.task_s
        limits = tightest(observed.bounds, self._fixed_s if self.batching else None)
        rates = {view.name: self._rate(view, observed) for view in views}
        self._batches += 1
        if self._batches <= _COLD:
            return self._tried(views, current)
        # One batch's mean scatters; what cannot be widened is the host's own cost, fitted by it already.
        views = [v if v.lo == v.hi else replace(v, service_s=self.learners[v.name].service_s) for v in views]
        self._learn(as_chained(views, current.chains), limits, observed, current)
        allowed = {key: _MARGIN / max(self._safe(key, observed), 1.0) * limit for key, limit in limits.items()}
        chains = self._chains(views, rates, allowed, limits, observed, current)
        members, views = views, as_chained(views, chains)
        widths, caps = self._least(views, rates, allowed, limits, observed.parallelism)
        chosen = self._settled(views, widths, current) if self.scaling else widths
        lifetime = self._plan(views, rates, chosen, allowed) or 0.0
        if self.scaling and not self._next_fits(views, observed, chosen, allowed):
            # The next batch has the rows of a longer cycle: first the cycle is shortened, then the widths are.
            chosen = {v.name: max(chosen[v.name], min(v.width, v.hi)) for v in views}
        if not self.batching or abs(lifetime - current.lifetime_s) <= _SAME * current.lifetime_s:
            lifetime = current.lifetime_s
        self.outlook = self._outlook(views, limits, chosen, caps, lifetime)
        early = math.ceil(_EARLY * rates[views[0].name] * lifetime) if self.batching and lifetime > 0.0 else None
        widths = {**current.widths, **with_members(chosen, chains, members)}
        at_ends = any(has_ends(key) for key in limits)
        return replace(current, widths=widths, lifetime_s=lifetime, cut_rows=early, chains=chains, at_ends=at_ends)

    def _tried(self, views: Sequence[OperatorView], current: Decision) -> Decision:
        """In the slow first batches, run one with two tasks: code for exchanges is then there when the load rises."""
        if not self.scaling or self._batches > 2:
            return current
        width = 2 if self._batches == 1 else 1
        widths = {v.name: min(max(width, v.lo), v.hi) for v in views if v.lo < v.hi and v.lo <= 2}
        return replace(current, widths={**current.widths, **widths})

    def _least(
        self,
        views: Sequence[OperatorView],
        rates: Mapping[str, float],
        allowed: Limits,
        limits: Limits,
        slots: int,
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The least widths that keep the bounds, or those of the fastest plan if none does; and the most useful."""
        caps = {v.name: _cap(v, slots) for v in views}
        widths = {v.name: v.lo for v in views}
        if not self.scaling:
            widths = caps = {v.name: min(max(v.width, v.lo), v.hi) for v in views}
        fastest, cycle_s = dict(widths), self._model(views, rates, widths).least_cycle_s
        while self._plan(views, rates, widths, allowed) is None:
            if not self._widen(views, rates, widths, caps, limits):
                return fastest, caps
            if (wider_s := self._model(views, rates, widths).least_cycle_s) < _FASTER * cycle_s:
                fastest, cycle_s = dict(widths), wider_s
        return widths, caps

    def _chains(
        self,
        views: Sequence[OperatorView],
        rates: Mapping[str, float],
        allowed: Limits,
        limits: Limits,
        observed: Observation,
        current: Decision,
    ) -> tuple[Chain, ...]:
        """Which farms share tasks: as many as keep the bounds. Apart at once, together after a while."""
        self._chained += 1
        self._apart_s = 0.0
        ways = chainings(observed) if self.chaining else []
        if len(ways) == 0 or ways == [current.chains]:
            return current.chains
        saved = exchanges_saved(current.chains)
        work: dict[tuple[Chain, ...], float] = {}
        holds = []
        for way in ways:
            grouped = as_chained(views, way)
            self._apart_s = EXCHANGE_S * (saved - exchanges_saved(way))
            widths, _ = self._least(grouped, rates, allowed, limits, observed.parallelism)
            work[way] = self._model(grouped, rates, widths).least_cycle_s
            if self._plan(grouped, rates, widths, allowed) is not None:
                holds.append(way)
        chosen = holds[0] if holds else min(ways, key=lambda way: work[way])
        if current.chains in holds and self._chained <= _TOGETHER:
            chosen = current.chains
        if chosen != current.chains:
            self._chained = 0
        self._apart_s = EXCHANGE_S * (saved - exchanges_saved(chosen))
        return chosen

    def _widen(
        self,
        views: Sequence[OperatorView],
        rates: Mapping[str, float],
        widths: dict[str, int],
        caps: Mapping[str, int],
        limits: Limits,
    ) -> bool:
        """Give one more task where it shortens a row the most; False if it would cost a batch more than it saves."""
        best = max(views, key=lambda v: _saving(v, rates[v.name], widths[v.name], caps[v.name]))
        saved = _saving(best, rates[best.name], widths[best.name], caps[best.name])
        if saved <= 0.0 or saved * cycle_of(limits) <= self._task_s * best.tasks_each:
            return False
        widths[best.name] += 1
        return True

    def _rate(self, view: OperatorView, observed: Observation) -> float:
        """Rows per second to provide for: the rate to come, and what a backlog adds to the next batch."""
        learner = self.learners.setdefault(view.name, Learner(self.price, instant=True))
        need = learner.add(view, observed.now_s, observed.interval_s)
        soon = need.soon  # no room for bursts: wider works from the next batch on, and one batch is no interval
        usual = max(view.arrivals_per_s, soon) * observed.interval_s
        late = observed.backlog_items / observed.interval_s if observed.backlog_items > _BACKLOG * usual else 0.0
        return max(soon, late)

    def _next_fits(
        self,
        views: Sequence[OperatorView],
        observed: Observation,
        widths: Mapping[str, int],
        allowed: Limits,
    ) -> bool:
        """Whether the batch that is cut now keeps the bounds: its rows came over the last cycle, C_last.

        mean = C_last / 2 + F + rows x time per row;  quantile q = q C_last + F + rows x time per row
        of windows that have batches of their own: F + rows x time per row
        """
        rates = {v.name: v.completed_per_s for v in views}
        model = self._model(views, rates, widths)
        work = model.fixed_s + observed.backlog_items * (model.row_s if rates[views[0].name] > 0.0 else 0.0)
        return all(
            (0.0 if has_ends(key) else weight(key) * observed.interval_s) + work <= limit
            for key, limit in allowed.items()
        )

    def _plan(
        self,
        views: Sequence[OperatorView],
        rates: Mapping[str, float],
        widths: Mapping[str, int],
        allowed: Limits,
    ) -> float | None:
        """The longest lifetime that keeps the bounds; None if there is none."""
        model = self._model(views, rates, widths)
        if model.utilisation > BUSIEST:
            return None
        plain = [(weight(key), limit) for key, limit in allowed.items() if not has_ends(key)]
        found = [model.longest_lifetime_within(plain)] if plain else []
        found += [model.longest_lifetime_closing(limit, key[1]) for key, limit in allowed.items() if has_ends(key)]
        lifetime = min((one if one is not None else 0.0 for one in found), default=0.0)
        # A cycle that is all work catches up with a slow batch only as fast as the utilisation lets it.
        hurry = min(max((model.utilisation - _AT_EASE) / (BUSIEST - _AT_EASE), 0.0), 1.0)
        least = (1.0 + _SLACK * hurry) * model.least_cycle_s
        return min(lifetime, max(_LONGEST_S, least)) if lifetime >= least else None

    def _model(
        self, views: Sequence[OperatorView], rates: Mapping[str, float], widths: Mapping[str, int]
    ) -> BatchService:
        """All operators as one, for a row of the first: stages of a batch run one after another."""
        first = max(rates[views[0].name], 1e-9)
        row = sum(rates[v.name] / first * _row_s(v, widths[v.name]) for v in views)
        tasks = sum(launches(widths[v.name], v.tasks_each) for v in views if v.lo < v.hi)
        fixed = max(0.0, (self._fixed_s or 0.0) + self._apart_s)
        return BatchService(fixed + self._task_s * tasks, row, first)

    def _learn(self, views: Sequence[OperatorView], limits: Limits, observed: Observation, current: Decision) -> None:
        """How far the model is off, from batches about as large as what arrived meanwhile."""
        first = views[0]
        widths, self._widths = self._widths, {v.name: v.width for v in views}
        if widths != self._widths:  # the first batch at a new width starts workers
            return
        if abs(first.arrivals_per_s - first.completed_per_s) > _STEADY * max(first.arrivals_per_s, 1e-9):
            return
        rates = {v.name: v.completed_per_s for v in views}
        model = self._model(views, rates, {v.name: v.width for v in views})
        for bound in observed.bounds:
            for kind, measured in zip(WEIGHTS, observed.latency.get(bound.name, ())[:3], strict=False):
                key = (kind, bound.every_s or 0.0)
                if not current.at_ends or key not in limits:
                    key = (kind, 0.0)
                expected = latency_s(model, current.lifetime_s, key)
                if math.isfinite(expected) and expected > 0.0:
                    ratios = self._ratios.setdefault(key, deque(maxlen=_RATIOS))
                    ratios.append(min(max(measured / expected, 0.7), 2.0))

    def _error(self, key: Key) -> float:
        """What the modelled latency is multiplied by: its mean error, for a quantile that of the slower batches.

        A mean over some seconds is made of all their batches, a high quantile of the slowest of them.
        """
        ratios = sorted(self._ratios.get(key, ()))
        if len(ratios) < 4:
            return 1.0
        if key[0] == "mean_s":
            return sum(ratios) / len(ratios)
        # Of windows, only those that close late in a cycle tell how long the last of them take.
        return ratios[int((0.97 if has_ends(key) else 0.9) * (len(ratios) - 1))]

    def _safe(self, key: Key, observed: Observation) -> float:
        """The error to plan with: a mean is judged over a span of k batches, whose own mean scatters by s / sqrt(k)."""
        error, ratios = self._error(key), self._ratios.get(key, ())
        if key[0] != "mean_s" or len(ratios) < 4:
            return error
        over_s = min((bound.over_s for bound in observed.bounds), default=observed.interval_s)
        batches = max(over_s / observed.interval_s, 1.0)
        return error + _SIGMAS * statistics.stdev(ratios) / math.sqrt(batches)

    def _outlook(
        self,
        views: Sequence[OperatorView],
        limits: Limits,
        widths: Mapping[str, int],
        caps: Mapping[str, int],
        lifetime_s: float,
    ) -> Outlook:
        """What is to be expected at the present rate, and the least that can be had."""
        rates = {v.name: v.arrivals_per_s for v in views}
        model = self._model(views, rates, widths)
        fastest = dict(widths)
        while self._widen(views, rates, fastest, caps, limits):
            pass
        best = self._model(views, rates, fastest)
        tight: list[tuple[float, Key, float, float | None]] = []
        for key, limit in limits.items():
            least = latency_s(best, 0.0, key)
            known = least * max(self._error(key), 1.0) if math.isfinite(least) else None
            tight.append((math.inf if known is None else known / limit, key, limit, known))
        _, (kind, every_s), bound, least_s = max(tight, key=lambda found: found[0])
        predicted = {}
        for name in WEIGHTS:
            same = (name, every_s)
            value = latency_s(model, lifetime_s, same) * max(self._error(same), 0.7)
            if math.isfinite(value):
                predicted[name] = value
        parts: dict[str, float] = {}
        cycle = model.cycle_s(lifetime_s)
        if math.isfinite(cycle):
            wait = 0.5 * cycle
            if every_s > 0.0:  # a batch is cut when windows end, or when the one at work then has ended
                cycle = min(cycle, every_s)
                wait = model.closing_s(lifetime_s, every_s) - model.fixed_s - model.utilisation * cycle
            parts = {"wait": wait, "fixed": model.fixed_s}
            for view in views:
                parts[view.name] = cycle * view.arrivals_per_s * _row_s(view, widths[view.name])
        return Outlook(kind, bound, predicted, least_s, parts, every_s)

    def _settled(self, views: Sequence[OperatorView], widths: Mapping[str, int], current: Decision) -> dict[str, int]:
        """Wider at once; narrower only to what was the most needed for some batches, for more after a mistake."""
        chosen = {}
        for view in views:
            name, hold = view.name, self._hold.get(view.name, _HOLD)
            wanted = self._wanted.setdefault(name, deque(maxlen=_MOST_HOLD))
            wanted.append(widths[name])
            ordered = min(max(int(current.widths.get(name, view.width)), view.lo), view.hi)
            lately = list(wanted)[-hold:]
            chosen[name] = min(max(lately) if len(lately) == hold else max(*lately, ordered), view.hi)
            since = self._batches - self._narrowed.get(name, -_MOST_HOLD)
            if chosen[name] < ordered:
                self._narrowed[name] = self._batches
            elif chosen[name] > ordered and since <= _REGRET:
                self._hold[name] = min(2 * hold, _MOST_HOLD)
                self._narrowed[name] = self._batches - _REGRET - 1  # one mistake counts once
            elif since > _MOST_HOLD:
                self._hold[name] = _HOLD
        return chosen


def _cap(view: OperatorView, slots: int) -> int:
    """The greatest width that helps: tasks beyond the machine's slots wait for others to end."""
    return max(min(view.hi, slots), view.lo) if slots > 0 else view.hi


def _row_s(view: OperatorView, width: int) -> float:
    """Seconds that a row adds to a batch; the hottest key (share h) stays on one task: skew 1 + h (p - 1).

    Where groups of keys can be routed, only the heaviest of them (share h) sets the pace: skew max(1, h p).
    """
    total = sum(view.groups)
    if total > 0.0:
        return view.service_s * max(1.0, max(view.groups) / total * width) / width
    return paced_by_hottest(view.service_s, hottest_share(view.skew, view.width), width)


def _saving(view: OperatorView, rate: float, width: int, cap: int) -> float:
    return rate * (_row_s(view, width) - _row_s(view, width + 1)) if width < cap else 0.0
