"""The head of a Time window over its content: raw rows are kept until the last window that holds them has closed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.heads import gather
from penstock.engine.spark.intake import Clock, Intake
from penstock.engine.spark.keyed import Keys, KeyStore, keys_of
from penstock.engine.spark.logs import RowLog
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.results import Evaluation, event_times
from penstock.windows.firing import Numbers
from penstock.windows.order import edges_of
from penstock.windows.time import END_OF_TIME, Time
from penstock.windows.time_content import admit, advance, meta_types

Longs = npt.NDArray[np.int64]


@dataclass
class ContentHead:
    """Windows by event time, evaluated over the rows themselves (key partitioning, thesis 000 section 4.4)."""

    intake: Intake
    spec: Time
    evaluation: Evaluation

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit the windows that the watermark closes; keep the rows that open windows need."""
        operator = self.evaluation.operator
        counters = task.counters.setdefault(operator, Counters())
        table = gather(batches)
        before = time.perf_counter()
        results = _Batch(self, Clock.of(task, operator), task, counters).run(self.intake.rows(table, counters))
        spent = time.perf_counter() - before
        counters.busy += spent
        counters.service.append(spent)
        for result in results:
            counters.rows_out += result.num_rows
            task.emit(operator, result, task.partition << CHUNK_BITS)
            yield


class _Batch:
    """One batch of one task, by the protocol of windows/time_content.py: close over the log, then admit the fresh rows.

    With `final` the rows of the batch are closed as well, after they were admitted.
    """

    def __init__(self, head: ContentHead, clock: Clock, task: TaskRun, counters: Counters) -> None:
        self.intake, self.spec, self.evaluation = head.intake, head.spec, head.evaluation
        self.clock, self.task, self.counters = clock, task, counters
        operator = head.evaluation.operator
        self.log = RowLog(task, operator, operator) if task.folder is not None else None
        kinds = meta_types(self.spec)
        self.store = None
        if kinds:  # origin="first" and empty=True remember something of each key
            schema = pa.schema([(name, pa.int64()) for name in kinds])
            self.store = KeyStore(task, operator, f"{operator}.keys", head.intake.key, schema)
        self.kinds = kinds
        self.results: list[pa.RecordBatch] = []

    def run(self, fresh: pa.Table | None) -> list[pa.RecordBatch]:
        """Return the results of the windows that close."""
        clock, log = self.clock, self.log
        passes = self._passes()
        old = log.read() if log is not None and (passes or clock.final or log.is_long) else None
        pieces = [piece for piece in (old, fresh) if piece is not None]
        if not pieces:
            return []
        both = pa.concat_tables(pieces)
        keys = keys_of(both, self.intake.key)
        meta = self._look_up(keys)
        split = old.num_rows if old is not None else 0
        keep = np.ones(split, dtype=bool)
        if passes and split:
            assert clock.upto is not None
            upto = clock.watermark if clock.final else clock.upto
            if upto is not None:
                keep, meta = self._close(both.slice(0, split), keys, keys.slots[:split], clock.closed, upto, meta)
        accepted = None
        if fresh is not None:
            fresh, accepted, meta = self._admit(fresh, keys.slots[split:], meta)
        if clock.final:
            kept = [piece for piece in (both.slice(0, split).filter(pa.array(keep)), fresh) if piece is not None]
            slots = [keys.slots[:split][keep], *([keys.slots[split:][accepted]] if accepted is not None else [])]
            _, meta = self._close(
                pa.concat_tables(kept), keys, np.concatenate(slots), clock.watermark, END_OF_TIME, meta
            )
        if self.store is not None:
            self.store.save(keys, pa.table({name: pa.array(meta[name]) for name in self.kinds}), None, self.counters)
        self._keep(both.slice(0, split).filter(pa.array(keep)) if split else None, fresh)
        return self.results

    def _passes(self) -> bool:
        """Whether a window end may have been passed; if not, the log need not be read."""
        closed, upto = self.clock.closed, self.clock.upto
        if upto is None or closed is None or self.spec.from_first:
            return upto is not None and (closed is None or upto > closed)
        return self.spec.last_closed(upto) > self.spec.last_closed(closed)

    def _look_up(self, keys: Keys) -> dict[str, Numbers]:
        if self.store is None:
            return {}
        known, _ = self.store.lookup(keys)
        return {name: pc.fill_null(known.column(name), 0).to_numpy().astype(np.int64) for name in self.kinds}

    def _close(
        self, rows: pa.Table, keys: Keys, slots: Longs, closed: int | None, upto: int, meta: dict[str, Numbers]
    ) -> tuple[npt.NDArray[np.bool_], dict[str, Numbers]]:
        """Evaluate the windows that end after `closed` and up to `upto`; return which rows stay, and the keys' meta."""
        times, _ = event_times(rows, self.intake.time or "")
        concerned = np.ones(len(times), dtype=bool)
        if not self.spec.empty:  # a later row is in open windows only, but it says that an empty one lies between
            concerned = times < upto
            if closed is not None:
                concerned &= times >= closed - self.spec.size_us
        keep = np.ones(len(times), dtype=bool)
        if not concerned.any():
            return keep, meta
        chosen = rows if concerned.all() else rows.filter(pa.array(concerned))
        order = self.intake.order_of(chosen, slots[concerned])
        edges = edges_of(slots[concerned], len(keys))
        chosen = chosen.take(pa.array(order))
        step = advance(self.spec, edges, times[concerned][order], closed, upto, meta)
        keep[np.flatnonzero(concerned)[order]] = step.keep
        if len(step.fired):
            ends, counts = np.unique(step.fired.end, return_counts=True)
            known: list[Any] = self.task.extra.setdefault("closed", {}).setdefault(self.evaluation.operator, [[], []])
            known[0] += ends.tolist()
            known[1] += counts.tolist()
        result = self.evaluation.results(chosen, keys.table, step.fired, self.counters, self.task)
        if result is not None:
            self.results.append(result)
        return keep, step.meta

    def _admit(
        self, fresh: pa.Table, slots: Longs, meta: dict[str, Numbers]
    ) -> tuple[pa.Table, npt.NDArray[np.bool_], dict[str, Numbers]]:
        times, valid = event_times(fresh, self.intake.time or "")
        admitted = admit(self.spec, slots, times, self.clock.watermark, meta, valid)
        rows = self.intake.sort_out(fresh, times, valid, admitted.accept, admitted.late, self.task)
        return rows, admitted.accept, admitted.meta

    def _keep(self, old: pa.Table | None, fresh: pa.Table | None) -> None:
        """Append the fresh rows to the log; when it has many segments, write what is left of it as one."""
        if self.log is None:
            return
        if self.clock.final:
            self.log.write(None, self.counters, whole=True)
            return
        whole = self.log.is_long
        if whole and old is not None:
            fresh = old if fresh is None else pa.concat_tables([old, fresh])
        bounds = (0, 0)
        if fresh is not None and fresh.num_rows:
            fresh = fresh.combine_chunks()
            times, _ = event_times(fresh, self.intake.time or "")
            bounds = (int(times.min()), int(times.max()))
        self.log.write(fresh, self.counters, bounds, whole=whole)
