"""How raw rows enter a window operator: its clock, which rows are late, and what the driver wants to know of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.spark.heads import one_batch
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.results import event_times
from penstock.engine.spark.state import HASH
from penstock.engine.spark.watermarks import clock_pane, moved
from penstock.windows.kinds import WindowSpec, is_ordered
from penstock.windows.order import arrange
from penstock.windows.time import END_OF_TIME, Time

TIME = "_ps_time"
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Clock:
    """The watermarks of one window operator in one batch.

    Spark's rule: rows behind `closed`, the watermark of the batch before, are late; the others join. Then what `closed`
    had not passed and `upto` has is closed or released, rows of this very batch too. `final`: that is everything (a
    flush, or a batch DataFrame), and nothing is kept. `at_once`: the rows of this batch move `upto` on, as if a batch
    without rows came after it. `appends`: rows are only kept, for a tick after the batch that closes windows; unless
    so many tasks close them `ahead`, each of a share of the keys (ticks.py).
    """

    closed: int | None
    upto: int | None
    final: bool
    at_once: bool = False
    appends: bool = False
    ahead: int | None = None

    @classmethod
    def of(cls, task: TaskRun, operator: str) -> Clock:
        """Read the clock from the batch's document."""
        if task.folder is None:
            return cls(None, END_OF_TIME, final=True)
        entry = task.batch["windows"][operator]
        if entry["flush"]:
            return cls(entry["closed"], END_OF_TIME, final=True)
        return cls(entry["closed"], entry["watermark"], False, entry["at_once"], entry["appends"], entry["ahead"])

    def moved(self, latest: int | None, spec: WindowSpec) -> Clock:
        """Return the clock after rows of this batch up to an event time, where they count at once.

        >>> Clock(5, 8, final=False, at_once=True).moved(20, Time("10 us", lateness="2 us")).upto
        18
        """
        return replace(self, upto=moved(self.upto, latest, spec)) if self.at_once else self

    def passes(self, spec: Time) -> bool:
        """Whether the end of a window of a fixed grid was passed; if not, none closes and no log need be read.

        >>> Clock(None, None, final=False).passes(Time("10 us")), Clock(None, 5, final=False).passes(Time("10 us"))
        (False, True)
        >>> [Clock(5, upto, final=False).passes(Time("10 us")) for upto in (9, 10)]
        [False, True]
        """
        if self.upto is None or self.closed is None:
            return self.upto is not None
        return spec.last_closed(self.upto) > spec.last_closed(self.closed)


@dataclass
class Intake:
    """Takes the rows of a batch in: late ones are counted and go no further."""

    operator: str
    key: tuple[str, ...]
    time: str | None
    order: tuple[str, ...]
    schema: pa.Schema
    arrives: str | None
    spec: WindowSpec

    def take(self, table: pa.Table | None, closed: int | None, task: TaskRun, counters: Counters) -> pa.Table | None:
        """Return the rows that a window waits for, with their hash; `closed` is the watermark of the batch before."""
        rows = self.rows(table, counters)
        if rows is None or self.time is None:
            return rows
        times, valid = event_times(rows, self.time)
        on_time = valid & ~behind(self.spec, times, closed)
        self.note(rows, times, valid, on_time, missed(self.spec, times, valid, closed), task)
        return rows if on_time.all() else rows.filter(pa.array(on_time))

    def rows(self, table: pa.Table | None, counters: Counters) -> pa.Table | None:
        """Return the rows as they came, with their hash and without their position."""
        if table is None:
            return None
        counters.rows_in += table.num_rows
        # Whether a column may be null differs between a source and a tap, and would keep logs from being joined.
        fields = pa.schema([pa.field(HASH, pa.int64()), *self.schema])
        columns = [table.column(field.name) for field in fields]
        fitted = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, fields, strict=True)]
        return pa.Table.from_arrays(fitted, schema=fields)

    def note(self, rows: pa.Table, times: Longs, valid: Bools, accept: Bools, late: Bools, task: TaskRun) -> None:
        """Tell the driver what was seen; hand late rows to whoever reads them."""
        seen: dict[str, Any] = {
            "late": int(np.count_nonzero(late)),
            "max_event": int(times[valid].max()) if valid.any() else None,
        }
        if self.arrives is not None and accept.any():
            seen["first"] = self._first_arrivals(rows, times, accept)
        task.extra.setdefault("seen", {})[self.operator] = seen
        port = f"{self.operator}.late"
        if seen["late"] and task.reads(port):
            missed_rows = rows.filter(pa.array(late)).select(self.schema.names)
            task.emit(port, one_batch(missed_rows), task.partition << CHUNK_BITS)

    def _first_arrivals(self, rows: pa.Table, times: Longs, on_time: Bools) -> list[list[int]]:
        """Return, for each pane of event time, when its first row arrived."""
        assert self.arrives is not None
        arrived = rows.column(self.arrives).combine_chunks().cast(pa.int64())
        table = pa.table({"pane": clock_pane(self.spec, times), "arrived": arrived}).filter(pa.array(on_time))
        first = table.group_by("pane").aggregate([("arrived", "min")])
        return [first.column("pane").to_pylist(), first.column("arrived_min").to_pylist()]

    def order_of(self, rows: pa.Table, slots: Longs) -> Longs:
        """Return the permutation that puts rows in order: by key, event time, `order=` columns, all others.

        Without event time rows keep the order in which they were read, key by key.
        """
        columns = rows.select(self.schema.names)
        if self.time is None:
            return arrange(columns, slots, [])
        times, _ = event_times(rows, self.time)
        return arrange(columns.append_column(TIME, pa.array(times)), slots, [TIME, *self.order])


def behind(spec: WindowSpec, times: Longs, closed: int | None) -> Bools:
    """Tell which event times no window waits for: those of closed windows or of none, or behind what was released."""
    if is_ordered(spec):
        return np.zeros(len(times), dtype=bool) if closed is None else times < closed
    assert isinstance(spec, Time)
    if closed is None:
        return np.asarray(spec.first_window(times) > spec.last_window(times))
    return ~spec.has_open(times, closed)


def missed(spec: WindowSpec, times: Longs, valid: Bools, closed: int | None) -> Bools:
    """Tell which rows missed a window: those without event time, too."""
    if closed is None:
        return ~valid
    if is_ordered(spec):
        return ~valid | (times < closed)
    assert isinstance(spec, Time)
    return ~valid | spec.has_missed(times, closed)


def latest_seen(task: TaskRun, operator: str) -> int | None:
    """Return the greatest event time among the rows that a task has taken in."""
    latest: int | None = task.extra.get("seen", {}).get(operator, {}).get("max_event")
    return latest


@dataclass(frozen=True)
class LateRule:
    """The predicate of a window's late rows, as a fused step calls it."""

    window: str
    spec: WindowSpec
    time: str

    def __call__(self, batch: pa.RecordBatch, document: dict[str, Any]) -> Bools:
        """Return which rows missed a window in this batch."""
        times, valid = event_times(pa.Table.from_batches([batch]), self.time)
        closed = document.get("windows", {}).get(self.window, {}).get("closed")
        return missed(self.spec, times, valid, closed)
