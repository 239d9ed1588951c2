"""What was predicted beside what then happened, so that each model's error is known and not believed.

    mean absolute error  = mean of |measured - predicted|            (in the unit predicted)
    relative error       = sum of |measured - predicted| / sum of measured
    percentage error     = mean of |measured - predicted| / measured, where something was measured
    bias                 = mean of (measured - predicted)

A prediction without a finite value (a model's "infinite": it cannot be served) is counted apart and has no error.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from penstock.control.checks import at_least, finite


@dataclass(frozen=True)
class Settled:
    """One prediction and its outcome.

    >>> Settled("kingman", "score", at_s=5.0, predicted=0.010, measured=0.012).error
    0.002
    """

    model: str
    subject: str
    at_s: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Measured minus predicted."""
        return self.measured - self.predicted


@dataclass
class _Tally:
    n: int = 0
    absolute: float = 0.0
    signed: float = 0.0
    measured: float = 0.0
    shares: float = 0.0  # sum of |error| / measured
    nonzero: int = 0  # how many of those there are
    unbounded: int = 0


class PredictionLog:
    """Predictions waiting for their outcome, running errors per model, and the last `keep` settled ones.

    >>> log = PredictionLog()
    >>> log.predict("kingman", "score", at_s=5.0, value=0.010)
    >>> log.settle("score", at_s=10.0, measured=0.012)
    1
    >>> round(log.mean_absolute_error("kingman"), 6), round(log.bias("kingman"), 6)
    (0.002, 0.002)
    >>> log.mean_absolute_error("other") is None
    True
    """

    def __init__(self, keep: int = 1000) -> None:
        self._open: dict[tuple[str, str], tuple[float, float]] = {}
        self._tallies: dict[str, _Tally] = {}
        self.settled: deque[Settled] = deque(maxlen=int(at_least("prediction log", "keep", keep, 1)))

    def predict(self, model: str, subject: str, *, at_s: float, value: float) -> None:
        """Note what a model expects of a subject; it replaces the model's unsettled prediction of it."""
        tally = self._tallies.setdefault(model, _Tally())
        if math.isnan(value):
            finite(f"model '{model}'", "its prediction", value)
        if math.isinf(value):
            tally.unbounded += 1
            self._open.pop((model, subject), None)
        else:
            self._open[model, subject] = (at_s, value)

    def settle(self, subject: str, *, at_s: float, measured: float) -> int:
        """Hold every open prediction of a subject made before `at_s` against its outcome; how many there were."""
        finite(f"subject '{subject}'", "measured", measured)
        due = [key for key, (made, _) in self._open.items() if key[1] == subject and made < at_s]
        for key in due:
            made, predicted = self._open.pop(key)
            done = Settled(key[0], subject, made, predicted, measured)
            self.settled.append(done)
            tally = self._tallies[key[0]]
            tally.n += 1
            tally.absolute += abs(done.error)
            tally.signed += done.error
            tally.measured += abs(measured)
            if measured != 0.0:
                tally.shares += abs(done.error / measured)
                tally.nonzero += 1
        return len(due)

    def forget(self, subject: str) -> None:
        """Drop the open predictions of a subject whose circumstances changed before they could be judged.

        >>> log = PredictionLog()
        >>> log.predict("kingman", "score", at_s=5.0, value=1.0)
        >>> log.forget("score")
        >>> log.settle("score", at_s=10.0, measured=9.0)
        0
        """
        for key in [key for key in self._open if key[1] == subject]:
            del self._open[key]

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that predicted something, sorted.

        >>> PredictionLog().models
        ()
        """
        return tuple(sorted(self._tallies))

    def count(self, model: str) -> int:
        """How many predictions of a model were settled."""
        return self._tallies[model].n if model in self._tallies else 0

    def unbounded(self, model: str) -> int:
        """How many times a model said that there is no finite value."""
        return self._tallies[model].unbounded if model in self._tallies else 0

    def mean_absolute_error(self, model: str) -> float | None:
        """Mean of |measured - predicted|; None before the first."""
        tally = self._tallies.get(model)
        return tally.absolute / tally.n if tally and tally.n else None

    def relative_error(self, model: str) -> float | None:
        """Sum of |measured - predicted| over the sum of what was measured; None if that is 0."""
        tally = self._tallies.get(model)
        return tally.absolute / tally.measured if tally and tally.measured > 0.0 else None

    def mape(self, model: str | None = None) -> float | None:
        """Mean of |measured - predicted| / measured, of one model or of all; None if nothing was measured above 0.

        >>> log = PredictionLog()
        >>> log.predict("kingman", "score", at_s=5.0, value=0.9)
        >>> log.settle("score", at_s=10.0, measured=1.2), round(log.mape(), 6)
        (1, 0.25)
        """
        tallies = [tally for name, tally in self._tallies.items() if model is None or name == model]
        n = sum(tally.nonzero for tally in tallies)
        return sum(tally.shares for tally in tallies) / n if n else None

    def bias(self, model: str) -> float | None:
        """Mean of measured - predicted: above 0, the model promises too much; None before the first."""
        tally = self._tallies.get(model)
        return tally.signed / tally.n if tally and tally.n else None
