"""The arguments of window specs: numbers read strictly, durations and instants written back as the user would."""

from __future__ import annotations

import math
import numbers
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import FlowError

_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_TUPLES = 2**31 - 1  # more than one key can hold in memory; numbers of tuples times this still fit 64 bits
_MOST = 2**62  # a value plus or minus a distance below this is either right or seen to leave 64 bits


def whole(value: Any, name: str, where: str) -> int:
    """Return a number of tuples, at least 1.

    >>> whole(5, "size", "Count")
    5
    >>> whole(True, "size", "Count")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: Count: size must be a whole number of tuples, got True. Remedy: pass an integer, 1 or \
more.
    """
    remedy = "pass an integer, 1 or more"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise FlowError(where, f"{name} must be a whole number of tuples, got {value!r}", remedy)
    if not 1 <= int(value) <= _MOST_TUPLES:
        raise FlowError(where, f"{name} must be from 1 to {_MOST_TUPLES} tuples, got {value!r}", remedy)
    return int(value)


def distance(value: Any, name: str, where: str) -> int | float:
    """Return a distance between two attribute values: more than zero, an integer if it is whole.

    >>> distance(2.0, "size", "Delta"), distance(0.5, "size", "Delta")
    (2, 0.5)
    """
    remedy = "pass an integer or a float more than 0, in the unit of the column"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise FlowError(where, f"{name} must be a number, got {value!r}", remedy)
    number = int(value) if isinstance(value, numbers.Integral) else float(value)
    if not 0 < number < _MOST:  # NaN is not more than 0 either
        raise FlowError(where, f"{name} must be more than 0 and less than 2**62, got {value!r}", remedy)
    # 2 and 2.0 are the same windows, so they must look the same to a checkpoint
    return int(number) if math.floor(number) == number else number


def flag(value: Any, name: str, where: str) -> bool:
    """Return a switch: only True and False will do, for 1 may have been meant as another argument.

    >>> flag(True, "partial", "Count")
    True
    """
    if not isinstance(value, bool):
        raise FlowError(where, f"{name} must be True or False, got {value!r}", f"write {name}=True or leave it out")
    return value


def duration_text(us: int) -> str:
    """Return microseconds in the largest unit that needs no fraction; `durations.microseconds` reads it back.

    >>> [duration_text(us) for us in (2_000_000, 1_500_000, 90_000_000, 120_000_000, 250, 0)]
    ['2 s', '1500 ms', '90 s', '2 min', '250 us', '0 s']
    """
    if us == 0:
        return "0 s"
    return next((f"{us // size} {unit}" for unit, size in _UNITS if us % size == 0), f"{us} us")


def instant_text(us: int) -> str:
    """Return an instant in ISO 8601, or in microseconds where the calendar ends.

    >>> instant_text(1_704_067_200_000_000), instant_text(2**62)
    ('2024-01-01T00:00:00+00:00', '4611686018427387904 us')
    """
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat()
    except OverflowError:  # before the year 1 or after 9999
        return f"{us} us"


def described(kind: str, *words: str, lateness_us: int = 0) -> str:
    """Return a spec as the user would write it, without the empty words.

    >>> described("Count", "10", "", "partial", lateness_us=5_000)
    'Count(10, partial, lateness 5 ms)'
    """
    late = f"lateness {duration_text(lateness_us)}" if lateness_us else ""
    return f"{kind}({', '.join(word for word in (*words, late) if word)})"
