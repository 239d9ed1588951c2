"""Points for skyline queries: the three distributions on which thesis 000 measures (7.3 of its chapter 4).

independent      each coordinate uniform in [0, 1)
correlated       near the diagonal: a point good in one dimension is good in all; few points dominate
anticorrelated   near the plane sum = const: good in one dimension, bad in another; large skylines

>>> random = np.random.default_rng(7)
>>> [round(float(np.corrcoef(points(kind, 500, 2, random).T)[0, 1])) for kind in KINDS]
[0, 1, -1]
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from penstock.apps.queries.columns import Floats

Kind = Literal["independent", "correlated", "anticorrelated"]
KINDS: tuple[Kind, ...] = ("independent", "correlated", "anticorrelated")
SPREAD = 0.05  # how far points lie from the diagonal, or from the plane across it


def points(kind: Kind, n: int, dimensions: int, random: np.random.Generator) -> Floats:
    """Return n points of a distribution, one per row.

    >>> points("independent", 3, 2, np.random.default_rng(0)).shape
    (3, 2)
    """
    cube = random.random((n, dimensions))
    if kind == "independent":
        return cube
    noise = random.normal(0.0, SPREAD, (n, dimensions))
    if kind == "correlated":
        return cube[:, :1] + noise
    # spread within the plane through the middle, hardly across it
    return 0.5 + (cube - cube.mean(axis=1, keepdims=True)) + noise[:, :1]
