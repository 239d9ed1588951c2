"""One micro-batch, from Spark's call to the manifest and the sinks (design section 4)."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.control.decision import Decision
from penstock.engine.spark.controller import Controller
from penstock.engine.spark.crash import CrashPlan
from penstock.engine.spark.framer import FEW_ROWS, Framer
from penstock.engine.spark.frames import Guess
from penstock.engine.spark.kept_plan import Planned
from penstock.engine.spark.ledger import Ledger
from penstock.engine.spark.measure import Measured, arrived_by, batch_record
from penstock.engine.spark.offsets import OffsetLog, Offsets
from penstock.engine.spark.pause import Pause
from penstock.engine.spark.program import BATCH_PROPERTY
from penstock.engine.spark.programs import ProgramBuilder
from penstock.engine.spark.runner import Reports, Runner
from penstock.engine.spark.sinks import Publisher, load
from penstock.engine.spark.stages import JobPlan, Plan, cut, owner_of, waves
from penstock.engine.spark.state import GROUPS, Segment, fold, plain_route
from penstock.engine.spark.ticks import HELD_ROWS, Ticks, together
from penstock.engine.spark.watermarks import RealTime, after, has_passed, needed
from penstock.errors import UserFunctionError
from penstock.flow import operators as op
from penstock.flow.flow import Flow
from penstock.observe.observer import stages_of
from penstock.observe.record import BatchRecord
from penstock.sources.limits import write_limits
from penstock.windows.kinds import is_ordered
from penstock.windows.time import END_OF_TIME

MANY_ROWS = 1 << 30


class Stopping(RuntimeError):
    """Raised in a batch that begins after stop() was asked for: it will be replayed at the next start."""


class Host:
    """Runs the batches of one flow on one checkpoint."""

    def __init__(
        self,
        flow: Flow,
        spark: SparkSession,
        ledger: Ledger,
        controller: Controller,
        decision: Decision,
        crash: CrashPlan | None,
        telemetry: bool,
        may_idle: bool = True,
        automatic: dict[str, int] | None = None,
        widths_follow_rows: bool = True,
    ) -> None:
        self.flow, self.spark, self.ledger, self.controller, self.decision = flow, spark, ledger, controller, decision
        self.crash, self.telemetry, self.may_idle = crash, telemetry, may_idle
        self.automatic = automatic or {}  # operators whose width nobody chose, and their most
        self.widths_follow_rows = widths_follow_rows  # no policy decides them either
        self.plan: Plan = controller.plan
        self.chains: tuple[tuple[str, ...], ...] = ()
        self.publisher = Publisher(f"{flow.name}-{ledger.identifier}", flow.sinks)
        self.programs = ProgramBuilder(flow, spark.conf.get("spark.sql.session.timeZone") or "UTC")
        self.offsets = OffsetLog(ledger.spark_checkpoint)
        self.keep = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 100)
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.flushing = threading.Event()  # the next batch closes every window
        self.flushed = threading.Event()
        self.working = threading.Lock()
        self.user_error: UserFunctionError | None = None
        self.fault: Exception | None = None
        self.finished = -1
        self.setups = 0
        self.latest: BatchRecord | None = None
        self.listeners: list[Any] = []
        self._left_at: float | None = None
        self._real_time = RealTime()
        self._clocks: float | None = None  # wall clock - monotonic clock at the last batch
        self._windows = {n.name: n for n in flow.operators.values() if isinstance(n, op.Window)}
        self.pause = Pause(flow, self.controller, self._windows, self.stopping)
        self.ticks = Ticks(self._windows)
        self.framer = Framer(flow, self.plan, self.programs)
        self.waves = waves(self.plan, flow)
        self.runner = Runner(spark, ledger.folder, max(len(wave) for wave in self.waves))

    # -- one batch -------------------------------------------------------------------------------

    def process(self, batch: DataFrame, number: int) -> None:
        """Run one batch exactly once; Spark calls this, again after a failure."""
        try:
            self._process(batch, number)
        except Exception as error:
            self.fault = error  # as it was, before Spark wraps it in JVM text
            raise

    def _process(self, batch: DataFrame, number: int) -> None:
        with self.working:
            if self.stopping.is_set():
                raise Stopping("the job is stopping")
            since = 0.0
            if self._left_at is not None:
                since = time.monotonic() - self._left_at
                self.pause.took(since)
            measured = Measured(number, self.run, time.time(), spark_s=since)
            manifest = self.ledger.manifest(number)
            logged = self.ledger.folder.get(f"log/{number:08d}")
            measured.replayed = manifest is not None or logged is not None
            if manifest is None:
                manifest = self._compute(batch, number, measured)
            elif logged is not None:  # its rows were cut before the fault, and that is when they began to wait
                known = {name: logged[name] for name in ("cut_us", "offsets")}
                measured.entry = {**known, "offsets_before": self.ledger.before(number).get("offsets")}
            self._publish(batch, number, manifest, measured)
            record = self._after(number, measured)
        self.finished = number
        if measured.entry.get("flush"):
            self.flushed.set()
        self._wait(measured, manifest["windows"])
        if self.crash is not None:
            self.crash.here("commit", number)
        self._left_at = time.monotonic()
        self._record(record, measured)

    def _use(self, chains: tuple[tuple[str, ...], ...]) -> None:
        """Run the next batches with these farms chained."""
        if chains != self.chains:
            self.chains, self.plan = chains, cut(self.flow, chains)
            self.framer.plan, self.waves = self.plan, waves(self.plan, self.flow)

    def _compute(self, batch: DataFrame, number: int, measured: Measured) -> dict[str, Any]:
        self._use(self.decision.chains)
        before = self.ledger.before(number)
        measured.windows_before = before["windows"]
        with measured.part("log"):
            offsets = self.offsets.read(number) or Offsets(int(time.time() * 1e6), ())
            entry = self._log(number, before, offsets)
        self._crash("log", number)
        ahead = self.ticks.ahead(self.plan, before, entry, lambda stage: self.framer.tasks_of(batch, stage))
        document = self._document(number, before, entry, ahead)
        batch = self.framer.in_tasks(batch, ahead)
        reports = self._run(batch, document, before, entry, measured)
        self._crash("state", number)
        self.framer.panes |= {name: sum(report["rows_read"] for report in found) for name, found in reports.items()}
        manifest = self._manifest(before, entry, document, reports)
        measured.reports, measured.entry = reports, {**entry, "offsets_before": before.get("offsets")}
        # Once for each window behind a window, at most.
        while (ticked := self.ticks.entry(manifest, entry)) is not None:
            manifest, entry = self._close(batch, manifest, ticked, measured), ticked
        self._crash("output", number)
        with measured.part("manifest"):
            self.ledger.finish(number, manifest)
        self._crash("manifest", number)
        return manifest

    def _run(
        self,
        batch: DataFrame,
        document: dict[str, Any],
        before: dict[str, Any],
        entry: dict[str, Any],
        measured: Measured,
    ) -> Reports:
        """Run the jobs of a batch, wave by wave; what its tasks have written is in the document's taps then."""
        reports: Reports = {}
        guess = self._guess()

        def frame_of(job: JobPlan) -> DataFrame | Planned:
            with measured.part("plan"):
                if "ripe" in entry and (ticks := self.framer.tick(batch, job, entry)) is not None:
                    return ticks
                return self.framer.frame(batch, job, document, entry, guess=guess)

        for wave in self.waves:
            jobs = [job for job in wave if not entry["idle"] or self._has_work(job, before, entry)]
            if not jobs:
                continue
            ended = self.runner.begin(jobs, frame_of, document)
            with measured.part("run"):
                reports |= ended()
            self._check([report for job in jobs for stage in job.stages for report in reports.get(stage.name, [])])
            self.ticks.settle(entry, document["windows"], reports)
            for job in jobs:
                for stage in job.stages:
                    for report in reports.get(stage.name, []):
                        for port, written in report["taps"].items():
                            document["taps"].setdefault(port, []).append(written)
        return reports

    def _close(
        self, batch: DataFrame, manifest: dict[str, Any], entry: dict[str, Any], measured: Measured
    ) -> dict[str, Any]:
        """Run a tick within a batch, as another one that has no rows would; return what both leave together."""
        document = self._document(manifest["id"], manifest, entry, {})
        reports = self._run(self.framer.without_rows(batch), document, manifest, entry, measured)
        for name, found in reports.items():
            measured.reports[name] = [*measured.reports.get(name, []), *found]
        return together(manifest, self._manifest(manifest, entry, document, reports))

    def _log(self, number: int, before: dict[str, Any], offsets: Offsets) -> dict[str, Any]:
        """Log what changes results; a replay gets what was logged, with widths of today.

        Windows that `appends` names only append to their logs in this batch, and are closed by a tick after it.
        """
        earlier = before.get("offsets")
        sources = list(offsets.sources[: len(self.flow.reads)])
        idle = self.may_idle and bool(self._windows) and earlier is not None and earlier == sources
        watermarks = self._real_time.watermarks(
            self._windows, before["windows"], offsets.cut_us, idle, time.monotonic()
        )
        widths = self._automatic(dict(self.decision.widths), before, watermarks)
        entry = {
            "id": number,
            "cut_us": offsets.cut_us,
            "offsets": sources,
            "idle": idle,
            "flush": self.flushing.is_set(),
            "watermarks": watermarks,
            "at_once": sorted(self.controller.at_once),  # windows that this batch's own rows close
            "widths": widths,
            "lifetime_s": self.decision.lifetime_s,
            "row_cap": self.decision.row_cap,
            "chains": self.chains,
            "routes": {name: list(route) for name, route in self.decision.routes.items() if self._fits(name, widths)},
        }
        logged = {**self.ledger.log(number, entry), "widths": entry["widths"]}
        return {**logged, "appends": [] if logged["idle"] or logged["flush"] else self.framer.appending(self._windows)}

    def _document(
        self, number: int, before: dict[str, Any], entry: dict[str, Any], ahead: dict[str, int]
    ) -> dict[str, Any]:
        """Return what the tasks of a batch need to know; it travels as a local property of the jobs."""
        widths = entry["widths"]
        keyed = [n.name for n in self.flow.operators.values() if isinstance(n, (op.Stateful, op.Window))]
        return {
            "id": number,
            "run": self.run,
            "folder": self.ledger.folder.root if self.ledger.folder.local else self.ledger.folder.uri,
            "dir": self.ledger.begin_files(number),
            "execution": uuid.uuid4().hex[:8],  # tells this attempt at the batch from one that a fault cut short
            "widths": widths,
            "routes": {name: list(self._route(name, widths[name])) for name in keyed},
            "state": before["state"],
            "windows": {
                name: {
                    "closed": before["windows"].get(name, {}).get("watermark"),
                    "watermark": watermark,
                    "flush": entry["flush"],
                    "at_once": self.ticks.alone(name, entry),
                    "appends": name in entry["appends"],
                    "ahead": ahead.get(name),
                }
                for name, watermark in entry["watermarks"].items()
            },
            "taps": {},
            "telemetry": self.telemetry,
            "crash": self.crash.in_task(number) if self.crash else None,
        }

    def _route(self, name: str, width: int) -> tuple[int, ...]:
        """Return the task of each key group: as decided, if that fits the width, else by turns."""
        return tuple(self.decision.routes[name]) if self._fits(name, {name: width}) else plain_route(width)

    def _fits(self, name: str, widths: dict[str, int]) -> bool:
        """Whether a route was decided for an operator, for the width that it has."""
        decided, width = self.decision.routes.get(name, ()), widths.get(name)
        if width is None or width != self.decision.widths.get(name):
            return False
        return len(decided) == GROUPS and min(decided) >= 0 and max(decided) < width

    def _has_work(self, job: JobPlan, before: dict[str, Any], entry: dict[str, Any]) -> bool:
        """Whether a job has something to do in a batch without rows: a window to close, or one before it has."""
        upstream = self.flow.ancestors(job.stages[0].root) | {stage.head.name for stage in job.stages if stage.head}
        for name in upstream & set(self._windows):
            closed = before["windows"].get(name, {}).get("watermark")
            passed = has_passed(self._windows[name], closed, entry["watermarks"][name])
            if entry["flush"] or passed or name in entry.get("ripe", []):
                return True
        return False

    # -- jobs ------------------------------------------------------------------------------------

    def _rows_before(self) -> int:
        """Return the rows of the last batch, a guess at this one's; the first may well be a backlog."""
        return self.latest.rows_in if self.latest is not None else MANY_ROWS

    def _guess(self) -> Guess:
        stages = stages_of(self.latest) if self.latest is not None else []
        return Guess(self._rows_before(), {stage.name: stage.busy_s for stage in stages})

    def _automatic(
        self, widths: dict[str, int], before: dict[str, Any], watermarks: dict[str, int | None]
    ) -> dict[str, int]:
        """Let keyed operators whose width nobody chose be as wide as their rows need: exchanges cost, too.

        A window that closes reads its log: a long one is read by more tasks than there are slots, one after the other.
        """
        need = max(1, -(-self._rows_before() // FEW_ROWS))
        chosen = {
            name: min(most, need) if self.widths_follow_rows else widths[name] for name, most in self.automatic.items()
        }
        for name in chosen.keys() & self._windows.keys():
            closed = before["windows"].get(name, {}).get("watermark")
            closes = self.flushing.is_set() or has_passed(self._windows[name], closed, watermarks[name])
            if closes or name in self.controller.at_once:
                held = sum(segment["rows"] for segment in before["state"].get(name, []))
                chosen[name] = max(chosen[name], min(GROUPS, -(-held // HELD_ROWS)))
        return widths | chosen

    def _check(self, reports: list[dict[str, Any]]) -> None:
        """Raise what a user's function raised, as the task reported it."""
        for report in reports:
            if report["error"] is not None:
                self.user_error = UserFunctionError(report["error"]["text"])
                raise self.user_error

    # -- the end of a batch ----------------------------------------------------------------------

    def _manifest(
        self, before: dict[str, Any], entry: dict[str, Any], document: dict[str, Any], reports: Reports
    ) -> dict[str, Any]:
        every = [report for found in reports.values() for report in found]
        state = {name: [Segment(**s) for s in segments] for name, segments in before["state"].items()}
        for name in {*state, *(name for report in every for name in report.get("state", {}))}:
            changes = [report["state"][name] for report in every if name in report.get("state", {})]
            state[name] = fold(state.get(name, []), changes)
        windows = {}
        for name, node in self._windows.items():
            watermark = END_OF_TIME if entry["flush"] and node.time else entry["watermarks"][name]
            if name in entry["appends"]:  # what it reaches is closed by a tick
                watermark = before["windows"].get(name, {}).get("watermark")
            seen = [report["seen"][name] for report in every if name in report.get("seen", {})]
            moves = self.ticks.alone(name, entry)
            windows[name] = after(before["windows"].get(name, {}), watermark, seen, node.spec, entry["cut_us"], moves)
            watermark = windows[name]["watermark"]
            if watermark is not None and not is_ordered(node.spec):  # drop segments that no open window needs
                least = needed(node, watermark)
                for log in (name, f"{name}.panes"):
                    state[log] = [segment for segment in state.get(log, []) if segment.hi >= least]
        return {
            "id": entry["id"],
            "offsets": entry["offsets"],
            "state": {name: [s.to_json() for s in segments] for name, segments in state.items()},
            "windows": windows,
            "outputs": document["taps"],
            "widths": entry["widths"],
        }

    def _publish(self, batch: DataFrame, number: int, manifest: dict[str, Any], measured: Measured) -> None:
        with measured.part("sink"):
            done = self.ledger.published(number)
            marks = {name: sink.mark for name, sink in self.flow.sinks.items()}
            document = {
                "id": number,
                "run": self.run,
                "folder": self.ledger.folder.root,
                "taps": manifest["outputs"],
                "widths": {},
            }

            def frame_of(port: str) -> DataFrame:
                self.spark.sparkContext.setLocalProperty(BATCH_PROPERTY, json.dumps(document))
                return self.framer.tapped(batch.sparkSession, port, document, None)

            for name, sink in self.flow.sinks.items():
                if marks[name] in done:
                    continue
                entries = manifest["outputs"].get(sink.port, [])
                schema = self.programs.arrow(self.programs.schema_of(sink.port))
                # Tasks of this very batch wrote them, unless it was computed before a fault.
                verify, ordered = measured.replayed, self._ordered(sink.port)
                table = load(self.ledger.folder, entries, schema, ordered=ordered, verify=verify)
                try:
                    self.publisher.publish(name, number, table, frame_of)
                except UserFunctionError as error:
                    self.user_error = error
                    raise
                measured.visible[name] = time.time()
                measured.rows_out[name] = table.num_rows
                done.add(marks[name])
            self._crash("sink", number)
            self.ledger.mark_published(number, done)

    def _ordered(self, port: str) -> bool:
        """Whether a port's rows go out in the order of their chunks: fused steps do, farms if they say so."""
        owner = owner_of(self.plan, port)
        return owner.head is None or (isinstance(owner.head, op.Map) and owner.head.ordered)

    def _after(self, number: int, measured: Measured) -> BatchRecord:
        """Tidy up, and let the controller decide how the next batch runs."""
        with measured.part("control"):
            self.ledger.purge(number, self.keep)
            measured.decision = replace(self.decision, widths=measured.entry.get("widths", self.decision.widths))
            record = batch_record(self.flow, self.plan, measured)
            now = time.monotonic()
            next_cut = self.pause.next_cut_s(measured.begun, now, self.decision.lifetime_s)
            decided, measured.control = self.controller.after_batch(
                record, measured.begun, now, next_cut, self._arrived(measured), self.decision
            )
            self.controller.say_verdict(measured.control)
            if decided.row_cap != self.decision.row_cap:
                self.set_row_cap(decided.row_cap)
            self.decision = decided
        return record

    def _arrived(self, measured: Measured) -> int | None:
        """Rows due by now; not known in a batch in which the wall clock was set."""
        clocks = time.time() - time.monotonic()
        jumped = self._clocks is not None and abs(clocks - self._clocks) > 0.5
        self._clocks = clocks
        return None if jumped else arrived_by(self.flow, measured.entry.get("offsets", []), int(time.time() * 1e6))

    def set_row_cap(self, rows: int | None) -> None:
        """Cap the rows of the next batches, where the source can be told; never above the cap that users gave."""
        for read in self.flow.reads:
            spec = getattr(read.frame, "_penstock_replay", None)
            if spec is not None and spec.control:
                least = min((most for most in (rows, spec.limits.max_rows) if most is not None), default=None)
                write_limits(spec.control, max_rows=least, max_seconds=spec.limits.max_seconds)

    def _wait(self, measured: Measured, windows: dict[str, Any]) -> None:
        """Wait the batch lifetime out, from cut to cut. What is to be drained does not wait."""
        if self.may_idle:
            offsets = measured.entry.get("offsets", [])
            with measured.part("wait"):
                by_user = self.pause.wait(self.decision, measured.begun, offsets, windows)
            if by_user:
                self.controller.expect_nothing()

    def _record(self, record: BatchRecord, measured: Measured) -> None:
        parts = {name: measured.parts.get(name, record.parts[name]) for name in record.parts}
        self.latest = replace(record, parts=parts, control=measured.control)
        self.setups += sum(stats.setups for stats in self.latest.operators)
        for listener in self.listeners:
            listener(self.latest)

    def _crash(self, point: str, number: int) -> None:
        if self.crash is not None:
            self.crash.here(point, number)
