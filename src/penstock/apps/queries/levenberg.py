"""Levenberg-Marquardt least squares (thesis 002 section 6.1, 000 section 7.1), on NumPy arrays.

Minimise S(c) = sum_k (y_k - f(x_k; c))^2 by damped Gauss-Newton steps. With r = y - f(c) and J = df/dc,

    (J'J + lambda diag(J'J)) d = J'r
    S(c + d) < S(c):  accept, c += d, lambda /= 10          else: reject, lambda *= 10

until the relative change of c or of S is below the tolerance, or the steps are used up. The theses used a C library at
its defaults and print no constants; these are ours: lambda starts at 1e-3, tolerance 1e-9, at most 100 steps.

A polynomial is linear in its coefficients, so the optimum is that of ordinary least squares (the tests compare). Powers
of a raw time stamp cannot be told apart in floating point, so the fit is made in u = (x - middle) / half range, which
lies in [-1, 1], of y / max |y|, from the guess c = 1, and is then written out in powers of x - origin.

    >>> fit = fit_polynomial(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 5.0, 10.0]), degree=2, origin=0.0)
    >>> fit.coefficients.round(6).tolist(), round(float(fit.at(4.0)), 6)
    ([1.0, 0.0, 1.0], 17.0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.apps.queries.columns import Floats

LAMBDA = 1e-3
FACTOR = 10.0
LEAST_LAMBDA, MOST_LAMBDA = 1e-15, 1e15  # beyond, the damping is nothing, or the step is
TOLERANCE = 1e-9
STEPS = 100


@dataclass(frozen=True)
class Minimum:
    """Where the search ended: parameters, sum of squares, steps tried, and whether it ended by the tolerance."""

    parameters: Floats
    squares: float
    steps: int
    converged: bool


def minimise(
    model: Callable[[Floats], Floats],
    jacobian: Callable[[Floats], Floats],
    y: Floats,
    guess: Floats,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
) -> Minimum:
    """Fit any model: `model(c)` gives the values, `jacobian(c)` their derivatives, one column per parameter.

    >>> x = np.linspace(0.0, 2.0, 20)
    >>> y = 3.0 * np.exp(-1.5 * x)
    >>> slopes = lambda c: np.column_stack([np.exp(c[1] * x), c[0] * x * np.exp(c[1] * x)])
    >>> found = minimise(lambda c: c[0] * np.exp(c[1] * x), slopes, y, np.ones(2))
    >>> found.parameters.round(6).tolist(), found.converged
    ([3.0, -1.5], True)
    """
    c, damping = np.array(guess, dtype=np.float64), LAMBDA
    residual = y - model(c)
    squares = float(residual @ residual)
    slopes = jacobian(c)
    normal = slopes.T @ slopes
    for step in range(1, steps + 1):
        if squares == 0.0:
            return Minimum(c, squares, step - 1, True)
        change = _solve(normal + damping * np.diag(np.diag(normal)), slopes.T @ residual)
        small = np.linalg.norm(change) <= tolerance * (np.linalg.norm(c) + tolerance)
        tried = y - model(c + change)
        new = float(tried @ tried)
        if new < squares:
            small = small or squares - new <= tolerance * squares
            c, residual, squares = c + change, tried, new
            damping = max(damping / FACTOR, LEAST_LAMBDA)
            known, slopes = slopes, jacobian(c)
            normal = normal if slopes is known else slopes.T @ slopes  # of a linear model it is always the same
        else:
            damping *= FACTOR
        if small or damping > MOST_LAMBDA:
            return Minimum(c, squares, step, True)
    return Minimum(c, squares, steps, False)


@dataclass(frozen=True)
class PolynomialFit:
    """p(x) = sum_m coefficients[m] (x - origin)^m, and how good it is: the residuals' sum of squares."""

    coefficients: Floats
    origin: float
    squares: float
    steps: int
    scaled: Floats  # coefficients in powers of u, in which p is evaluated: those of x may cancel far from the origin
    middle: float
    half: float

    def at(self, x: Floats | float) -> Floats:
        """Return p(x)."""
        return np.asarray(np.polynomial.polynomial.polyval((np.asarray(x) - self.middle) / self.half, self.scaled))


def fit_polynomial(x: Floats, y: Floats, degree: int, origin: float | None = None) -> PolynomialFit | None:
    """Fit a polynomial of `degree` by Levenberg-Marquardt; None if fewer than degree + 1 different finite x are there.

    `origin` left out is the least x: coefficient 0 is then the value at the window's beginning.

    >>> fit_polynomial(np.array([1.0, 1.0, 2.0]), np.array([1.0, 3.0, 2.0]), degree=2) is None
    True
    """
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    if not has_different(x, degree + 1):
        return None
    low, high = float(x.min()), float(x.max())
    middle, half = low / 2 + high / 2, (high - low) / 2 or 1.0
    scale = float(np.abs(y).max()) or 1.0
    powers = np.empty((degree + 1, len(x)))  # J[k][m] = u_k^m, the same at every step; one row of memory per power
    powers[0], u = 1.0, (x - middle) / half
    for m in range(1, degree + 1):
        np.multiply(powers[m - 1], u, out=powers[m])
    slopes = powers.T
    found = minimise(lambda c: c @ powers, lambda c: slopes, y / scale, np.ones(degree + 1))
    scaled = found.parameters * scale
    at = low if origin is None else origin
    coefficients = substitute(scaled, (at - middle) / half, 1.0 / half)  # u = (origin - middle + t) / half
    squares = found.squares * scale * scale
    return PolynomialFit(coefficients, at, squares, found.steps, scaled, middle, half)


def substitute(coefficients: Floats, a: float, b: float) -> Floats:
    """Return the coefficients of p(a + b t) in powers of t, by Horner's rule.

    >>> substitute(np.array([0.0, 0.0, 1.0]), 3.0, 2.0).tolist()  # (3 + 2t)^2
    [9.0, 12.0, 4.0]
    """
    out = np.zeros(len(coefficients))
    for c in coefficients[::-1]:
        out[1:] = a * out[1:] + b * out[:-1]
        out[0] = a * out[0] + c
    return out


def has_different(x: Floats, many: int) -> bool:
    """Tell whether there are at least `many` different values; a glance at the first few mostly tells.

    >>> has_different(np.array([1.0, 1.0, 2.0]), 2), has_different(np.array([1.0, 1.0]), 2)
    (True, False)
    """
    few = x[: 4 * many]
    return len(np.unique(few)) >= many or (len(few) < len(x) and len(np.unique(x)) >= many)


def _solve(matrix: Floats, right: Floats) -> Floats:
    try:
        return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
    except np.linalg.LinAlgError:  # a parameter without effect here; the least step that does as well
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0], dtype=np.float64)
