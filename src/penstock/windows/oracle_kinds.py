"""Sequential operators for windows of content, one tuple at a time, as the theses tell it. Tests compare with them.

Every one has the same interface: `batch(rows, tick)` returns the windows that fire, `flush()` what the end of the
stream adds, `late` the rows that missed something. A window carries its rows, so that any aggregate or function can be
computed over them by plain Python. They keep every tuple for ever and look through all: slow, and obviously right.

    spec                     oracle
    Count                    CountOracle            000 section 4.1, 002 section 3.2
    Time(every=n)            EveryOracle            002 section 4.3 of the digest
    Delta                    DeltaOracle            002 section 4.4 of the digest
    Time                     TimeOracle             in oracle_time.py

Order: `ordered_by_time` takes rows when the watermark has passed them, in the order (time, `order` columns, remaining
columns); without it, as they come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.windows.count import Count
from penstock.windows.delta import Delta, DisorderedAttribute
from penstock.windows.time import END_OF_TIME, Time

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Window:
    """A window that fired: `start` and `end` as published (see `firing.Fired`), `rows` its content in order."""

    key: Any
    number: int
    start: int
    end: int
    rows: tuple[Row, ...]


class Watermark:
    """Spark's rule: in a batch, the greatest event time of the batches before it minus lateness; it never goes back.

    >>> mark = Watermark(lateness_us=2)
    >>> mark.next_batch(None) is None
    True
    >>> mark.saw(10); mark.next_batch(None), mark.next_batch(tick=9)
    (8, 9)
    """

    def __init__(self, lateness_us: int) -> None:
        self.value: int | None = None
        self._lateness_us, self._highest = lateness_us, -math.inf

    def next_batch(self, tick: int | None) -> int | None:
        """Return the watermark in force in the batch that begins."""
        known = [] if self._highest == -math.inf else [int(self._highest) - self._lateness_us]
        self.value = max([w for w in (self.value, tick, *known) if w is not None], default=None)
        return self.value

    def saw(self, time: int) -> None:
        """Note an event time of the batch."""
        self._highest = max(self._highest, time)


class OrderedOracle:
    """What Count, Delta and slide-by-tuple share: tuples of all keys one after the other, each of which may fire."""

    def __init__(self, spec: Any, ordered_by_time: bool = True, order: Sequence[str] = ()) -> None:
        """Start with no tuples."""
        self.spec, self.ordered_by_time, self.order = spec, ordered_by_time, order
        self.late: list[Row] = []
        self.watermark = Watermark(spec.lateness_us)
        self._waiting: list[Row] = []
        self._tuples: dict[Any, list[Row]] = {}  # all of them, per key
        self._fired: dict[Any, int] = {}

    def batch(self, rows: Iterable[Row], tick: int | None = None) -> list[Window]:
        """Take rows with `key`, `time` and values; return the windows that fire."""
        if not self.ordered_by_time:
            return self._take(rows)
        released = self.watermark.value  # what the batch before released: a row behind it comes too late
        watermark = self.watermark.next_batch(tick)
        for row in rows:
            if row["time"] is None or (released is not None and row["time"] < released):
                self.late.append(row)
            else:
                self._waiting.append(row)
            if row["time"] is not None:
                self.watermark.saw(row["time"])
        return [] if watermark is None else self._release(watermark)

    def flush(self) -> list[Window]:
        """End the stream: take the tuples that still wait."""
        return self._release(END_OF_TIME)

    def _release(self, watermark: int) -> list[Window]:
        passed = [row for row in self._waiting if row["time"] < watermark]
        self._waiting = [row for row in self._waiting if row["time"] >= watermark]
        return self._take(sorted(passed, key=lambda row: sort_key(row, ["time", *self.order])))

    def _take(self, rows: Iterable[Row]) -> list[Window]:
        fired = []
        for row in rows:
            tuples = self._tuples.setdefault(row["key"], [])
            for start, end, content in self.take_tuple(row, tuples):
                number = self._fired.get(row["key"], 0)
                fired.append(Window(row["key"], number, start, end, tuple(content)))
                self._fired[row["key"]] = number + 1
            tuples.append(row)
        return fired

    def take_tuple(self, row: Row, before: list[Row]) -> Iterator[tuple[int, int, list[Row]]]:
        """Yield start, end and content of the windows that `row` fires, given all tuples of its key before it."""
        raise NotImplementedError


class CountOracle(OrderedOracle):
    """Count windows.

    >>> oracle = CountOracle(Count(2), ordered_by_time=False)
    >>> [window.end for window in oracle.batch([{"key": "a", "time": t} for t in (5, 6, 7)])]
    [2]
    """

    spec: Count

    def take_tuple(self, row: Row, before: list[Row]) -> Iterator[tuple[int, int, list[Row]]]:
        """Fire a window that is full with this tuple; before the first one, every `slide` tuples if partial."""
        tuples, size, slide = [*before, row], self.spec.size, self.spec.slide
        count = len(tuples)
        if count >= size and (count - size) % slide == 0:
            yield count - size + 1, count, tuples[-size:]
        elif self.spec.partial and count < size and count % slide == 0:
            yield 1, count, tuples


class EveryOracle(OrderedOracle):
    """Slide-by-tuple windows.

    >>> oracle = EveryOracle(Time("5 us", every=2))
    >>> oracle.batch([{"key": "a", "time": t} for t in (1, 2, 3, 9)])
    []
    >>> [(window.start, window.end, len(window.rows)) for window in oracle.flush()]
    [(-3, 3, 2), (4, 10, 1)]
    """

    spec: Time

    def take_tuple(self, row: Row, before: list[Row]) -> Iterator[tuple[int, int, list[Row]]]:
        """Fire every n-th tuple: the tuples up to it whose time is at most `size` before its own."""
        tuples, time = [*before, row], row["time"]
        assert self.spec.every is not None
        if len(tuples) % self.spec.every == 0:
            start = time - self.spec.size_us
            yield start, time + 1, [x for x in tuples if x["time"] >= start]


class DeltaOracle(OrderedOracle):
    """Delta windows.

    >>> oracle = DeltaOracle(Delta("a", 5, slide=2), ordered_by_time=False)
    >>> [window.end for window in oracle.batch([{"key": 1, "a": a} for a in (0.1, 1.0, 2.1, 2.5, 3.0, 4.2)])]
    [2, 5]
    """

    spec: Delta

    def __init__(self, spec: Delta, ordered_by_time: bool = True, order: Sequence[str] = ()) -> None:
        """Start with no marker."""
        super().__init__(spec, ordered_by_time, order)
        self._marker: dict[Any, int] = {}  # the index of the marker among the tuples of its key

    def take_tuple(self, row: Row, before: list[Row]) -> Iterator[tuple[int, int, list[Row]]]:
        """Fire when the attribute has advanced by `slide` since the marker."""
        column, value = self.spec.column, row[self.spec.column]
        if value is None or value != value or (before and value < before[-1][column]):  # noqa: PLR0124
            raise DisorderedAttribute(column, len(before), f"is {value}")
        if not before:
            self._marker[row["key"]] = 0
            return
        marker = self._marker[row["key"]]
        if value >= before[marker][column] + self.spec.slide:
            start = marker
            if not self.spec.tumbling:
                inside = [i for i, x in enumerate(before) if x[column] >= value - self.spec.size]
                start = inside[0] if inside else len(before)
            yield start + 1, len(before), before[start:]
            self._marker[row["key"]] = len(before)


def sort_key(row: Row, first: Sequence[str]) -> tuple[Any, ...]:
    """Return the key that sorts rows by the columns `first`, then by the others as they stand; null before all.

    >>> rows = [{"time": 1, "x": 2.0}, {"time": 1, "x": None}, {"time": 0, "x": float("nan")}]
    >>> [row["x"] for row in sorted(rows, key=lambda row: sort_key(row, ["time"]))]
    [nan, None, 2.0]
    """
    return tuple(_value_key(row[name]) for name in (*first, *(n for n in row if n not in first)))


def _value_key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return (1, value)
