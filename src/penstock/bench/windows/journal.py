"""The results file: rows as they were measured, added one unit at a time, so that a run that was cut short goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.bench.figures import Figure, median, plain, write_whole


@dataclass(frozen=True)
class Row:
    """One engine in one case: the median of its runs.

    >>> row = Row.of("penstock", "sweep", [2.0, 4.0, 3.0], rows=6000, results=10, equal=True, size_s=60, slide_s=30)
    >>> row.seconds, row.rows_per_s, row.work_per_s
    (3.0, 2000.0, 2003.3333333333333)
    """

    engine: str  # penstock, spark, flink, duckdb
    case: str
    rows: int
    seconds: float | None
    rows_per_s: float | None
    results: int
    equal: bool | None  # None: not compared
    size_s: float | None = None
    slide_s: float | None = None
    variant: str = ""  # where size and slide do not say it: "1000 tuples", "pane farming"
    runs: list[float] = field(default_factory=list)  # seconds, each
    beside: list[float] = field(default_factory=list)  # rows/s of Penstock, measured in turn with these runs
    note: str = ""
    facts: dict[str, float] = field(default_factory=dict)  # what is not a speed: bytes, memory

    @staticmethod
    def of(
        engine: str, case: str, runs: Sequence[float], *, rows: int, results: int, equal: bool | None, **more: Any
    ) -> Row:
        """A row whose figures are medians of the runs."""
        seconds = median(runs)
        speed = rows / seconds if runs else None
        return Row(engine, case, rows, plain(seconds), speed, results, equal, runs=list(runs), **more)

    @property
    def work_per_s(self) -> float:
        """(Rows + results) per second."""
        return (self.rows + self.results) / self.seconds if self.seconds else float("nan")

    @property
    def ratios(self) -> list[float]:
        """Penstock over this engine, in each run that was measured in turn."""
        return [ours / (self.rows / seconds) for ours, seconds in zip(self.beside, self.runs, strict=True)]


class Journal:
    """Rows by unit, in a JSON file that is written whole after each unit (or only in memory).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.json"
    ...     Journal(file, {"quick": True}, print).add("a", [Row.of("spark", "a", [1.0], rows=5, results=1, equal=True)])
    ...     again = Journal(file, {"quick": True}, print)
    ...     again.has("a"), again.has("b"), again.rows()[0].rows_per_s
    1 units of an earlier run are kept
    (True, False, 5.0)
    """

    def __init__(
        self, path: Path | None, about: dict[str, Any], say: Callable[[str], None], fresh: bool = False
    ) -> None:
        self.path, self.about = path, about
        self._units: dict[str, list[Row]] = {}
        if path is not None and path.exists() and not fresh:
            document = json.loads(path.read_text())
            if document.get("about") == json.loads(json.dumps(about)):
                for row in document["rows"]:
                    self._units.setdefault(row.pop("unit"), []).append(Row(**row))
                say(f"{len(self._units)} units of an earlier run are kept")
            else:
                say(f"{path} was measured with other settings or on another machine: it is written anew")

    def has(self, unit: str) -> bool:
        """Whether a unit is finished."""
        return unit in self._units

    def add(self, unit: str, rows: list[Row]) -> None:
        """Take a finished unit in and write the file."""
        self._units[unit] = rows
        self.write()

    def rows(self) -> list[Row]:
        """All rows so far."""
        return [row for rows in self._units.values() for row in rows]

    def write(self, figures: Sequence[Figure] = ()) -> None:
        """Write the file, seen whole or not at all."""
        if self.path is None:
            return
        document = {
            "how": "measured",
            "about": self.about,
            "rows": [{"unit": unit, **asdict(row)} for unit, rows in self._units.items() for row in rows],
            "figures": [figure.to_json() for figure in figures],
        }
        write_whole(self.path, document)
