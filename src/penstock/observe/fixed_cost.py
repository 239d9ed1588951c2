"""What a batch costs beside its operators' own work: a fixed part, one for each row, one for each task.

    rest = F + b n + t p          n rows, p tasks of operators that can be widened

fitted over the last batches, the newest counting most, by least squares with a prior (ridge): where all batches were of
one size or one width, b and t cannot be told from F, and stay near what is usual (1 us, 4 ms). Outliers are left out
of a second pass; none of the three is below 0, and t not below the least a task costs: where it seemed free, plans were
as wide as they could be. The first batches of a job are slow (code is compiled, workers start):
they count only as long as there are no others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_MEMORY = 40  # batches
_FADES = 0.92  # weight of a batch against the one after it
_USUAL_ROW_S, _ROW_DOUBT_S = 1e-6, 5e-6  # what a row costs to read and to cross into Python, and how far that is off
_USUAL_TASK_S, _TASK_DOUBT_S = 0.004, 0.01  # the same of a Python task
_LEAST_TASK_S = 0.002
_COLD = 4  # batches of a job that are slow
_NOISE = 0.1  # standard deviation of the rest, as a share of it

Floats = npt.NDArray[np.float64]


@dataclass
class FixedCost:
    """F, b and t as they are now.

    >>> cost = FixedCost()
    >>> for batch in range(30):
    ...     rows, tasks = 20_000 * (batch % 5 + 1), batch % 7 + 1
    ...     cost.add(rows, tasks, 0.1 + 2e-6 * rows + 0.01 * tasks)
    >>> fixed, per_row, per_task = cost.fit()
    >>> round(fixed, 1), round(per_row * 1e6), round(per_task, 2)
    (0.1, 2, 0.01)
    """

    points: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    _seen: int = 0

    def add(self, rows: int, tasks: int, seconds: float) -> None:
        """Note a batch: its rows, its tasks, and its work without the operators' own."""
        self._seen += 1
        if self._seen == _COLD + 2:
            self.points.clear()
        self.points.append((float(rows), float(tasks), max(0.0, seconds)))

    def fit(self) -> tuple[float, float, float]:
        """F, b and t in seconds; zeros before the first batch."""
        if not self.points:
            return 0.0, 0.0, 0.0
        rows, tasks, rest = (np.array(column) for column in zip(*self.points, strict=True))
        rest = np.maximum(rest - _LEAST_TASK_S * tasks, 0.0)
        weights = _FADES ** np.arange(len(rest) - 1, -1, -1.0)
        size = max(float(np.average(rows, weights=weights)), 1.0)
        columns = np.column_stack([np.ones(len(rest)), rows / size, tasks])
        found = _ridge(columns, rest, weights, size)
        off = np.abs(rest - columns @ found)
        usual = off <= max(3.0 * float(np.median(off)), 0.1 * float(np.median(rest)))
        if usual.sum() >= 5:
            found = _ridge(columns[usual], rest[usual], weights[usual], size)
        return float(found[0]), float(found[1] / size), float(found[2]) + _LEAST_TASK_S


def _ridge(columns: Floats, rest: Floats, weights: Floats, size: float) -> Floats:
    """Least squares with the prior, none below 0: what would be is set to 0, and the rest fitted."""
    scale = max(float(np.average(rest, weights=weights)), 1e-6)
    noise = _NOISE * scale
    expected = np.array([0.0, _USUAL_ROW_S * size, _USUAL_TASK_S - _LEAST_TASK_S])
    doubt = np.array([1e6, _ROW_DOUBT_S * size, _TASK_DOUBT_S])
    free = [0, 1, 2]
    found = np.zeros(3)
    while free:
        part = columns[:, free]
        normal = part.T @ (weights[:, None] * part) / noise**2 + np.diag(1.0 / doubt[free] ** 2)
        right = part.T @ (weights * rest) / noise**2 + expected[free] / doubt[free] ** 2
        found = np.zeros(3)
        found[free] = np.linalg.solve(normal, right)
        if (found >= 0.0).all():
            break
        free.remove(int(np.argmin(found)))
    return found
