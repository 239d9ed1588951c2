"""The sequential operator for Time windows over content, also with origin="first" and empty=True: by definition.

It keeps every accepted row with the watermark up to which windows had fired when it came: that of the batch before. A
window [start, end) of a key holds the rows with start <= time < end that came before it fired, and fires at the end of
the first batch whose watermark has reached its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.windows.oracle_kinds import Row, Watermark, Window, sort_key
from penstock.windows.time import END_OF_TIME, Time


class TimeOracle:
    """Time windows with their content.

    >>> oracle = TimeOracle(Time("10 us", origin="first", empty=True))
    >>> oracle.batch([{"key": "a", "time": t} for t in (3, 5, 27)])
    []
    >>> [(window.start, len(window.rows)) for window in oracle.batch([])]  # the watermark is 27
    [(3, 2), (13, 0)]
    >>> [(window.start, len(window.rows)) for window in oracle.flush()]
    [(23, 1)]
    """

    def __init__(self, spec: Time) -> None:
        """Start with no rows and no watermark."""
        self.spec = spec
        self.late: list[Row] = []
        self.watermark = Watermark(spec.lateness_us)
        self._rows: dict[Any, list[tuple[Row, int | None]]] = {}
        self._done: dict[Any, set[int]] = {}  # the windows that fired
        self._origin: dict[Any, int] = {}

    def batch(self, rows: Iterable[Row], tick: int | None = None) -> list[Window]:
        """Take rows with `key`, `time` and values; return the windows that close."""
        closed = self.watermark.value
        watermark = self.watermark.next_batch(tick)
        rows = list(rows)
        if self.spec.from_first:
            self._move_origins([row for row in rows if row["time"] is not None], closed)
        for row in rows:
            self._accept(row, closed)
        return [] if watermark is None else self._close(watermark)

    def flush(self) -> list[Window]:
        """End the stream: return all windows that are still open."""
        return self._close(END_OF_TIME)

    def _move_origins(self, rows: list[Row], closed: int | None) -> None:
        stands = {key for key, origin in self._origin.items() if closed is not None and origin < closed}
        for row in rows:
            over = closed is not None and row["time"] + self.spec.size_us <= closed
            if row["key"] not in stands and not over:
                self._origin[row["key"]] = min(row["time"], self._origin.get(row["key"], row["time"]))

    def _accept(self, row: Row, closed: int | None) -> None:
        time = row["time"]
        if time is None:
            self.late.append(row)
            return
        self.watermark.saw(time)
        origin = self._origin.get(row["key"]) if self.spec.from_first else self.spec.origin_us
        if origin is None or (self.spec.from_first and time < origin):
            self.late.append(row)
            return
        ends = [self._start(origin, k) + self.spec.size_us for k in self._windows_of(time, origin)]
        if closed is not None and any(end <= closed for end in ends):
            self.late.append(row)
        self._rows.setdefault(row["key"], []).append((row, closed))

    def _windows_of(self, time: int, origin: int) -> Iterator[int]:
        k = (time - origin) // self.spec.slide_us
        while self._start(origin, k) + self.spec.size_us > time and (k >= 0 or not self.spec.from_first):
            yield k
            k -= 1

    def _start(self, origin: int, window: int) -> int:
        return origin + window * self.spec.slide_us

    def _close(self, watermark: int) -> list[Window]:
        fired: list[Window] = []
        for key, rows in self._rows.items():
            origin = self._origin[key] if self.spec.from_first else self.spec.origin_us
            content: dict[int, list[Row]] = {}
            for row, came in rows:
                for k in self._windows_of(row["time"], origin):
                    if came is None or self._start(origin, k) + self.spec.size_us > came:
                        content.setdefault(k, []).append(row)
            wanted = set(content)
            if self.spec.empty and content:  # all between the first and the last one with rows
                wanted = set(range(min(content), max(content) + 1))
            done = self._done.setdefault(key, set())
            for k in sorted(wanted - done):
                start = self._start(origin, k)
                if start + self.spec.size_us <= watermark:
                    inside = sorted(content.get(k, []), key=lambda row: sort_key(row, ["time"]))
                    fired.append(Window(key, k, start, start + self.spec.size_us, tuple(inside)))
                    done.add(k)
        return fired
