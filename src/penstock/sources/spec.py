"""What a replayed stream is: everything that decides which rows there are, when they are due, how they are cut."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from penstock.sources.draws import STREAM_KEYS, generator
from penstock.sources.generate import BLOCK, Generated
from penstock.sources.keys import Keys
from penstock.sources.limits import Limits
from penstock.sources.schedule import Floats, Schedule
from penstock.sources.trace import Trace

# Rows per Arrow batch: large enough for full speed, small enough to stay in the processor's cache.
ARROW_ROWS = 65536


@dataclass(frozen=True)
class ReplaySpec:
    """A replayed stream, complete: row i's content and scheduled time follow from this and the start instant."""

    rows: Generated | Trace
    schedule: Schedule
    schema: pa.Schema
    total: int | None
    keys: tuple[tuple[str, Keys], ...]
    seed: int
    partitions: int
    split_rows: int
    start_us: int | None
    limits: Limits
    control: str | None
    scheduled: str

    @property
    def row_count(self) -> float:
        """How many rows there are in all; inf if endless."""
        return min(self.schedule.rows, self.rows.rows, math.inf if self.total is None else self.total)

    def ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """The rows `first` .. `last` (exclusive) cut for tasks: one task if they are few, else up to `partitions`."""
        count = last - first
        if count <= 0:
            return []
        tasks = 1 if count < self.split_rows else min(self.partitions, -(-count // self.split_rows))
        # Cut at the blocks of generated rows, so that no block is made twice.
        cuts = [(first + count * task // tasks) // BLOCK * BLOCK for task in range(1, tasks)]
        edges = [first, *(cut for cut in cuts if first < cut < last), last]
        return [(low, high) for low, high in itertools.pairwise(edges) if low < high]

    def batches(self, first: int, last: int, start_us: int) -> Iterator[pa.RecordBatch]:
        """The rows `first` .. `last` (exclusive) as Arrow batches, scheduled from the instant `start_us`."""
        while first < last:
            end = min(last, (first // ARROW_ROWS + 1) * ARROW_ROWS)
            due_us = self.schedule.time_us(np.arange(first, end, dtype=np.int64))
            arrays = self.rows.arrays(first, end)
            for number, (_, mix) in enumerate(self.keys):
                arrays.append(pa.array(mix.draw(self._uniform(number, first, end), due_us / 1e6)))
            arrays.append(pa.array(start_us + due_us).cast(self.schema.field(self.scheduled).type))
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            first = end

    def _uniform(self, number: int, first: int, last: int) -> Floats:
        """One draw per row for key column `number`."""
        low, high = first // BLOCK, -(-last // BLOCK)
        draws = [generator(self.seed, STREAM_KEYS + number, block).random(BLOCK) for block in range(low, high)]
        return np.concatenate(draws)[first - low * BLOCK : last - low * BLOCK]

    def encoded(self) -> str:
        """As text, for Spark's options carry nothing else; functions of `__main__` go by value."""
        return base64.b64encode(cloudpickle.dumps(self)).decode("ascii")


@lru_cache(maxsize=16)
def decode(text: str) -> ReplaySpec:
    """The spec that `encoded` wrote. Kept per process: a worker decodes once, not at every task."""
    spec: ReplaySpec = cloudpickle.loads(base64.b64decode(text))
    return spec


def due(spec: ReplaySpec, start_us: int, now_us: int) -> int:
    """How many rows of a replay that started at `start_us` are due at `now_us` (microseconds since the epoch)."""
    return int(min(spec.schedule.count_us(now_us - start_us), spec.row_count))
