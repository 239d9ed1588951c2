"""Ten million slides: sums of doubles stay within 1e-9 of sum |x| of their window, whatever passed through before."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates import aggregate_ranges, bind
from penstock.windows.aggregates import sum as total

SLIDES, SIZE, BATCH = 10_000_000, 1000, 500_000


def test_ten_million_slides() -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=SLIDES + SIZE - 1)
    x[::100_003] *= 1e15  # now and then a value beside which all others vanish: a difference of sums would lose them
    outputs, lo = bind({"s": total("x")}, {"x": "double"}), np.arange(BATCH)
    pieces = []
    for first in range(0, SLIDES, BATCH):  # as a stream would: the rows of open windows are carried over
        rows = pa.table({"x": x[first : first + BATCH + SIZE - 1]})
        [sums] = aggregate_ranges(rows, outputs, lo, lo + SIZE, np.arange(first, first + rows.num_rows))
        pieces.append(sums.to_numpy())
    got = np.concatenate(pieces)
    assert len(got) == SLIDES
    for i in [0, 1, SLIDES - 1, *rng.integers(0, SLIDES, 500).tolist(), *range(99_990, 100_020)]:
        window = x[i : i + SIZE]
        assert abs(got[i] - math.fsum(window)) <= 1e-9 * math.fsum(np.abs(window)), i
    # what subtract-on-evict would give: the large values leave their rounding errors behind for good
    upto = np.cumsum(x)
    i = SLIDES - 50_000  # a window with small values only
    drifted = upto[i + SIZE - 1] - upto[i - 1]
    assert abs(drifted - got[i]) > 1e-9 * math.fsum(np.abs(x[i : i + SIZE]))
