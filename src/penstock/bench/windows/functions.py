"""The window functions that the benchmark runs, and the same in Spark's own terms; importable, so workers get them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

Floats = npt.NDArray[np.float64]

RESULT = "total double, top double"
PROCESSOR_RESULT = "k bigint, start_ms bigint, total double, top double"
BUFFER = "times binary, values binary, done bigint"
NEVER = -(2**62)


def sum_and_top(window: Any) -> dict[str, float]:
    """Sum and maximum of a window in plain Python over NumPy: what a user's function looks like to the engine."""
    values = window["v"]
    return {"total": float(values.sum()), "top": float(values.max())}


class WindowedSum(StatefulProcessor):
    """Time windows under transformWithStateInPandas: rows of a key are kept until no open window needs them.

    Written to be quick: a key's rows are two NumPy buffers in one value state, and windows are closed when the key gets
    rows, without timers (the benchmark's last batch has a row of every key).
    """

    def __init__(self, size_ms: int, slide_ms: int) -> None:
        self.size, self.slide = size_ms, slide_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask for the state."""
        self._buffer = handle.getValueState("buffer", BUFFER)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Add a key's rows, emit the windows that the watermark has passed."""
        known = self._buffer.get()
        parts = [(np.frombuffer(known[0], np.int64), np.frombuffer(known[1], np.float64))] if known is not None else []
        done = int(known[2]) if known is not None else NEVER
        for frame in rows:
            parts.append((frame["t_ms"].to_numpy(), frame["v"].to_numpy()))
        times, values = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
        watermark = int(timerValues.getCurrentWatermarkInMs())
        found, times, values = closed_windows(times, values, self.size, self.slide, done, watermark)
        self._buffer.update((times.tobytes(), values.tobytes(), max(done, watermark)))
        if found:
            starts, totals, tops = zip(*found, strict=True)
            yield pd.DataFrame({"k": [key[0]] * len(found), "start_ms": starts, "total": totals, "top": tops})

    def close(self) -> None:
        """Nothing to close."""


def closed_windows(
    times: npt.NDArray[np.int64], values: Floats, size: int, slide: int, done: int, watermark: int
) -> tuple[list[tuple[int, float, float]], npt.NDArray[np.int64], Floats]:
    """Windows that end after `done` and by `watermark` over sorted rows, and the rows that open windows need.

    >>> closed_windows(np.array([1, 12]), np.array([5.0, 7.0]), size=10, slide=5, done=0, watermark=16)
    ([(-5, 5.0, 5.0), (0, 5.0, 5.0), (5, 7.0, 7.0)], array([12]), array([7.]))
    """
    found = []
    if len(times):
        first = max((int(times[0]) - size) // slide + 1, (done - size) // slide + 1)
        last = min(int(times[-1]) // slide, (watermark - size) // slide)
        for number in range(first, last + 1):
            lo, hi = np.searchsorted(times, (number * slide, number * slide + size))
            if hi > lo:
                found.append((number * slide, float(values[lo:hi].sum()), float(values[lo:hi].max())))
    needed = np.searchsorted(times, ((watermark - size) // slide + 1) * slide)
    return found, times[needed:], values[needed:]


# -- thesis 000's reference aggregate: F = H(G(pane 1), ..., G(pane r)), costly per tuple ----------------------------

PANE, PANE_S = 200, 1.5e-3  # tuples of a pane, and what G costs for them in the thesis
POINTS = 640  # for which arctan takes about as long where one takes 11 ns
PIECE = 40  # tuples whose points fit a cache: a tuple costs the same in a pane of 200 as in a window of 1000
STATISTIC = "statistic double"


def statistic(values: Floats, points: int = POINTS) -> float:
    """A sum over tuples of something dear, so that computing a tuple in five windows shows.

    >>> one = statistic(np.array([3.0]))
    >>> round(statistic(np.array([3.0] * 100)) / one, 6)
    100.0
    """
    added = np.arange(float(points))
    pieces = (values[lo : lo + PIECE, None] for lo in range(0, len(values), PIECE))
    return sum(float(np.arctan(piece + added).sum()) for piece in pieces)


def points_here(tries: int = 15) -> int:
    """With how many points G costs on this machine what it costs in the thesis; the median of some tries.

    >>> points_here(tries=3) > 0
    True
    """
    values = np.arange(float(PANE))
    spent = []
    for _ in range(tries):
        before = time.perf_counter()
        statistic(values)
        spent.append(time.perf_counter() - before)
    return max(1, round(POINTS * PANE_S / statistics.median(spent)))


def whole(window: Any, points: int = POINTS) -> dict[str, float]:
    """F over the whole content."""
    return {"statistic": statistic(window["v"], points)}


def part(pane: Any, points: int = POINTS) -> dict[str, float]:
    """G over one pane."""
    return {"statistic": statistic(pane["v"], points)}


def together(results: list[dict[str, float]], window: Any) -> dict[str, float]:
    """H over the results of a window's panes."""
    return {"statistic": sum(result["statistic"] for result in results)}
