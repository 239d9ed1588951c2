"""Sinks: publish what a manifest names. A file sink shows one new file per batch, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from penstock.engine.spark.files import Folder
from penstock.errors import UserFunctionError
from penstock.flow.operators import Sink

FrameOf = Callable[[str], DataFrame]
CODECS = frozenset({"bz2", "deflate", "gz", "lz4", "snappy", "zst"})  # the last suffix of a compressed text file


def load(
    folder: Folder, entries: list[dict[str, Any]], schema: pa.Schema, *, ordered: bool, verify: bool = True
) -> pa.Table:
    """Return a port's rows from the files a manifest names; in the order of their chunks if `ordered`."""
    stamped: list[tuple[int, pa.RecordBatch]] = []
    for entry in entries:
        table = folder.open_table(entry["file"], entry["crc"] if verify else None)
        stamped += zip(entry["stamps"], table.to_batches(), strict=True)
    if ordered:
        stamped.sort(key=lambda pair: pair[0])
    return pa.Table.from_batches([batch for _, batch in stamped], schema)


class Publisher:
    """Publishes a batch to every sink of a flow; memory sinks keep their rows here."""

    def __init__(self, prefix: str, sinks: dict[str, Sink]) -> None:
        self.prefix, self.sinks = prefix, sinks
        # By batch, so that a replay replaces what it wrote before.
        self.memory: dict[str, dict[int, pa.Table]] = {n: {} for n, sink in sinks.items() if sink.format == "memory"}
        self._folders = {name: Folder(sink.path) for name, sink in sinks.items() if sink.path}
        for folder in self._folders.values():
            folder.make()

    def publish(self, name: str, batch: int, table: pa.Table, frame_of: FrameOf) -> None:
        """Publish one batch to one sink; doing it again changes nothing for files."""
        sink = self.sinks[name]
        if sink.format == "function":
            assert sink.fn is not None
            try:
                sink.fn(table, batch)
            except Exception as error:
                what = f"raised {type(error).__name__}: {error}; batch {batch}, {table.num_rows} rows"
                raise UserFunctionError(f"sink '{name}' (function) {what}") from error
        elif sink.format == "memory":
            self.memory[name][batch] = table
        elif sink.format == "console":
            self._print(sink, batch, table)
        elif table.num_rows == 0:
            self._folders[name].delete(self._file(sink, batch))
        elif sink.format == "parquet":
            self._parquet(sink, batch, table)
        else:
            self._any_format(sink, batch, frame_of(sink.port))

    def _file(self, sink: Sink, batch: int) -> str:
        # The name says flow, checkpoint and batch: a replay replaces its own file, never another's, and a flow that
        # begins anew on an old folder adds to it.
        return f"part-{self.prefix}-{batch:08d}.{sink.format}"

    def _parquet(self, sink: Sink, batch: int, table: pa.Table) -> None:
        folder, final = self._folders[sink.name], self._file(sink, batch)
        staged = f".{final}.tmp"
        with folder.system.open_output_stream(folder.at(staged)) as stream:
            pq.write_table(table, stream, **{"compression": "snappy", **sink.options})
        folder.system.move(folder.at(staged), folder.at(final))

    def _any_format(self, sink: Sink, batch: int, frame: DataFrame) -> None:
        """Let Spark write its format as one file into a hidden folder, then move that file into sight."""
        folder, staging = self._folders[sink.name], f"_penstock_{self.prefix}"
        frame.coalesce(1).write.format(sink.format).options(**sink.options).mode("overwrite").save(folder.at(staging))
        parts = [name for name in folder.names(staging) if name.startswith("part-")]
        for number, part in enumerate(parts):
            final = self._file(sink, batch) if len(parts) == 1 else f"{self._file(sink, batch)}.{number}"
            codec = part.rpartition(".")[2]
            if codec in CODECS:  # readers of text know by it that the file is compressed
                final = f"{final}.{codec}"
            folder.system.move(folder.at(staging, part), folder.at(final))
        folder.delete_folder(staging)

    def _print(self, sink: Sink, batch: int, table: pa.Table) -> None:
        shown = int(sink.options.get("rows", 20))
        print(f"--- {sink.name}, batch {batch}: {table.num_rows} rows")
        if table.num_rows:
            print(table.slice(0, shown).to_pandas().to_string(index=False))
