"""Functions that the tests' flows call: a module that workers import fast (no pytest, no hypothesis)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps


def with_n(batch: pa.RecordBatch, n: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index("n"), "n", n)


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_n(batch, pc.multiply(batch.column("n"), 2))


def without_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.is_valid(batch.column("k")))


def repeat(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield batch
    yield batch.slice(0, 0)
    yield pa.Table.from_batches([batch])  # a table will do


def nothing(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return iter(())


def positive(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch.column("n"), 0)


def above_minus_5(batch: pa.RecordBatch) -> np.ndarray:
    return np.array([n is not None and n > -5 for n in batch.column("n").to_pylist()], dtype=bool)


def key_totals(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """Give every row the total of its key: does not depend on the order of rows."""
    total = np.bincount(state.slots, np.nan_to_num(batch.column("n").to_numpy(zero_copy_only=False)), len(state))
    after = state.update(total=state["total"] + total)
    return with_n(batch, pa.array(after["total"][state.slots].astype(np.int64))), after


def calls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give one row per call: who called, and with which rows."""
    me = ps.replica()
    return pa.RecordBatch.from_pylist(
        [{"replica": me.number, "width": me.width, "operator": me.operator, "ids": batch.column("id").to_pylist()}],
        pa.schema(
            [("replica", pa.int64()), ("width", pa.int64()), ("operator", pa.string()), ("ids", pa.list_(pa.int64()))]
        ),
    )


def as_key(value: Any) -> Any:
    """Return a value that is equal for equal keys: NaN is one key, 0.0 and -0.0 are one, as in Spark's groupBy."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def members(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """Tell for every row how many rows its key has, the least row of it, and which number it has there."""
    pos = batch.column("pos").to_numpy()
    least = np.full(len(state), np.iinfo(np.int64).max)
    np.minimum.at(least, state.slots, pos)
    counts = np.bincount(state.slots, minlength=len(state))
    number, seen = [], Counter()  # type: ignore[var-annotated]
    for slot in state.slots.tolist():
        number.append(seen[slot])
        seen[slot] += 1
    same = all(
        as_key(key) == as_key(mine)
        for name in state.keys.column_names
        for key, mine in zip(
            state.keys.column(name).take(pa.array(state.slots)).to_pylist(), batch.column(name).to_pylist(), strict=True
        )
    )
    fresh = state.is_new.all() and state.arrow("n").null_count == len(state) and not state["n"].any()
    after = state.update(n=state["n"] + counts).drop(counts > 5)
    kept = after["n"].tolist() == counts.tolist()
    out = {
        "pos": pos, "count": counts[state.slots], "least": least[state.slots], "number": number,
        "good": [bool(same and fresh and kept)] * len(pos),
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(out), after


def pos_and_n(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["n", "pos"])


def use(batch: pa.RecordBatch, resource: dict[str, int]) -> pa.RecordBatch:
    return batch.set_column(0, "id", pa.array([resource["value"]] * batch.num_rows, pa.int64()))


def lacking(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([])


def yielding(batch: pa.RecordBatch) -> Any:
    yield batch
    yield batch.set_column(0, "id", batch.column(0).cast(pa.float64()))


def widened(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    return batch.append_column("more", batch.column(0)), state
