"""A source of no rows whose offset is the time in whole seconds: it makes Spark cut a batch although nothing came.

A flow with time windows reads it beside its own sources, so that the windows of an idle stream close. The time
is part of the batch's offsets, hence the same when the batch is replayed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.sources.ending import EndsQuietly

FORMAT = "penstock_tick"


class TickReader(EndsQuietly, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers the present second; never has rows."""

    def __init__(self) -> None:
        self._until: int | None = None
        self._told_s = time.monotonic()  # when a second was last told

    def initialOffset(self) -> dict[str, int]:
        """Begin now."""
        return {"second": int(time.time())}

    def prepareForTriggerAvailableNow(self) -> None:
        """Stand still at the present second."""
        self._until = int(time.time())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the present second. Where the clock was set back, seconds are counted on until it has caught up."""
        if self._until is not None:
            return {"second": max(self._until, start["second"])}
        second, now_s = int(time.time()), time.monotonic()
        if second <= start["second"]:
            second = start["second"] + int(now_s - self._told_s >= 1.0)
        if second > start["second"]:
            self._told_s = now_s
        return {"second": second}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return no partitions, so that a tick costs no task."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return nothing."""
        return iter(())


class TickSource(DataSource):
    """The data source of ticks."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema: one column, for Spark wants one."""
        return "second bigint"

    def streamReader(self, schema: StructType) -> Any:
        """Return the reader."""
        return TickReader()


def ticks(spark: SparkSession) -> DataFrame:
    """Return the streaming DataFrame of ticks."""
    spark.dataSource.register(TickSource)
    return spark.readStream.format(FORMAT).load()
