"""Pane farming with a user's own functions: G once per pane, H once per window over the results of its panes.

Thesis 000 section 4.5. What is kept of a pane that has been computed is G's result, pickled; raw rows are kept only for
panes that no closed window has reached yet.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.spark.program import Counters, TaskRun
from penstock.engine.spark.results import Evaluation
from penstock.windows.content import Window, windows_of
from penstock.windows.firing import Fired
from penstock.windows.functions import Gathered, WindowFailed

Longs = npt.NDArray[np.int64]


@dataclass
class PaneFunctions:
    """Calls G and H and shapes their results."""

    pane: Callable[[Window], Any]
    combine: Callable[[list[Any], Window], Any]
    evaluation: Evaluation

    def results_of_panes(
        self, rows: pa.Table, keys: pa.Table, panes: Fired, counters: Counters, task: TaskRun
    ) -> pa.Array:
        """Call G for every pane and return the pickled results."""
        content = rows.select(list(self.evaluation.columns)).combine_chunks()
        done = []
        timed = self.evaluation.timed
        for window in windows_of(content, keys, panes.slot, panes.lo, panes.hi, panes.start, panes.end, timed=timed):
            try:
                done.append(pickle.dumps(self.pane(window), protocol=5))
            except Exception as error:
                raise self.evaluation.failure(WindowFailed(window, error), task) from error
        counters.calls += len(done)
        return pa.array(done, pa.binary())

    def results_of_windows(
        self, pickled: pa.Array, rows: Longs, keys: pa.Table, fired: Fired, counters: Counters, task: TaskRun
    ) -> pa.RecordBatch | None:
        """Call H for every window over its panes' results; `rows` says how many rows each pane had."""
        if not len(fired.slot):
            return None
        results = [pickle.loads(value) for value in pickled.to_pylist()]
        gathered = Gathered(self.evaluation.output_schema)
        empty = np.zeros(len(fired.slot), dtype=np.int64)
        nothing = pa.table({})
        bounds = (fired.start, fired.end)
        ranges = zip(fired.lo.tolist(), fired.hi.tolist(), strict=True)
        shells = windows_of(nothing, keys, fired.slot, empty, empty, *bounds, timed=self.evaluation.timed)
        for (lo, hi), window in zip(ranges, shells, strict=True):
            try:
                gathered.add(self.combine(results[lo:hi], window))
            except Exception as error:
                raise self.evaluation.failure(WindowFailed(window, error), task) from error
        counters.calls += len(fired.slot)
        upto = np.concatenate([[0], np.cumsum(rows)])
        counted = Fired(fired.slot, upto[fired.lo], upto[fired.hi], fired.start, fired.end, fired.number)
        table = gathered.table()
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        return self.evaluation.rows_of(keys, counted, columns, gathered.rows_per_window(), 0.0, task)
