"""Count, mean and variance of a stream of numbers in three numbers, so that tasks can measure apart and be summed up.

Thesis 001, section 4.4.1 (F28, the one-pass estimator of Knuth and Welford) and App. A (the statistics made from it):

    n += 1;  d = x - mean;  mean += d / n;  M2 += d (x - mean);  Var = M2 / (n - 1);  c = sqrt(Var) / mean

Two summaries a and b are merged by the pairwise form of Chan, Golub and LeVeque (1979), with d = mean_b - mean_a and
n = n_a + n_b:

    mean = mean_a + d n_b / n;  M2 = M2_a + M2_b + d^2 n_a n_b / n
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Moments:
    """The moments of `n` numbers: their `mean` and `m2`, the sum of squared distances from it. Immutable.

    >>> a, b = Moments.of([1.0, 2.0]), Moments.of([3.0, 4.0])
    >>> a.merge(b)
    Moments(n=4, mean=2.5, m2=5.0)
    >>> round(a.merge(b).variance, 4)
    1.6667
    """

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def __post_init__(self) -> None:
        # A NaN would pass every later comparison unseen and is no JSON: it is stopped where it enters.
        if self.n < 0 or not (math.isfinite(self.mean) and math.isfinite(self.m2)):
            raise ValueError(f"moments must be finite with n >= 0, got n={self.n}, mean={self.mean}, m2={self.m2}")

    @staticmethod
    def of(values: Any) -> Moments:
        """The moments of an array or sequence, in two vectorised passes (more exact than one).

        >>> Moments.of([2.0, 4.0])
        Moments(n=2, mean=3.0, m2=2.0)
        >>> Moments.of([])
        Moments(n=0, mean=0.0, m2=0.0)
        """
        x = np.asarray(values, dtype=np.float64).ravel()
        if x.size == 0:
            return Moments()
        mean = float(x.mean())
        d = x - mean
        return Moments(int(x.size), mean, float(d @ d))

    def add(self, x: float) -> Moments:
        """These moments with one more number.

        >>> Moments().add(2.0).add(4.0)
        Moments(n=2, mean=3.0, m2=2.0)
        """
        n = self.n + 1
        d = x - self.mean
        mean = self.mean + d / n
        return Moments(n, mean, self.m2 + d * (x - mean))

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of numbers together.

        >>> Moments.of([1.0]).merge(Moments())
        Moments(n=1, mean=1.0, m2=0.0)
        """
        # The early returns also keep an empty side's mean of 0 from costing the other a rounding.
        if other.n == 0:
            return self
        if self.n == 0:
            return other
        n = self.n + other.n
        d = other.mean - self.mean
        return Moments(n, self.mean + d * (other.n / n), self.m2 + other.m2 + d * d * (self.n * other.n / n))

    @property
    def total(self) -> float:
        """The sum of the numbers.

        >>> Moments.of([1.0, 2.0]).total
        3.0
        """
        return self.n * self.mean

    @property
    def variance(self) -> float | None:
        """The sample variance M2 / (n - 1); None below two numbers, where it is not known (it is not zero).

        >>> Moments.of([1.0, 3.0]).variance
        2.0
        >>> Moments.of([1.0]).variance is None
        True
        """
        return self.m2 / (self.n - 1) if self.n > 1 else None

    @property
    def cv(self) -> float | None:
        """The coefficient of variation sqrt(Var) / mean (001, App. A: c_X); None if not known or the mean is 0.

        >>> Moments.of([1.0, 3.0]).cv == 2.0 ** 0.5 / 2.0
        True
        """
        variance = self.variance
        return math.sqrt(variance) / self.mean if variance is not None and self.mean != 0.0 else None

    def to_json(self) -> list[float]:
        """Three numbers: n, mean, m2.

        >>> Moments.of([2.0, 4.0]).to_json()
        [2, 3.0, 2.0]
        """
        return [self.n, self.mean, self.m2]

    @staticmethod
    def from_json(value: Sequence[float]) -> Moments:
        """What `to_json` wrote.

        >>> Moments.from_json([2, 3.0, 2.0])
        Moments(n=2, mean=3.0, m2=2.0)
        """
        n, mean, m2 = value
        return Moments(int(n), float(mean), float(m2))
