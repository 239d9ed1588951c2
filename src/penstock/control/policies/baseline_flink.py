"""The Flink autoscaler's rule, from its documented defaults: long windows, utilisation 0.7, delayed scale-down.

    capacity = lag / catch-up + rate x restart / catch-up + rate / target utilisation
    wanted   = ceil(width x capacity / true rate of the whole operator)

Rates are means over the metric window; within the utilisation band (0.7 - 0.3 to 0.7 + 0.3) nothing happens; a step
down keeps at least 1 - 0.6 of the width, and goes no lower than the greatest wish of the last hour. `flink` has these
defaults, which react in tens of minutes; `flink-quick` has the same rule with times that suit a latency bound.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.baseline_common import clamped, elastic_views, with_widths
from penstock.control.policies.registry import Registration


class FlinkAutoscaler:
    """DS2's true rates with lag, restart time, a utilisation band and a delayed scale-down.

    >>> from penstock.control.observation import OperatorView
    >>> view = OperatorView("a", 2, 1, 64, 300.0, 200.0, 0.01, 1.0, 0.02, 1.0, 0.0, 0.0, 0.0, 1.5)
    >>> policy = FlinkAutoscaler(window_s=5.0, stabilise_s=0.0)
    >>> policy.decide(Observation(5.0, 5.0, {"a": view}), Decision({"a": 2})).widths
    {'a': 5}
    """

    def __init__(
        self,
        *,
        window_s: float = 900.0,
        stabilise_s: float = 300.0,
        utilisation: float = 0.7,
        band: float = 0.3,
        catch_up_s: float = 1800.0,
        restart_s: float = 300.0,
        most_down: float = 0.6,
        down_delay_s: float = 3600.0,
    ) -> None:
        where = "policy 'flink'"
        self._window_s = above(where, "window_s", window_s, 0.0)
        self._stabilise_s = at_least(where, "stabilise_s", stabilise_s, 0.0)
        self._target = above(where, "utilisation", utilisation, 0.0)
        self._band = at_least(where, "band", band, 0.0)
        self._catch_up_s = above(where, "catch_up_s", catch_up_s, 0.0)
        self._restart_s = at_least(where, "restart_s", restart_s, 0.0)
        self._most_down = at_least(where, "most_down", most_down, 0.0)
        self._down_delay_s = at_least(where, "down_delay_s", down_delay_s, 0.0)
        self.reset()

    def reset(self) -> None:
        """Forget measurements and wishes."""
        self._seen: dict[str, deque[tuple[float, float, float]]] = {}
        self._wishes: dict[str, deque[tuple[float, int]]] = {}
        self._changed_s = -math.inf

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The rule, once the window is full and the last change has settled."""
        if observed is None:
            return current
        now = observed.now_s
        widths: dict[str, int] = {}
        for view in elastic_views(observed):
            seen = self._seen.setdefault(view.name, deque())
            seen.append((now, view.arrivals_per_s, view.service_s))
            while seen and seen[0][0] <= now - self._window_s:
                seen.popleft()
            settled = now - max(self._changed_s, 0.0) >= self._stabilise_s
            full = now - seen[0][0] + observed.interval_s >= min(self._window_s, max(self._stabilise_s, 1.0))
            if not (settled and full):
                continue
            widths[view.name] = self._wish(view, now, int(current.widths.get(view.name, view.width)))
        if any(w != int(current.widths.get(name, w)) for name, w in widths.items()):
            self._changed_s = now
            for name in widths:
                self._seen[name].clear()
        return with_widths(current, widths)

    def _wish(self, view: OperatorView, now: float, ordered: int) -> int:
        seen = self._seen[view.name]
        rate = sum(r for _, r, _ in seen) / len(seen)
        service = sum(s for _, _, s in seen) / len(seen)
        if service <= 0.0:
            return ordered
        true_rate = ordered / service
        busy = rate / true_rate
        lag = view.queue_items
        low, high = self._target - self._band, self._target + self._band
        capacity = lag / self._catch_up_s + rate * self._restart_s / self._catch_up_s + rate / self._target
        wish = ordered if low <= busy <= high else math.ceil(ordered * capacity / true_rate)
        wish = clamped(view, max(wish, math.ceil(ordered * (1.0 - self._most_down)), 1))
        wishes = self._wishes.setdefault(view.name, deque())
        wishes.append((now, wish))
        while wishes and wishes[0][0] <= now - self._down_delay_s:
            wishes.popleft()
        if wish < ordered:
            if now < self._down_delay_s:
                return ordered
            return min(ordered, max((w for _, w in wishes), default=wish))
        return wish


def _quick(**params: Any) -> FlinkAutoscaler:
    """The same rule with a window of a minute instead of a quarter of an hour."""
    quick = {
        "window_s": 30.0,
        "stabilise_s": 15.0,
        "catch_up_s": 60.0,
        "restart_s": 8.0,
        "down_delay_s": 60.0,
        "band": 0.15,
    }
    return FlinkAutoscaler(**{**quick, **params})


_OBSERVES = ("arrivals_per_s", "service_s", "queue_items")
REGISTRATIONS = (
    Registration("flink", FlinkAutoscaler, thesis="Flink autoscaler", observes=_OBSERVES, decides=("widths",)),
    Registration(
        "flink-quick", _quick, thesis="Flink autoscaler, quick settings", observes=_OBSERVES, decides=("widths",)
    ),
)
