"""What the tests of content windows share: a small host that carries state from batch to batch, and random streams."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.windows import time_content
from penstock.windows.count import Count
from penstock.windows.delta import Delta, attribute
from penstock.windows.firing import Fired
from penstock.windows.kinds import WindowSpec, advance, is_ordered, new_meta
from penstock.windows.oracle_kinds import (
    CountOracle,
    DeltaOracle,
    EveryOracle,
    OrderedOracle,
    Row,
    Watermark,
    Window,
)
from penstock.windows.oracle_time import TimeOracle
from penstock.windows.order import arrange, edges_of, watermark_split
from penstock.windows.time import END_OF_TIME, Time

SCHEMA = pa.schema([("key", pa.string()), ("time", pa.int64()), ("x", pa.int64()), ("d", pa.float64())])
Batch = tuple[list[Row], int | None]


def us(n: int) -> str:
    return f"{n} us"


def oracle_of(spec: WindowSpec, by_time: bool = True, order: Sequence[str] = ()) -> OrderedOracle | TimeOracle:
    if isinstance(spec, Time) and not is_ordered(spec):
        return TimeOracle(spec)
    kind = CountOracle if isinstance(spec, Count) else DeltaOracle if isinstance(spec, Delta) else EveryOracle
    return kind(spec, by_time, order)


def seen(windows: Sequence[Window]) -> dict[str, list[Any]]:
    """The windows of each key in the order in which they fired, comparable: NaN equals NaN, -0.0 is not 0.0."""
    out: dict[str, list[Any]] = {}
    for w in windows:
        out.setdefault(repr(w.key), []).append((w.number, w.start, w.end, [repr(dict(r)) for r in w.rows]))
    return out


class _Host:
    """Keys get slots as they come; the meta of all of them is one array per name."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.late: list[Row] = []
        self.watermark = Watermark(spec.lateness_us)
        self.keys: dict[Any, int] = {}
        self.floating = isinstance(spec, Delta) and spec.column == "d"
        self.meta = new_meta(spec, 0, self.floating)

    def slots(self, rows: Sequence[Row]) -> Any:
        slots = [self.keys.setdefault(row["key"], len(self.keys)) for row in rows]
        more = new_meta(self.spec, len(self.keys) - len(next(iter(self.meta.values()), [])), self.floating)
        self.meta = {name: np.concatenate([old, more[name]]) for name, old in self.meta.items()}
        return np.array(slots, dtype=np.int64)

    def watermark_of(self, rows: Sequence[Row], tick: int | None) -> int | None:
        value = self.watermark.next_batch(tick)
        for row in rows:
            if row["time"] is not None:
                self.watermark.saw(row["time"])
        return value

    def windows(self, arranged: Sequence[Row], fired: Fired) -> list[Window]:
        names = list(self.keys)
        order = list(zip(fired.slot, fired.number, strict=True))
        assert order == sorted(set(order))
        assert len(fired) == len(fired.rows) == len(fired.start)
        return [
            Window(names[slot], int(number), int(start), int(end), tuple(arranged[lo:hi]))
            for slot, lo, hi, start, end, number in zip(
                fired.slot, fired.lo, fired.hi, fired.start, fired.end, fired.number, strict=True
            )
        ]


class OrderedHost(_Host):
    """Runs Count, Delta or slide-by-tuple over batches with `advance`, as an engine does."""

    def __init__(self, spec: WindowSpec, by_time: bool = True, order: Sequence[str] = ()) -> None:
        super().__init__(spec)
        self.by_time, self.order = by_time, order
        self.waiting: list[Row] = []
        self.kept: list[Row] = []

    def batch(self, rows: list[Row], tick: int | None = None) -> list[Window]:
        if not self.by_time:
            return self._advance(rows)
        before, watermark = self.watermark.value, self.watermark_of(rows, tick)
        both = self.waiting + rows
        fresh = np.arange(len(both)) >= len(self.waiting)
        times = np.array([0 if row["time"] is None else row["time"] for row in both], dtype=np.int64)
        valid = np.array([row["time"] is not None for row in both], dtype=bool)
        split = watermark_split(times, before, watermark, fresh, valid)
        assert (split.released.astype(int) + split.waiting + split.late == 1).all()
        self.late += [both[i] for i in np.flatnonzero(split.late)]
        self.waiting = [both[i] for i in np.flatnonzero(split.waiting)]
        return self._advance([both[i] for i in np.flatnonzero(split.released)])

    def flush(self) -> list[Window]:
        rows, self.waiting = self.waiting, []
        return self._advance(rows)

    def _advance(self, rows: list[Row]) -> list[Window]:
        slots = self.slots(rows)
        by = arrange(pa.Table.from_pylist(rows, SCHEMA), slots, ["time", *self.order] if self.by_time else [])
        old = self.slots(self.kept)
        both = self.kept + [rows[i] for i in by]
        both_slots = np.concatenate([old, slots[by]])
        stable = np.argsort(both_slots, kind="stable")
        arranged = [both[i] for i in stable]
        edges, known = edges_of(both_slots, len(self.keys)), np.bincount(old, minlength=len(self.keys))
        table, values = pa.Table.from_pylist(arranged, SCHEMA), None
        if isinstance(self.spec, Delta):
            values = attribute(table.column(self.spec.column), self.spec.column)
        elif isinstance(self.spec, Time):
            values = table.column("time").to_numpy()
        before = {name: array.copy() for name, array in self.meta.items()}
        step = advance(self.spec, edges, known, values, self.meta)
        assert all((before[name] == array).all() for name, array in self.meta.items())  # not written into
        assert {name: a.dtype for name, a in step.meta.items()} == {name: a.dtype for name, a in before.items()}
        self.meta = step.meta
        self.kept = [row for row, keep in zip(arranged, step.keep, strict=True) if keep]
        return self.windows(arranged, step.fired)


class TimeHost(_Host):
    """Runs Time windows over content with `time_content`, as an engine does."""

    spec: Time

    def __init__(self, spec: Time) -> None:
        super().__init__(spec)
        self.log: list[Row] = []
        self.closed: int | None = None

    def batch(self, rows: list[Row], tick: int | None = None) -> list[Window]:
        watermark = self.watermark_of(rows, tick)
        slots = self.slots(rows)
        times = np.array([-999 if row["time"] is None else row["time"] for row in rows], dtype=np.int64)
        valid = np.array([row["time"] is not None for row in rows], dtype=bool)
        admitted = time_content.admit(self.spec, slots, times, self.closed, self.meta, valid)
        self.meta = admitted.meta
        self.late += [rows[i] for i in np.flatnonzero(admitted.late)]
        self.log += [rows[i] for i in np.flatnonzero(admitted.accept)]
        return [] if watermark is None else self._close(watermark)

    def flush(self) -> list[Window]:
        fired = self._close(END_OF_TIME)
        assert not self.log
        return fired

    def _close(self, watermark: int) -> list[Window]:
        slots = self.slots(self.log)
        by = arrange(pa.Table.from_pylist(self.log, SCHEMA), slots, ["time"])
        arranged = [self.log[i] for i in by]
        times = np.array([row["time"] for row in arranged], dtype=np.int64)
        edges = edges_of(slots, len(self.keys))
        step = time_content.advance(self.spec, edges, times, self.closed, watermark, self.meta)
        self.log = [row for row, keep in zip(arranged, step.keep, strict=True) if keep]
        self.meta, self.closed = step.meta, watermark
        fired = step.fired
        for some in (fired.lo, fired.hi):  # range kernels may count on it
            assert (np.diff(some)[fired.slot[1:] == fired.slot[:-1]] >= 0).all()
        assert ((fired.lo >= edges[fired.slot]) & (fired.hi <= edges[fired.slot + 1]) & (fired.lo <= fired.hi)).all()
        return self.windows(arranged, fired)


# --- random streams --------------------------------------------------------------------------------------------------


@st.composite
def rows_in_order(draw: st.DrawFn, most: int = 250) -> list[Row]:
    """Up to 200 keys, from even to one hot key; times with ties, `x` and `d` never decreasing within a key."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keys, count = draw(st.sampled_from([1, 1, 2, 5, 20, 200])), draw(st.integers(0, most))
    weight = (1.0 + np.arange(keys)) ** -draw(st.sampled_from([0.0, 1.0, 3.0]))
    chosen = rng.choice(keys, count, p=weight / weight.sum())
    step = draw(st.sampled_from([0, 1, 3, 20]))
    times = draw(st.integers(-100, 100)) + np.cumsum(rng.integers(0, step + 1, count))
    jump = draw(st.sampled_from([1, 4, 60]))
    value = dict.fromkeys(range(keys), draw(st.sampled_from([-20, 0, 7])))
    rows = []
    for key, time in zip(chosen, times, strict=True):
        value[key] += int(rng.integers(0, jump + 1)) * int(rng.integers(0, 2))
        rows.append(
            {
                "key": None if key == 1 else f"k{key}",
                "time": int(time),
                "x": value[key],
                "d": value[key] / 8 + (0.0 if key % 2 else 0.1 * value[key]),
            }
        )
    return rows


@st.composite
def cut(draw: st.DrawFn, rows: list[Row]) -> list[list[Row]]:
    """The same rows in the same order, in up to eight batches, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=7)))
    return [rows[a:b] for a, b in itertools.pairwise([0, *places, len(rows)])]


@st.composite
def feeds(draw: st.DrawFn, nulls: bool = True) -> list[Batch]:
    """Batches with disorder, ties, null times, late rows and ticks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keys = draw(st.sampled_from([1, 2, 5, 40]))
    base, spread = draw(st.integers(-60, 60)), draw(st.sampled_from([0, 5, 40]))
    out: list[Batch] = []
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(0, 25))
        times = base + rng.integers(-spread, spread + 1, count)
        rows: list[Row] = [
            {
                "key": None if key == 1 else f"k{key}",
                "time": None if nulls and rng.random() < 0.03 else int(time),
                "x": None if rng.random() < 0.1 else int(rng.integers(0, 3)),
                "d": [None, float("nan"), -0.0, 0.0, 1.5, float("-inf")][rng.integers(0, 6)],
            }
            for key, time in zip((keys * rng.random(count) ** 2).astype(int), times, strict=True)
        ]
        out.append((rows, draw(st.one_of(st.none(), st.integers(base - 50, base + 80)))))
        base += draw(st.sampled_from([-20, 0, 3, 30, 150]))
    return out
