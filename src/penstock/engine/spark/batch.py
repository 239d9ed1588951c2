"""A flow over batch DataFrames: the same operators, as one lazy DataFrame."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.spark import frames
from penstock.engine.spark.program import Program
from penstock.engine.spark.programs import ProgramBuilder
from penstock.engine.spark.stages import Stage, needs_exchange
from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.flow import Flow


def to_df(flow: Flow, port: str, spark: SparkSession | None = None) -> DataFrame:
    """Return the DataFrame of a port."""
    reads = flow.reads
    if any(read.frame.isStreaming for read in reads):
        raise FlowError(
            f"flow '{flow.name}'", "to_df() is for batch DataFrames, but it reads streams", "use flow.start(...)"
        )
    session = spark or reads[0].frame.sparkSession
    return _Builder(flow, session).frame(port)


class _Builder:
    def __init__(self, flow: Flow, spark: SparkSession) -> None:
        self.flow, self.spark = flow, spark
        self.run = f"batch-{uuid.uuid4().hex[:8]}"
        self.programs = ProgramBuilder(flow, spark.conf.get("spark.sql.session.timeZone") or "UTC")

    def frame(self, port: str) -> DataFrame:
        """Return the DataFrame of a port: native steps as they are, runs of Python steps in one crossing."""
        node = self.flow.operators[op.owner(port)]
        if isinstance(node, op.Read):
            return node.frame
        if isinstance(node, op.Sql):
            return node.fn(self.frame(node.inputs[0]))
        if isinstance(node, op.Union):
            united = self.frame(node.inputs[0])
            for other in node.inputs[1:]:
                united = united.unionByName(self.frame(other))
            return united
        stage = self._stage_to(node)
        return self._apply(stage, port)

    def _stage_to(self, node: op.Operator) -> Stage:
        """Collect the fused steps that lead to a node, back to the last exchange or native step."""
        steps: list[op.Operator] = []
        while not needs_exchange(node):
            steps.insert(0, node)
            before = self.flow.operators[op.owner(node.inputs[0])]
            if isinstance(before, (op.Read, op.Sql, op.Union)):
                return Stage(0, root=node.inputs[0], steps=steps)
            node = before
        assert isinstance(node, (op.Map, op.Stateful, op.Window))
        return Stage(0, root=node.inputs[0], head=node, steps=steps)

    def _apply(self, stage: Stage, port: str) -> DataFrame:
        frame = self.frame(stage.root)
        node, width = stage.head, 1
        document: dict[str, Any] = {"id": 0, "run": self.run, "widths": {}, "routes": {}}
        if node is not None:
            assert node.width is not None
            width = node.width.clamp(max(node.width.lo, self.spark.sparkContext.defaultParallelism))
            frame = self._exchange(frame, node, width)
            document["widths"][node.name] = width
        program = Program(
            stage=stage.name,
            head=self.programs.head(stage),
            root=stage.root,
            steps=self.programs.steps(stage),
            taps={},
            outlet=port,
            outlet_chunk=0,
            keep_chunks=False,
            yields=True,
            document=document,
        )
        return frames.PythonStage(program, self.programs.schema_of(port)).apply(frame)

    def _exchange(self, frame: DataFrame, node: op.Map | op.Stateful | op.Window, width: int) -> DataFrame:
        if isinstance(node, op.Map):
            return frames.farm_exchange(frame, node, width, stamped=False)
        if isinstance(node, op.Stateful) or node.path != "native":
            columns = self.programs.columns_of(node, node.inputs[0])
            return frames.keyed_exchange(frame, node.key, width, columns, stamped=False)
        # Of a whole DataFrame the panes may well be many; where they are few, a few ms of planning are nothing to it.
        return frames.pane_exchange(frame, node, width, many_panes=True)[0]
