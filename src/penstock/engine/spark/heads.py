"""How a stage takes in its rows: as they come, cut into chunks for a farm, or read back from a tap."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.engine.spark.program import CHUNK_BITS, INDEX_BITS, POS, TaskRun


@dataclass
class PlainHead:
    """Batches as Spark cuts them; each is one call of the fused steps."""

    root: str

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit every batch on the root port."""
        base = task.partition << CHUNK_BITS
        for number, batch in enumerate(batches):
            task.emit(self.root, batch, base + number)
            yield


@dataclass
class FarmHead:
    """Chunks of consecutive rows, stamped before the exchange: one call each, whatever the width.

    Thesis 003 F7/F8: round robin is one task per replica; on demand has more tasks than replicas, and a
    task begins when one of the replicas' slots is free.
    """

    root: str
    operator: str
    on_demand: bool

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit one chunk after the other on the root port, in the order of their stamps."""
        table = gather(batches)
        if table is None:
            return
        replicas = task.batch["widths"][self.operator] if self.on_demand else 0
        with slot(task, self.operator, replicas):
            stamps = table.column(POS).to_numpy() >> INDEX_BITS
            rows = table.drop_columns([POS])
            edges = np.flatnonzero(np.diff(stamps)) + 1
            starts = np.concatenate(([0], edges))
            ends = np.concatenate((edges, [len(stamps)]))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                task.emit(self.root, one_batch(rows.slice(start, end - start)), int(stamps[start]))
                task.end_chunk(int(stamps[start]))
                yield


@dataclass
class TapHead:
    """Rows that an earlier job of the same batch wrote: each incoming row names a file by its number."""

    port: str

    def feed(self, batches: Iterator[pa.RecordBatch], task: TaskRun) -> Iterator[None]:
        """Emit the batches of the files asked for; not by partition number, for Spark may put several in one task."""
        files = task.batch["taps"].get(self.port, [])
        assert task.folder is not None
        for asked in batches:
            for number in asked.column(0).to_pylist():
                if number >= len(files):
                    continue
                table = task.folder.open_table(files[number]["file"], files[number]["crc"])
                task.begin_partition(number)
                for batch, stamp in zip(table.to_batches(), files[number]["stamps"], strict=True):
                    task.emit(self.port, batch, stamp)
                    yield


def gather(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """Return all rows of the task in the order of their positions; None if there are none."""
    pieces = [batch for batch in batches if batch.num_rows]
    if not pieces:
        return None
    table = pa.Table.from_batches(pieces)
    if POS in table.column_names:
        positions = table.column(POS).to_numpy()
        if len(positions) > 1 and not (positions[1:] >= positions[:-1]).all():
            # Blocks of an exchange may arrive in any order; stable, so rows of one position keep theirs.
            table = table.take(pa.array(np.argsort(positions, kind="stable")))
    return table


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as a single RecordBatch, copying only where it has several chunks."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    return table.combine_chunks().to_batches()[0] if batches else table.schema.empty_table().to_batches()[0]


def slots_folder(run: str) -> Path:
    """Return where the slots of a run are on this host."""
    return Path(tempfile.gettempdir()) / f"penstock-slots-{run}"


@contextmanager
def slot(task: TaskRun, operator: str, replicas: int) -> Iterator[None]:
    """Hold one of the operator's replica slots on this host; no slots are needed where `replicas` is 0.

    A slot is a locked file: freed by the kernel even if the process is killed, and no scheduler of ours.
    """
    if replicas == 0:
        yield
        return
    folder = slots_folder(task.batch["run"])
    folder.mkdir(exist_ok=True)
    before = time.perf_counter()
    held = None
    while held is None:
        for number in range(replicas):
            handle = os.open(folder / f"{operator}-{number}", os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            held = handle
            task.be_replica(number)
            break
        else:
            time.sleep(0.002)
    task.slot_wait = time.perf_counter() - before
    task.extra["slot_from"] = time.time()
    try:
        yield
    finally:
        task.extra["slot_to"] = time.time()
        os.close(held)
