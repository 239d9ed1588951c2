"""A short run of a flow that leaves no trace, to learn what its batches cost here.

The flow is run as it is, its functions included, on a temporary checkpoint, from the beginning of its sources, with
their schedules beginning now. Widths are those that the bounds need, and no batch waits for a lifetime: a long one
would leave too few batches to learn from. Its sinks are not written: files go to a temporary folder, so that writing
them is timed, memory sinks are the run's own, and functions and consoles get nothing.

Reading must do no harm: replay, file and rate sources can be read twice, a file source that archives or deletes what
it has read cannot, and of others nothing is known.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.control.policies.adaptive import Adaptive
from penstock.engine.spark.job import Job
from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.flow import Flow
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import read, telemetry_dir
from penstock.sources.api import frame_of
from penstock.sources.datasource import FORMAT

HARMLESS = (FORMAT, "rate", "rate-micro-batch")  # they make their rows
ENOUGH = 12  # batches with rows
_FIRST_BATCH_S = 120.0  # workers start, code is compiled
_DRY_S = 20.0  # without a batch: there will be no more
_LONGER_S = 60.0  # that it may take beyond the time asked for


def calibrate(flow: Flow, seconds: float, *, reread: bool = False) -> list[BatchRecord]:
    """Run a copy of a flow for some seconds after its first batch; the records of its batches.

    Where batches are so long that too few of them end in that time, it goes on for a while.
    """
    flow.check_runnable()
    if not reread:
        for node in flow.reads:
            check_harmless(node)
    spark = flow.reads[0].frame.sparkSession
    with tempfile.TemporaryDirectory(prefix="penstock-calibration-", ignore_cleanup_errors=True) as folder:
        checkpoint = str(Path(folder) / "checkpoint")
        job = Job(stand_in(flow, spark, Path(folder)), spark, checkpoint, Adaptive(batching=False))
        ended: list[float] = []  # when each batch with rows did
        job.on_batch(lambda record: ended.append(time.monotonic()) if record.rows_in else None)
        job.begin()
        try:
            began = time.monotonic()
            while not job.await_end(0.1) and not _long_enough(ended, began, time.monotonic(), seconds):
                pass
        finally:
            job.stop()
        return list(read(telemetry_dir(checkpoint)))


def _long_enough(ended: Sequence[float], began: float, now: float, seconds: float) -> bool:
    """Whether a calibration may end: it has lasted, and has batches enough or no hope of more.

    >>> _long_enough([5.0 + n for n in range(20)], began=0.0, now=24.0, seconds=10.0)
    True
    >>> _long_enough([5.0, 9.0, 13.0], began=0.0, now=16.0, seconds=10.0)    # batches of 4 s: it goes on
    False
    >>> _long_enough([5.0, 9.0, 13.0], began=0.0, now=40.0, seconds=10.0)    # the source has run dry
    True
    """
    if not ended:
        return now - began > _FIRST_BATCH_S
    if now - ended[0] < seconds:
        return False
    return len(ended) >= ENOUGH or now - ended[-1] > max(seconds, _DRY_S) or now - ended[0] > seconds + _LONGER_S


def stand_in(flow: Flow, spark: SparkSession, folder: Path) -> Flow:
    """The same flow with other sinks, and with schedules that begin when it is started."""
    twin = copy.copy(flow)
    twin._operators = {name: _from_now(node, spark) for name, node in flow.operators.items()}
    twin._sinks = {name: _elsewhere(sink, folder) for name, sink in flow.sinks.items()}
    return twin


def _from_now(node: op.Operator, spark: SparkSession) -> op.Operator:
    spec = getattr(getattr(node, "frame", None), "_penstock_replay", None)
    if not isinstance(node, op.Read) or spec is None:
        return node
    # A control file of the user's own would be shared with the job that it is meant for.
    return replace(node, frame=frame_of(spark, replace(spec, start_us=None, control=None)))


def _elsewhere(sink: op.Sink, folder: Path) -> op.Sink:
    if sink.path is not None:
        return replace(sink, path=str(folder / "sinks" / sink.name))
    return sink if sink.format == "memory" else replace(sink, format="function", fn=_nothing, options={})


def _nothing(table: Any, batch: int) -> None:
    """A sink that keeps nothing."""


def check_harmless(node: op.Read) -> None:
    """Refuse a source that may not be read twice, or of which that is not known."""
    where = f"read '{node.name}'"
    remedy = (
        "explain(checkpoint=...) of an earlier run, or explain(calibrate=..., reread=True) if you know it does no harm"
    )
    for name, options in sources_of(node.frame):
        if name.startswith("FileSource["):
            cleans = str(options.get("cleansource", "off"))
            if cleans.lower() != "off":
                raise FlowError(where, f"its files are cleaned up after reading (cleanSource={cleans})", remedy)
        elif name not in HARMLESS:
            rule = f"a calibration would read its source ({name}) once more, and whether that does harm is not known"
            raise FlowError(where, rule, remedy)


def sources_of(frame: DataFrame) -> list[tuple[str, dict[str, str]]]:
    """The streaming sources behind a DataFrame: what Spark calls each, and its options (names in lower case)."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = []
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if not leaf.isStreaming():
            continue
        options: dict[str, str] = {}
        if leaf.getClass().getSimpleName() == "StreamingRelation":  # the older kind of source: files
            pairs = leaf.dataSource().options().iterator()
            while pairs.hasNext():
                pair = pairs.next()
                options[str(pair._1()).lower()] = str(pair._2())
        found.append((str(leaf.sourceName()), options))
    return found
