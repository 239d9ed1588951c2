"""The pane log and the sliding kernel over it, for all keys at once (thesis 000 section 4.5: pane farming, stage two).

The log is an Arrow table with one row per (key, pane) and batch: `_ps_hash`, the key columns, `_ps_pane`, the partials.
Rows of the same (key, pane) combine. Empty panes are never written, and no step below depends on how many there are.

**The protocol of a batch** with watermark W (from the batches before it) and V the watermark of the batch before: the
batch's pane rows join the log, except those whose windows have all closed (end <= V); *then* windows close,
`close_windows(log, ..., closed_upto=V, watermark=W)`. This is Spark's rule: rows are filtered by V, windows are evicted
by W. A window that closes now holds rows of this very batch, and no row comes later, for W is the next batch's V. A row
late for a closed window cannot reopen it, so pane rows need no mark of being late.

**Which windows exist, and which rows they hold, without a search.** Let the sorted panes of one key be p_1 < p_2 < ...
With r panes per window and dp per slide, pane p lies in windows first(p) .. last(p), where
first(p) = floor((p - r) / dp) + 1 and last(p) = floor(p / dp), both ascending in p. Then p_i is the *first* pane
present in exactly the windows

    max(first(p_i), last(p_(i-1)) + 1) .. last(p_i)          k > last(p_(i-1))  <=>  p_(i-1) lies before window k

and the *last* one in exactly first(p_i) .. min(last(p_i), first(p_(i+1)) - 1). Both families cut the set of non-empty
windows of the key into disjoint runs, in the same ascending order. So repeating each row by the length of its run, once
by each family, yields for every window its first and its last row, in O(panes + windows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.windows.aggregates import ROWS, Measure, Output, State, measures_of, partials_of
from penstock.windows.kernels.ranges import Level, Ranges
from penstock.windows.keys import HASH, key_ranks
from penstock.windows.scans import Longs
from penstock.windows.time import Time

PANE = "_ps_pane"
START, END = "_ps_start", "_ps_end"

_FEW_RUNS = 32
_WORTH_A_PIECE = 4096  # rows of a chunk from which it is looked at alone


# --- the log ---------------------------------------------------------------------------------------------------------


def pane_bounds(panes: pa.Table) -> tuple[int, int] | None:
    """Return the least and the greatest pane of a log, or None if it has no rows.

    >>> pane_bounds(pa.table({"_ps_pane": [4, -2, 9]}))
    (-2, 9)
    """
    if panes.num_rows == 0:
        return None
    bounds = pc.min_max(panes.column(PANE))
    return bounds["min"].as_py(), bounds["max"].as_py()


def needed_from(spec: Time, watermark: int) -> int:
    """Return the least pane that an open window can hold when the watermark stands at `watermark`.

    >>> needed_from(Time("10 us", slide="4 us"), watermark=14)  # window 2, [8, 18), is the first open; panes of 2 us
    4
    """
    return (spec.last_closed(watermark) + 1) * spec.panes_per_slide


def reached_by(spec: Time, watermark: int) -> int:
    """Return the first pane behind the windows that a watermark has closed.

    >>> reached_by(Time("10 us", slide="4 us"), watermark=14)  # window 1, [4, 14), is the last closed; panes of 2 us
    7
    """
    return spec.last_closed(watermark) * spec.panes_per_slide + spec.panes_per_window


def live(panes: pa.Table, spec: Time, watermark: int) -> pa.Table:
    """Return the rows that an open window may still need.

    >>> live(pa.table({"_ps_pane": [3, 4]}), Time("10 us", slide="4 us"), watermark=14).column("_ps_pane").to_pylist()
    [4]
    """
    bounds, least = pane_bounds(panes), needed_from(spec, watermark)
    if bounds is None or bounds[0] >= least:
        return panes
    if bounds[1] < least:  # also where `least` is beyond 64 bits
        return panes.slice(0, 0)
    return panes.filter(pc.greater_equal(panes.column(PANE), least))


def compact(panes: pa.Table, key_columns: Sequence[str], aggregates: Sequence[Output]) -> pa.Table:
    """Return the log with one row per (key, pane), sorted by (unsigned hash, key, pane).

    >>> log = pa.table({"_ps_hash": [5, 5], "key": ["a", "a"], "_ps_pane": [3, 3], "_ps_rows": [2, 1]})
    >>> compact(log, ["key"], []).to_pylist()
    [{'_ps_hash': 5, 'key': 'a', '_ps_pane': 3, '_ps_rows': 3}]
    """
    measures = measures_of(aggregates)
    log = _combine(panes, key_columns, measures)
    heads = log.keys(panes, [HASH, *key_columns], log.rank)
    written: dict[str, pa.Array] = {}
    for measure in measures:
        written |= zip((p.name for p in measure.partials), measure.write(log.states[measure]), strict=True)
    columns = [*heads.columns, pa.array(log.pane), *(written[p.name] for p in partials_of(aggregates))]
    return pa.table(columns, names=[HASH, *key_columns, PANE, *(p.name for p in partials_of(aggregates))])


def lift_panes(rows: pa.Table, aggregates: Sequence[Output], key_columns: Sequence[str], pane: str = PANE) -> pa.Table:
    """Return the pane rows of raw rows that carry their hash and pane: what Spark's groupBy gives, for any aggregate.

    >>> from penstock.windows.aggregates import bind, sum
    >>> rows = pa.table({"_ps_hash": [5, 5, 5], "key": ["a", "a", "a"], "_ps_pane": [3, 4, 3], "x": [1, 2, 4]})
    >>> lift_panes(rows, bind({"s": sum("x")}, {"x": "long"}), ["key"]).to_pylist()
    [{'_ps_hash': 5, 'key': 'a', '_ps_pane': 3, '_ps_rows': 2, '_ps_sum_long_x': 5}, \
{'_ps_hash': 5, 'key': 'a', '_ps_pane': 4, '_ps_rows': 1, '_ps_sum_long_x': 2}]
    """
    runs = _runs(rows, key_columns, pane)
    read = list(dict.fromkeys(column for output in aggregates for column in output.aggregate.columns))
    # a table without columns has no rows: the hash stands for them
    ordered = rows.select(read or [HASH])
    ordered = ordered if runs.order is None else ordered.take(pa.array(runs.order))
    written: dict[str, pa.Array] = {}
    for measure in measures_of(aggregates):
        columns = measure.write(measure.lift_runs(ordered, runs.ranges))
        written |= zip((p.name for p in measure.partials), columns, strict=True)
    heads = rows.select([HASH, *key_columns]).take(pa.array(runs.source)).take(pa.array(runs.rank))
    columns = [*heads.columns, pa.array(runs.pane), *(written[p.name] for p in partials_of(aggregates))]
    return pa.table(columns, names=[HASH, *key_columns, PANE, *(p.name for p in partials_of(aggregates))])


@dataclass(frozen=True)
class _Runs:
    """Rows grouped by (key, pane), in that order: the permutation that sorts them, the runs, and what each run is."""

    order: NDArray[np.intp] | None  # None: sorted already
    ranges: Ranges
    rank: Longs  # of each run
    pane: Longs
    source: NDArray[np.intp]  # for each key a row that has it


def _runs(rows: pa.Table, key_columns: Sequence[str], pane_column: str) -> _Runs:
    rank, pane = key_ranks(rows, key_columns), _numbers(rows, pane_column)
    place = _places(rank, pane)
    order = _order(place)
    if order is not None:
        rank, pane, place = rank[order], pane[order], place[order]
    fresh = np.ones(rows.num_rows, dtype=np.bool_)
    fresh[1:] = place[1:] != place[:-1]
    starts = np.flatnonzero(fresh)
    if len(starts) < rows.num_rows:
        rank, pane = rank[starts], pane[starts]
    heads = np.flatnonzero(np.diff(rank, prepend=-1))  # ranks count up from 0 without holes
    first = starts[heads]
    return _Runs(order, Ranges.runs(rows.num_rows, starts), rank, pane, first if order is None else order[first])


@dataclass(frozen=True)
class _Log:
    """One row per (key, pane), sorted: key ranks, panes, measures; and for each key an input row that has it."""

    rank: Longs
    pane: Longs
    source: NDArray[np.intp]
    states: dict[Measure, State]

    def keys(self, panes: pa.Table, columns: Sequence[str], rank: Longs) -> pa.Table:
        """Return the key columns of each rank, by way of the distinct keys: they are few and stay in the cache."""
        return panes.select(list(columns)).take(pa.array(self.source)).take(pa.array(rank))


def _combine(panes: pa.Table, key_columns: Sequence[str], measures: Sequence[Measure]) -> _Log:
    """Sort the rows by (hash, key, pane) and combine those with the same key and pane."""
    runs = _runs(panes, key_columns, PANE)
    merged = len(runs.ranges) < panes.num_rows
    states = {}
    for measure in measures:
        state = measure.read(panes)
        if runs.order is not None:
            arrays = tuple(array[runs.order] for array in state.arrays)
            state = State(arrays, None if state.valid is None else state.valid[runs.order], state.source)
        states[measure] = measure.over(state, runs.ranges) if merged else state
    return _Log(runs.rank, runs.pane, runs.source, states)


def _places(rank: Longs, pane: Longs) -> Longs:
    """Return one integer per row that orders rows by (rank, pane): one sort instead of two."""
    if not len(rank):
        return rank
    least, greatest = int(pane.min()), int(pane.max())
    span, offset = greatest - least + 1, pane - least
    if (int(rank.max()) + 1) * span >> (63 - len(rank).bit_length()):  # no room: number the panes that are there
        offset = np.unique(pane, return_inverse=True)[1]
        span = int(offset.max()) + 1
    return rank * span + offset


def _order(place: Longs) -> NDArray[np.intp] | None:
    """Return the stable permutation that sorts `place`; None if it is sorted already, as a compacted log is."""
    descents = int(np.count_nonzero(place[1:] < place[:-1]))
    if not descents:
        return None
    greatest = int(place.max())
    if descents >= _FEW_RUNS and not greatest >> 32:
        return _by_halves(place)
    # A log is often a sorted base and a few sorted batches: a merge sort then only merges. Else NumPy's vector sort.
    kind: Literal["stable", "quicksort"] = "stable" if descents < _FEW_RUNS else "quicksort"
    bits = len(place).bit_length()
    if greatest >> (63 - bits):
        return np.argsort(place, kind="stable")
    # Sorting values is several times faster than argsort, so the row number rides in the low bits.
    packed = (place << bits) | np.arange(len(place))
    packed.sort(kind=kind)
    return packed & ((1 << bits) - 1)


def _by_halves(place: Longs) -> NDArray[np.intp]:
    """Return the stable permutation that sorts numbers below 2^32: NumPy sorts 16 bits by radix, in linear time."""
    order = np.argsort(place.astype(np.uint16), kind="stable")
    high = (place >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


# --- the kernel ------------------------------------------------------------------------------------------------------


def close_windows(
    panes: pa.Table,
    key_columns: Sequence[str],
    spec: Time,
    aggregates: Sequence[Output],
    closed_upto: int | None,
    watermark: int,
) -> pa.Table:
    """Return every non-empty window with closed_upto < end <= watermark (`None`: nothing was closed before).

    Columns: the key columns, `_ps_start` and `_ps_end` (microseconds), `_ps_rows`, the outputs. Rows stand in the order
    (unsigned hash of the key, key, start).

    >>> from penstock.windows.aggregates import bind, sum
    >>> spec = Time("10 us", slide="5 us")
    >>> log = pa.table({"_ps_hash": [1, 1], "key": ["a", "a"], "_ps_pane": [0, 1], "_ps_rows": [2, 1],
    ...                 "_ps_sum_long_x": [7, 8]})
    >>> for row in close_windows(log, ["key"], spec, bind({"s": sum("x")}, {"x": "long"}), None, 10).to_pylist():
    ...     print(row)
    {'key': 'a', '_ps_start': -5, '_ps_end': 5, '_ps_rows': 2, 's': 7}
    {'key': 'a', '_ps_start': 0, '_ps_end': 10, '_ps_rows': 3, 's': 15}
    """
    measures = measures_of(aggregates)
    lo, hi = _closing(panes, spec, closed_upto, watermark)
    needed = _rows_of(panes, spec, lo, hi)
    log = _combine(needed, key_columns, measures)
    slide = _slide(log, spec, lo, hi)
    states = {measure: measure.over(log.states[measure], slide.ranges) for measure in measures}
    keys = log.keys(needed, key_columns, log.rank[slide.ranges.lo])
    start = spec.start_of(slide.window)
    columns = [*keys.columns, pa.array(start), pa.array(start + spec.size_us), *measures[0].write(states[measures[0]])]
    for output in aggregates:
        columns.append(output.lower([states[measure] for measure in output.measures]))
    return pa.table(columns, names=[*key_columns, START, END, ROWS.name, *(o.name for o in aggregates)])


def _closing(panes: pa.Table, spec: Time, closed_upto: int | None, watermark: int) -> tuple[int, int]:
    """Return the least and greatest window that may close now, within 64 bits; least > greatest if none."""
    bounds = pane_bounds(panes)
    if bounds is None:
        return 1, 0
    lo, hi = spec.first_window_of_pane(bounds[0]), spec.last_window_of_pane(bounds[1])
    if closed_upto is not None:
        lo = max(lo, spec.last_closed(closed_upto) + 1)
    hi = min(hi, spec.last_closed(watermark))
    return (lo, hi) if lo <= hi else (1, 0)


def _rows_of(panes: pa.Table, spec: Time, lo: int, hi: int) -> pa.Table:
    """Drop the rows outside windows lo .. hi (dead, or only in windows still open) before anything is sorted."""
    if lo > hi:
        return panes.slice(0, 0)
    least, beyond = lo * spec.panes_per_slide, hi * spec.panes_per_slide + spec.panes_per_window
    if panes.num_rows < _WORTH_A_PIECE * panes.column(PANE).num_chunks:
        return _within(panes, least, beyond)
    # Segments of a log are often needed as a whole, or hardly at all: piece by piece, only the latter are copied.
    return pa.concat_tables([_within(pa.table(piece), least, beyond) for piece in panes.to_batches()])


def _within(panes: pa.Table, least: int, beyond: int) -> pa.Table:
    pane, rows = _numbers(panes, PANE), _numbers(panes, ROWS.name)
    keep = (pane >= least) & (pane < beyond) & (rows > 0)
    return panes if keep.all() else panes.filter(pa.array(keep))


@dataclass(frozen=True)
class _Slide:
    """The windows by number, and their rows."""

    window: Longs
    ranges: Ranges


def _slide(log: _Log, spec: Time, lo: int, hi: int) -> _Slide:
    """Find the non-empty windows within lo .. hi of every key (see the head of the module)."""
    first, last = spec.first_window_of_pane(log.pane), spec.last_window_of_pane(log.pane)
    apart = np.flatnonzero(log.rank[1:] != log.rank[:-1])  # row i and row i + 1 belong to different keys
    opens, closes = np.maximum(first, lo), np.minimum(last, hi)
    # windows that begin with this row: after the last window of the row before it
    begin = opens.copy()
    np.maximum(opens[1:], last[:-1] + 1, out=begin[1:])
    begin[apart + 1] = opens[apart + 1]
    # windows that end with this row: before the first window of the row after it
    stop = closes.copy()
    np.minimum(closes[:-1], first[1:] - 1, out=stop[:-1])
    stop[apart] = closes[apart]
    firsts = np.maximum(closes - begin + 1, 0)
    lasts = np.maximum(stop - opens + 1, 0)
    # k counts up from `begin` inside each run: position in the result minus the position where the run starts
    run = np.cumsum(firsts) - firsts
    window = np.arange(int(firsts.sum()), dtype=np.int64) + np.repeat(begin - run, firsts)
    rows = np.arange(len(log.pane))
    first_row, last_row = np.repeat(rows, firsts), np.repeat(rows, lasts)

    def cut() -> tuple[Level, ...]:
        # Blocks of r panes: a window starts in a block and its rows lie there and in the next. Where its last row lies
        # in the next, all of that block up to this row belongs to the window, so it is cut where that block begins.
        block = log.pane // spec.panes_per_window
        fresh = np.ones(len(rows), dtype=np.bool_)
        fresh[1:] = block[1:] != block[:-1]
        fresh[apart + 1] = True
        starts = np.flatnonzero(fresh)
        first_of_block = np.repeat(starts, np.diff(starts, append=len(rows)))
        begins = np.repeat(block * spec.panes_per_window, lasts)
        in_next = begins > window * spec.panes_per_slide
        return (Level(None, np.where(in_next, np.repeat(first_of_block, lasts), last_row + 1), starts),)

    return _Slide(window, Ranges(len(rows), first_row, last_row + 1, cut))


# --- Arrow and NumPy -------------------------------------------------------------------------------------------------


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Return a column without nulls."""
    return np.asarray(table.column(name).to_numpy())
