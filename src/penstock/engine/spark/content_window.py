"""The head of a Time window over its content: raw rows are kept until the last window that holds them has closed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.heads import gather
from penstock.engine.spark.intake import Bools, Clock, Intake, Longs
from penstock.engine.spark.keyed import Keys, KeyStore, keys_of
from penstock.engine.spark.logs import RowLog
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.results import Evaluation, event_times
from penstock.windows.firing import Numbers
from penstock.windows.order import edges_of
from penstock.windows.time import Time
from penstock.windows.time_content import admit, advance, meta_types


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
        fresh = self.intake.rows(table, counters)
        clock = Clock.of(task, operator)
        when = event_times(fresh, self.intake.time or "") if fresh is not None else None
        if clock.at_once and when is not None and when[1].any():
            clock = clock.moved(int(when[0][when[1]].max()), self.spec)
        results = _Batch(self, clock, task, counters).run(fresh, when)
        spent = time.perf_counter() - before
        counters.busy += spent
        counters.service.append(spent)
        for result in results:
            counters.rows_out += result.num_rows
            task.emit(operator, result, task.partition << CHUNK_BITS)
            yield


class _Batch:
    """One batch of one task, by the protocol of windows/time_content.py: admit the fresh rows, then close."""

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

    def run(self, fresh: pa.Table | None, when: tuple[Longs, Bools] | None) -> list[pa.RecordBatch]:
        """Return the results of the windows that close; `when` are the fresh rows' event times, and which are valid."""
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
        there = np.ones(both.num_rows, dtype=bool)  # rows that are in the log, or join it
        if fresh is not None and when is not None:
            there[split:], meta = self._admit(fresh, when, keys.slots[split:], meta)
        keep = there.copy()
        if passes:
            assert clock.upto is not None
            rows = both if there.all() else both.filter(pa.array(there))
            keep[there], meta = self._close(rows, keys, keys.slots[there], clock.closed, clock.upto, meta)
        if self.store is not None:
            self.store.save(keys, pa.table({name: pa.array(meta[name]) for name in self.kinds}), None, self.counters)
        self._keep(both, keep, split)
        return self.results

    def _passes(self) -> bool:
        """Whether a window end may have been passed; if not, the log need not be read."""
        closed, upto = self.clock.closed, self.clock.upto
        if self.spec.from_first and closed is not None and upto is not None:
            return upto > closed
        return self.clock.passes(self.spec)

    def _look_up(self, keys: Keys) -> dict[str, Numbers]:
        if self.store is None:
            return {}
        known, _ = self.store.lookup(keys)
        return {name: pc.fill_null(known.column(name), 0).to_numpy().astype(np.int64) for name in self.kinds}

    def _close(
        self, rows: pa.Table, keys: Keys, slots: Longs, closed: int | None, upto: int, meta: dict[str, Numbers]
    ) -> tuple[Bools, dict[str, Numbers]]:
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
        self, fresh: pa.Table, when: tuple[Longs, Bools], slots: Longs, meta: dict[str, Numbers]
    ) -> tuple[Bools, dict[str, Numbers]]:
        times, valid = when
        admitted = admit(self.spec, slots, times, self.clock.closed, meta, valid)
        self.intake.note(fresh, times, valid, admitted.accept, admitted.late, self.task)
        return admitted.accept, admitted.meta

    def _keep(self, rows: pa.Table, keep: Bools, split: int) -> None:
        """Append the fresh rows, from `split` on, to the log; when it has many segments, write all that is left."""
        if self.log is None:
            return
        if self.clock.final:
            self.log.write(None, self.counters, whole=True)
            return
        whole = self.log.is_long
        if not whole:
            rows, keep = rows.slice(split), keep[split:]
        rows = rows if keep.all() else rows.filter(pa.array(keep))
        bounds = (0, 0)
        if rows.num_rows:
            rows = rows.combine_chunks()
            times, _ = event_times(rows, self.intake.time or "")
            bounds = (int(times.min()), int(times.max()))
        self.log.write(rows, self.counters, bounds, whole=whole)
