"""What `Adaptive` learns about one operator: its rate to come, room for bursts, how far the model is off, the lag."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from penstock.control.forecast import Recurrence, Trend, steps_of
from penstock.control.models.kingman import kingman_wait
from penstock.control.observation import OperatorView
from penstock.control.reserve import Reserve

_CALM_CHANGE = 0.15  # a rate that moves less than this between intervals is calm
_HOLD = 6  # intervals over which a lower need must have lasted
_BRIEF = 2  # the same where changes have turned out to cost nothing
_TRUST = 2  # jumps in a row that came when they were due, before one relies on it
_SHORTEST = 0.15  # a jump is seen for at least this share of the interval in which it happens
_SIGMAS = 2.6  # an interval's mean stays within so many deviations in 99.5 % of intervals


@dataclass
class Need:
    """What the coming intervals ask of an operator: rates to provide for, per second."""

    soon: float  # within the time it takes to react
    later: float  # a little further: what to widen to, once one has to
    room: float  # more than that, for bursts that no forecast sees
    hot: float  # share of the hottest key


class Learner:
    """State of one operator, fed once per interval. `instant`: a decision works from the next interval on."""

    def __init__(self, price: float, *, instant: bool = False) -> None:
        self.trend = Trend()
        self.reserve = Reserve(price=price)
        self.recurrence = Recurrence()
        self._lag_s: float | None = 0.0 if instant else None
        self.wanted: deque[int] = deque(maxlen=_HOLD)
        self.bare: deque[int] = deque(maxlen=_HOLD)  # the same without room for the stop of a change
        self._ordered: tuple[float, int] | None = None  # a widening under way: (when, to what)
        self._fit = 0.0  # log of measured wait / modelled wait
        self._stops = 0  # changes of width that were seen in calm
        self._stop = 0.0  # what a change of width adds to the mean wait of its interval, times 1 - rho
        self.stop_guess_s = 0.0  # the same as long as no change was seen
        self._steps = 0
        self._regular = False  # whether jumps come at regular times just now
        self._jump: tuple[int, float, float] | None = None  # a jump under way: (step, rate before, most since)
        self._calm = 0
        self.excess_s = 0.0  # subtask-seconds paid for more than what is needed but for the stop of a change
        self.short = 0  # intervals in a row in which a few more subtasks would have been better
        self._last: OperatorView | None = None
        self.service_s = 0.0

    @property
    def fit(self) -> float:
        """What the modelled wait is multiplied by: how far it was off in calm intervals."""
        return math.exp(min(max(self._fit, -2.0), 1.4))

    def ordered(self, now_s: float, width: int) -> None:
        """A widening was asked for: the time until it works is the lag."""
        self._ordered = (now_s, width)

    def lag_s(self, interval_s: float) -> float:
        """Seconds from a decision until it works; as long as none was seen, a little more than an interval."""
        return 1.5 * interval_s if self._lag_s is None else self._lag_s

    def pending_s(self, now_s: float, interval_s: float) -> float:
        """Seconds until a widening that was asked for works; 0 if there is none."""
        return 0.0 if self._ordered is None else max(self._ordered[0] + self.lag_s(interval_s) - now_s, 0.0)

    def horizon(self, interval_s: float) -> int:
        """Intervals until a decision works: the lag, and the interval in which it is measured that it is needed."""
        return 1 + steps_of(self.lag_s(interval_s), interval_s)

    def add(self, view: OperatorView, now_s: float, interval_s: float) -> Need:
        """Take an interval's view; what is needed next."""
        self._learn_lag(view, now_s, interval_s)
        self._learn_stop(view)
        self._learn_fit(view)
        self._learn_service(view, interval_s)
        rate = self._rate_at_end(view, interval_s)
        horizon = self.horizon(interval_s)
        self._note_jump(rate)
        self.trend.add(rate)
        base = self.trend.level or 0.0
        due = self.recurrence.due(self._steps)
        trusted = due is not None and self.recurrence.kept >= _TRUST
        if trusted and not self._regular:
            self.reserve.explained()
        self._regular = trusted
        coming = due[1] if due is not None and due[0] <= horizon + 1 else 0.0
        if self._jump is not None:  # what was due has begun to come
            coming = max(coming - max(rate - self._jump[1], 0.0), 0.0)
        fresh = self.reserve.fresh_base(horizon)
        if fresh is not None and self.reserve.fleeting():
            soon = later = fresh  # such jumps have been over before more capacity worked
        else:
            soon = max(base, self.trend.ahead(horizon))
            later = max(soon, self.trend.ahead(horizon + 4))
        self.reserve.add(rate, max(base, self.trend.ahead(horizon)) + coming, horizon)
        # Jumps that come at regular times are met when they are due; the others need room all the time.
        room = max(coming, 0.0 if trusted else self.reserve.room(soon, horizon))
        self._last = view
        return Need(soon, later, room, hot_share(view))

    def _rate_at_end(self, view: OperatorView, interval_s: float) -> float:
        """The rate at the end of an interval: it is more than the mean if the load jumped in the middle of it.

        From r to R for the last share f of the interval, with capacity c between them, the mean rose by f (R - r) and
        the queue grew by f (R - c) per second: hence f (c - r) = rise - growth, and R = r + rise / f.
        """
        mean, last, before = view.arrivals_per_s, self._last, self.trend.level
        if last is None or before is None or last.width != view.width or self.service_s <= 0.0:
            return mean
        rise = mean - before
        growth = (view.queue_items - last.queue_items) / interval_s
        spare = view.width / self.service_s - before
        if rise <= 0.1 * before or growth <= 0.25 * rise or spare <= 0.05 * before:
            return mean
        share = min(max((rise - growth) / spare, _SHORTEST), 1.0)
        return before + rise / share

    def _note_jump(self, rate: float) -> None:
        """Tell the recurrence about jumps, with their full size: a jump takes a few intervals to show."""
        self._steps += 1
        expected = self.trend.ahead(1)
        if self._jump is not None:
            since, before, most = self._jump
            self._jump = (since, before, max(most, rate))
            if self._steps - since >= 2:
                self.recurrence.jumped(since, self._jump[2] - before)
                self._jump = None
        elif self.trend.level is not None and rate - expected > 0.08 * max(expected, 1e-9):
            self._jump = (self._steps, expected, rate)

    def wait_at(self, width: int, rate: float, hot: float, view: OperatorView, interval_s: float) -> float:
        """The wait to plan with at a width under a rate: Kingman's mean, fitted, and what an interval may scatter.

        The subtask of the hottest key is counted apart.
        """
        service = max(self.service_s, 1e-12)
        if rate <= 0.0:
            return 0.0
        cold = (1.0 - hot) * rate / width
        groups = [(1.0, cold, width)]  # share of the items, rate at one subtask, subtasks
        if hot > 0.0:
            groups = [(hot + (1.0 - hot) / width, hot * rate + cold, 1), (1.0 - hot - (1.0 - hot) / width, cold, width)]
        total = 0.0
        for share, each, count in groups:
            if each <= 0.0:
                continue
            wait = kingman_wait(service, 1.0 / each, view.arrival_cv, view.service_cv)
            if math.isinf(wait):
                return wait
            spread = scatter(each * service, interval_s / service * count, view.arrival_cv, view.service_cv)
            total += share * wait * (1.0 + _SIGMAS * spread)
        return self.fit * total

    def mean_wait(self, width: int, rate: float, view: OperatorView) -> float:
        """The wait to expect at a width under a rate: the same without what an interval may scatter."""
        return self.wait_at(width, rate, hot_share(view), view, math.inf)

    def wait_when_busy(self, view: OperatorView, utilisation: float, interval_s: float) -> float:
        """The wait to plan with where the subtasks are so busy, whatever the width."""
        service = max(self.service_s, 1e-12)
        wait = kingman_wait(service, service / utilisation, view.arrival_cv, view.service_cv)
        spread = scatter(utilisation, interval_s / service * view.width, view.arrival_cv, view.service_cv)
        return self.fit * wait * (1.0 + _SIGMAS * spread)

    def stop_at(self, width: int, rate: float) -> float:
        """What a change to this width adds to the mean wait of the interval in which it happens.

        An operator that stands still for P seconds makes everyone wait until the backlog is gone: over an interval T
        that is P^2 / (2 (1 - rho) T) on average. P^2 / (2 T) is learnt.
        """
        utilisation = rate * self.service_s / width
        stop = self._stop if self._stops else self.stop_guess_s
        return stop / (1.0 - utilisation) if utilisation < 1.0 else math.inf

    def hold(self, width: int, rate: float, limit_s: float) -> int:
        """For how many intervals a lower need must have lasted: few where changes cost next to nothing."""
        cheap = self._stops > 0 and self.stop_at(width, rate) <= 0.03 * limit_s
        return _BRIEF if cheap else _HOLD

    def _learn_service(self, view: OperatorView, interval_s: float) -> None:
        """The service time: averaged while it only scatters as means of so many items do, else as it is now."""
        items = view.completed_per_s * interval_s
        if view.service_s <= 0.0 or items <= 0.0:
            return
        scatters = max(3.0 * view.service_cv / math.sqrt(items), 0.02)
        if self.service_s > 0.0 and abs(view.service_s / self.service_s - 1.0) <= scatters:
            self.service_s += max(1.0 / (self._steps + 1), 0.15) * (view.service_s - self.service_s)
        else:
            self.service_s = view.service_s

    def _learn_lag(self, view: OperatorView, now_s: float, interval_s: float) -> None:
        """How long a widening took.

        If there was more to do than could be done, the work tells when in the interval the new subtasks began: work =
        (old width) t + (new width) (T - t). Otherwise it is only known that it was in this interval: towards its end.
        """
        if self._ordered is None:
            return
        since, width = self._ordered
        last = self._last
        if view.width < width:
            self._ordered = None if now_s - since > 120.0 else self._ordered
            return
        self._ordered = None
        latest = max(now_s - since, 0.0)
        if last is not None and last.width < view.width and view.wait_s > 0.1 * interval_s:
            work = view.completed_per_s * view.service_s * interval_s
            began = (view.width * interval_s - work) / (view.width - last.width)
            exact = max(latest - interval_s, 0.0) + min(max(began, 0.0), interval_s)
            self._lag_s = exact if self._lag_s is None else 0.5 * (self._lag_s + exact)
        elif self._lag_s is None or not latest - interval_s <= self._lag_s <= latest:
            self._lag_s = max(latest - 0.35 * interval_s, 0.0)

    def _learn_stop(self, view: OperatorView) -> None:
        """Compare an interval in which the width changed with what the model expects without the change."""
        last = self._last
        if last is None or last.width == view.width or self._calm < 1:
            return
        if max(last.busiest, view.busiest) > 0.9 or view.skew > 1.3:
            return
        rate = max(view.arrivals_per_s, 1e-9)
        before = self.fit * kingman_wait(
            last.service_s, last.width / max(last.arrivals_per_s, 1e-9), last.arrival_cv, last.service_cv
        )
        if abs(rate - last.arrivals_per_s) > _CALM_CHANGE * rate or last.wait_s > 2.0 * before + last.service_s:
            return  # the load moved too, or there was a backlog
        modelled = self.fit * kingman_wait(
            view.service_s, min(view.width, last.width) / rate, view.arrival_cv, view.service_cv
        )
        if math.isfinite(modelled):
            excess = max(view.wait_s - modelled, 0.0) * (1.0 - view.utilisation)
            self._stop = excess if self._stops == 0 else 0.6 * self._stop + 0.4 * excess
            self._stops += 1

    def _learn_fit(self, view: OperatorView) -> None:
        """Compare the model with a calm interval: same width, steady rate, no backlog."""
        last = self._last
        calm = (
            last is not None
            and last.width == view.width
            and abs(view.arrivals_per_s - last.arrivals_per_s) <= _CALM_CHANGE * max(last.arrivals_per_s, 1e-9)
            and view.busiest < 0.95
            and view.wait_s <= 1.5 * last.wait_s + view.service_s
            and last.wait_s <= 1.5 * view.wait_s + view.service_s
            and view.queue_items * view.service_s <= 2.0 * view.width * max(view.wait_s, view.service_s)
        )
        self._calm = self._calm + 1 if calm else 0
        if self._calm < 2 or view.wait_s <= 0.0 or view.interarrival_s <= 0.0:
            return
        modelled = kingman_wait(view.service_s, view.interarrival_s, view.arrival_cv, view.service_cv)
        if not (modelled > 0.0 and math.isfinite(modelled)) or view.skew > 1.3:
            return
        error = min(max(math.log(view.wait_s / modelled), -2.0), 2.0)
        self._fit += 0.15 * (error - self._fit)


def hot_share(view: OperatorView) -> float:
    """The share of the hottest key: the busiest of p subtasks has 1 + h (p - 1) times the mean load.

    >>> hot_share(OperatorView("v", 5, 1, 8, 1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.1, skew=2.0))
    0.25
    """
    hot = (view.skew - 1.0) / (view.width - 1.0) if view.width > 1 and view.skew > 1.02 else 0.0
    return min(max(hot, 0.0), 1.0)


def scatter(utilisation: float, services: float, arrival_cv: float, service_cv: float) -> float:
    """Coefficient of variation of the mean wait over a span that is `services` service times long (times subtasks).

    For M/M/1 the integral of the queue length has the asymptotic variance 2 rho (1 + rho) / (1 - rho)^4 per service
    time (Whitt, "Planning queueing simulations", 1989); divided by the squared mean length that is

        cv^2 = 2 (1 + rho) / (rho (1 - rho)^2 n) x (cA^2 + cS^2) / 2

    >>> round(scatter(0.8, 2500.0, 1.0, 1.0), 2)
    0.21
    """
    if utilisation <= 0.0 or services <= 0.0:
        return 0.0
    idle = max(1.0 - utilisation, 1e-6)
    spread = (arrival_cv * arrival_cv + service_cv * service_cv) / 2.0
    return min(math.sqrt(2.0 * (1.0 + utilisation) * spread / (utilisation * idle * idle * services)), 3.0)
