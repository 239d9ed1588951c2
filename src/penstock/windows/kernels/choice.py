"""Which kernel: decided by what the function's algebra allows, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.windows.kernels.tuples import DabaLite, Kernel, MonotonicDeque, Recompute, SubtractOnEvict, TwoStacks


@dataclass(frozen=True)
class Algebra:
    """What is known of `combine`.

    `associative` False: a holistic function, combine is then only right over all values in order. `invert(total,
    oldest)` takes the oldest value out again; `exact` says that it does so without rounding. `selective`: the result is
    one of the two arguments.
    """

    combine: Callable[[Any, Any], Any]
    invert: Callable[[Any, Any], Any] | None = None
    exact: bool = False
    associative: bool = True
    selective: bool = False


def choose(algebra: Algebra, *, worst_case: bool = False) -> Kernel[Any]:
    """Return an empty window of the best kernel; `worst_case` asks for constant work in every single step.

    >>> add = Algebra(lambda a, b: a + b, invert=lambda a, b: a - b, exact=True)
    >>> type(choose(add)).__name__
    'SubtractOnEvict'
    >>> floats = Algebra(lambda a, b: a + b, invert=lambda a, b: a - b)  # rounds: never subtract
    >>> type(choose(floats)).__name__, type(choose(floats, worst_case=True)).__name__
    ('TwoStacks', 'DabaLite')
    >>> type(choose(Algebra(max, selective=True))).__name__
    'MonotonicDeque'
    """
    if not algebra.associative:
        return Recompute(algebra.combine)
    if algebra.invert is not None and algebra.exact:
        return SubtractOnEvict(algebra.combine, algebra.invert)
    if worst_case:
        return DabaLite(algebra.combine)
    return MonotonicDeque(algebra.combine) if algebra.selective else TwoStacks(algebra.combine)
