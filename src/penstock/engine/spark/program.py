"""What one Python task runs: a tree of user steps over Arrow batches, fed by the stage's head.

The program is pickled once per job start; what changes from batch to batch (id, folders, state files,
watermarks, widths) reaches the task as a local property of the Spark job. A task writes attempt-unique
files and gives back one report row; a stage that streams on leaves its report as a file beside them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.control.moments import Moments
from penstock.engine.spark.conform import FunctionFailed, as_batches, as_mask, conform, user_trace
from penstock.engine.spark.files import Folder, arrow_bytes
from penstock.engine.spark.reports import packed
from penstock.engine.spark.state import HASH, group_of
from penstock.engine.spark.worker_memory import give_back
from penstock.flow.context import Replica, enter

BATCH_PROPERTY = "penstock.batch"
POS = "_ps_pos"
INDEX_BITS = 20  # rows a call may return per chunk: 2^20
CHUNK_BITS = 31  # chunks per source partition and batch: 2^31
REPORT_SCHEMA = "report string"
MAX_POINTS = 512


class Head(Protocol):
    """Turns the incoming rows into batches on ports."""

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit into the task; yield after each piece so that results can stream on."""
        ...


@dataclass
class Step:
    """One fused operator: `kind` says how to call `fn`, `outputs` its declared schemas by port."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: dict[str, pa.Schema]
    functions: tuple[Callable[..., Any], ...] = ()
    on_error: str = "stop"
    rest: bool = False
    whole_chunks: bool = False  # called once for all that the step before made of a chunk
    setup: Callable[[], Any] | None = None
    teardown: Callable[[Any], Any] | None = None


@dataclass
class Program:
    """A stage as data: the head, the steps behind it, what to tap, what to stream on."""

    stage: str
    head: Head
    root: str
    steps: tuple[Step, ...]
    taps: dict[str, pa.Schema]
    outlet: str | None = None
    outlet_chunk: int = 1 << INDEX_BITS
    keep_chunks: bool = False
    arrival: tuple[str, str] | None = None  # (source, column) whose arrival times this stage sees first
    yields: bool = False  # give out the rows of the outlet: no files, no report
    document: dict[str, Any] | None = None  # on batch DataFrames, what a streaming batch gets as local property

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        yield from TaskRun(self).run(batches)
        give_back()


@dataclass
class Counters:
    """What one operator did in one task (thesis 001 F26: the statistics reporter of a subtask)."""

    rows_in: int = 0
    rows_out: int = 0
    calls: int = 0
    skipped: int = 0
    busy: float = 0.0
    setups: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    service: list[float] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what a report carries."""
        gaps = np.diff(np.array(self.reached)) if len(self.reached) > 1 else np.empty(0)
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "calls": self.calls,
            "skipped": self.skipped,
            "busy": self.busy,
            "setups": self.setups,
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "service": Moments.of(np.array(self.service)).to_json(),
            "arrivals": Moments.of(gaps).to_json(),
        }


class Tap:
    """The rows of one port, kept until the task ends and then written as one attempt-unique Arrow file."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.batches: list[pa.RecordBatch] = []
        self.stamps: list[int] = []

    def add(self, batch: pa.RecordBatch, chunk: int) -> None:
        """Keep a batch with the stamp of its chunk."""
        if batch.num_rows:
            self.batches.append(conform(batch, self.schema))
            self.stamps.append(chunk)

    def close(self, folder: Folder, file: str) -> dict[str, Any] | None:
        """Write the file and return what the manifest needs to know of it; None if there were no rows."""
        if not self.batches:
            return None
        table = pa.Table.from_batches(self.batches, self.schema)
        buffer, crc = arrow_bytes(table)
        folder.write(file, buffer)
        return {"file": file, "rows": table.num_rows, "bytes": buffer.size, "crc": crc, "stamps": self.stamps}


# Kept across tasks in a worker process: what `setup` returned, by (run, operator).
_resources: dict[tuple[str, str], tuple[Any, Callable[[Any], Any] | None]] = {}


class TaskRun:
    """One attempt of one task."""

    def __init__(self, program: Program) -> None:
        from pyspark import TaskContext  # noqa: PLC0415 - only inside a task

        context = TaskContext.get()
        assert context is not None
        self.program = program
        self.partition = context.partitionId()
        self.attempt = context.attemptNumber()
        self.batch: dict[str, Any] = program.document or json.loads(context.getLocalProperty(BATCH_PROPERTY) or "")
        self.folder = Folder(self.batch["folder"]) if "folder" in self.batch else None
        self.tag = f"{program.stage}-{self.partition}-{self.attempt}-{uuid.uuid4().hex[:8]}"
        self.counters = {step.name: Counters() for step in program.steps}
        self.readers: dict[str, list[Step]] = {}
        for step in program.steps:
            for port in step.inputs:
                self.readers.setdefault(port, []).append(step)
        self.taps = {port: Tap(schema) for port, schema in program.taps.items()}
        self.pending: list[tuple[pa.RecordBatch, int]] = []
        self.held: dict[str, list[pa.RecordBatch]] = {}  # of the present chunk, by the step that waits for all of it
        self.extra: dict[str, Any] = {}
        self.arrivals: list[Any] = []
        routes = self.batch.get("routes", {}).get(program.stage)
        self.groups = np.zeros(len(routes), dtype=np.int64) if routes else None  # rows per key group
        self.waited = 0.0
        self.slot_wait = 0.0
        self.begin_partition(self.partition)
        self.rows_read = 0
        self.telemetry = bool(self.batch.get("telemetry", True))
        self.width = int(self.batch["widths"].get(program.stage, 1))
        self.be_replica(self.partition % self.width if program.stage in self.batch["widths"] else self.partition)

    def begin_partition(self, number: int) -> None:
        """Count the rows that stream on from here as those of source partition `number`."""
        self.row_partition, self.out_rows = number, 0
        self.out_chunk = (-1, 0)

    def be_replica(self, number: int) -> None:
        """Say which replica the user's functions run in."""
        enter(Replica(self.program.stage, number, self.width, self.batch["id"]))

    # -- the run ---------------------------------------------------------------------------------

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Feed the head, stream results on, and end with the report."""
        started, error = time.time(), None
        try:
            for _ in self.program.head.feed(self._timed(batches), self):
                if self.pending:
                    yield from self._stream_on()
            yield from self._stream_on()
        except FunctionFailed as failure:
            if self.program.yields:
                raise
            error = failure.to_json()
            for _ in batches:  # the JVM's writer must not be left waiting
                pass
        if self.program.yields:
            return
        report = self._report(started, error)
        if self.program.outlet is None:
            yield pa.RecordBatch.from_pydict({"report": packed(report)})
        else:
            assert self.folder is not None
            name = f"report-{self.batch['execution']}-{self.tag}.json"
            self.folder.write(f"{self.batch['dir']}/{name}", json.dumps(report).encode())

    def _timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = self.program.arrival
        while True:
            before = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - before
            if batch is None:
                return
            self.rows_read += batch.num_rows
            if source is not None and self.telemetry and source[1] in batch.schema.names:
                self.arrivals.append(batch.column(source[1]))
            if self.groups is not None and self.telemetry and HASH in batch.schema.names:
                hashes = batch.column(HASH).to_numpy().view(np.uint64)
                self.groups += np.bincount(group_of(hashes, len(self.groups)), minlength=len(self.groups))
            yield batch

    def _stream_on(self) -> Iterator[pa.RecordBatch]:
        """Give out what reached the outlet, stamped with its position (unless on a batch DataFrame's end)."""
        pending, self.pending = self.pending, []
        for batch, chunk in pending:
            if batch.num_rows == 0:
                continue
            if self.program.yields and self.program.outlet_chunk == 0:
                yield batch
                continue
            yield batch.append_column(POS, pa.array(self._positions(batch.num_rows, chunk)))

    def _positions(self, rows: int, chunk: int) -> Any:
        if self.program.keep_chunks:
            known, before = self.out_chunk  # a chunk's rows may come in several pieces
            self.out_chunk = (chunk, rows if chunk != known else before + rows)
            most = self.out_chunk[1]
            if most > 1 << INDEX_BITS:
                raise FunctionFailed(
                    self.program.stage, f"returned {most} rows for one chunk, at most {1 << INDEX_BITS} are allowed"
                )
            return (chunk << INDEX_BITS) + np.arange(most - rows, most, dtype=np.int64)
        size = self.program.outlet_chunk
        row = np.arange(self.out_rows, self.out_rows + rows, dtype=np.int64)
        self.out_rows += rows
        return (self.row_partition << (INDEX_BITS + CHUNK_BITS)) + ((row // size) << INDEX_BITS) + row % size

    def reads(self, port: str) -> bool:
        """Whether anything in or behind this stage reads a port."""
        return port in self.taps or port in self.readers or port == self.program.outlet

    def emit(self, port: str, batch: pa.RecordBatch, chunk: int) -> None:
        """Hand a batch to everything that reads a port in this stage."""
        tap = self.taps.get(port)
        if tap is not None:
            tap.add(batch, chunk)
        if port == self.program.outlet:
            self.pending.append((batch, chunk))
        for step in self.readers.get(port, ()):
            if step.whole_chunks:
                self.held.setdefault(step.name, []).append(batch)
            else:
                self._step(step, batch, chunk)

    def end_chunk(self, chunk: int) -> None:
        """Give the farms that are chained to this one what it made of a chunk: in one call, as an exchange would."""
        if not self.held:
            return
        for step in self.program.steps:  # in the order of the flow: one may feed the next
            pieces = [piece for piece in self.held.pop(step.name, ()) if piece.num_rows]
            if pieces:
                self._step(step, pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces), chunk)

    # -- one step --------------------------------------------------------------------------------

    def _step(self, step: Step, batch: pa.RecordBatch, chunk: int) -> None:
        counters = self.counters[step.name]
        counters.rows_in += batch.num_rows
        if step.kind == "union":
            counters.rows_out += batch.num_rows
            self.emit(step.name, batch, chunk)
            return
        if batch.num_rows == 0:
            return
        arguments = (self.resource(step, counters),) if step.setup else ()
        try:
            results = self._call(step, counters, batch, arguments)
        except FunctionFailed:
            raise
        except Exception as error:
            results = self._recover(step, counters, batch, arguments, chunk, error)
        for port, piece in results:
            counters.rows_out += piece.num_rows
            self.emit(port, piece, chunk)

    def _call(
        self, step: Step, counters: Counters, batch: pa.RecordBatch, arguments: tuple[Any, ...]
    ) -> list[tuple[str, pa.RecordBatch]]:
        """Call the user's function once and check what it gives back."""
        before = time.perf_counter()
        counters.calls += 1
        try:
            if step.kind in ("map", "flatmap"):
                given = step.functions[0](batch, *arguments)
                pieces = list(given) if step.kind == "flatmap" else [given]
                schema = step.outputs[step.name]
                out = [(step.name, conform(p, schema)) for piece in pieces for p in as_batches(piece)]
            elif step.kind == "late":
                out = [(step.name, batch.filter(pa.array(step.functions[0](batch, self.batch))))]
            else:
                out = _select(step, batch)
        finally:
            spent = time.perf_counter() - before
            counters.busy += spent
            if self.telemetry:
                counters.service.append(spent)
                counters.reached.append(before)
        return out

    def _recover(
        self,
        step: Step,
        counters: Counters,
        batch: pa.RecordBatch,
        arguments: tuple[Any, ...],
        chunk: int,
        error: Exception,
    ) -> list[tuple[str, pa.RecordBatch]]:
        """Find the rows a function fails on by calling it row by row; stop, skip or set them aside."""
        good: list[tuple[str, pa.RecordBatch]] = []
        bad: list[tuple[int, str]] = []
        for row in range(batch.num_rows):
            try:
                good += self._call(step, counters, batch.slice(row, 1), arguments)
            except Exception as row_error:
                bad.append((row, f"{type(row_error).__name__}: {row_error}"))
                if step.on_error == "stop":
                    break
        if step.on_error == "stop" or not bad:
            first = bad[0][0] if bad else None
            raise FunctionFailed.at(step.name, step.kind, self.batch["id"], chunk, first, batch, error)
        counters.skipped += len(bad)
        if step.on_error == "dead_letter":
            rows = batch.take(pa.array([row for row, _ in bad]))
            dead = rows.append_column("error", pa.array([text for _, text in bad], pa.string()))
            port = f"{step.name}.dead"
            good.append((port, conform(dead, step.outputs[port])))
        return good

    def resource(self, step: Step, counters: Counters) -> Any:
        """Return what `setup` made in this worker process, making it at the first call."""
        key = (self.batch["run"], step.name)
        if key not in _resources:
            assert step.setup is not None
            try:
                _resources[key] = (step.setup(), step.teardown)
            except Exception as error:
                raise FunctionFailed(
                    step.name, f"setup raised {type(error).__name__}: {error}\n{user_trace(error)}"
                ) from error
            counters.setups += 1
        return _resources[key][0]

    # -- the end ---------------------------------------------------------------------------------

    def _report(self, started: float, error: dict[str, Any] | None) -> dict[str, Any]:
        taps = {}
        if error is None:
            crash_here(self.batch, "state")
            for port, tap in self.taps.items():
                assert self.folder is not None
                file = f"{self.batch['dir']}/out-{port}-{self.tag}.arrow"
                written = tap.close(self.folder, file)
                if written is not None:
                    taps[port] = written
            crash_here(self.batch, "output")
        return {
            "stage": self.program.stage,
            "partition": self.partition,
            "attempt": self.attempt,
            "started": started,
            "ended": time.time(),
            "waited": self.waited,
            "slot_wait": self.slot_wait,
            "rows_read": self.rows_read,
            "ops": {name: counters.to_json() for name, counters in self.counters.items()},
            "taps": taps,
            "arrivals": self._arrival_points(),
            "groups": self.groups.tolist() if self.groups is not None else [],
            "error": error,
            **self.extra,
        }

    def _arrival_points(self) -> dict[str, Any] | None:
        """Summarise arrival times by at most 512 equi-depth points: they can be shifted and merged exactly."""
        if not self.arrivals or self.program.arrival is None:
            return None
        column = pa.chunked_array(self.arrivals).drop_null()
        micros = np.sort(column.cast(pa.int64()).to_numpy())
        if len(micros) == 0:
            return None
        edges = np.linspace(0, len(micros), min(len(micros), MAX_POINTS) + 1).astype(np.int64)
        points, weights = micros[edges[1:] - 1], np.diff(edges)
        return {"source": self.program.arrival[0], "points": points.tolist(), "weights": weights.tolist()}


def _select(step: Step, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """Filter, or split among the outputs: a row goes to the first predicate that holds."""
    ports = list(step.outputs)
    if step.kind == "filter":
        return [(ports[0], batch.filter(as_mask(step.functions[0](batch), batch.num_rows)))]
    left = np.ones(batch.num_rows, dtype=bool)
    out = []
    for port, predicate in zip(ports, step.functions, strict=False):
        mask = as_mask(predicate(batch), batch.num_rows).to_numpy(zero_copy_only=False) & left
        left &= ~mask
        out.append((port, batch.filter(pa.array(mask))))
    if step.rest:
        out.append((ports[-1], batch.filter(pa.array(left))))
    return out


def crash_here(batch: dict[str, Any], point: str) -> None:
    """Fail on purpose where a test asked for it (see crash.py)."""
    if batch.get("crash") == point:
        raise RuntimeError(f"penstock crash point: {point}")


def tear_down(run: str) -> int:
    """Give back what `setup` made in this process for a run; return how many."""
    done = 0
    for key in [key for key in _resources if key[0] == run]:
        resource, teardown = _resources.pop(key)
        if teardown is not None:
            teardown(resource)
            done += 1
    return done
