"""What stands between a policy and the host (design section 6): bounds, cool-down, maximum step, hysteresis.

A policy says what would be best now; the limiter lets through what is safe to do now. For a width p, wanted p*:

    bounds       p* is cut to [lo, hi] of the operator
    hysteresis   a change by less than the share h of p is dropped (thesis 001's prototype: 4 %)
    cool-down    after a change nothing more happens to that operator for a while, longer before a decrease
    step         a change goes at most `max_step` subtasks, or to `max_factor` times (or its inverse)

Lifetimes are cut to [0, longest] and have the same hysteresis; they are cheap to change, so nothing else holds them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.control.checks import at_least, between, ordered
from penstock.control.decision import Decision, Policy
from penstock.control.observation import Observation


class Limiter:
    """Keeps decisions within bounds and from coming too fast. It remembers when each width last changed.

    >>> from penstock.control.observation import OperatorView
    >>> def seen(now_s):
    ...     view = OperatorView("score", 4, 1, 8, arrivals_per_s=1.0, completed_per_s=1.0, service_s=0.1,
    ...         service_cv=1.0, interarrival_s=1.0, arrival_cv=1.0, wait_s=0.0, batch_wait_s=0.0, queue_items=0.0,
    ...         utilisation=0.1)
    ...     return Observation(now_s, 5.0, {"score": view})
    >>> limiter = Limiter(max_step=2, cool_down_s=10.0, hysteresis=0.04)
    >>> limiter.admit(Decision({"score": 20}), Decision({"score": 4}), seen(0.0)).widths
    {'score': 6}
    >>> limiter.admit(Decision({"score": 20}), Decision({"score": 6}), seen(5.0)).widths
    {'score': 6}
    >>> limiter.admit(Decision({"score": 20}), Decision({"score": 6}), seen(10.0)).widths
    {'score': 8}
    """

    def __init__(
        self,
        *,
        max_step: int | None = None,
        max_factor: float | None = None,
        cool_down_s: float = 0.0,
        cool_down_before_decrease_s: float | None = None,
        hysteresis: float = 0.0,
        longest_lifetime_s: float | None = None,
    ) -> None:
        where = "limiter"
        self.max_step = max_step if max_step is None else int(at_least(where, "max_step", max_step, 1))
        self.max_factor = max_factor if max_factor is None else at_least(where, "max_factor", max_factor, 1.0)
        self.rise_s = at_least(where, "cool_down_s", cool_down_s, 0.0)
        self.fall_s = self.rise_s
        if cool_down_before_decrease_s is not None:
            self.fall_s = at_least(where, "cool_down_before_decrease_s", cool_down_before_decrease_s, 0.0)
            ordered(where, "cool_down_s", self.rise_s, "cool_down_before_decrease_s", self.fall_s)
        self.hysteresis = between(where, "hysteresis", hysteresis, 0.0, 1.0)
        self.longest_s = None
        if longest_lifetime_s is not None:
            self.longest_s = at_least(where, "longest_lifetime_s", longest_lifetime_s, 0.0)
        self.reset()

    def reset(self) -> None:
        """Forget when widths changed."""
        self._changed_s: dict[str, float] = {}

    def admit(self, wanted: Decision, current: Decision, observed: Observation | None) -> Decision:
        """What of the wanted decision is let through now."""
        widths = {
            name: self._width(name, width, current.widths.get(name), observed) for name, width in wanted.widths.items()
        }
        lifetimes = {
            stream: self._lifetime(lifetime, current.lifetimes.get(stream))
            for stream, lifetime in wanted.lifetimes.items()
        }
        cut = self._lifetime(wanted.lifetime_s, current.lifetime_s)
        return replace(wanted, widths=widths, lifetimes=lifetimes, lifetime_s=cut)

    def _width(self, name: str, wanted: int, now: int | None, observed: Observation | None) -> int:
        view = None if observed is None else observed.operators.get(name)
        lo, hi = (1, None) if view is None else (view.lo, view.hi)
        allowed = max(lo, wanted if hi is None else min(wanted, hi))
        if now is None or observed is None or allowed == now:
            return allowed
        # A width outside its bounds is mended at once: hysteresis and cool-down are for choices.
        inside = lo <= now and (hi is None or now <= hi)
        if inside and (abs(allowed - now) < self.hysteresis * now or self._cooling(name, allowed > now, observed)):
            return now
        stepped = self._stepped(allowed, now) if inside else allowed
        if stepped != now:
            self._changed_s[name] = observed.now_s
        return stepped

    def _cooling(self, name: str, rising: bool, observed: Observation) -> bool:
        last = self._changed_s.get(name)
        return last is not None and observed.now_s - last < (self.rise_s if rising else self.fall_s)

    def _stepped(self, wanted: int, now: int) -> int:
        low, high = -math.inf, math.inf
        if self.max_step is not None:
            low, high = now - self.max_step, now + self.max_step
        if self.max_factor is not None:
            # Rounded away from `now`, so that a step of at least one is always open.
            low = max(low, min(now - 1, math.floor(now / self.max_factor)))
            high = min(high, max(now + 1, math.ceil(now * self.max_factor)))
        return int(min(max(wanted, low), high))

    def _lifetime(self, wanted: float, now: float | None) -> float:
        allowed = max(0.0, wanted if self.longest_s is None else min(wanted, self.longest_s))
        if now is None or not 0.0 <= now <= (math.inf if self.longest_s is None else self.longest_s):
            return allowed
        return now if abs(allowed - now) < self.hysteresis * now else allowed


class Limited:
    """A policy behind a limiter: itself a policy.

    >>> from penstock.control.decision import Static
    >>> Limited(Static(), Limiter()).decide(None, Decision({"score": 4})).widths
    {'score': 4}
    """

    def __init__(self, policy: Policy, limiter: Limiter) -> None:
        self.policy, self.limiter = policy, limiter

    def reset(self) -> None:
        """Reset the policy, if it can be, and the limiter."""
        forget = getattr(self.policy, "reset", None)
        if forget is not None:
            forget()
        self.limiter.reset()

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """What the policy wants, as far as the limiter lets it through."""
        return self.limiter.admit(self.policy.decide(observed, current), current, observed)
