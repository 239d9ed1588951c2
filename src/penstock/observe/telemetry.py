"""The telemetry of a job on disk: one JSON line per batch, in files of bounded size under the checkpoint.

A line counts once its newline is there. A kill can leave the last line of the last file without one: a reader leaves
that line out and the next writer removes it, so no line is ever glued to a torn one. There is no fsync: exactly-once
never rests on telemetry, so what a power cut takes of it harms no result.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from penstock.errors import CheckpointError
from penstock.observe.record import BatchRecord, mark_superseded

_NAME = re.compile(r"telemetry-(\d+)\.jsonl")


def _plain(value: Any) -> Any:
    """NumPy's whole numbers are not Python's: let them be written all the same."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"telemetry cannot hold a {type(value).__name__}: {value!r}")


# One encoder for all lines. allow_nan=False: a NaN is no JSON, and other tools read these files.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode


def telemetry_dir(checkpoint: str | os.PathLike[str]) -> Path:
    """Where a checkpoint keeps its telemetry.

    >>> telemetry_dir("ckpt").as_posix()
    'ckpt/penstock/telemetry'
    """
    return Path(checkpoint) / "penstock" / "telemetry"


class TelemetryLog:
    """Appends batch records to rotating files; one handle, one write and one flush per record.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     with TelemetryLog(d) as log:
    ...         log.append(BatchRecord(0))
    ...         log.append(BatchRecord(1))
    ...     [r.batch for r in read(d)]
    [0, 1]
    """

    def __init__(self, directory: str | os.PathLike[str], max_bytes: int = 8 << 20, keep: int = 8) -> None:
        """`max_bytes` bounds one file (a longer line gets a file of its own); the newest `keep` files stay."""
        if max_bytes < 1 or keep < 1:
            raise ValueError(f"max_bytes and keep must be at least 1, got {max_bytes} and {keep}")
        self._directory = Path(directory)
        self._max_bytes, self._keep = max_bytes, keep
        self._directory.mkdir(parents=True, exist_ok=True)
        existing = _files(self._directory)
        # Go on in the newest file: a new one per start would let `keep` restarts push all history out.
        self._number = existing[-1][0] if existing else 0
        self._file, self._size = self._open()

    def append(self, record: BatchRecord) -> None:
        """Write one record; it is with the operating system when this returns."""
        line = _encode(record.to_json()).encode() + b"\n"
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        self._file.write(line)
        self._file.flush()
        self._size += len(line)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> TelemetryLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _open(self) -> tuple[BinaryIO, int]:
        """Open the current file for appending, without the torn line that a kill may have left."""
        path = self._directory / f"telemetry-{self._number}.jsonl"
        if path.exists():
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(path, whole)
        file = path.open("ab")
        return file, path.stat().st_size

    def _rotate(self) -> None:
        self._file.close()
        self._number += 1
        self._file, self._size = self._open()
        for _, path in _files(self._directory)[: -self._keep]:
            path.unlink(missing_ok=True)


def read(directory: str | os.PathLike[str]) -> Iterator[BatchRecord]:
    """The records of all files, oldest first; a directory that does not exist has none.

    Where a batch occurs more than once (a replay), every record but the last is marked `superseded`.

    >>> list(read("no/such/directory"))
    []
    """
    return iter(mark_superseded(_read_lines(Path(directory))))


def _read_lines(directory: Path) -> Iterator[BatchRecord]:
    for _, path in _files(directory):
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:  # rotated away by the running job since we looked
            continue
        for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is empty or torn
            try:
                record = BatchRecord.from_json(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise CheckpointError(
                    f"telemetry file {path.name}, line {number} is not a batch record ({error}). "
                    "Remedy: remove that line; results do not depend on it."
                ) from error
            yield record


def _files(directory: Path) -> list[tuple[int, Path]]:
    """Number and path of each telemetry file, by number (by name, 10 would come before 2)."""
    if not directory.is_dir():
        return []
    found = ((_NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)
