"""How much of a replayed stream one micro-batch may take, changed while the query runs through a small file."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Limits:
    """At most `max_rows` rows and `max_seconds` seconds of schedule per batch; None is no limit.

    >>> Limits(max_rows=100).updated({"max_seconds": 2})
    Limits(max_rows=100, max_seconds=2)
    """

    max_rows: int | None = None
    max_seconds: float | None = None

    def updated(self, entries: Any) -> Limits:
        """These limits, with those that `entries` names replaced; what makes no sense is passed over."""
        if not isinstance(entries, dict):
            return self
        rows, seconds = (entries.get(name, getattr(self, name)) for name in ("max_rows", "max_seconds"))
        return Limits(
            rows if rows is None or (type(rows) is int and rows >= 1) else self.max_rows,
            seconds if seconds is None or _is_duration(seconds) else self.max_seconds,
        )


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


class LiveLimits:
    """The limits in force: the file's where it can be read, otherwise the given ones.

    The file is parsed only when its inode, size or mtime changed, so asking costs one `stat`.
    """

    def __init__(self, given: Limits, path: str | None) -> None:
        self._given, self._path = given, path
        self._seen: tuple[int, int, int] | None = None
        self._current = given

    def now(self) -> Limits:
        """The limits to use for the next batch."""
        if self._path is None:
            return self._given
        try:
            stat = os.stat(self._path)
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if seen != self._seen:
                self._current = self._given.updated(json.loads(Path(self._path).read_bytes()))
                self._seen = seen
        except (OSError, ValueError):  # missing, or half written by something that does not replace atomically
            self._seen, self._current = None, self._given
        return self._current


def write_limits(path: str | Path, *, max_rows: int | None = None, max_seconds: float | None = None) -> None:
    """Set the limits of a running replay through its `control` file; the next batch obeys. None is no limit.

    >>> folder = tempfile.TemporaryDirectory()
    >>> control = Path(folder.name) / "limits.json"
    >>> write_limits(control, max_rows=500)
    >>> LiveLimits(Limits(), str(control)).now()
    Limits(max_rows=500, max_seconds=None)
    >>> folder.cleanup()
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Replaced, not rewritten: the reader sees the old file or the new one, never half of one.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(handle, "w") as file:
        json.dump({"max_rows": max_rows, "max_seconds": max_seconds}, file)
    os.replace(name, target)
