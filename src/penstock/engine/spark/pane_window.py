"""The head of a window over panes: partial aggregates made before it, by Spark, are all that it keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.conform import conform
from penstock.engine.spark.heads import gather
from penstock.engine.spark.intake import Clock, latest_seen
from penstock.engine.spark.logs import RowLog
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.results import DETAILS, details_of
from penstock.engine.spark.state import HASH
from penstock.windows.aggregates import ROWS, Output, partials_of
from penstock.windows.panes import END, PANE, START, close_windows, compact, live, pane_bounds, reached_by
from penstock.windows.time import Time


@dataclass
class PaneHead:
    """Closes windows over the pane log and the batch's pane rows, then keeps those (thesis 000, pane farming)."""

    operator: str
    key: tuple[str, ...]
    spec: Time
    outputs: tuple[Output, ...]
    schema: pa.Schema
    details: bool = False

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit the windows that the watermark in force closes; keep the panes that open windows need.

        Or only append to the log, where the rows at hand are not those of this task's keys.
        """
        counters = task.counters.setdefault(self.operator, Counters())
        clock = Clock.of(task, self.operator)
        begun = time.perf_counter()
        ahead = self._close(None, clock, task) if clock.ahead else []  # while the rows are on their way
        spent = time.perf_counter() - begun
        table = gather(batches)
        begun = time.perf_counter()
        fresh = self._fresh(table, clock.closed, task, counters)
        if clock.appends:
            results = ahead
            self._append(fresh, task, counters)
        else:
            clock = clock.moved(latest_seen(task, self.operator), self.spec)
            results = self._close(fresh, clock, task)
            if task.folder is not None:
                self._keep(fresh, clock, task, counters)
        counters.calls += 1
        spent += time.perf_counter() - begun
        counters.busy += spent
        counters.service.append(spent)
        for result in results:
            counters.rows_out += result.num_rows
            task.extra.setdefault("closed", {})[self.operator] = self._rows_by_end(result)
            task.emit(self.operator, self._finish(result, spent, task), task.partition << CHUNK_BITS)
            yield

    def _fresh(self, table: pa.Table | None, closed: int | None, task: TaskRun, counters: Counters) -> pa.Table | None:
        """Split the native pane rows into panes and the few figures the driver wants.

        All rows of a pane have the same windows. A pane whose first window closed before this batch holds rows that
        missed it: they are counted as late, as are those of the null pane, without event time; those with no window
        left go no further.
        """
        if table is None:
            return None
        if PANE not in table.column_names:
            stamps = table.column("_ps_max").combine_chunks()
            pane = self.spec.pane_of(pc.fill_null(stamps, 0).to_numpy())
            table = table.append_column(PANE, pa.array(pane, mask=stamps.is_null().to_numpy(zero_copy_only=False)))
        panes, missed = self._sort_out(table, closed)
        seen: dict[str, Any] = {
            "late": int(pc.sum(missed.column("_ps_rows")).as_py() or 0) if missed is not None else 0,
            "max_event": pc.max(table.column("_ps_max")).as_py(),
        }
        counters.rows_in += int(pc.sum(table.column("_ps_rows")).as_py() or 0)
        if "_ps_first" in table.column_names and panes.num_rows:
            grouped = panes.select([PANE, "_ps_first"]).group_by(PANE).aggregate([("_ps_first", "min")])
            seen["first"] = [grouped.column(PANE).to_pylist(), grouped.column("_ps_first_min").to_pylist()]
        task.extra.setdefault("seen", {})[self.operator] = seen
        names = [HASH, *self.key, PANE, *(p.name for p in partials_of(self.outputs))]
        if not panes.num_rows:
            return None
        # Nullable, whatever Spark says of this batch: logs of different batches are joined.
        fresh = pa.table({name: panes.column(name) for name in names})
        return fresh if task.folder is None else compact(fresh, self.key, self.outputs)

    def _sort_out(self, table: pa.Table, closed: int | None) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows of panes with an open window, and those that missed one; None if all came in time."""
        spec, stamps = self.spec, table.column(PANE)
        if not stamps.null_count and (closed is None or self._in_time(table, closed)):
            return table, None
        keep = pc.is_valid(stamps)
        missed = pc.invert(keep)
        if closed is not None:
            pane = pc.fill_null(stamps, 0).to_numpy()
            first, last = spec.first_window_of_pane(pane), spec.last_window_of_pane(pane)
            late = (first <= spec.last_closed(closed)) & (first <= last)
            missed = pc.or_(missed, pa.array(late))
            keep = pc.and_(keep, pa.array(last > spec.last_closed(closed)))
        return table.filter(keep), table.filter(missed)

    def _in_time(self, table: pa.Table, closed: int) -> bool:
        """Tell whether all windows of all panes are open: they ascend with the panes, so the least pane says it."""
        bounds = pane_bounds(table)
        if bounds is None:
            return True
        first, last = self.spec.first_window_of_pane(bounds[0]), self.spec.last_window_of_pane(bounds[0])
        return min(first, last) > self.spec.last_closed(closed)

    def _close(self, fresh: pa.Table | None, clock: Clock, task: TaskRun) -> list[pa.Table]:
        """Close the windows whose end was passed, over the log and the batch's panes."""
        if clock.upto is None or not clock.passes(self.spec):
            return []
        old = None
        if task.folder is not None:
            log = RowLog(task, self.operator, self.operator, share=clock.ahead)
            old = log.read(below=reached_by(self.spec, clock.upto))
        pieces = [piece for piece in (old, fresh) if piece is not None]
        if not pieces:
            return []
        panes = pa.concat_tables(pieces)
        result = close_windows(panes, self.key, self.spec, self.outputs, clock.closed, clock.upto)
        return [result] if result.num_rows else []

    def _keep(self, fresh: pa.Table | None, clock: Clock, task: TaskRun, counters: Counters) -> None:
        """Write the batch's panes that open windows need as one more segment; of many segments make one."""
        log = RowLog(task, self.operator, self.operator)
        if clock.final:
            log.write(None, counters, whole=True)
            return
        whole, table = log.is_long, fresh  # the fresh ones are sorted and compact already
        if whole and (old := log.read()) is not None:
            table = compact(old if fresh is None else pa.concat_tables([old, fresh]), self.key, self.outputs)
        if table is not None and clock.upto is not None:
            table = live(table, self.spec, clock.upto).combine_chunks()
        bounds = pane_bounds(table) if table is not None else None
        log.write(table, counters, bounds or (0, 0), whole=whole, by_hash=True)

    def _append(self, fresh: pa.Table | None, task: TaskRun, counters: Counters) -> None:
        """Write the batch's panes as one more segment, of whatever keys; another job closes windows."""
        bounds = pane_bounds(fresh) if fresh is not None else None
        RowLog(task, self.operator, self.operator, shared=True).write(fresh, counters, bounds or (0, 0), by_hash=True)

    def _rows_by_end(self, result: pa.Table) -> list[list[int]]:
        """Return the ends of the closed windows, and how many results each has."""
        ends = result.column(END).to_numpy()
        least, slide = int(ends.min()), self.spec.slide_us
        if (int(ends.max()) - least) // slide > len(ends):  # far apart: a table of all ends would be mostly empty
            there, rows = np.unique(ends, return_counts=True)
            return [there.tolist(), rows.tolist()]
        counts = np.bincount((ends - least) // slide)  # all ends lie on one grid: no sort is needed
        which = np.flatnonzero(counts)
        return [(which * slide + least).tolist(), counts[which].tolist()]

    def _finish(self, result: pa.Table, spent: float, task: TaskRun) -> pa.RecordBatch:
        """Return results in their public form: key columns, window struct, outputs."""
        field = self.schema.field("window")
        stamps = [
            result.column(name).combine_chunks().cast(field.type.field(i).type) for i, name in enumerate((START, END))
        ]
        arrays: dict[str, Any] = {"window": pa.StructArray.from_arrays(stamps, fields=list(field.type))}
        if self.details:
            start = result.column(START).to_numpy()
            rows = result.column(ROWS.name).to_numpy()
            number = (start - self.spec.origin_us) // self.spec.slide_us
            kind = self.schema.field(DETAILS).type
            arrays[DETAILS] = details_of(kind, number, rows, np.arange(len(rows)), spent / len(rows), task)
        for name in self.schema.names:
            if name not in arrays:
                arrays[name] = result.column(name).combine_chunks()
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], names=self.schema.names)
        return conform(batch, self.schema)
