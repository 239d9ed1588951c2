"""Durations as the user writes them ("100 ms", timedelta) -> whole microseconds, the only unit inside Penstock."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from penstock.errors import FlowError

Duration = str | timedelta

_SECOND = 1_000_000
_UNITS: dict[str, int] = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _SECOND),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60 * _SECOND),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * _SECOND),
    **dict.fromkeys(("d", "day", "days"), 86_400 * _SECOND),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400 * _SECOND),
}
_CALENDAR = frozenset({"month", "months", "quarter", "quarters", "year", "years"})
_TERM = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([^\W\d_]+)")  # a number, then a unit of letters only
_LIMIT = 2**60  # 36 000 years: event time plus a few durations still fits 64 bits, so kernels need no overflow checks

_EXAMPLES = 'write it like "100 ms", "10 s", "1 minute", "2 hours", "1 day", or pass a timedelta'


def microseconds(duration: Duration, *, name: str | None = None, zero: bool = False, where: str = "duration") -> int:
    """Return `duration` as a whole number of microseconds.

    With `name`, the duration is that parameter of `where`, and must be positive (or zero, if `zero`).
    A day is 24 hours (event time is UTC). Several terms add up, as in Spark's intervals.

    >>> microseconds("100 ms"), microseconds("1.5 s"), microseconds("1 hour 30 minutes"), microseconds("250 us")
    (100000, 1500000, 5400000000, 250)
    >>> microseconds(timedelta(seconds=10))
    10000000
    >>> microseconds("0 s", name="size", where="Time")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: Time: size must be more than zero, got '0 s'. Remedy: write it like "100 ms", "10 s", \
"1 minute", "2 hours", "1 day", or pass a timedelta.
    """
    label = name if name is not None else "a duration"
    if isinstance(duration, str):
        exact = _parse(duration, label, where)
    elif isinstance(duration, timedelta):
        # timedelta's own arithmetic is exact; a subclass with nanoseconds (pandas) leaves a remainder and is refused
        whole, rest = divmod(duration, timedelta(microseconds=1))
        exact = Fraction(whole) if not rest else Fraction(2 * whole + 1, 2)
    else:
        raise FlowError(
            where, f"{label} must be a string or a timedelta, got {duration!r} (a bare number has no unit)", _EXAMPLES
        )
    if exact.denominator != 1:
        raise FlowError(where, f"{label} must be a whole number of microseconds, got {duration!r}", _EXAMPLES)
    us = int(exact)
    if abs(us) >= _LIMIT:
        raise FlowError(where, f"{label} must be shorter than 2**60 microseconds, got {duration!r}", _EXAMPLES)
    if name is not None and (us < 0 or (us == 0 and not zero)):
        least = "zero or more" if zero else "more than zero"
        raise FlowError(where, f"{label} must be {least}, got {duration!r}", _EXAMPLES)
    return us


def _parse(text: str, label: str, where: str) -> Fraction:
    """Add up the terms of `text`; exact, because 0.1 s is 100 000 us and not 99 999.99..."""
    total, at = Fraction(0), 0
    while at < len(text.rstrip()) or at == 0:
        term = _TERM.match(text, at)
        if term is None:
            raise FlowError(where, f"{label} must be a number and a unit, got {text!r}", _EXAMPLES)
        number, unit = term.groups()
        unit = unit.lower()
        if unit in _CALENDAR:
            raise FlowError(
                where, f"{label} must have a fixed length, and {unit} vary, got {text!r}", 'use days, as in "30 days"'
            )
        if unit not in _UNITS:
            raise FlowError(where, f"{label} has the unknown unit {unit!r}, got {text!r}", _EXAMPLES)
        total += Fraction(number) * _UNITS[unit]
        at = term.end()
    return total
