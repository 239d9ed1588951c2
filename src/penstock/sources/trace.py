"""Rows, and the times of rows, taken from a recorded trace: Parquet or CSV, a file or a folder of files."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import FlowError
from penstock.sources.schedule import NEVER, Floats, Ints, Schedule, check

# A CSV file can only be read from its start, so a reader holds it whole.
CSV_LIMIT = 256 << 20


@dataclass(frozen=True)
class Group:
    """A stretch of a trace that is read as one: a row group of a Parquet file, or a CSV file."""

    path: str
    number: int
    rows: int
    modified_ns: int  # part of the cache's key: a file that was written anew is read anew


@lru_cache(maxsize=4)
def _load(group: Group, columns: tuple[str, ...] | None) -> pa.Table:
    # Kept in the worker process, which serves batch after batch: a trace is read once, group by group.
    wanted = list(columns) if columns else None
    if group.path.endswith(".csv"):
        table = pyarrow.csv.read_csv(group.path)
        return (table.select(wanted) if wanted else table).combine_chunks()
    return pq.ParquetFile(group.path, memory_map=True).read_row_group(group.number, columns=wanted).combine_chunks()


def _schema(group: Group) -> pa.Schema:
    return _load(group, None).schema if group.path.endswith(".csv") else pq.read_schema(group.path)


def _groups(path: str | Path) -> tuple[Group, ...]:
    root = Path(path).absolute()
    files = sorted(f for f in root.iterdir() if f.suffix in (".parquet", ".csv")) if root.is_dir() else [root]
    if not files or not all(f.is_file() and f.suffix in (".parquet", ".csv") for f in files):
        raise FlowError(f"trace {path}", "there is no .parquet or .csv file", "pass such a file or a folder of them")
    found = []
    for file in files:
        stat = os.stat(file)
        if file.suffix == ".csv":
            if stat.st_size > CSV_LIMIT:
                rule = f"a CSV trace is held in memory and may have {CSV_LIMIT >> 20} MiB, this has more"
                raise FlowError(f"trace {file}", rule, "convert it to Parquet")
            lone = Group(str(file), 0, 0, stat.st_mtime_ns)
            found.append(Group(str(file), 0, _load(lone, None).num_rows, stat.st_mtime_ns))
        else:
            metadata = pq.ParquetFile(file).metadata
            sizes = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
            found += [Group(str(file), number, rows, stat.st_mtime_ns) for number, rows in enumerate(sizes) if rows]
    found = [group for group in found if group.rows]
    if not found:
        raise FlowError(f"trace {path}", "it has no rows", "pass a trace with at least one row")
    return tuple(found)


@dataclass(frozen=True)
class Trace:
    """Row i of a recorded trace; from its start again at the end if `repeat`."""

    groups: tuple[Group, ...]
    schema: pa.Schema
    repeat: bool

    @staticmethod
    def open(path: str | Path, *, schema: pa.Schema | None = None, repeat: bool = False) -> Trace:
        """The trace at `path`; with the columns of `schema`, if given, cast to its types."""
        groups = _groups(path)
        there = _schema(groups[0])
        missing = [name for name in schema.names if name not in there.names] if schema else []
        if missing:
            rule = f"it lacks the columns {missing} of schema="
            raise FlowError(f"trace {path}", rule, f"name some of {there.names}")
        return Trace(groups, schema or there, repeat)

    @cached_property
    def edges(self) -> list[int]:
        """The first row of each group, and the number of rows."""
        return [0, *np.cumsum([group.rows for group in self.groups]).tolist()]

    @property
    def rows(self) -> float:
        return float("inf") if self.repeat else self.edges[-1]

    def _slices(self, first: int, last: int) -> Iterator[pa.Table]:
        columns = tuple(self.schema.names)
        while first < last:
            place = first % self.edges[-1]
            number = bisect_right(self.edges, place) - 1
            length = min(last - first, self.edges[number + 1] - place)
            yield _load(self.groups[number], columns).slice(place - self.edges[number], length)
            first += length

    def arrays(self, first: int, last: int) -> list[pa.Array]:
        """The columns of the rows `first` .. `last` (exclusive), in the order and types of the schema."""
        tables = list(self._slices(first, last))
        return [self._array(field, [table.column(field.name) for table in tables]) for field in self.schema]

    def _array(self, field: pa.Field, parts: list[pa.ChunkedArray]) -> pa.Array:
        options = pc.CastOptions(target_type=field.type, allow_time_truncate=True)  # Spark's times are microseconds
        chunks = [pc.cast(chunk, options=options) for part in parts for chunk in part.chunks]
        return pa.concat_arrays(chunks)


@lru_cache(maxsize=4)
def _times_us(group: Group, column: str) -> Ints:
    values = _load(group, (column,)).column(column)
    if pa.types.is_timestamp(values.type):
        options = pc.CastOptions(pa.timestamp("us", values.type.tz), allow_time_truncate=True)
        micros: Ints = pc.cast(values, options=options).cast(pa.int64()).to_numpy()
    else:
        micros = np.rint(values.cast(pa.float64()).to_numpy() * 1e6).astype(np.int64)
    return micros


@dataclass(frozen=True, repr=False)
class Recorded(Schedule):
    """Rows due at the times that a trace's own column gives, `speed` times as fast."""

    groups: tuple[Group, ...]
    column: str
    speed: float
    firsts_us: tuple[int, ...]  # the time of each group's first row
    last_us: int

    def __repr__(self) -> str:
        return f"recorded({self.column!r}, speed={self.speed:g})"

    @cached_property
    def _edges(self) -> Ints:
        return np.cumsum([0, *(group.rows for group in self.groups)])

    def _scaled(self, us: Ints) -> Ints:
        return np.rint((us - self.firsts_us[0]) / self.speed).astype(np.int64)

    @property
    def rows(self) -> float:
        return float(self._edges[-1])

    @property
    def duration(self) -> float:
        return float(self._scaled(np.array([self.last_us]))[0] / 1e6)

    def time_us(self, index: Ints) -> Ints:
        result = np.full(len(index), NEVER)
        inside = index < self.rows
        number = np.searchsorted(self._edges, index, side="right") - 1
        for group in np.unique(number[inside]):
            mine = number == group
            times = _times_us(self.groups[group], self.column)
            result[mine] = self._scaled(times[index[mine] - self._edges[group]])
        return result

    def _estimate(self, us: int) -> int:
        original = self.firsts_us[0] + int(min(us, 2**62) * self.speed)
        group = max(bisect_right(self.firsts_us, original) - 1, 0)
        times = _times_us(self.groups[group], self.column)
        return int(self._edges[group] + np.searchsorted(times, original, side="right"))

    def _rate(self, seconds: Floats) -> Floats:
        """Rows in the second from each instant on: a trace has rows, not rates."""
        return np.array([self.count(at + 1) - self.count(at) for at in seconds], dtype=np.float64)

    def then(self, following: Schedule) -> Schedule:
        raise FlowError(f"schedule {self}", "a recording has no phases to join", "replay the two one after the other")


def recorded(path: str | Path, column: str, *, speed: float = 1.0) -> Schedule:
    """The times of a trace itself: row i is due when `column` says, counted from row 0, `speed` times as fast.

    `column` holds timestamps, or numbers of seconds, that never decrease.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> pq.write_table(pa.table({"at": [100.0, 101.0, 104.0]}), f"{folder.name}/calls.parquet")
    >>> recorded(f"{folder.name}/calls.parquet", "at", speed=2).time_of([0, 1, 2]).tolist()
    [0.0, 0.5, 2.0]
    >>> folder.cleanup()
    """
    where = f"recorded {path}"
    check(where, positive={"speed": speed}, not_negative={"speed": speed})
    groups = _groups(path)
    names = _schema(groups[0]).names
    if column not in names:
        raise FlowError(where, f"there is no column {column!r}", f"name one of {names}")
    firsts, last, row = [], None, 0
    for group in groups:
        times = _times_us(group, column)
        steps = np.diff(times, prepend=times[0] if last is None else last)
        if (steps < 0).any():
            raise FlowError(where, f"{column!r} decreases at row {row + int(np.argmax(steps < 0))}", "sort the trace")
        firsts.append(int(times[0]))
        last, row = int(times[-1]), row + group.rows
    assert last is not None
    return Recorded(groups, column, float(speed), tuple(firsts), last)
