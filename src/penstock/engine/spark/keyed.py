"""The head of a `stateful` operator, and how a task numbers and saves its keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.conform import FunctionFailed, Undeclared, as_batches, conform, user_trace
from penstock.engine.spark.heads import gather, one_batch
from penstock.engine.spark.logs import owned_groups
from penstock.engine.spark.program import CHUNK_BITS, Counters, TaskRun
from penstock.engine.spark.row_runs import take_rows
from penstock.engine.spark.state import DEAD, HASH, KeyedSegments, Segment
from penstock.flow.keyed_state import KeyedState


@dataclass(frozen=True)
class Keys:
    """The distinct keys of some rows: the slot of each row, and hash and key columns of each slot."""

    slots: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    table: pa.Table

    def __len__(self) -> int:
        return len(self.hashes)


def keys_of(rows: pa.Table, key: tuple[str, ...], *, by_hash: bool = False) -> Keys:
    """Number the keys of rows that carry their hash: by first occurrence, or as state files have them, by hash."""
    slots, first = slots_of(rows, key)
    hashes = rows.column(HASH).to_numpy().view(np.uint64)[first]
    if by_hash:
        order = np.argsort(hashes, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        slots, first, hashes = place[slots], first[order], hashes[order]
    return Keys(slots, hashes, rows.select([HASH, *key]).take(pa.array(first)).select(list(key)).combine_chunks())


class KeyStore:
    """One state row per key in a task: looked up before, saved after; nothing is kept on a batch DataFrame."""

    def __init__(self, task: TaskRun, operator: str, name: str, key: tuple[str, ...], schema: pa.Schema) -> None:
        self.task, self.operator, self.name, self.key, self.schema = task, operator, name, key, schema
        self.store = None
        if task.folder is not None:
            segments = [Segment(**entry) for entry in task.batch.get("state", {}).get(name, [])]
            self.store = KeyedSegments(task.folder, segments, key, schema, len(task.batch["routes"][operator]))

    def lookup(self, keys: Keys) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the state of these keys, null where a key is new, and which are new."""
        if self.store is None:
            return self.schema.empty_table().take(pa.nulls(len(keys), pa.int64())), np.ones(len(keys), dtype=bool)
        return self.store.lookup(keys.hashes, keys.table)

    def save(
        self, keys: Keys, state: pa.Table, dead: npt.NDArray[np.bool_] | None = None, counters: Counters | None = None
    ) -> None:
        """Write the state of these keys; dead ones are forgotten."""
        if self.store is None:
            return
        table = pa.table({HASH: pa.array(keys.hashes.view(np.int64))})
        for source in (keys.table, state):
            for name in source.column_names:
                table = table.append_column(source.schema.field(name), source.column(name))
        gone = dead if dead is not None else np.zeros(len(keys), dtype=bool)
        table = take_rows(table.append_column(DEAD, pa.array(gone)), np.argsort(keys.hashes, kind="stable"))
        owned = owned_groups(self.task, self.operator)
        change = self.store.save(table, owned, self.task.batch["dir"], f"{self.name}-{self.task.tag}")
        if change is not None:
            self.task.extra.setdefault("state", {})[self.name] = change
            if counters is not None:
                counters.state_rows += change["new"]["rows"]
                counters.state_bytes += change["new"]["bytes"]


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
        keys = keys_of(table, self.key)
        store = KeyStore(task, self.operator, self.operator, self.key, self.state_schema)
        known, is_new = store.lookup(keys)
        state = KeyedState(keys.slots, keys.table, known, is_new)
        rows = one_batch(table.select(list(self.columns)))
        out, after = self._call(rows, state, counters, task)
        if len(after) != len(keys):
            rule = f"returned the state of {len(after)} keys for {len(keys)}: use state.update(...)"
            raise FunctionFailed(self.operator, rule)
        store.save(keys, after.table, after.dead, counters)
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


def slots_of(table: pa.Table, key: tuple[str, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number the distinct keys by first occurrence: (slot of each row, row of each slot's first occurrence)."""
    if not key:  # no key is one key
        return np.zeros(table.num_rows, dtype=np.int64), np.zeros(min(1, table.num_rows), dtype=np.int64)
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
