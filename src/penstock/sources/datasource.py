"""The replay as a Spark data source: partitioned, streaming and batch, one Arrow batch after another.

Spark runs the reader in Python processes of its own: one that plans (offsets, partitions), and the workers that
read. They share nothing but the spec, which travels as an option.

An offset is {"row": rows before it, "start_us": the instant of row 0}. The instant is decided once, by
`initialOffset` of the first run, and travels from offset to offset through the checkpoint, so that a restarted
query finds its backlog due. Spark may ask for the initial offset again (while batch 0 is not committed): the end
of a range, which comes from the log then, is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.sources.ending import EndsQuietly
from penstock.sources.limits import Limits, LiveLimits
from penstock.sources.spec import ReplaySpec, decode, due

FORMAT = "penstock_replay"


def now_us() -> int:
    """The present instant in microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass
class RowRange(InputPartition):
    """The rows of one task."""

    first: int
    last: int
    start_us: int


class ReplaySource(DataSource):
    """Spark's entry: makes readers from the spec in the options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(decode(self.options["spec"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReplayBatchReader(self.options["spec"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReplayStreamReader(self.options["spec"])


def _ranges(spec: ReplaySpec, first: int, last: int, start_us: int) -> list[InputPartition]:
    return [RowRange(low, high, start_us) for low, high in spec.ranges(first, last)]


def _read(text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RowRange)
    return decode(text).batches(partition.first, partition.last, partition.start_us)


class ReplayBatchReader(DataSourceReader):
    """The whole replay at once."""

    def __init__(self, text: str) -> None:
        self._text = text

    def partitions(self) -> Sequence[InputPartition]:
        spec = decode(self._text)
        return _ranges(spec, 0, int(spec.row_count), spec.start_us or 0)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._text, partition)


class ReplayStreamReader(EndsQuietly, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is due of the replay, batch by batch."""

    def __init__(self, text: str) -> None:
        # Only text, for the reader itself is pickled into every task.
        self._text = text
        self._first_start_us: int | None = None
        self._frozen_us: int | None = None
        self._live: LiveLimits | None = None

    def initialOffset(self) -> dict[str, int]:
        if self._first_start_us is None:
            given = decode(self._text).start_us
            # Under availableNow, not after the instant at which it looked: row 0 is due then, and logged.
            self._first_start_us = (self._frozen_us or now_us()) if given is None else given
        return {"row": 0, "start_us": self._first_start_us}

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark asks once; the limits that change come from the control file. What matters here is that it is not
        # "all available", which Spark sends when a trigger wants everything (trigger(once=True)).
        return ReadMaxRows(decode(self._text).limits.max_rows or 2**62)

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen_us = now_us()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        spec = decode(self._text)
        row, start_us = start["row"], start["start_us"]
        end = due(spec, start_us, self._frozen_us if self._frozen_us is not None else now_us())
        if end > row and not isinstance(limit, ReadAllAvailable):
            end = min(end, _capped(spec, row, self._limits(spec)))
        return {"row": max(row, end), "start_us": start_us}

    def _limits(self, spec: ReplaySpec) -> Limits:
        if self._live is None:
            self._live = LiveLimits(spec.limits, spec.control)
        return self._live.now()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _ranges(decode(self._text), start["row"], end["row"], end["start_us"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._text, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {"_text": self._text, "_first_start_us": None, "_frozen_us": None, "_live": None}


def _capped(spec: ReplaySpec, row: int, limits: Limits) -> int:
    """Where a batch that begins at `row` must end; never before its first row is in."""
    ends = [row + limits.max_rows] if limits.max_rows is not None else []
    if limits.max_seconds is not None:
        first_us = int(spec.schedule.time_us(np.array([row]))[0])
        span_us = max(1, round(limits.max_seconds * 1e6))
        ends.append(spec.schedule.count_us(first_us + span_us - 1))
    return min(ends, default=2**62)
