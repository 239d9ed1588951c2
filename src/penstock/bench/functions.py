"""The user functions that the benchmarks run; importable, so that workers get them by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock as ps

SUM_SCHEMA = "k bigint, total double"
SUM_STATE = "total double"


def rows(index: npt.NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """Cheap rows that are a function of their index."""
    return {"i": index, "v": (index % 97).astype(np.float64)}


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The identity."""
    return batch


def same_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The identity as plain `mapInArrow` wants it."""
    yield from batches


def nothing(table: pa.Table, batch: int) -> None:
    """A sink that does nothing with what it gets."""


def keyed_sum(batch: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
    """Per key the sum over all batches so far: one row per key and batch."""
    totals = state["total"] + np.bincount(state.slots, batch.column("v").to_numpy(), minlength=len(state))
    keys = state.keys.column("k").combine_chunks()
    return pa.RecordBatch.from_arrays([keys, pa.array(totals)], ["k", "total"]), state.update(total=totals)


class KeyedSum(StatefulProcessor):
    """The same in Spark's own terms: a value state per key, one row per key and batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask for the state."""
        self._total = handle.getValueState("total", SUM_STATE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Add a key's rows to its state."""
        known = self._total.get()
        total = float(known[0]) if known is not None else 0.0
        for frame in rows:
            total += float(frame["v"].to_numpy().sum())
        self._total.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    def close(self) -> None:
        """Nothing to close."""
