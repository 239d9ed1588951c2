"""Heads that hold keyed state: a user's `stateful` function, and the pane log of a window."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.conform import FunctionFailed, Undeclared, as_batches, conform, user_trace
from penstock.engine.spark.files import arrow_bytes
from penstock.engine.spark.heads import gather, one_batch
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.state import DEAD, HASH, KeyedSegments, Segment, counting, group_of, hashes_of, open_segment
from penstock.flow.keyed_state import KeyedState
from penstock.windows.aggregates import Output, partials_of
from penstock.windows.panes import END, PANE, START, close_windows, compact, live, pane_bounds
from penstock.windows.time import END_OF_TIME, Time

MAX_SEGMENTS = 24


def owned_groups(task: TaskRun, operator: str) -> int:
    """Return the bit mask of the key groups routed to this task."""
    mask = 0
    for group, target in enumerate(task.batch["routes"][operator]):
        if target == task.partition:
            mask |= 1 << group
    return mask


@dataclass
class KeyedHead:
    """`fn(rows, state) -> (rows, state)` over all rows of the task's key groups, in order."""

    operator: str
    fn: Callable[..., Any]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    state_schema: pa.Schema

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Look the keys' state up, call the function once, keep what changed."""
        counters = task.counters.setdefault(self.operator, Counters())
        table = gather(batches)
        if table is None:
            return
        slots, first = slots_of(table, self.key)
        hashes = table.column(HASH).to_numpy().view(np.uint64)[first]
        keys = table.select(list(self.key)).take(pa.array(first)).combine_chunks()
        segments = [Segment(**entry) for entry in task.batch.get("state", {}).get(self.operator, [])]
        store = None
        if task.folder is not None:
            store = KeyedSegments(
                task.folder, segments, self.key, self.state_schema, len(task.batch["routes"][self.operator])
            )
            known, is_new = store.lookup(hashes, keys)
        else:  # a batch DataFrame: every key begins and ends here
            known = self.state_schema.empty_table().take(pa.nulls(len(first), pa.int64()))
            is_new = np.ones(len(first), dtype=bool)
        state = KeyedState(slots, keys, known, is_new)
        rows = one_batch(table.select(list(self.columns)))
        out, after = self._call(rows, state, counters, task)
        if store is not None:
            self._save(store, hashes, keys, after, task, counters)
        counters.rows_in += rows.num_rows
        for batch in out:
            counters.rows_out += batch.num_rows
            task.emit(self.operator, batch, task.partition << CHUNK_BITS)
            yield

    def _call(
        self, rows: pa.RecordBatch, state: KeyedState, counters: Counters, task: TaskRun
    ) -> tuple[list[pa.RecordBatch], KeyedState]:
        before = time.perf_counter()
        counters.calls += 1
        try:
            given = self.fn(rows, state)
            if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], KeyedState)):
                message = "a stateful function returns (rows, state), the state made by state.update(...)"
                raise Undeclared(message)
            out = [] if given[0] is None else [conform(b, self.schema) for b in as_batches(given[0])]
        except Exception as error:
            text = f"(stateful) raised {type(error).__name__}: {error}; batch {task.batch['id']}, "
            text += f"{rows.num_rows} rows of {len(state)} keys"
            raise FunctionFailed(
                self.operator, f"{text}; {self._first_bad_key(rows, state)}\n{user_trace(error)}"
            ) from error
        spent = time.perf_counter() - before
        counters.busy += spent
        counters.service.append(spent)
        counters.reached.append(before)
        return out, given[1]

    def _first_bad_key(self, rows: pa.RecordBatch, state: KeyedState) -> str:
        """Call the function key by key to name the first it fails on."""
        for slot in range(len(state)):
            mask = state.slots == slot
            alone = KeyedState(
                np.zeros(int(mask.sum()), dtype=np.int64),
                state.keys.slice(slot, 1),
                state.table.slice(slot, 1),
                state.is_new[slot : slot + 1],
            )
            mine = rows.filter(pa.array(mask))
            try:
                self.fn(mine, alone)
            except Exception:
                return (
                    f"first bad key {alone.keys.to_pylist()[0]}, whose first row is {mine.slice(0, 1).to_pylist()[0]}"
                )
        return "no single key fails alone"

    def _save(
        self, store: KeyedSegments, hashes: Any, keys: pa.Table, after: KeyedState, task: TaskRun, counters: Counters
    ) -> None:
        if len(after) != len(hashes):
            raise FunctionFailed(
                self.operator, f"returned the state of {len(after)} keys for {len(hashes)}: use state.update(...)"
            )
        table = pa.table({HASH: pa.array(hashes.view(np.int64))})
        for source in (keys, after.table):
            for name in source.column_names:
                table = table.append_column(source.schema.field(name), source.column(name))
        dead = after.dead if after.dead is not None else np.zeros(len(hashes), dtype=bool)
        table = table.append_column(DEAD, pa.array(dead)).take(pa.array(np.argsort(hashes, kind="stable")))
        change = store.save(table, owned_groups(task, self.operator), task.batch["dir"], f"{self.operator}-{task.tag}")
        if change is not None:
            task.extra.setdefault("state", {})[self.operator] = change
            counters.state_rows, counters.state_bytes = change["new"]["rows"], change["new"]["bytes"]


def slots_of(table: pa.Table, key: tuple[str, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number the distinct keys by first occurrence: (slot of each row, row of each slot's first occurrence)."""
    codes: npt.NDArray[np.int64] | None = None
    for name in key:
        column = table.column(name).combine_chunks()
        if pa.types.is_floating(column.type):  # one NaN and one zero, as in Spark's groupBy
            nan, zero = pa.scalar(float("nan"), column.type), pa.scalar(0.0, column.type)
            column = pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
        encoded = (
            column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column, null_encoding="encode")
        )
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = indices
        else:  # dense again after each column, or the product of many would leave 64 bits
            joined = codes * len(encoded.dictionary) + indices
            codes = pc.dictionary_encode(pa.array(joined)).indices.to_numpy().astype(np.int64)
    assert codes is not None
    highest = np.maximum.accumulate(codes)
    first = np.flatnonzero(np.diff(highest, prepend=-1) > 0)
    return codes, first


@dataclass
class WindowHead:
    """Closes windows over the pane log, then appends the batch's pane rows to it (thesis 000, pane farming)."""

    operator: str
    key: tuple[str, ...]
    spec: Time
    outputs: tuple[Output, ...]
    schema: pa.Schema

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit the windows that the watermark in force closes; keep the panes that open windows need."""
        counters = task.counters.setdefault(self.operator, Counters())
        table = gather(batches)
        before = time.perf_counter()
        closing = (
            task.batch["windows"][self.operator] if task.folder is not None else {"closed": None, "watermark": None}
        )
        fresh = self._fresh(table, closing["watermark"], task, counters)
        if task.folder is None:  # a batch DataFrame: all windows close at once
            log = fresh
            result = (
                close_windows(log, self.key, self.spec, self.outputs, None, END_OF_TIME) if log is not None else None
            )
        else:
            result = self._close(task, closing)
            self._keep(fresh, closing["watermark"], task, counters)
        counters.calls += 1
        spent = time.perf_counter() - before
        counters.busy += spent
        counters.service.append(spent)
        if result is not None and result.num_rows:
            counters.rows_out += result.num_rows
            ends, rows = np.unique(result.column(END).to_numpy(), return_counts=True)
            task.extra.setdefault("closed", {})[self.operator] = [ends.tolist(), rows.tolist()]
            task.emit(self.operator, self._finish(result), task.partition << CHUNK_BITS)
        yield

    def _fresh(
        self, table: pa.Table | None, watermark: int | None, task: TaskRun, counters: Counters
    ) -> pa.Table | None:
        """Split the native pane rows into panes and the few figures the driver wants.

        A pane none of whose windows is open under the watermark in force holds late rows only, and so does the
        null pane of rows without event time: they are counted and go no further.
        """
        if table is None:
            return None
        keep = pc.is_valid(table.column(PANE))
        if watermark is not None:
            pane = pc.fill_null(table.column(PANE), 0).to_numpy()
            is_open = self.spec.end_of(self.spec.last_window_of_pane(pane)) > watermark
            keep = pc.and_(keep, pa.array(is_open))
        panes, late = table.filter(keep), table.filter(pc.invert(keep))
        seen: dict[str, Any] = {
            "late": int(pc.sum(late.column("_ps_rows")).as_py() or 0),
            "max_event": pc.max(table.column("_ps_max")).as_py(),
        }
        counters.rows_in += int(pc.sum(table.column("_ps_rows")).as_py() or 0)
        if "_ps_first" in table.column_names and panes.num_rows:
            grouped = panes.select([PANE, "_ps_first"]).group_by(PANE).aggregate([("_ps_first", "min")])
            seen["first"] = [grouped.column(PANE).to_pylist(), grouped.column("_ps_first_min").to_pylist()]
        task.extra.setdefault("seen", {})[self.operator] = seen
        names = [HASH, *self.key, PANE, *(p.name for p in partials_of(self.outputs))]
        return panes.select(names) if panes.num_rows else None

    def _segments(self, task: TaskRun) -> list[Segment]:
        mine = owned_groups(task, self.operator)
        known = [Segment(**entry) for entry in task.batch.get("state", {}).get(self.operator, [])]
        return [segment for segment in known if segment.groups & mine]

    def _log(self, task: TaskRun, segments: list[Segment]) -> pa.Table | None:
        """Return the pane rows of this task's groups in these segments."""
        assert task.folder is not None
        groups = np.array([t == task.partition for t in task.batch["routes"][self.operator]], dtype=bool)
        pieces = []
        for segment in segments:
            counts = counting(segment.groups, len(groups)) & groups
            table = open_segment(task.folder, segment)
            if not counts.all():
                table = table.filter(pa.array(counts[group_of(hashes_of(table), len(groups))]))
            pieces.append(table)
        return pa.concat_tables(pieces) if pieces else None

    def _close(self, task: TaskRun, closing: dict[str, Any]) -> pa.Table | None:
        watermark, closed = closing["watermark"], closing["closed"]
        if watermark is None or (
            closed is not None and self.spec.last_closed(watermark) <= self.spec.last_closed(closed)
        ):
            return None  # no window end was passed: the log need not be read
        log = self._log(task, self._segments(task))
        if log is None or log.num_rows == 0:
            return None
        return close_windows(log, self.key, self.spec, self.outputs, closed, watermark)

    def _keep(self, fresh: pa.Table | None, watermark: int | None, task: TaskRun, counters: Counters) -> None:
        """Write the batch's panes as one more segment; when there are many, write them all as one."""
        assert task.folder is not None
        segments, absorbed = self._segments(task), []
        if len(segments) > MAX_SEGMENTS:
            log = self._log(task, segments)
            absorbed = [segment.file for segment in segments]
            if log is not None:
                log = log if watermark is None else live(log, self.spec, watermark)
                fresh = pa.concat_tables([piece for piece in (log, fresh) if piece is not None])
        mine = owned_groups(task, self.operator)
        new = None
        if fresh is not None and fresh.num_rows:
            table = compact(fresh, self.key, self.outputs)
            bounds = pane_bounds(table)
            assert bounds is not None
            buffer, crc = arrow_bytes(table)
            file = f"{task.batch['dir']}/panes-{self.operator}-{task.tag}-{uuid.uuid4().hex[:6]}.arrow"
            task.folder.write(file, buffer)
            new = Segment(file, table.num_rows, buffer.size, crc, mine, *bounds).to_json()
            counters.state_rows, counters.state_bytes = table.num_rows, buffer.size
        if new or absorbed:
            task.extra.setdefault("state", {})[self.operator] = {"new": new, "absorbed": absorbed, "groups": mine}

    def _finish(self, result: pa.Table) -> pa.RecordBatch:
        """Return results in their public form: key columns, window struct, outputs."""
        field = self.schema.field("window")
        stamps = [
            result.column(name).combine_chunks().cast(field.type.field(i).type) for i, name in enumerate((START, END))
        ]
        window = pa.StructArray.from_arrays(stamps, fields=[field.type.field(0), field.type.field(1)])
        arrays = []
        for name in self.schema.names:
            arrays.append(window if name == "window" else result.column(name).combine_chunks())
        return conform(pa.RecordBatch.from_arrays(arrays, names=self.schema.names), self.schema)


__all__ = ["KeyedHead", "WindowHead", "slots_of"]
