"""Measure close_windows: nanoseconds per (pane row + result). Not a test: python -m tests.windows.measure_panes."""

from __future__ import annotations

import os
import time
from statistics import median

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates import bind, count
from penstock.windows.aggregates import sum as total
from penstock.windows.panes import close_windows, compact
from penstock.windows.time import END_OF_TIME, Time

RUNS = 7


def log(keys: int, panes: int, dense: float, text: bool, kind: str) -> pa.Table:
    """One row per (key, pane), each present with probability `dense`, in random order."""
    rng = np.random.default_rng(7)
    key, pane = (grid.ravel() for grid in np.meshgrid(np.arange(keys), np.arange(panes), indexing="ij"))
    keep = rng.permutation(np.flatnonzero(rng.random(len(key)) < dense))
    key, pane = key[keep], pane[keep]
    name = f"_ps_sum_{kind}_x"
    values = rng.random(len(key)) if kind == "double" else rng.integers(-1000, 1000, len(key))
    names = np.array([f"key-{i}" for i in range(keys)])
    return pa.table({
        "_ps_hash": rng.integers(-(2**63), 2**63, keys)[key],
        "key": pa.array(names[key]) if text else pa.array(key),
        "_ps_pane": pane,
        "_ps_rows": np.ones(len(key), dtype=np.int64),
        name: values,
    })  # fmt: skip


def measure(
    title: str, table: pa.Table, spec: Time, kind: str, *, watermark: int = END_OF_TIME, upto: int | None = None
) -> None:
    outputs = bind({"n": count(), "s": total("x")}, {"x": kind})  # type: ignore[dict-item]
    wall, cpu = [], []  # both: on a shared machine the wall clock also measures the neighbours
    for _ in range(RUNS):
        start, used = time.perf_counter(), time.process_time()
        result = close_windows(table, ["key"], spec, outputs, upto, watermark)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    each = 1e9 / (table.num_rows + result.num_rows)
    figures = "".join(f"{value * each:>8.0f}" for value in (median(wall), min(wall), median(cpu)))
    print(f"{title:<72}{table.num_rows:>9}{result.num_rows:>9}{figures}")


def main() -> None:
    print(f"count and sum; ns per (pane row + result), {RUNS} runs; load average {os.getloadavg()}")
    print(f"{'':<72}{'panes':>9}{'results':>9}{'median':>8}{'least':>8}{'cpu':>8}")
    ratio_1000, ratio_1 = Time("1000 us", "1 us"), Time("1 us")
    for kind in ("long", "double"):
        for text in (False, True):
            table, what = log(1000, 1000, 1.0, text, kind), f"{kind}, {'string' if text else 'integer'} key"
            ready = compact(table, ["key"], bind({"s": total("x")}, {"x": kind}))  # type: ignore[dict-item]
            for name, spec in (("1000", ratio_1000), ("1", ratio_1)):
                measure(f"size/slide {name}, 1000 keys x 1000 panes, shuffled, {what}", table, spec, kind)
                measure(f"size/slide {name}, 1000 keys x 1000 panes, compacted, {what}", ready, spec, kind)
    sparse = log(1000, 1000, 0.3, True, "double")
    measure("size/slide 1000, 30 % of the panes present, shuffled, double", sparse, ratio_1000, "double")
    measure("size/slide 10, 30 % of the panes present, shuffled, double", sparse, Time("10 us", "1 us"), "double")
    wide = log(100_000, 3, 1.0, True, "double")
    measure("size/slide 1, 100 000 keys x 3 panes, shuffled, double", wide, ratio_1, "double")
    step = compact(log(1000, 1000, 1.0, True, "double"), ["key"], bind({"s": total("x")}, {"x": "double"}))
    measure("size/slide 1000, one slide closes (1000 results)", step, ratio_1000, "double", watermark=1000, upto=999)


if __name__ == "__main__":
    main()
