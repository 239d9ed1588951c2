"""What the results must be, by means that share nothing with any engine, and whether they are, row by row.

Panes as wide as a slide in a dense table keys x panes; sums over r panes as differences of running sums; maxima by
block maxima from both sides (van Herk): O(keys x panes), whatever the size/slide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from penstock.bench.windows.data import START_MS, Events, Floats, Ints

COLUMNS = ("k", "start_ms", "total", "top")


def expected(events: Events, rows: int, size_ms: int, slide_ms: int, closed_by: int | None = None) -> pa.Table:
    """Sum and maximum of v per key and window that holds an event and ends by `closed_by`, by key, then by start.

    `size_ms` is a multiple of `slide_ms`, and both divide the minute at which the events begin.

    >>> expected(Events(1, 1000), 3, size_ms=2, slide_ms=1).to_pydict()["total"]
    [0.0, 48271.0]
    """
    if size_ms % slide_ms:
        raise ValueError(f"size {size_ms} is no multiple of slide {slide_ms}")
    per_window = size_ms // slide_ms
    limit = events.closed_by(rows) if closed_by is None else closed_by
    panes = (events.time_ms(rows - 1) - START_MS) // slide_ms + 1
    shape = (events.keys, panes)
    totals, tops, counts = np.zeros(shape), np.full(shape, -np.inf), np.zeros(shape, dtype=np.int64)
    for lo in range(0, rows, 1 << 20):
        made = events.columns(lo, min(rows, lo + (1 << 20)))
        cell = made["k"] * panes + (made["t_ms"] - START_MS) // slide_ms
        totals += np.bincount(cell, made["v"], minlength=totals.size).reshape(shape)
        counts += np.bincount(cell, minlength=totals.size).reshape(shape)
        np.maximum.at(tops.reshape(-1), cell, made["v"])
    last = (limit - size_ms - START_MS) // slide_ms  # the last pane with which a closed window begins
    first = 1 - per_window
    if last < first:
        return _table(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))
    wanted = slice(0, last - first + 1)  # window w begins with pane first + w
    total, count = (_sliding_sum(x, per_window)[:, wanted] for x in (totals, counts))
    top = sliding_max(tops, per_window)[:, wanted]
    key, number = np.nonzero(count)
    starts = START_MS + (first + number) * slide_ms
    return _table(key.astype(np.int64), starts.astype(np.int64), total[key, number], top[key, number])


def _sliding_sum(panes: npt.NDArray[Any], per_window: int) -> npt.NDArray[Any]:
    """Over every run of `per_window` panes, with empty ones around: one more window per pane, per_window - 1 before."""
    padded = np.pad(panes, ((0, 0), (per_window - 1, per_window - 1)))
    running = np.pad(np.cumsum(padded, axis=1), ((0, 0), (1, 0)))
    return running[:, per_window:] - running[:, :-per_window]


def sliding_max(panes: Floats, per_window: int) -> Floats:
    """The same for the maximum."""
    keys, width = panes.shape
    windows = width + per_window - 1
    length = -(-(windows + per_window - 1) // per_window) * per_window
    padded = np.full((keys, length), -np.inf)
    padded[:, per_window - 1 : per_window - 1 + width] = panes
    blocks = padded.reshape(keys, -1, per_window)
    ahead = np.maximum.accumulate(blocks, axis=2).reshape(keys, length)
    behind = np.maximum.accumulate(blocks[:, :, ::-1], axis=2)[:, :, ::-1].reshape(keys, length)
    return np.maximum(behind[:, :windows], ahead[:, per_window - 1 : per_window - 1 + windows])


def _table(key: Ints, start: Ints, total: Floats, top: Floats) -> pa.Table:
    return pa.table(dict(zip(COLUMNS, (key, start, total, top), strict=True)))


def same_rows(found: pa.Table, wanted: pa.Table, size_ms: int, closed_by: int) -> bool:
    """Whether the results that end by `closed_by` are these rows, each once, value by value; order is free.

    >>> one = pa.table({"k": [1, 1], "start_ms": [0, 10], "total": [1.0, 2.0], "top": [1.0, 2.0]})
    >>> same_rows(one.take([1, 0]), one, 10, closed_by=20), same_rows(one, one.slice(1), 10, closed_by=20)
    (True, False)
    >>> same_rows(one, one.slice(0, 1), 10, closed_by=10)
    True
    """
    table = found.select(list(COLUMNS)).cast(wanted.schema)
    table = table.filter(pa.array(table.column("start_ms").to_numpy() + size_ms <= closed_by))
    order = [("k", "ascending"), ("start_ms", "ascending")]
    return bool(table.sort_by(order).combine_chunks().equals(wanted.sort_by(order).combine_chunks()))


def parquet_results(folder: Path) -> pa.Table:
    """Results with a `window` struct, as Spark and Penstock write them, in the columns of `COLUMNS`."""
    table = pq.read_table(folder)
    start = table.column("window").combine_chunks().field("start").cast(pa.timestamp("us", tz="UTC"))
    columns = [
        table.column("k"),
        pa.array(start.cast(pa.int64()).to_numpy() // 1000),
        *(table.column(c) for c in ("total", "top")),
    ]
    return pa.table(columns, names=list(COLUMNS))


def csv_results(folder: Path) -> pa.Table:
    """Results as Flink writes them: files of k, start, total, top without a head."""
    kinds = dict(zip(COLUMNS, (pa.int64(), pa.int64(), pa.float64(), pa.float64()), strict=True))
    how = pa_csv.ReadOptions(column_names=list(COLUMNS))
    pieces = [
        pa_csv.read_csv(path, how, convert_options=pa_csv.ConvertOptions(column_types=kinds))
        for path in sorted(folder.rglob("part-*"))
        if path.stat().st_size
    ]
    return pa.concat_tables([pa.schema(list(kinds.items())).empty_table(), *pieces])
