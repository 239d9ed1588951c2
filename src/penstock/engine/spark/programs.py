"""Turn a stage of the plan into the program its tasks run."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.engine.spark.content_window import ContentHead
from penstock.engine.spark.heads import FarmHead, PlainHead, TapHead
from penstock.engine.spark.intake import Intake, LateRule
from penstock.engine.spark.keyed import KeyedHead
from penstock.engine.spark.ordered_window import OrderedHead
from penstock.engine.spark.pane_functions import PaneFunctions
from penstock.engine.spark.pane_window import PaneHead
from penstock.engine.spark.paned_window import LiftedPaneHead, PanedCountHead, PanedTimeHead
from penstock.engine.spark.program import INDEX_BITS, Head, Program, Step
from penstock.engine.spark.results import Evaluation
from penstock.engine.spark.stages import Stage
from penstock.flow import operators as op
from penstock.flow.flow import Flow
from penstock.windows.delta import Delta
from penstock.windows.kinds import is_ordered
from penstock.windows.time import Time


def nullable(schema: StructType) -> StructType:
    """Return the schema with every column nullable: a source's "never null" says nothing of what a function returns."""
    return StructType([StructField(field.name, field.dataType, True) for field in schema])


class ProgramBuilder:
    """Builds programs for one flow; Arrow schemas carry the session's time zone, as Spark's batches do."""

    def __init__(self, flow: Flow, timezone: str) -> None:
        self.flow, self.timezone = flow, timezone

    def arrow(self, schema: StructType) -> pa.Schema:
        """Return the Arrow form of a Spark schema."""
        return to_arrow_schema(nullable(schema), timezone=self.timezone)

    def schema_of(self, port: str) -> StructType:
        """Return the declared schema of a port."""
        return nullable(self.flow.operators[op.owner(port)].outputs[port])

    def columns_of(self, node: op.Operator, root: str) -> list[str]:
        """Return the columns that an operator needs of the rows it is sent: all, or those that aggregates read.

        With an event time ties are broken by all columns, so there all are needed.
        """
        names = self.schema_of(root).names
        if not isinstance(node, op.Window) or not node.aggregates or node.path == "native" or node.time is not None:
            return names
        wanted = {*node.key, *node.order, *(read.arrival for read in self.flow.reads)}
        wanted |= {column for output in node.aggregates for column in output.aggregate.columns}
        if isinstance(node.spec, Delta):
            wanted.add(node.spec.column)
        return [name for name in names if name in wanted] or names[:1]

    def build(self, stage: Stage, arrival: tuple[str, str] | None, arrives: str | None = None) -> Program:
        """Return the program of a stage in a streaming job; `arrives` names the arrival column of a window's rows."""
        following = stage.feeds.head if stage.feeds is not None else None
        return Program(
            stage=stage.name,
            head=self.head(stage, arrives),
            root=stage.root,
            steps=self.steps(stage),
            taps={port: self.arrow(self.schema_of(port)) for port in stage.taps},
            outlet=stage.outlet,
            outlet_chunk=following.chunk if isinstance(following, op.Map) else 1 << INDEX_BITS,
            keep_chunks=isinstance(stage.head, op.Map),
            arrival=arrival if stage.head is None or stage.root == (arrival or ("",))[0] else None,
        )

    def head(self, stage: Stage, arrives: str | None = None) -> Head:
        """Return how the stage takes in its rows."""
        node = stage.head
        if isinstance(node, op.Stateful):
            columns = tuple(self.schema_of(stage.root).names)
            out, state = self.arrow(node.outputs[node.name]), self.arrow(node.state_schema)
            return KeyedHead(node.name, node.fn, node.key, columns, out, state)
        if isinstance(node, op.Window):
            return self._window_head(node, stage.root, arrives)
        if isinstance(node, op.Map):
            return FarmHead(stage.root, node.name, node.scheduling == "on_demand")
        return PlainHead(stage.root)

    def _window_head(self, node: op.Window, root: str, arrives: str | None) -> Head:
        schema, every = self.arrow(node.outputs[node.name]), self.arrow(self.schema_of(root))
        rows = pa.schema([every.field(name) for name in self.columns_of(node, root)])
        if node.path == "native":
            assert isinstance(node.spec, Time)
            return PaneHead(node.name, node.key, node.spec, node.aggregates, schema, node.details)
        evaluation = Evaluation(
            operator=node.name,
            key=node.key,
            columns=tuple(rows.names),
            outputs=node.aggregates,
            fn=node.fn,
            schema=schema,
            timed=isinstance(node.spec, Time),
            details=node.details,
        )
        intake = Intake(node.name, node.key, node.time, node.order, rows, arrives, node.spec)
        if node.keeps_partials:
            assert isinstance(node.spec, Time)
            return LiftedPaneHead(node.name, node.key, node.spec, node.aggregates, schema, node.details, intake)
        if node.pane is not None and node.combine is not None:
            functions = PaneFunctions(node.pane, node.combine, evaluation)
            if isinstance(node.spec, Time):
                return PanedTimeHead(intake, node.spec, functions)
            return PanedCountHead(intake, node.spec, evaluation, functions)
        if isinstance(node.spec, Time) and not is_ordered(node.spec):
            return ContentHead(intake, node.spec, evaluation)
        return OrderedHead(intake, node.spec, evaluation)

    def steps(self, stage: Stage) -> tuple[Step, ...]:
        """Return the fused operators of a stage; a farm's own function is the first of them."""
        nodes = [stage.head, *stage.steps] if isinstance(stage.head, op.Map) else stage.steps
        return tuple(self.step(node, stage.head) for node in nodes)

    def step(self, node: op.Operator, head: op.Operator | None = None) -> Step:
        """Return one operator as a worker calls it."""
        step = Step(
            node.name, node.kind, node.inputs, {port: self.arrow(schema) for port, schema in node.outputs.items()}
        )
        if isinstance(node, op.Map):
            step.functions, step.on_error = (node.fn,), node.on_error
            step.setup, step.teardown = node.setup, node.teardown
            step.whole_chunks = node is not head and node.width is not None  # a farm that is chained to another
        elif isinstance(node, op.Filter):
            step.functions, step.on_error = (node.fn,), node.on_error
        elif isinstance(node, op.Late):
            step.functions = (LateRule(node.window, node.spec, node.time),)
        elif isinstance(node, op.Split):
            step.functions, step.rest = node.predicates, node.rest
        return step

    def tap_reader(self, port: str, keep_chunks: bool, chunk: int) -> Program:
        """Return the program that reads a tap back into Spark; `chunk` 0 leaves positions out."""
        return Program(
            stage=f"tap-{port}",
            head=TapHead(port),
            root=port,
            steps=(),
            taps={},
            outlet=port,
            outlet_chunk=chunk,
            keep_chunks=keep_chunks,
            yields=True,
        )
