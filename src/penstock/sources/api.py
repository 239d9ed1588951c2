"""`replay` and `replay_batch`: a deterministic stream with a schedule, and the same rows as a plain DataFrame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import FlowError
from penstock.sources.datasource import FORMAT, ReplaySource
from penstock.sources.generate import Generated, RowFunction
from penstock.sources.keys import Keys
from penstock.sources.limits import Limits
from penstock.sources.schedule import Schedule
from penstock.sources.spec import ReplaySpec
from penstock.sources.trace import Trace

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def replay(
    spark: SparkSession,
    rows: RowFunction | str | Path,
    *,
    schedule: Schedule,
    schema: str | StructType | None = None,
    keys: Mapping[str, Keys] | None = None,
    seed: int = 0,
    total: int | None = None,
    repeat: bool = False,
    start: datetime | int | None = None,
    max_rows: int | None = None,
    max_seconds: float | None = None,
    control: str | Path | None = None,
    scheduled: str = "scheduled",
    partitions: int = 2,
    split_rows: int = 16384,
) -> DataFrame:
    """A stream whose rows come due by a schedule, the same rows in every run.

    ```python
    def quotes(index, random):
        return {"id": index, "price": 100 + random.standard_normal(len(index))}

    df = ps.sources.replay(
        spark, quotes, schema="id bigint, price double",
        keys={"symbol": ps.sources.zipf(1000)}, schedule=ps.sources.constant(5000),
    )
    ```

    - `rows`: a function of (row indices, NumPy generator) that returns a dict of arrays or a RecordBatch with the
      columns of `schema`; it is called for whole blocks of 1024 rows, whose generator depends on `seed` and block
      alone, so row i is the same however batches and partitions are cut. Or the path of a trace: a Parquet or CSV
      file, or a folder of them in order of name; row i is its i-th, over again with `repeat`; `schema` then chooses
      columns and types.
    - `keys`: further columns (bigint), each with its mix of keys.
    - `total`: end after so many rows.
    - `scheduled`: the name of the last column, each row's scheduled instant (timestamp): `start` plus
      `schedule.time_of(i)`. Rows due late because the query was slow, or down, keep it.
    - `start`: the instant of row 0, a datetime with zone or microseconds since the epoch; the query's first start
      if left out. A checkpoint remembers it, and wins.
    - `max_rows`, `max_seconds`: the most that one micro-batch takes, in rows and in seconds of schedule. `control`
      names a file through which `write_limits` changes both while the query runs.
    - `partitions`: the most tasks per micro-batch; a batch of fewer than `split_rows` rows is one task.

    The DataFrame carries its spec as `_penstock_replay`.
    """
    spec = build_spec(
        rows,
        schema=schema,
        repeat=repeat,
        schedule=schedule,
        total=total,
        keys=keys,
        seed=seed,
        partitions=partitions,
        split_rows=split_rows,
        start=start,
        limits=Limits(max_rows, max_seconds),
        control=control,
        scheduled=scheduled,
    )
    return frame_of(spark, spec)


def frame_of(spark: SparkSession, spec: ReplaySpec) -> DataFrame:
    """The streaming DataFrame of a spec; a host makes it anew to add a control file."""
    spark.dataSource.register(ReplaySource)
    frame = spark.readStream.format(FORMAT).option("spec", spec.encoded()).load()
    frame._penstock_replay = spec  # type: ignore[attr-defined]
    return frame


def replay_batch(
    spark: SparkSession,
    rows: RowFunction | str | Path,
    *,
    schedule: Schedule,
    schema: str | StructType | None = None,
    keys: Mapping[str, Keys] | None = None,
    seed: int = 0,
    total: int | None = None,
    repeat: bool = False,
    start: datetime | int = 0,
    scheduled: str = "scheduled",
    partitions: int = 2,
    split_rows: int = 16384,
) -> DataFrame:
    """The rows of `replay` with the same arguments, all at once, as a plain DataFrame; the end must be known.

    `start` is the epoch if left out: pass the stream's to get equal scheduled times.
    """
    spec = build_spec(
        rows,
        schema=schema,
        repeat=repeat,
        schedule=schedule,
        total=total,
        keys=keys,
        seed=seed,
        partitions=partitions,
        split_rows=split_rows,
        start=start,
        limits=Limits(),
        control=None,
        scheduled=scheduled,
    )
    if math.isinf(spec.row_count):
        raise FlowError("replay_batch", "a batch needs an end, this replay is endless", "pass total=")
    spark.dataSource.register(ReplaySource)
    frame = spark.read.format(FORMAT).option("spec", spec.encoded()).load()
    frame._penstock_replay = spec  # type: ignore[attr-defined]
    return frame


def build_spec(
    rows: RowFunction | str | Path,
    *,
    schema: str | StructType | None,
    repeat: bool,
    keys: Mapping[str, Keys] | None,
    start: datetime | int | None,
    control: str | Path | None,
    limits: Limits,
    **plain: Any,
) -> ReplaySpec:
    """The arguments of `replay`, checked: whatever is wrong is said here, before Spark is asked."""
    _whole("seed", plain["seed"], 0)
    for name, value in (("partitions", plain["partitions"]), ("split_rows", plain["split_rows"])):
        _whole(name, value, 1)
    if plain["total"] is not None:
        _whole("total", plain["total"], 0)
    if not isinstance(plain["schedule"], Schedule):
        raise FlowError("replay", f"schedule must be a schedule, got {plain['schedule']!r}", "pass constant(1000), say")
    if limits != Limits().updated({"max_rows": limits.max_rows, "max_seconds": limits.max_seconds}):
        raise FlowError("replay", f"max_rows must be >= 1 and max_seconds > 0, got {limits}", "None is no limit")
    mixes = tuple((keys or {}).items())
    for name, mix in mixes:
        if not isinstance(mix, Keys):
            raise FlowError("replay", f"keys[{name!r}] must be a mix of keys, got {mix!r}", "pass uniform, zipf or hot")
    source = _rows(rows, schema, repeat, plain["seed"])
    fields = [*source.schema, *(pa.field(name, pa.int64()) for name, _ in mixes)]
    fields.append(pa.field(plain["scheduled"], pa.timestamp("us", tz="UTC")))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1 or name == "window" or name.startswith("_ps_"):
            rule = f"the column name {name!r} is there twice or reserved (window, _ps_*)"
            raise FlowError("replay", rule, "rename it in schema=, keys= or scheduled=")
    return ReplaySpec(
        rows=source,
        schema=pa.schema(fields),
        keys=mixes,
        start_us=_start_us(start),
        limits=limits,
        control=None if control is None else str(Path(control).absolute()),
        **plain,
    )


def _whole(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        rule = f"{name} must be a whole number >= {least}, got {value!r}"
        raise FlowError("replay", rule, f"pass {name}={least} or more")


def _rows(
    rows: RowFunction | str | Path, schema: str | StructType | None, repeat: bool, seed: int
) -> Generated | Trace:
    arrow = None
    if schema is not None:
        declared = StructType.fromDDL(schema) if isinstance(schema, str) else schema
        if not isinstance(declared, StructType):
            raise FlowError("replay", f"schema must name columns, got {schema!r}", 'pass "id bigint, price double"')
        arrow = to_arrow_schema(declared, timezone="UTC")
    if isinstance(rows, (str, Path)):
        trace = Trace.open(rows, schema=arrow, repeat=repeat)
        return replace(trace, schema=_as_spark_has_it(trace.schema))
    if not callable(rows):
        raise FlowError("replay", f"rows must be a function or a path, got {rows!r}", "pass one of the two")
    if arrow is None:
        raise FlowError("replay", "a rows function needs its columns declared", 'pass schema="id bigint, price double"')
    if repeat:
        raise FlowError("replay", "repeat= is for traces, a function has no end", "leave repeat out")
    made = Generated(rows, arrow, seed)
    made.check()
    return made


def _as_spark_has_it(schema: pa.Schema) -> pa.Schema:
    """The Arrow types in which Spark takes these columns: microseconds, UTC, no dictionaries."""
    flat = [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema]
    plain = pa.schema([field.remove_metadata() for field in flat])
    return to_arrow_schema(from_arrow_schema(plain), timezone="UTC")


def _start_us(start: datetime | int | None) -> int | None:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise FlowError("replay", f"start={start} has no time zone", "pass datetime(..., tzinfo=UTC)")
        return (start - EPOCH) // timedelta(microseconds=1)
    if start is not None:
        _whole("start", start, 0)
    return start
