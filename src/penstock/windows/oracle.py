"""The sequential operator that is obviously right: one row, one window, one value at a time. Tests compare with it.

It keeps the raw rows of every open window and adds them up when the window closes, as Spark's own
`groupBy(key, window(...))` means it. Watermark rule (Spark's append mode): in batch i the watermark W_i comes from the
batches before it; a row is added to those of its windows with end > W_(i-1), which are the ones not emitted yet; then
the windows with end <= W_i are emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.windows.aggregates import AggregateOverflow, Output
from penstock.windows.time import END_OF_TIME, Time

Row = Mapping[str, Any]


class Oracle:
    """A time-window operator fed batch by batch.

    >>> from penstock.windows.aggregates import bind, count
    >>> oracle = Oracle(Time("10 us"), bind({"n": count()}, {}))
    >>> oracle.batch([{"key": "a", "time": 1}, {"key": "a", "time": 12}])
    []
    >>> oracle.batch([{"key": "a", "time": 3}])  # just in time: [0, 10) closes now, with the rows of this batch
    [{'key': 'a', 'start': 0, 'end': 10, 'rows': 2, 'n': 2}]
    >>> oracle.batch([{"key": "a", "time": 4}])  # too late
    []
    >>> oracle.flush(), len(oracle.late)
    ([{'key': 'a', 'start': 10, 'end': 20, 'rows': 1, 'n': 1}], 1)
    """

    def __init__(self, spec: Time, outputs: Sequence[Output]) -> None:
        """Start with no rows and no watermark."""
        self.spec, self.outputs = spec, outputs
        self.late: list[Row] = []  # rows that missed a window, once each
        self.watermark: int | None = None  # of the last batch
        self._highest: int | None = None
        self._windows: dict[tuple[Any, int], list[Row]] = {}

    def batch(self, rows: Iterable[Row], tick: int | None = None) -> list[dict[str, Any]]:
        """Take rows with `key`, `time` and values; return the windows that close. A tick raises the watermark."""
        known = [] if self._highest is None else [self._highest - self.spec.lateness_us]
        closed = self.watermark
        self.watermark = max([w for w in (self.watermark, tick, *known) if w is not None], default=None)
        for row in rows:
            missed = row["time"] is None
            for start in [] if missed else self._starts(row["time"]):
                if closed is not None and start + self.spec.size_us <= closed:
                    missed = True
                else:
                    self._windows.setdefault((row["key"], start), []).append(row)
            if missed:
                self.late.append(row)
            if row["time"] is not None and (self._highest is None or row["time"] > self._highest):
                self._highest = row["time"]
        return [] if self.watermark is None else self._emit(self.watermark)

    def flush(self) -> list[dict[str, Any]]:
        """Return all windows that are still open."""
        return self._emit(END_OF_TIME)

    def _starts(self, time: int) -> Iterator[int]:
        start = self.spec.start_of((time - self.spec.origin_us) // self.spec.slide_us)
        while start + self.spec.size_us > time:
            yield start
            start -= self.spec.slide_us

    def _emit(self, watermark: int) -> list[dict[str, Any]]:
        done = [w for w in self._windows if w[1] + self.spec.size_us <= watermark]
        return [self._result(key, start, self._windows.pop((key, start))) for key, start in done]

    def _result(self, key: Any, start: int, rows: list[Row]) -> dict[str, Any]:
        out = {"key": key, "start": start, "end": start + self.spec.size_us, "rows": len(rows)}
        return out | {output.name: _aggregate(output, rows) for output in self.outputs}


def _aggregate(output: Output, rows: Sequence[Row]) -> int | float | None:
    name, column = output.aggregate.name, output.aggregate.column
    if column is None:
        return len(rows)
    values = [row[column] for row in rows if row[column] is not None]
    if name == "count":
        return len(values)
    if not values:
        return None
    if name == "mean":
        return sum(float(v) for v in values) / len(values)
    if output.kind == "double":
        return sum(float(v) for v in values)
    total = int(sum(values))
    if not -(2**63) <= total < 2**63:
        raise AggregateOverflow(f"sum({column!r}): a sum of integers left 64 bits; cast the column to double")
    return total
