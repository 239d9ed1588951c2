"""Which events are measured: each with the same probability, independently. Thesis 001, section 4.4.1.

A Bernoulli sample of probability q is drawn by its gaps: the number of events skipped before the next hit is geometric,
P(gap = k) = (1 - q)^k q. So an event that is not sampled costs a subtraction, and the hits among n events are still
binomial(n, q).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.control.checks import above, at_least, between

_MOST = 2**62  # a gap that never ends


class BernoulliSampler:
    """Decides event by event, or for many at once; both draw from the same sequence of gaps.

    >>> sampler = BernoulliSampler(0.5, seed=1)
    >>> one_by_one = [sampler.hit() for _ in range(6)]
    >>> one_by_one == BernoulliSampler(0.5, seed=1).mask(6).tolist()
    True
    >>> BernoulliSampler(1.0).mask(3).tolist()
    [True, True, True]
    """

    def __init__(self, probability: float = 0.1, seed: int = 0) -> None:
        self.probability = above("sampling", "probability", between("sampling", "it", probability, 0.0, 1.0), 0.0)
        self._random = np.random.default_rng(seed)
        self._gap = self._draw()  # events to skip before the next hit

    def hit(self) -> bool:
        """Whether the next event is sampled."""
        if self._gap > 0:
            self._gap -= 1
            return False
        self._gap = self._draw()
        return True

    def mask(self, n: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each of the next n events is sampled."""
        chosen = np.zeros(int(at_least("sampling", "n", n, 0)), dtype=np.bool_)
        at = self._gap
        while at < n:
            chosen[at] = True
            at += 1 + self._draw()
        self._gap = at - n
        return chosen

    def _draw(self) -> int:
        return min(int(self._random.geometric(self.probability)) - 1, _MOST)
