"""Build the DataFrames of a batch: native steps, exchanges, and Python stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import LongType, StructType
from pyspark.util import PythonEvalType

from penstock.control.models.batch_service import worth_tasks
from penstock.engine.spark.map_side import Half, map_side
from penstock.engine.spark.program import INDEX_BITS, POS, Program
from penstock.engine.spark.state import GROUPS, HASH, plain_route
from penstock.flow import operators as op
from penstock.windows.aggregates import partials_of
from penstock.windows.panes import PANE
from penstock.windows.time import Time

SOURCE = "_ps_source"


def quoted(name: str) -> str:
    """Quote a column name for SQL text."""
    return "`" + name.replace("`", "``") + "`"


def unite(reads: tuple[op.Read, ...], tick: DataFrame | None) -> DataFrame:
    """Return one streaming DataFrame for all sources: one struct column per source (design section 4)."""
    if len(reads) == 1:
        nothing = [F.lit(None).cast(f.dataType).alias(f.name) for f in reads[0].frame.schema]
        return reads[0].frame if tick is None else reads[0].frame.union(tick.select(*nothing))  # a tick has no rows
    parts = []
    names = [f"s{i}" for i in range(len(reads))]
    schemas = [read.outputs[read.name] for read in reads]
    for number, read in enumerate(reads):
        columns = [
            F.struct(*[F.col(quoted(c)) for c in schema.names]).alias(name)
            if i == number
            else F.lit(None).cast(schema).alias(name)
            for i, (name, schema) in enumerate(zip(names, schemas, strict=True))
        ]
        parts.append(read.frame.select(F.lit(number).alias(SOURCE), *columns))
    if tick is not None:
        empty = [F.lit(None).cast(schema).alias(name) for name, schema in zip(names, schemas, strict=True)]
        parts.append(tick.select(F.lit(-1).alias(SOURCE), *empty))
    united = parts[0]
    for part in parts[1:]:
        united = united.union(part)
    return united


def source_frame(batch: DataFrame, number: int, alone: bool) -> DataFrame:
    """Return the rows of one source from the united DataFrame of a batch."""
    return batch if alone else batch.where(F.col(SOURCE) == number).select(f"s{number}.*")


class PythonStage:
    """A program as a reusable DataFrame step.

    `DataFrame.mapInArrow` pickles the function and resolves every column anew; here that is done once
    per job, which saves 10-15 ms of every batch (docs/decisions/001-engine.md).
    """

    def __init__(self, program: Program, schema: StructType | str) -> None:
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return program.run(batches)

        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        self._udf: Any = pandas_udf(run, returnType=schema, functionType=kind)  # type: ignore[call-overload]
        self._calls: dict[str, Any] = {}

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the frame behind this stage; its columns are the same in nearly every batch."""
        shape = frame._jdf.schema().catalogString()  # asked for in one call; names are one call each
        if shape not in self._calls:
            self._calls[shape] = self._udf(*[sql(quoted(name)) for name in frame.columns])._jc
        return DataFrame(frame._jdf.mapInArrow(self._calls[shape], False, None), frame.sparkSession)


def onward_schema(schema: StructType) -> StructType:
    """Return the schema of rows that stream on into an exchange: the user's columns and the position."""
    return StructType(schema.fields[:]).add(POS, LongType())


MANY_TEXTS = 1000
_columns: dict[str, Column] = {}
_lists: dict[tuple[str, ...], Any] = {}


def sql(text: str) -> Column:
    """Return a Column for SQL text, parsed once."""
    column = _columns.get(text)
    if column is None:
        if len(_columns) > MANY_TEXTS:  # routes come and go
            _columns.clear()
        column = _columns[text] = F.expr(text)
    return column


def in_java(spark: SparkSession, texts: Sequence[str]) -> Any:
    """Return Columns for SQL texts as one list in the JVM, made once: every item of it is a call over there."""
    listed = _lists.get(tuple(texts))
    if listed is None:
        if len(_lists) > MANY_TEXTS:
            _lists.clear()
        listed = _lists[tuple(texts)] = _to_seq(spark.sparkContext, [sql(text)._jc for text in texts])
    return listed


def selected(frame: DataFrame, *texts: str) -> DataFrame:
    """Return `frame.selectExpr(*texts)`, with few calls into the JVM."""
    return DataFrame(frame._jdf.select(in_java(frame.sparkSession, texts)), frame.sparkSession)


def grouped(frame: DataFrame, keys: Sequence[str], measures: Sequence[str]) -> DataFrame:
    """Return `frame.groupBy(keys).agg(measures)`, both as SQL texts, with few calls into the JVM."""
    spark, (first, *others) = frame.sparkSession, measures
    found = frame._jdf.groupBy(in_java(spark, keys)).agg(sql(first)._jc, in_java(spark, others))
    return DataFrame(found, spark)


def position_text(chunk: int) -> str:
    """Return SQL text that stamps a row with (source partition, chunk, index in the chunk) in one long."""
    number = "monotonically_increasing_id()"  # partition << 33 | row; each use counts for itself, alike
    partition, row = f"shiftright({number}, 33)", f"({number} & 8589934591L)"
    return f"shiftleft({partition}, 51) | shiftleft({row} div {chunk}L, {INDEX_BITS}) | ({row} % {chunk}L) as {POS}"


def to_tasks(frame: DataFrame, tasks: int, route: str, few: bool) -> DataFrame:
    """Send rows to tasks by a route; few rows for one task need no exchange, which saves a stage (15-30 ms)."""
    return frame.coalesce(1) if tasks == 1 and few else frame.repartitionById(tasks, sql(route))


TURNS = 240  # the widths that divide it get even shares; the others are off by less than 5 % up to 12 tasks


def looked_up(entries: Sequence[int], index: str) -> str:
    """Return SQL text for the entry at an index (SQL text).

    Spark folds the list into one constant that compiled code only refers to, so other entries need no new code: a
    number in the text would cost a compilation (100-300 ms) with every new width.
    """
    return f"cast(split('{','.join(map(str, entries))}', ',') as array<int>)[cast({index} as int)]"


def turns_text(number: str, tasks: int) -> str:
    """Return SQL text for the task of a number (SQL text): by turns."""
    if tasks > TURNS // 8:
        return f"cast(pmod({number}, {tasks}L) as int)"
    return looked_up([turn % tasks for turn in range(TURNS)], f"pmod({number}, {TURNS}L)")


@dataclass(frozen=True)
class Guess:
    """What a batch will be like, by the one before it: its rows, and how long each stage is busy with them."""

    rows: int
    busy_s: Mapping[str, float] = field(default_factory=dict)  # of the stages that are known


def farm_tasks(node: op.Map, width: int, guess: Guess | None = None) -> int:
    """Return the tasks of a farm: one a replica, on demand more, but no more than chunks, or than their work is worth.

    >>> farm = op.Map("farm", (), {}, scheduling="on_demand", chunk=10)
    >>> farm_tasks(farm, 1), farm_tasks(farm, 2), farm_tasks(farm, 2, Guess(45)), farm_tasks(farm, 2, Guess(5))
    (1, 8, 5, 2)
    >>> farm_tasks(farm, 2, Guess(100, {"farm": 0.13})), farm_tasks(farm, 2, Guess(100, {"farm": 5.0}))
    (3, 8)
    """
    if width == 1:
        return 1  # one replica has no one to share with: finer tasks would only cost
    tasks = width * node.tasks_each
    if guess is not None:
        tasks = min(tasks, -(-guess.rows // node.chunk))
        if node.name in guess.busy_s:
            tasks = min(tasks, worth_tasks(guess.busy_s[node.name]))
    return max(width, tasks)


def farm_exchange(
    frame: DataFrame, node: op.Map, width: int, *, stamped: bool, few: bool = False, guess: Guess | None = None
) -> DataFrame:
    """Send chunks to replicas: round robin, by key, or all to all; `stamped` rows have their position already."""
    if not stamped:
        frame = selected(frame, "*", position_text(node.chunk))
    tasks = farm_tasks(node, width, guess)
    if node.partition == "broadcast":
        spread = selected(frame, "*", f"explode(sequence(0, {tasks - 1})) as _ps_route")
        return spread.repartitionById(tasks, F.col("_ps_route")).drop("_ps_route")
    if node.partition == "key":
        keys = ", ".join(quoted(name) for name in node.key)
        return to_tasks(frame, tasks, turns_text(f"xxhash64({keys})", tasks), few)
    return to_tasks(frame, tasks, turns_text(f"shiftright({POS}, {INDEX_BITS})", tasks), few)


def hash_text(key: tuple[str, ...]) -> str:
    """Return SQL text for the 64-bit hash of a key; no key is one key."""
    return f"xxhash64({', '.join(quoted(name) for name in key)})" if key else "0L"


def route_text(width: int, route: Sequence[int] | None = None) -> str:
    """Return SQL text for the task of a row: what its key group's route says, by default the group modulo the width."""
    group = f"shiftrightunsigned(shiftrightunsigned({HASH}, 32) * {GROUPS}L, 32)"  # state.group_of
    return looked_up(plain_route(width) if route is None else route, group)


def keyed_exchange(
    frame: DataFrame,
    key: tuple[str, ...],
    width: int,
    columns: list[str],
    *,
    stamped: bool,
    few: bool = False,
    route: Sequence[int] | None = None,
) -> DataFrame:
    """Send the rows of a key group to one task, these columns of them, with hash and position."""
    stamps = [f"{hash_text(key)} as {HASH}", POS if stamped else position_text(1 << INDEX_BITS)]
    sent = selected(frame, *[quoted(name) for name in columns], *stamps)
    return to_tasks(sent, width, route_text(width, route), few)


def time_text(node: op.Window) -> str:
    """Return SQL text for the event time in microseconds; that of a window's result is its end - 1."""
    assert node.time is not None
    if node.time == "window":
        return "(unix_micros(window.end) - 1L)"
    return f"unix_micros({quoted(node.time)})"


def pane_text(spec: Time, time: str) -> str:
    """Return SQL text for the pane of an event time given as SQL text: `Time.pane_of`.

    >>> pane_text(Time("10 us", slide="5 us"), "t")
    '((t - 0L) - pmod((t - 0L), 5L)) div 5L'
    """
    since = f"({time} - {spec.origin_us}L)"
    rest = f"pmod({since}, {spec.slide_us}L)"
    slides = f"({since} - {rest}) div {spec.slide_us}L"
    return slides if not spec.rest_us else f"2L * ({slides}) + if({rest} < {spec.rest_us}L, 0L, 1L)"


def pane_measures(node: op.Window, arrival: str | None) -> tuple[list[str], dict[str, str | None]]:
    """Return SQL texts: what the rows of a window are grouped by, and what is computed of each group, by name.

    The pane of a row is null without event time; else that of `Time.pane_of` (thesis 000, 4.5). The text is the same in
    every batch: a watermark written into it would make Spark compile new code each time.
    """
    spec, time = node.spec, time_text(node)
    assert isinstance(spec, Time)
    measures = {"_ps_max": f"max({time})"} | {partial.name: partial.sql for partial in partials_of(node.aggregates)}
    if arrival is not None:
        measures["_ps_first"] = f"min(unix_micros({quoted(arrival)}))"
    return [*map(quoted, node.key), f"{pane_text(spec, time)} as {PANE}"], measures


def pane_exchange(
    frame: DataFrame,
    node: op.Window,
    width: int,
    *,
    arrival: str | None = None,
    few: bool = False,
    many_panes: bool = False,
    route: Sequence[int] | None = None,
) -> tuple[DataFrame, Half | None]:
    """Aggregate natively per key and pane, then send the pane rows to the tasks of their key groups.

    With the map side of the aggregate, where that alone is taken.
    """
    alone = few and width == 1
    if many_panes and not alone and (own := own_panes(frame, node, arrival=arrival)) is not None:
        return own[0].repartitionById(width, sql(route_text(width, route))), own[1]
    keys, measures = pane_measures(node, arrival)
    if alone:
        frame = frame.coalesce(1)  # one partition satisfies the grouping too: no exchange at all
    named = [f"{text} as {quoted(name)}" for name, text in measures.items()]
    panes = grouped(frame, keys, [f"{hash_text(node.key)} as {HASH}", *named])
    return panes if alone else panes.repartitionById(width, sql(route_text(width, route))), None


def own_panes(frame: DataFrame, node: op.Window, *, arrival: str | None = None) -> tuple[DataFrame, Half] | None:
    """Aggregate natively per key and pane, each task its own rows, and leave them where they are; None if it cannot be.

    The pane need not cross over to Python: the greatest event time in it says which it is.
    """
    keys, measures = pane_measures(node, arrival)
    named = [f"{text} as {quoted(name)}" for name, text in measures.items()]
    half = map_side(grouped(frame, keys, named), [*node.key, PANE, *measures], named)
    if half is None:
        return None
    columns = [quoted(name) for name in (*node.key, *measures)]
    return selected(half.frame, *columns, f"{hash_text(node.key)} as {HASH}"), half
