"""A short look ahead on a rate: level and damped trend, and whether jumps come at regular times.

Holt's linear method with a damped trend (Holt 1957; Gardner and McKenzie 1985), x the newest value:

    level'  = a x + (1 - a) (level + d trend)
    trend'  = b (level' - level) + (1 - b) d trend
    ahead h = level + (d + d^2 + ... + d^h) trend

Both factors grow while the errors all have one sign (Trigg and Leach 1967: the tracking signal), so that a jump is
taken over at once and noise is smoothed.
"""

from __future__ import annotations

import math

from penstock.control.checks import at_least, between


class Trend:
    """Level and damped trend of a series, one value at a time.

    >>> trend = Trend()
    >>> for x in (10.0, 12.0, 14.0, 16.0, 18.0, 20.0):
    ...     trend.add(x)
    >>> 21.0 < trend.ahead(1) < 23.0
    True
    """

    def __init__(self, *, smoothing: float = 0.4, trending: float = 0.3, damping: float = 0.9) -> None:
        self._a = between("forecast", "smoothing", smoothing, 0.0, 1.0)
        self._b = between("forecast", "trending", trending, 0.0, 1.0)
        self._d = between("forecast", "damping", damping, 0.0, 1.0)
        self.level: float | None = None
        self.slope = 0.0
        self._error = 0.0  # smoothed error and smoothed size of errors: their ratio is the tracking signal
        self._size = 0.0

    def add(self, value: float) -> None:
        """Take the newest value.

        >>> trend = Trend()
        >>> trend.add(5.0); trend.level
        5.0
        """
        at_least("forecast", "value", value, 0.0)
        if self.level is None:
            self.level = value
            return
        expected = self.level + self._d * self.slope
        error = value - expected
        self._error = 0.5 * self._error + 0.5 * error
        self._size = 0.5 * self._size + 0.5 * abs(error)
        signal = abs(self._error) / self._size if self._size > 0.0 else 0.0
        follow = self._a + (1.0 - self._a) * signal * signal
        level = expected + follow * error
        jump = abs(error) > 0.25 * max(expected, 1e-9)
        # A jump says something about the level, not about where it goes from there.
        self.slope = 0.5 * self.slope if jump else self._d * self.slope + self._b * (level - expected)
        self.level = value if jump else level

    def ahead(self, steps: int) -> float:
        """The value expected after so many steps, never below 0.

        >>> Trend().ahead(3)
        0.0
        """
        if self.level is None:
            return 0.0
        grown = steps if self._d == 1.0 else self._d * (1.0 - self._d**steps) / (1.0 - self._d)
        return max(self.level + grown * self.slope, 0.0)


class Recurrence:
    """Do upward jumps come at regular times? If the last gaps agree, the next one is due one gap after the last.

    Gaps count as regular if the last `agree` of them differ by at most `slack` steps. The forecast is the time to the
    next jump and its size (the greatest of those).

    >>> recurrence = Recurrence()
    >>> for step in (12, 24, 36):
    ...     recurrence.jumped(step, 10.0)
    >>> recurrence.due(46)
    (2, 10.0)
    >>> recurrence.due(40)[0]
    8
    """

    def __init__(self, *, agree: int = 2, slack: int = 0) -> None:
        self._agree = int(at_least("forecast", "agree", agree, 1))
        self._slack = int(at_least("forecast", "slack", slack, 0))
        self._jumps: list[tuple[int, float]] = []
        self.kept = 0  # jumps in a row that came when they were due: one gap like another may be chance

    def jumped(self, step: int, size: float) -> None:
        """Note a jump of a size at a step; steps are counted by the caller.

        >>> Recurrence().jumped(3, 1.0)
        """
        due = self.due(step)
        self.kept = self.kept + 1 if due is not None and due[0] <= self._slack else 0
        self._jumps.append((step, size))
        del self._jumps[: -(self._agree + 1)]

    def due(self, step: int) -> tuple[int, float] | None:
        """(steps until the next jump, its size), or None if there is no regularity or the jump is overdue.

        >>> Recurrence().due(0) is None
        True
        """
        if len(self._jumps) <= self._agree:
            return None
        gaps = [b - a for (a, _), (b, _) in zip(self._jumps, self._jumps[1:], strict=False)]
        if max(gaps) - min(gaps) > self._slack:
            return None
        left = self._jumps[-1][0] + round(sum(gaps) / len(gaps)) - step
        if left < -self._slack - 1:
            return None
        return max(left, 0), max(size for _, size in self._jumps)


def steps_of(seconds: float, interval_s: float) -> int:
    """Whole intervals that cover a time.

    >>> steps_of(8.0, 5.0), steps_of(0.0, 5.0)
    (2, 0)
    """
    return math.ceil(at_least("forecast", "seconds", seconds, 0.0) / interval_s - 1e-9)
