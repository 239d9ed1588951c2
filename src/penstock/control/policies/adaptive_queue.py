"""`Adaptive` on a continuous host: the least widths that keep the bounds over the time it takes to react.

Per bound, what the queues may take is what the bound leaves (`adaptive_paths`); the widths for that come from the rates
to come, with room for bursts (`adaptive_learner`), by the rules of `adaptive_widths`.

Changing has a price: every change stops an operator for a moment. So a widening goes a little further than needed now;
a narrowing waits until the lower need has lasted, and is skipped if it saves less than 10 %.

When a backlog has built up, or is sure to, the operator is made wide enough to work it off as soon as pays: an interval
that breaks the bound is worth `price` intervals of the present width (of 64 subtasks, if there are more).
"""

from __future__ import annotations

from dataclasses import replace

from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.adaptive_chains import Chains
from penstock.control.policies.adaptive_learner import Learner
from penstock.control.policies.adaptive_paths import Budgets, Path
from penstock.control.policies.adaptive_promises import Promises
from penstock.control.policies.adaptive_shipping import Shipping
from penstock.control.policies.adaptive_widths import BARE, DUE, FULL, NEXT, RISES, WidthSearch

_SURE = 3  # a little more that is needed in so many intervals in a row is no chance any more
_LITTLE = 1.1  # up to this factor it is a little
_RISING = 1.03  # a rate that grows by more than this over the forecast is rising
_STOP = 0.06  # what a change adds to the mean wait of its interval (times 1 - rho), in bounds, until one was seen
_WIDE = 64  # subtasks up to which a broken interval is worth the more the more there are
_WORTH = 0.1  # a narrowing that saves less is not worth a change


class QueuePlanner:
    """Widths, output-batch lifetimes and chains for continuous hosts."""

    def __init__(self, price: float, *, chaining: bool = True) -> None:
        self.price = price
        self._chains = Chains() if chaining else None
        self.learners: dict[str, Learner] = {}
        self._budgets = Budgets()
        self._shipping = Shipping()
        self.promises = Promises()
        self._widths: dict[str, int] = {}  # of the last interval

    def decide(self, observed: Observation, current: Decision) -> Decision:
        """The decision for the next interval."""
        self.promises.judge(observed)
        needs = {}
        for name, view in observed.operators.items():
            learner = self.learners.setdefault(name, Learner(self.price))
            learner.reserve.price = self._price(view)
            needs[name] = learner.add(view, observed.now_s, observed.interval_s)
        found = (self._budgets.path(b, observed, current, self.learners) for b in observed.bounds)
        paths = [path for path in found if path is not None]
        search = WidthSearch(self.learners, needs, observed.interval_s)
        widths = dict(current.widths)
        for view in observed.operators.values():
            mine = [p for p in paths if view.name in p.bound.operators]
            if mine and view.lo < view.hi:
                ordered = int(current.widths.get(view.name, view.width))
                # Who ships output batches starts new subtasks beside the old ones (001, 4.6.4): nothing stops there.
                guess = 0.0 if current.lifetimes else _STOP * min(path.limit_s for path in mine)
                self.learners[view.name].stop_guess_s = guess
                wanted = self._width(view, ordered, mine, search, observed)
                widths[view.name] = min(max(wanted, view.lo), view.hi)
        self._widths = {name: view.width for name, view in observed.operators.items()}
        chains = current.chains if self._chains is None else self._chains.decide(paths, observed, current)
        lifetimes = self._shipping.lifetimes(paths, observed, replace(current, chains=chains))
        decided = replace(current, widths=widths, lifetimes=lifetimes, chains=chains)
        self.promises.make(paths, decided, current, self.learners, observed)
        return decided

    def _width(
        self, view: OperatorView, ordered: int, paths: list[Path], search: WidthSearch, observed: Observation
    ) -> int:
        learner, need = self.learners[view.name], search.needs[view.name]
        limit = min(path.limit_s for path in paths)
        rising = need.later > _RISING * need.soon
        soon = max(search.most(view, paths, aim) for aim in ((DUE, RISES) if rising else (DUE,)))
        bare = search.most(view, paths, BARE)
        later = max(bare, search.most(view, paths, NEXT))
        learner.wanted.append(later)
        learner.bare.append(bare)
        behind = any(path.behind(view, learner.service_s) for path in paths)
        overloaded = need.soon * learner.service_s > view.width
        drain = search.drain(view, ordered, observed.now_s, self._price(view)) if behind or overloaded else 0
        learner.short = learner.short + 1 if soon > ordered else 0
        broken = not behind and self._broken(view, paths, observed)
        if broken:
            soon = max(soon, bare)
        urgent = drain > ordered or broken or rising or soon > _LITTLE * ordered
        if max(soon, drain) > ordered and (urgent or learner.short >= _SURE):
            learner.excess_s = 0.0
            target = max(soon, drain, later)
            learner.ordered(observed.now_s, target)
            return target
        hold = learner.hold(ordered, need.soon + need.room, limit)
        lower = max(list(learner.wanted)[-hold:])
        left = view.queue_items * learner.service_s / lower  # how long what waits would wait there
        if behind or view.width > ordered or left > min(path.allowed_s for path in paths):
            return ordered
        worth = _WORTH if hold > 2 else 0.3 * _WORTH
        if len(learner.wanted) >= hold and lower <= ordered - max(1.0, worth * ordered):
            learner.excess_s = 0.0
            return lower
        return self._after_all(learner, ordered, self._price(view) * observed.interval_s, observed.interval_s)

    def _broken(self, view: OperatorView, paths: list[Path], observed: Observation) -> bool:
        """Whether a bound was broken though nothing happened: no change of width, no overload, but waits too long."""
        if self._widths.get(view.name) != view.width or view.utilisation >= FULL:
            return False
        for path in paths:
            measured = observed.latency.get(path.bound.name)
            if measured is not None and measured[0] > path.limit_s and view.wait_s > path.allowed_s:
                return True
        return False

    def _price(self, view: OperatorView) -> float:
        """What a broken interval is worth, in intervals at the present width: a wide operator's is worth no more."""
        return self.price * min(1.0, _WIDE / view.width)

    def _after_all(self, learner: Learner, ordered: int, broken_s: float, interval_s: float) -> int:
        """Narrow even if the change itself breaks the bound once, when waiting has cost as much as that.

        A width that has to bear the stop of the next change may be wide for long. As with hiring and buying: go on
        until what was paid too much is the price of a broken interval, then change; at most twice what is best.
        """
        bare = max(learner.bare)
        learner.excess_s += max(ordered - bare, 0) * interval_s
        if learner.excess_s <= broken_s * bare or bare > (1.0 - _WORTH) * ordered:
            return ordered
        learner.excess_s = 0.0
        learner.wanted.clear()
        return bare
