"""How much room to keep for bursts that no forecast sees: learnt from the bursts there were.

Every interval the reserve learns by how much the rate exceeded its forecast within the reaction time (H intervals: how
long it takes until more capacity works). Keeping room for a more items per second costs a / rate of the capacity now in
use, all the time; a burst that exceeds the room breaks the bound for about H + 2 intervals. With `price` what a broken
interval is worth, in intervals at the present capacity, and P(a) the learnt chance that an interval sees a burst beyond
a, the room is what makes

    a / rate + price (H + 2) / H P(a)

least: the newsvendor's problem with a learnt demand. What was seen at other levels counts less (a burst on top of a
burst is rare), and a burst seen only once is no habit yet: P counts it for less than one.
"""

from __future__ import annotations

import math
from collections import deque

from penstock.control.checks import above, at_least

_MEMORY = 240  # intervals remembered
_CALM = 10.0  # intervals without a burst that are assumed before the first measurement
_ONCE = 0.6  # what a burst counts for that was seen only once
_LIKE = 0.25  # levels within a factor e^0.25 = 1.3 count as alike


class Reserve:
    """Room for bursts, in items per second above the forecast.

    >>> reserve = Reserve(price=20.0)
    >>> for _ in range(4):
    ...     for rate in [100.0] * 10 + [250.0] * 2:
    ...         reserve.add(rate, forecast=rate, horizon=2)
    >>> 140.0 <= reserve.room(100.0, 2) <= 150.0, reserve.room(250.0, 2)
    (True, 0.0)
    """

    def __init__(self, *, price: float = 20.0) -> None:
        self.price = above("reserve", "price", price, 0.0)
        self._forecasts: deque[float] = deque(maxlen=64)
        self._rates: deque[float] = deque(maxlen=64)
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MEMORY)  # (level, excess)
        self._open: list[tuple[int, float, float]] = []  # jumps under way: (since step, base, size)
        self._lasting: deque[bool] = deque(maxlen=8)
        self._step = 0

    def add(self, rate: float, forecast: float, horizon: int) -> None:
        """Take an interval's rate and the forecast that is made now for the intervals to come.

        >>> Reserve().add(10.0, 10.0, 1)
        """
        at_least("reserve", "rate", rate, 0.0)
        self._step += 1
        before = self._forecasts[-1] if self._forecasts else rate
        self._rates.append(rate)
        if len(self._forecasts) >= horizon:
            level = self._forecasts[-horizon]
            most = max(list(self._rates)[-horizon:])
            self._samples.append((level, most - level))
        self._forecasts.append(forecast)
        if rate > 1.25 * before and before > 0.0:
            self._open.append((self._step, before, rate - before))
        for since, base, size in list(self._open):
            if self._step - since >= horizon + 1:
                self._lasting.append(rate >= base + 0.5 * size)
                self._open.remove((since, base, size))

    def room(self, level: float, horizon: int) -> float:
        """Items per second to keep free above a forecast of `level`.

        >>> Reserve().room(100.0, 2)
        0.0
        """
        if level <= 0.0 or not self._samples:
            return 0.0
        alike = [(_alike(seen, level), excess) for seen, excess in self._samples]
        weight = sum(w for w, _ in alike) + _CALM
        slack = 0.1 * level  # bursts so small are within what the queues take
        candidates = sorted({max(excess - 0.5 * slack, 0.0) for _, excess in alike if excess > slack})
        best, least = 0.0, self._loss(0.0, alike, weight, level, horizon, slack)
        for room in candidates:
            loss = self._loss(room, alike, weight, level, horizon, slack)
            if loss < least:
                best, least = room, loss
        return best

    def explained(self) -> None:
        """The jumps so far have turned out to follow a rule that a forecast knows: no room is needed for them.

        >>> reserve = Reserve()
        >>> for rate in (100.0, 100.0, 180.0, 100.0, 100.0, 180.0, 100.0):
        ...     reserve.add(rate, 100.0, 1)
        >>> reserve.explained(); reserve.room(100.0, 1)
        0.0
        """
        self._samples = deque(((level, min(excess, 0.0)) for level, excess in self._samples), maxlen=_MEMORY)

    def fleeting(self) -> bool:
        """Whether jumps have mostly been over before more capacity could have worked: then reacting is in vain.

        >>> Reserve().fleeting()
        False
        """
        return len(self._lasting) >= 3 and sum(self._lasting) < 0.34 * len(self._lasting)

    def fresh_base(self, horizon: int) -> float | None:
        """The rate before the jump that is under way, or None if there is none.

        >>> Reserve().fresh_base(2) is None
        True
        """
        return min((base for since, base, _ in self._open if self._step - since <= horizon), default=None)

    def _loss(
        self, room: float, alike: list[tuple[float, float]], weight: float, level: float, horizon: int, slack: float
    ) -> float:
        events = sum(w for w, excess in alike if excess > room + slack) / horizon
        counted = events - (1.0 - _ONCE) * min(events, 1.0)
        return room / level + self.price * (horizon + 2) * counted / weight


def _alike(a: float, b: float) -> float:
    """How much a level counts for another: 1 if equal, little from a factor of 2 on."""
    if a <= 0.0 or b <= 0.0:
        return 0.0
    distance = math.log(a / b) / _LIKE
    return math.exp(-0.5 * distance * distance)
