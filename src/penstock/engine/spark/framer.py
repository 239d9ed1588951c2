"""From a stage plan and a decision to the DataFrames of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.spark import frames
from penstock.engine.spark.frames import Guess
from penstock.engine.spark.kept_plan import KeptPlan, Planned, in_partitions, no_rows, partitions_of
from penstock.engine.spark.map_side import Half
from penstock.engine.spark.program import INDEX_BITS, REPORT_SCHEMA
from penstock.engine.spark.programs import ProgramBuilder
from penstock.engine.spark.stages import JobPlan, Plan, Stage, owner_of
from penstock.flow import operators as op
from penstock.flow.flow import Flow

FEW_ROWS = 16384  # rows that one task handles in less time than one more task costs
MANY_PLANS = 64
MANY_PANES = 32768  # pane rows of a batch from which the map side alone is cheaper
MOST_PANES = 1 << 19  # up to which tasks append them to the log without an exchange


class Framer:
    """Builds the DataFrame of each job; programs are pickled once and kept from batch to batch."""

    def __init__(self, flow: Flow, plan: Plan, programs: ProgramBuilder) -> None:
        self.flow, self.plan, self.programs = flow, plan, programs
        self._stages: dict[tuple[str, ...], frames.PythonStage] = {}
        self._arrival = {read.name: read.arrival for read in flow.reads}
        self._alone = len(flow.reads) == 1
        self._empty: Any = None
        self._ticks: dict[tuple[Any, ...], Planned] = {}
        self._plans: dict[tuple[Any, ...] | None, KeptPlan] = {}
        self.panes: dict[str, int] = {}  # pane rows of each native window in the last batch, as the host saw them

    def frame(
        self, batch: DataFrame, job: JobPlan, document: dict[str, Any], entry: dict[str, Any], *, guess: Guess
    ) -> DataFrame | Planned:
        """Return the DataFrame of a job, whose rows are its tasks' reports."""
        first, half = job.stages[0], None
        place = self._place(job, batch, document, entry, guess)
        kept = self._plans.get(place)
        if kept is not None and (planned := kept.over(batch)) is not None:
            return planned
        frame = self._native(batch, first.root, document, first)
        for stage in job.stages:
            # Only native rows may be gathered without an exchange: behind a stage that would undo its width.
            route = document["routes"].get(stage.name)
            few = guess.rows < FEW_ROWS and stage is first
            exchanged, half = self._exchange(frame, stage, entry, guess, few, route)
            frame = self._stage(stage).apply(exchanged)
        if place is not None and (plan := KeptPlan.of(batch, frame, half)) is not None:
            if len(self._plans) >= MANY_PLANS:  # routes come and go
                self._plans.clear()
            self._plans[place] = plan
        return frame

    def _place(
        self, job: JobPlan, batch: DataFrame, document: dict[str, Any], entry: dict[str, Any], guess: Guess
    ) -> tuple[Any, ...] | None:
        """Return all that the plan of a job depends on; None where more does: a user's steps, taps, several sources.

        That is: the source's columns, whether few rows need no exchange, and of each stage its steps, tasks and routes.
        """
        if not self._right_behind_its_source(job.stages[0]):
            return None
        place: list[Any] = [batch._jdf.schema().catalogString(), guess.rows < FEW_ROWS]
        for stage in job.stages:
            node, tasks = stage.head, 0
            if node is not None:
                width = entry["widths"][node.name]
                tasks = frames.farm_tasks(node, width, guess) if isinstance(node, op.Map) else width
            panes = isinstance(node, op.Window) and self._many_panes(stage.name)
            appends = stage.name in entry["appends"]
            place += [*self._steps(stage), tasks, panes, appends, *document["routes"].get(stage.name, ())]
        return tuple(place)

    def _right_behind_its_source(self, stage: Stage) -> bool:
        return self._alone and isinstance(self.flow.operators[op.owner(stage.root)], op.Read)

    def tasks_of(self, batch: DataFrame, stage: Stage) -> int | None:
        """Return how many tasks read the rows of a stage before any exchange; None if only Spark's plan would tell."""
        return partitions_of(batch) if self._right_behind_its_source(stage) else None

    def in_tasks(self, batch: DataFrame, wanted: Mapping[str, int]) -> DataFrame:
        """Return a batch that is read by as many tasks, at least, as the stages right behind it want."""
        behind = (stage.name for stage in self.plan.stages if self._right_behind_its_source(stage))
        return in_partitions(batch, max((wanted.get(name, 0) for name in behind), default=0))

    def _many_panes(self, name: str) -> bool:
        """Whether a window had many panes last time. Of the first batch nothing is known: it may save much."""
        panes = self.panes.get(name)
        return panes is None or panes > MANY_PANES

    def appending(self, windows: Mapping[str, op.Window]) -> list[str]:
        """Return the windows whose tasks append the pane rows that they made themselves, without an exchange.

        They are closed by another job then, whose tasks each read their keys from the log. Few rows are not worth that;
        of very many, each task would have to look into files of all keys, whose pages count as its memory.
        """
        return [
            name
            for name, node in windows.items()
            if node.path == "native" and self._many_panes(name) and self.panes.get(name, 0) <= MOST_PANES
        ]

    def tick(self, batch: DataFrame, job: JobPlan, entry: dict[str, Any]) -> Planned | None:
        """Return the plan of a window without rows: its tasks need nothing but their logs. None for other jobs."""
        stage, spark = job.stages[0], batch.sparkSession
        if len(job.stages) > 1 or not isinstance(stage.head, op.Window) or stage.root not in self.plan.native:
            return None  # a tap may have rows, of a window that the same tick closes
        width = entry["widths"][stage.head.name]
        key = (width, *self._steps(stage))
        if key not in self._ticks:
            schema = spark.range(0)._jdf.schema()
            empty = spark._jsparkSession.internalCreateDataFrame(no_rows(spark, width), schema, False)
            self._ticks[key] = Planned.of(self._stage(stage).apply(DataFrame(empty, spark)))
        return self._ticks[key]

    def without_rows(self, batch: DataFrame) -> DataFrame:
        """Return a DataFrame of the same columns that Spark does not know to be empty: its stages run all the same."""
        if self._empty is None:
            spark = batch.sparkSession
            nothing = spark.range(0, 0, 1, 1)._jdf.queryExecution().toRdd()
            self._empty = spark._jsparkSession.internalCreateDataFrame(nothing, batch._jdf.schema(), False)
        return DataFrame(self._empty, batch.sparkSession)

    def _exchange(
        self, frame: DataFrame, stage: Stage, entry: dict[str, Any], guess: Guess, few: bool, route: list[int] | None
    ) -> tuple[DataFrame, Half | None]:
        """Send rows to the tasks of a stage; of a window with many panes, return its map side, too."""
        node = stage.head
        if node is None:
            return frame, None
        width = entry["widths"][node.name]
        stamped = stage.root not in self.plan.native  # Python stages and taps stamp their rows themselves
        if isinstance(node, op.Map):
            return frames.farm_exchange(frame, node, width, stamped=stamped, few=few, guess=guess), None
        if isinstance(node, op.Stateful) or node.path != "native":
            columns = self.programs.columns_of(node, stage.root)
            return frames.keyed_exchange(frame, node.key, width, columns, stamped=stamped, few=few, route=route), None
        arrival = self.arrival_of(stage)
        if node.name in entry["appends"] and (own := frames.own_panes(frame, node, arrival=arrival)) is not None:
            return own
        many = self._many_panes(node.name)
        return frames.pane_exchange(frame, node, width, arrival=arrival, few=few, many_panes=many, route=route)

    def arrival_of(self, stage: Stage) -> str | None:
        """Return the arrival column among the rows that a stage reads, if they still carry one."""
        columns = self.programs.schema_of(stage.root).names
        return next((name for name in self._arrival.values() if name in columns), None)

    def _native(self, batch: DataFrame, port: str, document: dict[str, Any], reader: Stage | None) -> DataFrame:
        """Return the DataFrame of a port: a source, a native step, or what an earlier job tapped."""
        node = self.flow.operators[op.owner(port)]
        if port not in self.plan.native:
            return self.tapped(batch.sparkSession, port, document, reader)
        if isinstance(node, op.Read):
            return frames.source_frame(batch, self.flow.reads.index(node), self._alone)
        inputs = [self._native(batch, name, document, None) for name in node.inputs]
        if isinstance(node, op.Sql):
            return node.fn(inputs[0])
        united = inputs[0]
        for other in inputs[1:]:
            united = united.unionByName(other)
        return united

    def tapped(self, spark: SparkSession, port: str, document: dict[str, Any], reader: Stage | None) -> DataFrame:
        """Return a DataFrame that reads a tap back; with positions where the reader is an exchange that needs them."""
        owner = owner_of(self.plan, port)
        node = reader.head if reader is not None else None
        needs_positions = node is not None and not (isinstance(node, op.Window) and node.path == "native")
        chunk = (node.chunk if isinstance(node, op.Map) else 1 << INDEX_BITS) if needs_positions else 0
        schema = self.programs.schema_of(port)
        key = (f"tap {port}", f"{chunk}")
        if key not in self._stages:
            program = self.programs.tap_reader(port, isinstance(owner.head, op.Map), chunk)
            self._stages[key] = frames.PythonStage(program, frames.onward_schema(schema) if needs_positions else schema)
        files = max(1, len(document["taps"].get(port, [])))
        return self._stages[key].apply(spark.range(0, files, 1, files).select(F.col("id")))

    def _stage(self, stage: Stage) -> frames.PythonStage:
        key = ("stage", *self._steps(stage))
        if key not in self._stages:
            source = self._source_of(stage)
            program = self.programs.build(stage, source, self.arrival_of(stage))
            schema = (
                REPORT_SCHEMA if stage.outlet is None else frames.onward_schema(self.programs.schema_of(stage.outlet))
            )
            self._stages[key] = frames.PythonStage(program, schema)
        return self._stages[key]

    def _steps(self, stage: Stage) -> tuple[str, ...]:
        """What a stage does depends on what is chained to it; stages of a former plan may come back."""
        return stage.name, stage.feeds.name if stage.feeds is not None else "", *(step.name for step in stage.steps)

    def _source_of(self, stage: Stage) -> tuple[str, str] | None:
        """Return (source, arrival column) if the stage reads native rows that still carry the arrival time."""
        if stage.root not in self.plan.native:
            return None
        schema = self.programs.schema_of(stage.root)
        for source, arrival in self._arrival.items():
            if arrival and arrival in schema.names and source in self.flow.ancestors(stage.root):
                return (source, arrival)
        return None
