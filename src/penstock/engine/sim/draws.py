"""Service times by mean and coefficient of variation, drawn in bulk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def service_times(
    rng: np.random.Generator, size: int, mean: float, cv: float, items: NDArray[np.int64] | None = None
) -> Floats:
    """Gamma distributed times: cv 0 is constant, 1 exponential. With `items`, each is the sum of that many.

    A sum of n gamma variables of shape 1/cv^2 is gamma of shape n/cv^2, so a whole batch is one draw.

    >>> service_times(np.random.default_rng(0), 3, 0.5, 0.0).tolist()
    [0.5, 0.5, 0.5]
    >>> service_times(np.random.default_rng(0), 2, 0.5, 0.0, np.array([1, 4])).tolist()
    [0.5, 2.0]
    """
    if cv <= 0.0:
        return np.full(size, mean) if items is None else mean * items.astype(np.float64)
    shape = 1.0 / (cv * cv)
    if items is None:
        return mean * (rng.standard_exponential(size) if cv == 1.0 else rng.standard_gamma(shape, size) / shape)
    drawn: Floats = mean * rng.standard_gamma(items * shape) / shape
    return drawn
