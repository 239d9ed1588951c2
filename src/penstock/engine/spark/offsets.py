"""What Spark wrote about a batch before it called us: its cut and how far each source goes.

Spark's offset log is a text file: a version line, a metadata line (JSON with the time of the cut), then one
line per source. It is written before the batch runs and read again by a replay, so what is in it is part
of the batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.engine.spark.files import Folder


@dataclass(frozen=True)
class Offsets:
    """The cut of a batch (epoch microseconds) and the end offset of each source, as Spark logged them."""

    cut_us: int
    sources: tuple[Any, ...]


class OffsetLog:
    """Reads the offset log of a Spark checkpoint."""

    def __init__(self, spark_checkpoint: str) -> None:
        self.folder = Folder(f"{spark_checkpoint}/offsets")

    def read(self, batch: int) -> Offsets | None:
        """Return what is logged for a batch."""
        try:
            with self.folder.system.open_input_stream(self.folder.at(str(batch))) as stream:
                lines = stream.read().decode().splitlines()
        except FileNotFoundError:
            return None
        metadata = json.loads(lines[1])
        return Offsets(int(metadata["batchTimestampMs"]) * 1000, tuple(_parsed(line) for line in lines[2:]))


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line
