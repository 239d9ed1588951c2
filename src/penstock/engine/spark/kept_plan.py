"""A physical plan that is kept from batch to batch: only the rows at its leaf change.

What Spark does for a DataFrame of ours is the same in every batch: analyse, optimise, plan, 35-45 ms for a window of
many panes, which takes several steps. A batch's rows come as an RDD, and all that stands on it is a chain of steps with
one child each. So the chain of one batch is copied for the next, from the leaf up, with the new rows as its leaf.

The map side of the aggregate (`map_side`) and the exchange behind it are two plans there, for the first is taken out of
another one. Here they become one: what the second reads is what the first puts out, under other names.

A physical plan is no public interface; where one does not look as expected nothing is kept, and every batch planned.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import _to_seq

from penstock.engine.spark.map_side import MOST_PARTITIONS
from penstock.engine.spark.session import settings

_MOST_STEPS = 12  # of a plan that is kept: each costs a call


class KeptPlan:
    """The plan of a DataFrame over a batch's rows, to be run over those of other batches."""

    def __init__(self, spark: SparkSession, steps: list[Any], leaf: Any, conf: dict[str, str]) -> None:
        self.spark, self.conf = spark, conf
        self._steps = steps  # from the one above the leaf up
        self._leaf = leaf
        self._rest = [leaf.productElement(n) for n in range(2, leaf.productArity())]  # all but its columns and rows
        self._output = leaf.output()

    @classmethod
    def of(cls, batch: DataFrame, half: Any, frame: DataFrame, conf: dict[str, str]) -> KeptPlan | None:
        """Keep the plan of a frame that reads what the plan `half` makes of a batch; None if it cannot be kept."""
        try:
            if batch._jdf.logicalPlan().getClass().getSimpleName() != "LogicalRDD":
                return None
            above, source = _chain(frame._jdf.queryExecution().executedPlan())
            below, leaf = _chain(half)
            if len(above) + len(below) > _MOST_STEPS or not above or not below:
                return None
            return cls(frame.sparkSession, _joined(frame.sparkSession, below, above, source), leaf, conf)
        except (Py4JError, TypeError):  # not as in the version of Spark that this was written for
            return None

    def over(self, batch: DataFrame) -> Planned | None:
        """Return the plan over the rows of another batch; None where `map_side` would not have made it."""
        rows = batch._jdf.logicalPlan().rdd()
        if rows.getNumPartitions() > MOST_PARTITIONS:
            return None
        plan = self._leaf.copy(self._output, rows, *self._rest)
        for step in self._steps:
            plan = step.withNewChildInternal(plan)
        return Planned(self, plan)


class Planned:
    """A kept plan over the rows of one batch."""

    def __init__(self, kept: KeptPlan, plan: Any) -> None:
        self.kept, self.plan = kept, plan

    def texts(self) -> list[str]:
        """Run it; return the texts in its one column."""
        with settings(self.kept.spark, self.kept.conf):
            self.plan.execute()  # code is made here
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
