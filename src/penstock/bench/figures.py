"""Figures: what was measured, on which machine, how often, against which target; as a table and as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession


def median(values: Sequence[float]) -> float:
    """The median, NaN if there is nothing.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return statistics.median(values) if values else float("nan")


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` of the values do not exceed; NaN if there is nothing.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0], 0.95)
    (2.0, 2.0)
    """
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, -(-round(share * 1e6) * len(ordered) // 1_000_000) - 1))]


@dataclass(frozen=True)
class Target:
    """A bound on a figure.

    >>> Target("<=", 120.0).holds(119.0), str(Target(">=", 0.85))
    (True, '>= 0.85')
    """

    relation: str  # "<=" or ">="
    bound: float

    def holds(self, value: float) -> bool:
        """Whether a value keeps the bound; NaN never does."""
        return value <= self.bound if self.relation == "<=" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.relation} {human(self.bound)}"


@dataclass
class Figure:
    """One measured figure: the median of its runs, each run's value beside it."""

    case: str
    variant: str
    unit: str
    runs: list[float]
    target: Target | None = None
    note: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The median of the runs."""
        return median(self.runs)

    def to_json(self) -> dict[str, Any]:
        """The row in the result file; a figure that could not be formed is null.

        >>> Figure("b", "map", "x", [0.9, 0.8, 0.85], Target(">=", 0.85)).to_json()["holds"]
        True
        """
        return {
            "case": self.case,
            "variant": self.variant,
            "unit": self.unit,
            "value": plain(self.value),
            "runs": [plain(run) for run in self.runs],
            "target": None if self.target is None else str(self.target),
            "holds": None if self.target is None else self.target.holds(self.value),
            "note": self.note,
            "detail": self.detail,
        }


def plain(value: float) -> float | None:
    """A number that JSON can hold, to six digits."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def human(value: float) -> str:
    """A number for people, three digits.

    >>> human(2_345_678), human(0.8512), human(118.4), human(250_000)
    ('2.35 M', '0.851', '118', '250 k')
    """
    if math.isnan(value):
        return "-"
    for size, letter in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e6 if letter == ' M' else 1e3):.3g}{letter}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine(spark: SparkSession) -> dict[str, Any]:
    """What the figures were measured on."""
    java = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": str(java.getProperty("java.version")),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "numpy": version("numpy"),
        "master": spark.sparkContext.master,
    }


def table(figures: Sequence[Figure]) -> str:
    """The figures as aligned text."""
    head = ("case", "variant", "median", "unit", "least..most", "target", "holds")
    lines = [head]
    for figure in figures:
        spread = f"{human(min(figure.runs))}..{human(max(figure.runs))}" if figure.runs else "-"
        target = "" if figure.target is None else str(figure.target)
        holds = "" if figure.target is None else ("yes" if figure.target.holds(figure.value) else "NO")
        lines.append((figure.case, figure.variant, human(figure.value), figure.unit, spread, target, holds))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    notes = [f"{figure.case}, {figure.variant}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*text, "", *notes])


def write(path: str, about: dict[str, Any], runs: int, figures: Sequence[Figure]) -> None:
    """Write the results as JSON."""
    rows = [figure.to_json() for figure in figures]
    write_whole(Path(path), {"how": "measured", "machine": about, "runs": runs, "rows": rows})


def write_whole(path: Path, document: dict[str, Any]) -> None:
    """Write a results file, seen whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)
