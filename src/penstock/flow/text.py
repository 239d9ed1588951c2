"""Windows and durations in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.windows.aggregates import Output
from penstock.windows.time import Time

_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def duration_text(us: int) -> str:
    """Return microseconds in the largest unit that needs no fraction; `durations.microseconds` reads it back.

    >>> [duration_text(us) for us in (2_000_000, 1_500_000, 90_000_000, 120_000_000, 250, 0)]
    ['2 s', '1500 ms', '90 s', '2 min', '250 us', '0 s']
    """
    if us == 0:
        return "0 s"
    return next((f"{us // size} {unit}" for unit, size in _UNITS if us % size == 0), f"{us} us")


def spec_text(spec: Time) -> str:
    """Return a window as the user would write it, exactly.

    >>> spec_text(Time("10 s", slide="500 ms", lateness="1 minute"))
    'Time(10 s, slide 500 ms, lateness 1 min)'
    >>> spec_text(Time("1 hour", origin="2024-01-01T00:00:00Z"))
    'Time(1 h, origin 2024-01-01T00:00:00+00:00)'
    """
    words = [duration_text(spec.size_us)]
    if spec.slide_us != spec.size_us:
        words.append(f"slide {duration_text(spec.slide_us)}")
    if spec.lateness_us:
        words.append(f"lateness {duration_text(spec.lateness_us)}")
    if spec.origin_us:
        words.append(f"origin {_instant(spec.origin_us)}")
    return f"Time({', '.join(words)})"


def _instant(us: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat()
    except OverflowError:  # before the year 1 or after 9999
        return f"{us} us"


def aggregates_text(outputs: tuple[Output, ...], kinds: bool = False) -> str:
    """Return the named aggregates of a window, with the kind of number they read if asked for.

    >>> from penstock.windows.aggregates import bind, count, sum
    >>> outputs = bind({"n": count(), "total": sum("price")}, {"price": "double"})
    >>> aggregates_text(outputs), aggregates_text(outputs, kinds=True)
    ('n = count(), total = sum(price)', 'n = count(), total = sum(price double)')
    """
    return ", ".join(f"{o.name} = {o.aggregate.name}({_argument(o, kinds)})" for o in outputs)


def _argument(output: Output, kinds: bool) -> str:
    column = output.aggregate.column
    return "" if column is None else f"{column} {output.input_kind}" if kinds else column
