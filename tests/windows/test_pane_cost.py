"""What panes cost, counted in elements that the user's functions see: by tuples and results, not by keys x panes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.windows.aggregates import Aggregate, Output, bind
from penstock.windows.keys import HASH
from penstock.windows.panes import PANE, close_windows, lift_panes
from penstock.windows.time import END_OF_TIME, Time
from tests.windows.window_cases import hash_of, us


class Counted:
    """A product modulo a prime that counts the elements it lifts and combines."""

    def __init__(self) -> None:
        self.lifted = self.combined = 0

    def lift(self, columns: Any) -> Any:
        self.lifted += len(columns["x"])
        return columns["x"] % 1009 + 1

    def combine(self, older: Any, newer: Any) -> Any:
        self.combined += len(older[0])
        return older[0] * newer[0] % 1_000_003

    def outputs(self) -> tuple[Output, ...]:
        own = Aggregate(self.lift, self.combine, lambda s: s[0], columns="x", result=pa.int64(), name="product")
        return bind({"p": own}, {"x": "long"})


def rows_of(keys: np.ndarray, times: np.ndarray, spec: Time) -> pa.Table:
    names = [f"k{key}" for key in keys.tolist()]
    return pa.table({
        HASH: pa.array([hash_of(name, False) for name in names], pa.int64()), "key": names,
        PANE: spec.pane_of(times), "x": np.arange(len(times)),
    })  # fmt: skip


@pytest.mark.parametrize("slide", [500, 100, 10, 7, 3])
def test_a_tuple_is_lifted_once_and_panes_are_combined_a_few_times_each(slide: int) -> None:
    spec, counted, random = Time(us(1000), us(slide)), Counted(), np.random.default_rng(slide)
    outputs = counted.outputs()
    counted.lifted = counted.combined = 0  # bind() looks at what they give for no rows
    rows = rows_of(random.integers(0, 5, 4000), np.sort(random.integers(0, 20_000, 4000)), spec)
    panes = lift_panes(rows, outputs, ["key"])
    windows = close_windows(panes, ["key"], spec, outputs, None, END_OF_TIME)
    assert counted.lifted == 4000
    assert panes.num_rows == len({(row["key"], row[PANE]) for row in rows.to_pylist()})
    # tuples into panes, a forward and a backward scan over panes, one combination per window; recomputing it would
    # take 250 tuples per window
    assert counted.combined <= 4000 + 2 * panes.num_rows + windows.num_rows


def test_sparse_keys_cost_what_they_bring() -> None:
    """3000 keys with two tuples each, in 600 slides of time: 6000 panes are touched, not 3000 x 1200."""
    spec, counted, random = Time(us(25), us(10)), Counted(), np.random.default_rng(1)
    outputs = counted.outputs()
    counted.lifted = counted.combined = 0
    rows = rows_of(np.repeat(np.arange(3000), 2), random.integers(0, 6000, 6000), spec)
    panes = lift_panes(rows, outputs, ["key"])
    windows = close_windows(panes, ["key"], spec, outputs, None, END_OF_TIME)
    assert counted.lifted == 6000 >= panes.num_rows
    assert windows.num_rows <= 6000 * 3  # a tuple is in two or three windows
    assert counted.combined <= 6000 + 2 * panes.num_rows + windows.num_rows
