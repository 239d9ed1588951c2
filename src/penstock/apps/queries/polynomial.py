"""A polynomial fitted to the points of each window by Levenberg-Marquardt: the benchmark query of thesis 002 (6.1).

    minimise  sum_k (y_k - sum_m c_m (x_k - origin)^m)^2

`x` may be a number or a timestamp (then in seconds). Rows without x or y, or where one is infinite, are left out; a
window with fewer than degree + 1 different x has no fit: the coefficients are null. The fit is in `levenberg.py`.

    >>> import pyarrow as pa
    >>> from penstock.windows.content import Window
    >>> rows = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "y": [5.0, 7.0, 9.0, 11.0]})
    >>> fit = Polynomial("x", "y", degree=1)(Window(rows, {"sensor": 1}, 1, 4))
    >>> [round(c, 6) for c in fit["coefficients"]], fit["points"]
    ([5.0, 2.0], 4)

In a flow, with the windows of thesis 002's first measurement:

    fits = points.window(ps.Time("5 s", slide="100 ms")).apply(Polynomial("x", "y"), schema=POLYNOMIAL_SCHEMA)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.apps.queries.columns import Content, microseconds_of, numbers
from penstock.apps.queries.levenberg import fit_polynomial

POLYNOMIAL_SCHEMA = "coefficients array<double>, origin double, squares double, steps int, points bigint"


@dataclass(frozen=True)
class Polynomial:
    """Fit y as a polynomial of x; coefficients are in powers of x - origin, by default the window's least x."""

    x: str = "x"
    y: str = "y"
    degree: int = 2
    origin: float | None = None
    schema: ClassVar[str] = POLYNOMIAL_SCHEMA

    def __call__(self, window: Content) -> dict[str, Any]:
        """Return the fit of one window."""
        (x, y), used = numbers(window, self.x, self.y)
        base = 0.0
        if len(x) and window[self.x].dtype.kind == "M":  # exact differences: a stamp in seconds has lost digits
            stamps = microseconds_of(window[self.x][used])
            first = stamps.min()
            x, base = (stamps - first) / 1e6, float(first / 1e6)
        fit = fit_polynomial(x, y, self.degree, None if self.origin is None else self.origin - base)
        points = int((np.isfinite(x) & np.isfinite(y)).sum())
        if fit is None:
            return {"coefficients": None, "origin": None, "squares": None, "steps": None, "points": points}
        return {
            "coefficients": fit.coefficients.tolist(),
            "origin": fit.origin + base,
            "squares": fit.squares,
            "steps": fit.steps,
            "points": points,
        }
