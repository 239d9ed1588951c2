"""The events that all engines get: a formula of their number, so that each can make the very same ones.

Event i happens at START + i / rate (cut to milliseconds: the rowtime of Flink SQL has no finer ones), its key and its
value are arithmetic of i in 64-bit integers. Values are whole numbers held as doubles: their sums are exact in any
order, so that results can be compared without a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

START_MS = 1_700_000_040_000  # a whole minute, so that the first window of every case begins with the first event
SCHEMA = "ts timestamp, k bigint, v double"


@dataclass(frozen=True)
class Events:
    """So many keys at so many events per second of event time.

    >>> Events(keys=100, per_second=1000).columns(0, 4)["k"].tolist()
    [73, 89, 67, 7]
    >>> Events(keys=100, per_second=100_000).time_ms(250) - START_MS
    2
    """

    keys: int
    per_second: int
    mixed: bool = True  # False: every run of `keys` events has each key once, where 7919 does not divide `keys`

    def time_ms(self, index: int) -> int:
        """When an event happens, in milliseconds since the epoch.

        >>> Events(1, 1000).time_ms(7) - START_MS
        7
        """
        return START_MS + index * 1000 // self.per_second

    def columns(self, lo: int, hi: int) -> dict[str, Any]:
        """Events lo up to hi: t_ms, k, v; `SQL` says the same to Flink.

        >>> Events(100, 1000).columns(0, 2)["v"].tolist()
        [0.0, 48271.0]
        """
        i = np.arange(lo, hi, dtype=np.int64)
        j = i + 100_003  # the first squares are too small to mix well
        return {
            "t_ms": START_MS + i * 1000 // self.per_second,
            "k": (j * j * 31 + j * 17) % 1_000_003 % self.keys if self.mixed else i * 7919 % self.keys,
            "v": (i * 48271 % 65521).astype(np.float64),
        }

    def write(self, folder: Path, rows: int, per_file: int, tail: int = 1) -> Path:
        """Write `rows` events in files of `per_file`, then `tail` more in a last one, whose batch closes windows.

        A watermark comes from the batches before, so without the tail no engine would emit the windows of the last
        batch. Windows that end by `closed_by(rows)` are then out, in every engine.
        """
        folder.mkdir(parents=True)
        bounds = [*range(0, rows, per_file), rows, rows + tail]
        for number, (lo, hi) in enumerate(pairwise(bounds)):
            made = self.columns(lo, hi)
            stamps = pa.array(made["t_ms"] * 1000).cast(pa.timestamp("us", tz="UTC"))
            table = pa.table({"ts": stamps, "k": made["k"], "v": made["v"]})
            # Several row groups, so that both cores can read one file.
            pq.write_table(table, folder / f"{number:04d}.parquet", row_group_size=max(1, (hi - lo) // 4))
        return folder

    def closed_by(self, rows: int) -> int:
        """The instant in milliseconds up to which windows are closed once the tail behind `rows` events was read.

        >>> Events(100, 1000).closed_by(60_001) - START_MS
        60000
        """
        return self.time_ms(rows - 1)


# What flink_job.py fills in: the formulas of `Events.columns` (a division that is exact both for whole and for
# floating numbers, since SQL engines differ there).
SQL = {
    "t_ms": "{start} + CAST((i - MOD(i, {per_ms})) / {per_ms} AS BIGINT)",
    "k": "MOD(MOD((i + 100003) * (i + 100003) * 31 + (i + 100003) * 17, 1000003), {keys})",
    "v": "CAST(MOD(i * 48271, 65521) AS DOUBLE)",
}


def sql_of(events: Events) -> dict[str, str]:
    """The events as SQL expressions of i; rates are whole multiples of 1000 per second.

    >>> sql_of(Events(100, 1000))["k"]
    'MOD(MOD((i + 100003) * (i + 100003) * 31 + (i + 100003) * 17, 1000003), 100)'
    """
    per_ms, rest = divmod(events.per_second, 1000)
    if rest or per_ms < 1 or not events.mixed:
        raise ValueError(f"only mixed keys at a whole multiple of 1000 events/s can be said in SQL, got {events}")
    return {name: text.format(start=START_MS, per_ms=per_ms, keys=events.keys) for name, text in SQL.items()}
