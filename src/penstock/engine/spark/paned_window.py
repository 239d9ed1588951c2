"""The heads of windows whose panes are made in Python (pane farming, thesis 000 section 4.5).

Aggregates that Spark cannot compute in parts, but whose user said how (`ps.Aggregate`): rows are lifted and combined
into their panes in the batch they come in, and only partials are kept. A pane and a combine function: the pane is
computed when the first window that holds it closes. Rows that come later for it, still in time for an open window, form
one more piece of that pane. Count windows: panes of gcd(size, slide) tuples, each computed when full; windows over
tuples are windows over panes then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.conform import FunctionFailed, user_trace
from penstock.engine.spark.heads import gather
from penstock.engine.spark.intake import Clock, Intake, latest_seen
from penstock.engine.spark.keyed import KeyStore, keys_of
from penstock.engine.spark.logs import RowLog
from penstock.engine.spark.ordered_window import CONTENT, OrderedHead, as_lists
from penstock.engine.spark.pane_functions import PaneFunctions
from penstock.engine.spark.pane_window import PaneHead
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.results import event_times
from penstock.engine.spark.row_runs import keep_rows
from penstock.engine.spark.state import HASH
from penstock.errors import PenstockError
from penstock.windows.count import Count
from penstock.windows.firing import Fired
from penstock.windows.kinds import advance
from penstock.windows.order import edges_of
from penstock.windows.panes import PANE, lift_panes, reached_by
from penstock.windows.time import Time
from penstock.windows.time_content import fire_time

ROWS, RESULT = "_ps_rows", "_ps_result"
Longs = npt.NDArray[np.int64]


@dataclass
class LiftedPaneHead(PaneHead):
    """Time windows over partial aggregates that are lifted here, each row once, in the place of Spark's groupBy."""

    intake: Intake | None = None

    def _fresh(self, table: pa.Table | None, closed: int | None, task: TaskRun, counters: Counters) -> pa.Table | None:
        """Lift the rows that are on time, a few array operations for all panes of all keys."""
        assert self.intake is not None
        rows = self.intake.take(table, closed, task, counters)
        if rows is None or not rows.num_rows:
            return None
        times, _ = event_times(rows, self.intake.time or "")
        with self._named(task):
            return lift_panes(rows.append_column(PANE, pa.array(self.spec.pane_of(times))), self.outputs, self.key)

    def _close(self, fresh: pa.Table | None, clock: Clock, task: TaskRun) -> list[pa.Table]:
        with self._named(task):
            return super()._close(fresh, clock, task)

    @contextmanager
    def _named(self, task: TaskRun) -> Iterator[None]:
        """Name the operator where lift, combine or lower fail."""
        try:
            yield
        except (OSError, PenstockError):
            raise
        except Exception as error:
            text = f"(window) raised {type(error).__name__}: {error}; batch {task.batch['id']}\n{user_trace(error)}"
            raise FunctionFailed(self.operator, text) from error


@dataclass
class PanedTimeHead:
    """Time windows over the results of a pane function."""

    intake: Intake
    spec: Time
    functions: PaneFunctions

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Compute the panes that closing windows reach, combine them, keep rows of the others."""
        operator = self.intake.operator
        counters = task.counters.setdefault(operator, Counters())
        table = gather(batches)
        before = time.perf_counter()
        clock = Clock.of(task, operator)
        fresh = self.intake.take(table, clock.closed, task, counters)
        clock = clock.moved(latest_seen(task, operator), self.spec)
        results = self._run(fresh, clock, task, counters)
        spent = time.perf_counter() - before
        counters.busy += spent
        counters.service.append(spent)
        for result in results:
            counters.rows_out += result.num_rows
            task.emit(operator, result, task.partition << CHUNK_BITS)
            yield

    def _run(self, fresh: pa.Table | None, clock: Clock, task: TaskRun, counters: Counters) -> list[pa.RecordBatch]:
        name = self.intake.operator
        log = RowLog(task, name, name) if task.folder is not None else None
        done = RowLog(task, name, f"{name}.panes") if task.folder is not None else None
        if clock.upto is None or not clock.passes(self.spec):
            if log is not None:
                self._append(log, fresh, counters, whole=False)
            return []
        pieces = [log.read() if log is not None else None, fresh]
        rows = [piece for piece in pieces if piece is not None and piece.num_rows]
        panes = done.read() if done is not None else None
        left, made = self._compute(pa.concat_tables(rows) if rows else None, clock.upto, task, counters)
        results = self._combine(panes, made, clock.closed, clock.upto, task, counters)
        if log is not None and done is not None:
            self._append(log, None if clock.final else left, counters, whole=True)
            self._keep_panes(done, panes, made, clock, counters)
        return results

    def _compute(
        self, rows: pa.Table | None, watermark: int, task: TaskRun, counters: Counters
    ) -> tuple[pa.Table | None, list[pa.Table]]:
        """Call the pane function for every pane that a window up to the watermark holds; return the other rows."""
        if rows is None or not rows.num_rows:
            return rows, []
        times, _ = event_times(rows, self.intake.time or "")
        due = self.spec.pane_of(times) < reached_by(self.spec, watermark)
        if not due.any():
            return rows, []
        mine = rows.filter(pa.array(due))
        keys = keys_of(mine, self.intake.key)
        order = self.intake.order_of(mine, keys.slots)
        mine, slots, pane = mine.take(pa.array(order)), keys.slots[order], self.spec.pane_of(times[due][order])
        fresh = np.ones(len(pane), dtype=bool)
        fresh[1:] = (slots[1:] != slots[:-1]) | (pane[1:] != pane[:-1])
        lo = np.flatnonzero(fresh)
        hi = np.append(lo[1:], len(pane))
        start, end = self.spec.start_of_pane(pane[lo]), self.spec.start_of_pane(pane[lo] + 1)
        cut = Fired(slots[lo], lo, hi, start, end, pane[lo])
        result = self.functions.results_of_panes(mine, keys.table, cut, counters, task)
        table = mine.select([HASH, *self.intake.key]).take(pa.array(lo))
        for column, values in ((PANE, pa.array(pane[lo])), (ROWS, pa.array(hi - lo)), (RESULT, result)):
            table = table.append_column(column, values)
        return rows.filter(pa.array(~due)), [table]

    def _combine(
        self,
        panes: pa.Table | None,
        made: list[pa.Table],
        closed: int | None,
        upto: int,
        task: TaskRun,
        counters: Counters,
    ) -> list[pa.RecordBatch]:
        """Call the combine function for the windows that close."""
        pieces = [piece for piece in (panes, *made) if piece is not None]
        if not pieces:
            return []
        table = pa.concat_tables(pieces)
        keys = keys_of(table, self.intake.key)
        pane = table.column(PANE).to_numpy()
        order = np.lexsort((pane, keys.slots))  # stable: later pieces of a pane stand behind the first
        starts = self.spec.start_of_pane(pane[order])
        # No window edge lies inside a pane, so a pane is in a window iff its first microsecond is.
        fired = fire_time(self.spec, edges_of(keys.slots, len(keys)), starts, closed, upto)
        table = table.take(pa.array(order))
        if len(fired):
            ends, counts = np.unique(fired.end, return_counts=True)
            task.extra.setdefault("closed", {})[self.intake.operator] = [ends.tolist(), counts.tolist()]
        rows = table.column(ROWS).to_numpy()
        result = self.functions.results_of_windows(
            table.column(RESULT).combine_chunks(), rows, keys.table, fired, counters, task
        )
        return [result] if result is not None else []

    def _append(self, log: RowLog, rows: pa.Table | None, counters: Counters, *, whole: bool) -> None:
        bounds = (0, 0)
        if rows is not None and rows.num_rows:
            rows = rows.combine_chunks()
            times, _ = event_times(rows, self.intake.time or "")
            bounds = (int(times.min()), int(times.max()))
        log.write(rows, counters, bounds, whole=whole)

    def _keep_panes(
        self, done: RowLog, panes: pa.Table | None, made: list[pa.Table], clock: Clock, counters: Counters
    ) -> None:
        """Append the new panes' results; whole segments that no open window needs are dropped by the driver."""
        if clock.final:
            done.write(None, counters, whole=True)
            return
        whole, pieces = done.is_long, list(made)
        if whole and panes is not None:
            assert clock.upto is not None
            least = (self.spec.last_closed(clock.upto) + 1) * self.spec.panes_per_slide
            pieces.insert(0, panes.filter(pc.greater_equal(panes.column(PANE), least)))
        table = pa.concat_tables(pieces).combine_chunks() if pieces else None
        bounds = (0, 0)
        if table is not None and table.num_rows:
            pane = table.column(PANE).to_numpy()
            bounds = self.spec.start_of_pane(int(pane.min())), self.spec.start_of_pane(int(pane.max()) + 1)
        done.write(table, counters, bounds, whole=whole)


@dataclass
class PanedCountHead(OrderedHead):
    """Count windows over the results of a pane function: tumbling panes of tuples, then windows of panes."""

    functions: PaneFunctions | None = None

    def _advance(self, rows: pa.Table, task: TaskRun, counters: Counters) -> pa.RecordBatch | None:
        assert isinstance(self.spec, Count)
        assert self.functions is not None
        width = math.gcd(self.spec.size, self.spec.slide)
        over_panes = Count(self.spec.size // width, self.spec.slide // width, partial=self.spec.partial)
        keys = keys_of(rows, self.intake.key, by_hash=True)
        name = self.evaluation.operator
        store = KeyStore(task, name, name, self.intake.key, self._paned_schema())
        state, _ = store.lookup(keys)
        # first level: the tuples of a key, cut into panes
        arranged, edges, known = self._arranged(rows, keys, state)
        cut = advance(Count(width), edges, known, None, {"count": _numbers(state, "count")})
        made = self.functions.results_of_panes(arranged, keys.table, cut.fired, counters, task)
        # second level: the results of a key's panes are the tuples
        kept = state.column("panes").combine_chunks()
        before = pc.fill_null(pc.list_value_length(kept), 0).to_numpy().astype(np.int64)
        per_key = np.bincount(cut.fired.slot, minlength=len(keys))
        slots = np.concatenate([np.repeat(np.arange(len(keys)), before), cut.fired.slot])
        order = np.argsort(slots, kind="stable")
        results = pa.concat_arrays([pc.list_flatten(kept), made]).take(pa.array(order))
        pane_edges = np.zeros(len(keys) + 1, dtype=np.int64)
        np.cumsum(before + per_key, out=pane_edges[1:])
        step = advance(over_panes, pane_edges, before, None, {"count": _numbers(state, "panes_seen")})
        fired = replace(step.fired, start=(step.fired.start - 1) * width + 1, end=step.fired.end * width)
        counts = np.full(len(results), width, dtype=np.int64)
        result = self.functions.results_of_windows(results, counts, keys.table, fired, counters, task)
        left = keep_rows(arranged, cut.keep)
        columns = [
            pa.array(cut.meta["count"]),
            as_lists(left.to_struct_array(), cut.keep, edges),
            pa.array(step.meta["count"]),
            as_lists(results.filter(pa.array(step.keep)), step.keep, pane_edges),
        ]
        schema = self._paned_schema()
        columns = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        store.save(keys, pa.Table.from_arrays(columns, schema=schema), None, counters)
        return result

    def _paned_schema(self) -> pa.Schema:
        rows = pa.list_(pa.struct(list(self.intake.schema)))
        fields = [("count", pa.int64()), (CONTENT, rows), ("panes_seen", pa.int64()), ("panes", pa.list_(pa.binary()))]
        return pa.schema(fields)


def _numbers(state: pa.Table, column: str) -> Longs:
    values: Longs = pc.fill_null(state.column(column), 0).to_numpy()
    return values
