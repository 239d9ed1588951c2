"""A running flow: start, watch, restart after faults that are not the user's, stop, report."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.control.decision import Decision, Policy, Static
from penstock.control.policies import registry
from penstock.control.policies.adaptive import Adaptive
from penstock.durations import Duration, microseconds
from penstock.engine.spark.controller import Controller
from penstock.engine.spark.crash import CrashPlan
from penstock.engine.spark.crossing import BATCH_ROWS, crossing_conf
from penstock.engine.spark.files import Folder
from penstock.engine.spark.frames import unite
from penstock.engine.spark.heads import slots_folder
from penstock.engine.spark.host import Host, Stopping
from penstock.engine.spark.ledger import Ledger
from penstock.engine.spark.program import tear_down
from penstock.engine.spark.session import RUNTIME_CONF, hush, settings
from penstock.engine.spark.stages import cut
from penstock.engine.spark.state import GROUPS, KeyedSegments, Segment
from penstock.engine.spark.state_reader import damage
from penstock.engine.spark.steering import Steered, steering_of
from penstock.errors import CheckpointError, FlowError, JobFailed
from penstock.flow import operators as op
from penstock.flow.flow import Flow
from penstock.flow.identity import identity
from penstock.flow.requirements import Latency, Requirement
from penstock.observe.record import BatchRecord
from penstock.observe.report import Report
from penstock.observe.telemetry import TelemetryLog, read, telemetry_dir
from penstock.sources.api import frame_of
from penstock.sources.tick import ticks

FIRST_BACKOFF_S = 0.5
REFUSED = re.compile(r"penstock\.errors\.CheckpointError: (.*)")  # as it stands in the text of Spark's exception


class Job:
    """A flow at work on a checkpoint; made by `flow.start(...)`.

    Options: `max_rows` and `max_seconds` cap a batch (rows, seconds of schedule) where the source can be
    told (replay sources can; for others set Spark's own option, such as maxFilesPerTrigger); `lifetime` is
    the time in seconds from one cut to the next (more if the work takes longer); `available_now=True` ends when what
    is there now is processed; `restarts` limits restarts after faults in a row; `telemetry=False` turns measuring off.

    `policy` is a policy object, the name of one (`penstock.control.policies.registry.names()`), or None: then
    `Adaptive` keeps what the flow requires, and where it requires nothing, widths follow the rows. `interval` is how
    often the policy decides: after every batch, and for policies by name the least `over` of what is required.

    `steering=True` (files in the checkpoint) or a folder: widths come from a file that any program may write, and what
    each stage did goes to files that it may read; see docs/how-to/steer-by-files.md.
    """

    def __init__(
        self,
        flow: Flow,
        spark: SparkSession,
        checkpoint: str,
        policy: Policy | str | None = None,
        *,
        max_rows: int | None = None,
        max_seconds: float | None = None,
        lifetime: float = 0.0,
        available_now: bool = False,
        restarts: int = 5,
        telemetry: bool = True,
        interval: Duration | None = None,
        steering: bool | str | os.PathLike[str] = False,
        crash: CrashPlan | None = None,
    ) -> None:
        self.steering = steering_of(flow, steering, policy, absolute(str(checkpoint)))
        chosen = chosen_policy(flow, policy) if self.steering is None else Steered(self.steering)
        interval_s = decision_interval(flow, policy, interval)
        hush(spark)
        self.flow, self.spark, self.checkpoint = flow, spark, absolute(str(checkpoint))
        self.available_now, self.restarts = available_now, restarts
        self.ledger = Ledger(self.checkpoint)
        self.ledger.claim(identity(flow), GROUPS)
        self._control(max_rows, max_seconds)
        widths = {
            name: initial_width(node, spark) for name, node in flow.operators.items() if getattr(node, "width", None)
        }
        if self.steering is not None:
            widths = self.steering.begin(widths)
        slots = spark.sparkContext.defaultParallelism
        controller = Controller(flow, cut(flow), chosen or Static(), slots, interval_s)
        widths = {name: min(width, controller.observer.limits[name][1]) for name, width in widths.items()}
        self.host = Host(
            flow,
            spark,
            self.ledger,
            controller,
            Decision(widths, lifetime, max_rows),
            crash or CrashPlan.from_environment(),
            telemetry,
            may_idle=not available_now,  # a stream that is drained is not idle: its clock does not run on
            automatic={name: widths[name] for name in widths if is_automatic(flow.operators[name])},
            widths_follow_rows=chosen is None,
        )
        self.faults: list[str] = []
        self.error: BaseException | None = None
        self.teardowns = 0
        self._log = TelemetryLog(telemetry_dir(local_folder(self.checkpoint))) if telemetry else None
        if self._log is not None:
            self.host.listeners.append(self._log.append)
        if self.steering is not None:
            self.host.listeners.append(self.steering.sample)
        self._query: StreamingQuery | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=f"penstock-{flow.name}", daemon=True)

    def begin(self) -> Job:
        """Start the query and the thread that watches it."""
        self._query = self._start_query()
        self._thread.start()
        return self

    # -- what users call -------------------------------------------------------------------------

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; True if it has. Raises the job's error if it failed."""
        ended = self._ended.wait(timeout)
        if ended and self.error is not None:
            raise self.error
        return ended

    def stop(self, flush: bool = False) -> None:
        """Finish the batch at work, then end; the checkpoint is ready for the next start.

        With `flush=True` the windows still open are closed first and their results written. The checkpoint then holds
        none: rows that a later start reads are late for them.
        """
        if flush:
            self._flush()
        self.host.stopping.set()
        with self.host.working:  # the batch at work ends first
            pass
        self._await_commit(self.host.finished)
        self._stop_query()
        self._ended.wait(30)
        self._tear_down()
        self.host.runner.close()
        shutil.rmtree(slots_folder(self.host.run), ignore_errors=True)
        if self._log is not None:
            self._log.close()

    def _flush(self, patience: float = 120.0) -> None:
        """Ask the next batch to close every window, and wait for it; the tick source brings one if no rows do."""
        if self.error is not None or not self.host._windows:
            return
        self.host.flushing.set()
        self.host.pause.hurry.set()
        if self._ended.is_set():  # all that was available is processed: one more batch, for the windows
            self.available_now = False
            self._query = self._start_query()
            self._ended.clear()
            self._thread = threading.Thread(target=self._supervise, name=f"penstock-{self.flow.name}", daemon=True)
            self._thread.start()
        deadline = time.monotonic() + patience
        while not self.host.flushed.wait(0.02):
            if self._ended.is_set():
                self.await_end(0)
                return
            if time.monotonic() > deadline:
                raise JobFailed(
                    f"flow '{self.flow.name}': its windows were not flushed within {patience:g} s. "
                    "Remedy: call stop(flush=True) again, or start again on the checkpoint and stop so."
                )

    def drain(self, timeout: float = 60.0) -> None:
        """Wait until everything that is available now has been processed and committed."""
        deadline = time.monotonic() + timeout
        done = threading.Event()

        def wait() -> None:
            while not done.is_set() and not self._ended.is_set():
                try:
                    assert self._query is not None
                    self._query.processAllAvailable()
                    done.set()
                except Exception:  # a fault: the supervisor restarts the query, or ends the job
                    time.sleep(0.1)

        threading.Thread(target=wait, daemon=True).start()
        while not done.wait(0.05):
            if self._ended.is_set():
                self.await_end(0)
                return
            if time.monotonic() > deadline:
                done.set()
                raise JobFailed(
                    f"flow '{self.flow.name}': not drained within {timeout} s. Remedy: wait longer, or cap the source."
                )

    def report(self, last: float | None = None) -> Report:
        """Return the report of what was measured, of the last so many seconds if given."""
        return Report.of(read(telemetry_dir(local_folder(self.checkpoint))), last)

    def require(self, *requirements: Requirement) -> None:
        """Change what is required of the running job, from the next batch on; see `flow.require`.

        A job that was started without a policy and with nothing required gets `Adaptive` with its first requirement.
        """
        self.host.controller.require(*requirements)
        if requirements and self.host.widths_follow_rows:
            self.host.controller.policy = Adaptive()
            self.host.widths_follow_rows = False
        self.host.pause.hurry.set()

    def table(self, sink: str) -> DataFrame:
        """Return what a memory sink holds as a DataFrame."""
        return self.spark.createDataFrame(self.memory(sink))

    def memory(self, sink: str) -> pa.Table:
        """Return what a memory sink holds as an Arrow table."""
        tables = self.host.publisher.memory
        if sink not in tables:
            raise FlowError(
                f"sink '{sink}'", "there is no memory sink of this name", f"use one of {', '.join(tables) or 'none'}"
            )
        schema = self.host.programs.arrow(self.host.programs.schema_of(self.flow.sinks[sink].port))
        return pa.concat_tables([schema.empty_table(), *(table for _, table in sorted(tables[sink].items()))])

    def state(self, operator: str) -> pa.Table:
        """Return the keyed state of a `stateful` operator as of the last finished batch."""
        node = self.flow.operators.get(operator)
        if not isinstance(node, op.Stateful):
            raise FlowError(f"operator '{operator}'", "it holds no keyed state", "name a stateful operator")
        newest = self.ledger.newest()
        manifest = self.ledger.manifest(newest) if newest is not None else None
        segments = [Segment(**entry) for entry in manifest["state"].get(operator, [])] if manifest else []
        schema = self.host.programs.arrow(node.state_schema)
        table = KeyedSegments(self.ledger.folder, segments, node.key, schema).read_all()
        return table.select([name for name in table.column_names if not name.startswith("_ps_")])

    def on_batch(self, listener: Callable[[BatchRecord], None]) -> None:
        """Call `listener(record)` after each batch, with its telemetry."""
        self.host.listeners.append(listener)

    @property
    def is_active(self) -> bool:
        """Whether the job is running (a restart after a fault counts)."""
        return not self._ended.is_set()

    # -- the supervisor --------------------------------------------------------------------------

    def _start_query(self) -> StreamingQuery:
        has_windows = any(isinstance(node, op.Window) for node in self.flow.operators.values())
        tick = ticks(self.spark) if has_windows else None
        frame = unite(self.flow.reads, tick)
        writer = frame.writeStream.queryName(f"{self.flow.name}-{self.host.run}").foreachBatch(self.host.process)
        writer = writer.option("checkpointLocation", self.ledger.spark_checkpoint)
        schemas = [self.host.programs.schema_of(stage.root) for stage in self.host.plan.stages]
        crossing = crossing_conf(schemas, self.spark.conf.get(BATCH_ROWS))
        with settings(self.spark, RUNTIME_CONF | crossing):  # the query keeps a copy of them
            return (writer.trigger(availableNow=True) if self.available_now else writer).start()

    def _supervise(self) -> None:
        """Watch the query; restart it after a fault that is not the user's, with back-off and a limit."""
        in_a_row, reached = 0, -1
        while True:
            self.host.fault = None
            ended_with = self._run_to_end()
            fault = self.host.fault or ended_with
            if fault is None or self.host.stopping.is_set():
                break
            if self.host.user_error is not None:
                self.error = self.host.user_error
                break
            if isinstance(fault, CheckpointError):
                self.error = damage(self.checkpoint) or fault
                break
            refused = REFUSED.findall(str(fault))
            if refused:
                self.error = damage(self.checkpoint) or CheckpointError(refused[-1])
                break
            self.faults.append(first_lines(fault))
            in_a_row = 0 if self.host.finished > reached else in_a_row
            reached = self.host.finished
            in_a_row += 1
            if in_a_row > self.restarts:
                self.error = JobFailed(
                    f"flow '{self.flow.name}' failed {in_a_row} times in a row, the last time with: "
                    f"{first_lines(fault)}. "
                    "The checkpoint is intact. Remedy: cure the cause and start again on it."
                )
                break
            if self.host.stopping.wait(FIRST_BACKOFF_S * 2 ** (in_a_row - 1)):
                break
            self.host._left_at = None
            self._query = self._start_query()
        self._ended.set()

    def _run_to_end(self) -> BaseException | None:
        assert self._query is not None
        try:
            self._query.awaitTermination()
        except Exception as error:
            return error
        return None

    def _stop_query(self) -> None:
        if self._query is None:
            return
        try:
            self._query.stop()
        except Exception as error:
            if not isinstance(error, Stopping) and "Stopping" not in str(error):
                raise

    def _await_commit(self, batch: int, patience: float = 2.0) -> None:
        """Give Spark the moment it needs to commit the finished batch, so that no replay is needed."""
        if batch < 0:
            return
        folder = Folder(f"{self.ledger.spark_checkpoint}/commits")
        deadline = time.monotonic() + patience
        while str(batch) not in folder.names("") and time.monotonic() < deadline:
            time.sleep(0.01)

    def _tear_down(self) -> None:
        """Run the farms' teardown in the worker processes that ran their setup."""
        if not any(isinstance(node, op.Map) and node.teardown for node in self.flow.operators.values()):
            return
        run, slots = self.host.run, self.spark.sparkContext.defaultParallelism

        def give_back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            done = tear_down(run)
            time.sleep(0.05)  # keeps the slot, so that every worker gets one of these tasks
            yield pa.RecordBatch.from_pydict({"done": [done]})

        # A task cannot be sent to a given process, so ask until a whole round finds nothing more to give back.
        for _ in range(8):
            frame = self.spark.range(0, 2 * slots, 1, 2 * slots).mapInArrow(give_back, "done bigint")
            done = sum(row["done"] for row in frame.collect())
            self.teardowns += done
            if self.teardowns >= self.host.setups and not done:
                return

    def _control(self, max_rows: int | None, max_seconds: float | None) -> None:
        """Give each replay source a control file under the checkpoint, so that its caps can change live.

        What an earlier job on the checkpoint wrote there is gone: this one begins with its own caps.
        """
        for name, node in list(self.flow._operators.items()):
            spec = getattr(getattr(node, "frame", None), "_penstock_replay", None)
            if not isinstance(node, op.Read) or spec is None or not node.frame.isStreaming:
                continue
            limits = replace(
                spec.limits,
                max_rows=max_rows or spec.limits.max_rows,
                max_seconds=max_seconds or spec.limits.max_seconds,
            )
            ours = local_folder(self.checkpoint) / "penstock" / f"control-{name}.json"
            ours.unlink(missing_ok=True)
            control = spec.control or str(ours)
            frame = frame_of(self.spark, replace(spec, limits=limits, control=control))
            self.flow._operators[name] = replace(node, frame=frame)


def chosen_policy(flow: Flow, policy: Policy | str | None) -> Policy | None:
    """Return the policy meant; None if nothing is required and none was given."""
    if policy is None:
        return Adaptive() if flow.requirements else None
    if isinstance(policy, str):
        return registry.make(policy)
    if not callable(getattr(policy, "decide", None)):
        rule = f"policy {policy!r} has no decide()"
        raise FlowError(f"flow '{flow.name}'", rule, "pass a policy object, the name of one, or None")
    return policy


def decision_interval(flow: Flow, policy: Policy | str | None, interval: Duration | None) -> float:
    """Return the seconds between two decisions; 0 is after every batch."""
    if interval is not None:
        return microseconds(interval, name="interval", zero=True, where=f"flow '{flow.name}'") / 1e6
    if not isinstance(policy, str) or policy == "adaptive":
        return 0.0
    return min((r.over_s for r in flow.requirements if isinstance(r, Latency)), default=5.0)


def initial_width(node: op.Operator, spark: SparkSession) -> int:
    """Return the width an operator starts with: farms at their least, keyed operators as wide as the slots."""
    width: op.Width = node.width  # type: ignore[attr-defined]
    if is_automatic(node):
        return width.clamp(spark.sparkContext.defaultParallelism)
    return width.lo


def is_automatic(node: op.Operator) -> bool:
    """Whether nobody chose the operator's width."""
    return isinstance(node, (op.Stateful, op.Window)) and node.width == op.Width(1, GROUPS)


def absolute(place: str) -> str:
    """Return a path that means the same to this process and to the JVM, whose working folders may differ."""
    return place if ":" in place else os.path.abspath(place)


def local_folder(checkpoint: str) -> Path:
    """Return where telemetry is appended: appending needs a local folder."""
    return Path(checkpoint.removeprefix("file://").removeprefix("file:"))


def first_lines(error: BaseException, lines: int = 6) -> str:
    """Return an error's type and the start of its text, which is where Spark says what happened."""
    return f"{type(error).__name__}: " + " | ".join(
        line.strip() for line in str(error).splitlines()[:lines] if line.strip()
    )
