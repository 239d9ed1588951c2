"""From fired windows to result rows: evaluate what the user asked for, in the public form."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.conform import FunctionFailed, conform, user_trace
from penstock.engine.spark.program import Counters, TaskRun
from penstock.windows.aggregates import Output, aggregate_ranges
from penstock.windows.content import windows_of
from penstock.windows.firing import Fired
from penstock.windows.functions import WindowFailed, call_each

WINDOW = "window"
DETAILS = "details"
Longs = npt.NDArray[np.int64]


def event_times(rows: pa.Table, column: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return event times in microseconds and which are not null; of window results, their end - 1."""
    values = rows.column(column).combine_chunks()
    if pa.types.is_struct(values.type):
        stamps = pc.subtract(pc.struct_field(values, "end").cast(pa.int64()), 1)
    else:
        stamps = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    valid = stamps.is_valid().to_numpy(zero_copy_only=False)
    times: npt.NDArray[np.int64] = pc.fill_null(stamps, 0).to_numpy()
    return times, valid


@dataclass
class Evaluation:
    """What is computed over each fired window, and the schema of its result rows."""

    operator: str
    key: tuple[str, ...]
    columns: tuple[str, ...]  # of the rows that a function sees
    outputs: tuple[Output, ...]
    fn: Callable[..., Any] | None
    schema: pa.Schema
    timed: bool  # window bounds are times, else positions
    details: bool

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of what a function returns."""
        own = [f for f in self.schema if f.name not in (*self.key, WINDOW) and not (self.details and f.name == DETAILS)]
        return pa.schema(own)

    def results(
        self,
        rows: pa.Table,
        keys: pa.Table,
        fired: Fired,
        counters: Counters,
        task: TaskRun,
        position: Longs | None = None,
    ) -> pa.RecordBatch | None:
        """Return the result rows of the fired windows; None if there are none.

        `position` numbers each key's rows over all batches: the last bits of a sum then do not depend on their cuts.
        """
        if not len(fired.slot):
            return None
        began = time.perf_counter()
        counters.calls += len(fired.slot) if self.fn is not None else 1
        if self.fn is None:
            repeats = None
            columns = dict(
                zip(
                    (output.name for output in self.outputs),
                    aggregate_ranges(rows, self.outputs, fired.lo, fired.hi, position),
                    strict=True,
                )
            )
        else:
            table, repeats = self._call(rows, keys, fired, task)
            columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        spent = time.perf_counter() - began
        return self.rows_of(keys, fired, columns, repeats, spent, task)

    def _call(
        self, rows: pa.Table, keys: pa.Table, fired: Fired, task: TaskRun
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        assert self.fn is not None
        content = rows.select(list(self.columns)).combine_chunks()
        windows = windows_of(content, keys, fired.slot, fired.lo, fired.hi, fired.start, fired.end, timed=self.timed)
        try:
            gathered = call_each(self.fn, windows, self.output_schema)
            return gathered.table(), gathered.rows_per_window()
        except WindowFailed as failed:
            raise self.failure(failed, task) from failed

    def failure(self, failed: WindowFailed, task: TaskRun) -> FunctionFailed:
        """Return the failure of a window function as the driver shows it: with key, window and traceback."""
        cause = failed.cause
        text = f"(window) raised {type(cause).__name__}: {cause}; batch {task.batch['id']}, {failed}"
        return FunctionFailed(self.operator, f"{text}\n{user_trace(cause)}")

    def rows_of(
        self,
        keys: pa.Table,
        fired: Fired,
        columns: dict[str, pa.Array],
        repeats: npt.NDArray[np.int64] | None,
        spent: float,
        task: TaskRun,
    ) -> pa.RecordBatch | None:
        """Put key, window and outputs together; `repeats` says how many rows each window gave."""
        which = np.arange(len(fired.slot)) if repeats is None else np.repeat(np.arange(len(fired.slot)), repeats)
        if not len(which):
            return None
        slot = pa.array(fired.slot[which])
        arrays: dict[str, Any] = {name: keys.column(name).take(slot).combine_chunks() for name in self.key}
        field = self.schema.field(WINDOW)
        bounds = [
            pa.array(bound[which]).cast(field.type.field(i).type) for i, bound in enumerate((fired.start, fired.end))
        ]
        arrays[WINDOW] = pa.StructArray.from_arrays(bounds, fields=list(field.type))
        arrays |= columns
        if self.details:
            kind = self.schema.field(DETAILS).type
            arrays[DETAILS] = details_of(kind, fired.number, fired.rows, which, spent / len(fired), task)
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], names=self.schema.names)
        return conform(batch, self.schema)


def details_of(
    kind: pa.DataType, number: Longs, rows: Longs, which: Longs, spent_each: float, task: TaskRun
) -> pa.StructArray:
    """Return the details column: window id, rows, task, calculation time (a mean over the windows), fire time."""
    values = {
        "id": pa.array(number[which]),
        "rows": pa.array(rows[which]),
        "task": pa.array(np.full(len(which), task.partition, dtype=np.int32)),
        "calculation_s": pa.array(np.full(len(which), spent_each)),
        "fired": pa.array(np.full(len(which), int(time.time() * 1e6))),
    }
    return pa.StructArray.from_arrays([values[f.name].cast(f.type) for f in kind], fields=list(kind))
