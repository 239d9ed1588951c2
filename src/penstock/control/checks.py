"""Refusals that all of `control` shares: a number that is not one is stopped where it enters, with the rule it broke.

A NaN passes every comparison as False, so `if wait > budget` would quietly mean "the budget holds". Every check here is
written so that a NaN fails it.
"""

from __future__ import annotations

import math

from penstock.errors import PolicyError


def finite(where: str, name: str, value: float) -> float:
    """The value, if it is a finite number.

    >>> finite("decision", "lifetime_s", 0.5)
    0.5
    """
    if not math.isfinite(value):
        raise PolicyError(where, f"{name} must be a finite number, got {value}", "leave out what was not measured")
    return value


def at_least(where: str, name: str, value: float, least: float) -> float:
    """The value, if it is finite and not below `least`.

    >>> at_least("operator 'score'", "arrivals_per_s", 10.0, 0.0)
    10.0
    """
    if not (math.isfinite(value) and value >= least):
        raise PolicyError(where, f"{name} must be at least {least:g}, got {value}", f"give {least:g} or more")
    return value


def above(where: str, name: str, value: float, floor: float) -> float:
    """The value, if it is finite and greater than `floor`.

    >>> try:
    ...     above("bound 'fast'", "mean_s", 0.0, 0.0)
    ... except PolicyError as error:
    ...     print(error)
    bound 'fast': mean_s must be greater than 0, got 0.0. Remedy: give a number greater than 0.
    """
    if not (math.isfinite(value) and value > floor):
        rule = f"{name} must be greater than {floor:g}, got {value}"
        raise PolicyError(where, rule, f"give a number greater than {floor:g}")
    return value


def between(where: str, name: str, value: float, least: float, most: float) -> float:
    """The value, if it is from `least` to `most`, both allowed.

    >>> between("policy 'elastic'", "batching_share", 0.8, 0.0, 1.0)
    0.8
    """
    if not (math.isfinite(value) and least <= value <= most):
        rule = f"{name} must be from {least:g} to {most:g}, got {value}"
        raise PolicyError(where, rule, "give a number in that range")
    return value


def ordered(where: str, low: str, low_value: float, high: str, high_value: float) -> None:
    """Refuse a lower bound above its upper one.

    >>> ordered("operator 'score'", "lo", 1, "hi", 8)
    """
    if not low_value <= high_value:
        rule = f"{low} must not be above {high}, got {low}={low_value} and {high}={high_value}"
        raise PolicyError(where, rule, "swap them")
