"""The head of windows that count or compare tuples in order: Count, Delta, and Time windows that slide by tuple.

Per key the state is one row: what the kind must remember, and the tuples that later windows still need. With an event
time, rows wait in a log until the watermark passes them and are then taken in order, so that results do not depend on
how the stream was cut into batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.conform import FunctionFailed
from penstock.engine.spark.heads import gather
from penstock.engine.spark.intake import Clock, Intake, latest_seen
from penstock.engine.spark.keyed import Keys, KeyStore, keys_of
from penstock.engine.spark.logs import RowLog
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.results import Evaluation, event_times
from penstock.engine.spark.row_runs import behind_each_other, keep_rows, take_rows
from penstock.windows.delta import Delta, DisorderedAttribute, attribute
from penstock.windows.firing import Advance, slots_of
from penstock.windows.kinds import WindowSpec, advance, meta_types
from penstock.windows.time import Time

CONTENT = "content"
Longs = npt.NDArray[np.int64]


@dataclass
class OrderedHead:
    """Takes each key's rows one after the other (key partitioning, thesis 000 section 4.4)."""

    intake: Intake
    spec: WindowSpec
    evaluation: Evaluation

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Release rows, fire windows, keep what later ones need."""
        operator = self.evaluation.operator
        counters = task.counters.setdefault(operator, Counters())
        table = gather(batches)
        before = time.perf_counter()
        clock = Clock.of(task, operator)
        fresh = self.intake.take(table, clock.closed, task, counters)
        clock = clock.moved(latest_seen(task, operator), self.spec)
        rows = fresh if self.intake.time is None else self._release(fresh, clock, task, counters)
        result = self._advance(rows, task, counters) if rows is not None and rows.num_rows else None
        spent = time.perf_counter() - before
        counters.busy += spent
        counters.service.append(spent)
        if result is not None:
            counters.rows_out += result.num_rows
            task.emit(operator, result, task.partition << CHUNK_BITS)
        yield

    def _release(self, fresh: pa.Table | None, clock: Clock, task: TaskRun, counters: Counters) -> pa.Table | None:
        """Put rows that may still be overtaken aside; return those that the watermark has passed, in whatever batch."""
        if task.folder is None:
            return fresh
        log = RowLog(task, self.evaluation.operator, f"{self.evaluation.operator}.pending")
        passes = clock.final or (clock.upto is not None and (clock.closed is None or clock.upto > clock.closed))
        if not passes and not log.is_long:
            log.write(fresh, counters)
            return None
        pieces = [piece for piece in (log.read(), fresh) if piece is not None]
        both = pa.concat_tables(pieces) if pieces else None
        released, waiting = (both, None) if clock.final else (None, both)
        if both is not None and clock.upto is not None and not clock.final:
            times, _ = event_times(both, self.intake.time or "")
            free = pa.array(times < clock.upto)
            released, waiting = both.filter(free), both.filter(pc.invert(free)).combine_chunks()
        log.write(waiting, counters, whole=True)
        return released

    def _advance(self, rows: pa.Table, task: TaskRun, counters: Counters) -> pa.RecordBatch | None:
        """Arrange the rows behind what their keys kept, fire, evaluate, and save."""
        keys = keys_of(rows, self.intake.key, by_hash=True)
        name = self.evaluation.operator
        store = KeyStore(task, name, name, self.intake.key, self._state_schema())
        state, _ = store.lookup(keys)
        arranged, edges, known = self._arranged(rows, keys, state)
        step = self._step(arranged, edges, known, state)
        self._note_completion(arranged, step, task)
        seen = pc.fill_null(state.column("count"), 0).to_numpy()
        slots = slots_of(edges)
        position = np.arange(arranged.num_rows) + (seen - known - edges[:-1])[slots]
        result = self.evaluation.results(arranged, keys.table, step.fired, counters, task, position)
        if store.store is not None:
            schema = self._state_schema()
            left = keep_rows(arranged, step.keep)
            content = as_lists(left.to_struct_array(), step.keep, edges).cast(schema.field(CONTENT).type)
            columns = [pa.array(step.meta[name]) for name in self._meta()]
            store.save(keys, pa.Table.from_arrays([*columns, content], schema=schema), None, counters)
        return result

    def _arranged(self, rows: pa.Table, keys: Keys, state: pa.Table) -> tuple[pa.Table, Longs, Longs]:
        """Put each key's rows in order behind those it kept; return them, the keys' edges, and how many were kept."""
        order = self.intake.order_of(rows, keys.slots)
        fresh = take_rows(rows.select(self.intake.schema.names), order)
        kept = state.column(CONTENT).combine_chunks()
        known = pc.fill_null(pc.list_value_length(kept), 0).to_numpy().astype(np.int64)
        counts = np.bincount(keys.slots, minlength=len(keys))
        edges = np.zeros(len(keys) + 1, dtype=np.int64)
        np.cumsum(known + counts, out=edges[1:])
        if not known.any():
            return fresh.combine_chunks(), edges, known
        old = pa.Table.from_batches([pa.RecordBatch.from_struct_array(pc.list_flatten(kept))])
        return behind_each_other(old.cast(fresh.schema), known, fresh, counts), edges, known

    def _step(self, arranged: pa.Table, edges: Longs, known: Longs, state: pa.Table) -> Advance:
        meta: dict[str, Any] = {
            name: pc.fill_null(state.column(name), 0).to_numpy().astype(kind) for name, kind in self._meta().items()
        }
        try:
            return advance(self.spec, edges, known, self._values(arranged), meta)
        except DisorderedAttribute as error:
            row = arranged.slice(error.row, 1).to_pylist()[0]
            text = f"(window) {error}; the row is {row}. Remedy: order the stream by it, or name its event time"
            raise FunctionFailed(self.evaluation.operator, text) from error

    def _values(self, arranged: pa.Table) -> Any:
        """Return what the kind looks at: an attribute, the event time, or nothing."""
        if isinstance(self.spec, Delta):
            return attribute(arranged.column(self.spec.column), self.spec.column)
        return event_times(arranged, self.intake.time or "")[0] if isinstance(self.spec, Time) else None

    def _meta(self) -> dict[str, type]:
        """Return what the kind remembers per key."""
        floating = isinstance(self.spec, Delta) and pa.types.is_floating(
            self.intake.schema.field(self.spec.column).type
        )
        return meta_types(self.spec, floating)

    def _note_completion(self, arranged: pa.Table, step: Advance, task: TaskRun) -> None:
        """Tell the driver when, in event time, each window was complete: its latency counts from what released it."""
        if self.intake.time is None or not len(step.fired.slot):
            return
        times, _ = event_times(arranged, self.intake.time)
        done, counts = np.unique(times[np.maximum(step.fired.hi - 1, 0)] + 1, return_counts=True)
        task.extra.setdefault("closed", {})[self.evaluation.operator] = [done.tolist(), counts.tolist()]

    def _state_schema(self) -> pa.Schema:
        rows = pa.list_(pa.struct(list(self.intake.schema)))
        meta = [(name, pa.from_numpy_dtype(kind)) for name, kind in self._meta().items()]
        return pa.schema([*meta, (CONTENT, rows)])


def as_lists(rows: pa.Array, keep: npt.NDArray[np.bool_], edges: Longs) -> pa.ListArray:
    """Return the kept rows (already filtered) as one list per key."""
    values = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    upto = np.concatenate([[0], np.cumsum(keep)])
    return pa.ListArray.from_arrays(pa.array(upto[edges], pa.int32()), values)
