"""The map-side half of a grouped aggregate: what each task makes of its own rows, without the exchange that follows.

Spark aggregates in two halves with an exchange between them. Pane rows are appended to a window's log, or go on to
another exchange, by key group; the log combines rows of the same pane anyway, so the first half is enough. Where panes
are many, that saves an exchange and a second hash table, a tenth of the batch; where they are few, the longer way to
plan it costs more than the second half (docs/decisions/006-window-paths.md).

The half is taken out of the physical plan, which is no public interface; where the plan does not look as expected, the
whole aggregate is used, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.spark.session import settings

MOST_PARTITIONS = 8  # a group has at most so many rows; with more, Spark's second half pays
# With many groups the small map in front of the large one is soon full, and then only in the way.
ONE_MAP = {"spark.sql.codegen.aggregate.map.twolevel.enabled": "false"}
PLAIN = frozenset({"count", "sum", "min", "max"})  # what is carried between the halves is the value itself
ABOVE = ("HashAggregate", "Project", "WholeStageCodegen", "InputAdapter")  # what may stand between it and the exchange
_plain: dict[tuple[str, ...], bool] = {}  # by the grouped columns and measures


@dataclass(frozen=True)
class Half:
    """The map side of an aggregate: its rows, and the plan that makes them."""

    frame: DataFrame
    plan: Any


def map_side(grouped: DataFrame, columns: list[str], measures: Sequence[str]) -> Half | None:
    """Return the map side of `groupBy(...).agg(...)` under these column names; None where it cannot be had.

    `columns` are the names of the grouping columns and of the `measures` (SQL texts), in the order of their statement.
    """
    exchange = grouped._jdf.queryExecution().executedPlan()
    while (name := exchange.nodeName()) != "Exchange":
        if not name.startswith(ABOVE):  # the aggregate needs no exchange: the next one is of a step before it
            return None
        exchange = exchange.children().head()
    half = exchange.child()
    node = half.child() if half.nodeName().startswith("WholeStageCodegen") else half
    if node.nodeName() != "HashAggregate" or half.output().size() != len(columns):
        return None
    spark, schema = grouped.sparkSession, grouped._jdf.schema()
    shape = (schema.catalogString(), *columns, *measures)
    if shape not in _plain:  # names and functions are the same in every batch, and asking for them takes many calls
        _plain[shape] = list(schema.fieldNames()) == columns and _is_plain(node, len(measures))
    if not _plain[shape]:
        return None
    rows = compiled(spark, half)
    if rows.getNumPartitions() > MOST_PARTITIONS:
        return None
    return Half(DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, schema, False), spark), half)


def compiled(spark: SparkSession, plan: Any) -> Any:
    """Make the code of a plan that has a map side in it; return its rows."""
    with settings(spark, ONE_MAP):
        return plan.execute()


def _is_plain(node: Any, aggregates: int) -> bool:
    """Tell whether each measure is one column of the half, and its value: no two were found equal and made one."""
    measures = node.aggregateExpressions()
    if measures.size() != aggregates:
        return False
    functions = [measures.apply(number).aggregateFunction() for number in range(aggregates)]
    return all(f.prettyName() in PLAIN and f.aggBufferAttributes().size() == 1 for f in functions)
