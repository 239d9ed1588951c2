"""A physical plan that is kept from batch to batch: only the rows at its leaf change.

What Spark does for a DataFrame of ours is the same in every batch: analyse, optimise, plan. That takes 10-15 ms, and
35-45 ms for a window of many panes, which takes several steps. A batch's rows come as an RDD, and all that stands on
it is a chain of steps with one child each. So the chain of one batch is copied for the next, from the leaf up, with the
new rows as its leaf.

The map side of a window's aggregate (`map_side`) and the exchange behind it are two plans at first, for the one is
taken out of another plan. Here they become one: what the second reads is what the first puts out, under other names.

A physical plan is no public interface; where one does not look as expected nothing is kept, and every batch planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import _to_seq

from penstock.engine.spark.map_side import MOST_PARTITIONS, Half, compiled

_TOGETHER, _ANYHOW = "SinglePartition$", "UnknownPartitioning"  # how Spark says that rows lie
_MOST_STEPS = 20  # of a plan that is kept: each costs a call


class KeptPlan:
    """The plan of a DataFrame over a batch's rows, to be run over those of other batches.

    Its one column are texts: the reports of a job's tasks.
    """

    def __init__(self, spark: SparkSession, steps: list[Any], leaf: Any, *, together: bool, of_half: bool) -> None:
        self.spark, self.together, self.of_half = spark, together, of_half
        self._rest = [leaf.productElement(n) for n in range(2, leaf.productArity())]  # all but its columns and rows
        self._output = leaf.output()
        # Copies, for an exchange that has run keeps the files of its rows.
        self._steps: list[Any] = []  # from the one above the leaf up
        self._leaf = child = leaf.copy(self._output, spark.sparkContext._jsc.emptyRDD().rdd(), *self._rest)
        for step in steps:
            child = step.withNewChildInternal(child)
            self._steps.append(child)

    @classmethod
    def of(cls, batch: DataFrame, frame: DataFrame, half: Half | None = None) -> KeptPlan | None:
        """Keep the plan of a frame made of a batch, or of what `half` makes of it; None if it cannot be kept."""
        try:
            rows = _Rows.of(batch)
            steps, leaf = _chain(frame._jdf.queryExecution().executedPlan())
            if half is not None:
                below, first = _chain(half.plan)
                steps, leaf = _joined(frame.sparkSession, below, steps, leaf), first
            if len(steps) > _MOST_STEPS or rows is None or leaf.rdd().id() != rows.rdd.id():
                return None
            return cls(frame.sparkSession, steps, leaf, together=rows.together, of_half=half is not None)
        except (Py4JError, TypeError):  # not as in the version of Spark that this was written for
            return None

    def over(self, batch: DataFrame) -> Planned | None:
        """Return the plan over the rows of another batch; None where that one would have been planned otherwise."""
        rows = _Rows.of(batch)
        if rows is None or rows.together != self.together:
            return None
        if self.of_half and rows.rdd.getNumPartitions() > MOST_PARTITIONS:
            return None
        plan = self._leaf.copy(self._output, rows.rdd, *self._rest)
        for step in self._steps:
            plan = step.withNewChildInternal(plan)
        return Planned(self.spark, plan, self.of_half)


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch, and what Spark knows of them when it plans: those of one partition need fewer exchanges."""

    rdd: Any
    together: bool

    @classmethod
    def of(cls, batch: DataFrame) -> _Rows | None:
        """Return what a batch begins with; None if that is not plain rows in any order."""
        source = batch._jdf.logicalPlan()
        if source.getClass().getSimpleName() != "LogicalRDD" or source.outputOrdering().nonEmpty():
            return None
        spread = source.outputPartitioning().getClass().getSimpleName()
        return cls(source.rdd(), spread == _TOGETHER) if spread in (_TOGETHER, _ANYHOW) else None


def partitions_of(batch: DataFrame) -> int | None:
    """Return the partitions of a batch's rows; None if it is not plain rows."""
    rows = _Rows.of(batch)
    return None if rows is None else int(rows.rdd.getNumPartitions())


def in_partitions(batch: DataFrame, least: int) -> DataFrame:
    """Return a batch in at least so many partitions: empty ones are added, for tasks that have other work than rows."""
    rows = _Rows.of(batch) if least > 0 else None  # most batches ask for none: not a call into the JVM for them
    missing = 0 if rows is None else least - int(rows.rdd.getNumPartitions())
    if rows is None or missing <= 0:
        return batch
    spark = batch.sparkSession
    padded = rows.rdd.union(no_rows(spark, missing))
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(padded, batch._jdf.schema(), False), spark)


def no_rows(spark: SparkSession, partitions: int) -> Any:
    """Return so many partitions without rows, as Spark's plans read them."""
    return spark.sparkContext._jsc.parallelize([], partitions).rdd()


@dataclass(frozen=True)
class Planned:
    """A plan over the rows of one batch."""

    spark: SparkSession
    plan: Any
    of_half: bool = False

    @classmethod
    def of(cls, frame: DataFrame) -> Planned:
        """Return the plan of a DataFrame that can be run again and again: one without an exchange, which would not."""
        return cls(frame.sparkSession, frame._jdf.queryExecution().executedPlan())

    def texts(self) -> list[str]:
        """Run it; return the texts in its one column."""
        if self.of_half:
            compiled(self.spark, self.plan)
        return [row.getString(0) for row in self.plan.executeCollectPublic()]


def _chain(plan: Any) -> tuple[list[Any], Any]:
    """Return the steps of a plan, each of which has one child, from the lowest up, and the rows they begin with."""
    steps: list[Any] = []
    while (children := plan.children()).size() == 1:
        steps.insert(0, plan)
        plan = children.head()
    if plan.getClass().getSimpleName() != "RDDScanExec":
        raise TypeError(f"a plan that begins with {plan.nodeName()}")
    return steps, plan


def _joined(spark: SparkSession, below: list[Any], above: list[Any], source: Any) -> list[Any]:
    """Return the steps of one plan and of another one that reads its rows as `source`, as those of one plan.

    Spark compiles the steps below an exchange into one function: the two become one, so that no row is made between.
    """
    jvm, context = spark.sparkContext._jvm, spark.sparkContext
    assert jvm is not None
    expressions, nothing = jvm.org.apache.spark.sql.catalyst.expressions, _to_seq(context, [])
    below, compiled = [step for step in below if not _compiles(step)], [step for step in below if _compiles(step)]
    above = [step for step in above if step.nodeName() != "InputAdapter"]
    given, wanted = below[-1].output(), source.output()
    names = []
    for number in range(wanted.size()):
        column = wanted.apply(number)
        alias = expressions.Alias(
            given.apply(number), column.name(), column.exprId(), nothing, jvm.scala.Option.empty(), nothing
        )
        names.append(alias)
    renamed = jvm.org.apache.spark.sql.execution.ProjectExec(_to_seq(context, names), below[-1])
    return [*below, renamed, *([] if any(map(_compiles, above)) else compiled), *above]


def _compiles(step: Any) -> bool:
    return bool(step.nodeName().startswith("WholeStageCodegen"))
