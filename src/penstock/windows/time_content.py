"""Time windows over raw rows: which ranges of arranged rows close, for whole-content functions and the theses' windows.

Rows stand per key by (event time, ...) in the log of open rows. **The protocol of a batch** with watermark W (from the
batches before) and V that of the batch before is the one of `windows/panes.py`: `admit` sorts the batch's rows out by V
and those it lets in join the log, *then* `advance` over the log: windows with V < end <= W fire, dead rows leave.

**Ranges without a search.** The sorted times of a key play the part of the panes there: with first(t) and last(t) the
least and the greatest window that holds t, row i is the *first* one in exactly the windows

    max(first(t_i), last(t_(i-1)) + 1) .. last(t_i)

and the *last* one in exactly first(t_i) .. min(last(t_i), first(t_(i+1)) - 1).

Repeating each row by the length of its run, once by each family, gives lo and hi of every window in O(rows + windows).
A row in a gap has first = last + 1: its runs are empty, and it cuts no run of its neighbours short.

**origin="first"**: window k >= 0 of a key is [o + k * slide, o + k * slide + size), o its least event time. In a stream
o may still go down while no watermark has passed it (o >= V); once o < V it stands for ever and an earlier row is
late. A row that comes before o stands is late iff even a window that started with it would be over (time + size <= V).
Meta: `origin`, `has_origin`, to be kept as long as the key (the grid would move otherwise).

**empty=True**: the windows without rows between two that have some. One leaves as soon as it is closed and a row of a
later window is known: never before, since it would not be *between* if the key were silent for good.
Meta: `next` (the window to emit next), `has_next`, kept as long as the key.

End of stream and batch DataFrames: watermark END_OF_TIME; all windows with rows fire.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import PenstockError
from penstock.windows.firing import Advance, Fired, Flags, Longs, Meta, Numbers, last_rows, runs, slots_of
from penstock.windows.time import Time

MOST_EMPTY = 50_000_000
"""Empty windows one call may emit. A gap of a year in windows of a millisecond is a mistake, not a result."""


class TooManyEmptyWindows(PenstockError):
    """A gap in a key's event times holds more empty windows than anyone can want."""


def meta_types(spec: Time) -> dict[str, type]:
    """Return the numbers to keep per key, 0 for a new one.

    >>> sorted(meta_types(Time("1 s"))), sorted(meta_types(Time("1 s", origin="first", empty=True)))
    ([], ['has_next', 'has_origin', 'next', 'origin'])
    """
    names = ["origin", "has_origin"] * spec.from_first + ["next", "has_next"] * spec.empty
    return dict.fromkeys(names, np.int64)


@dataclass(frozen=True)
class Admitted:
    """What becomes of a batch's rows: `accept` joins the log, `late` missed a window (a row can be both)."""

    accept: Flags
    late: Flags
    meta: dict[str, Numbers]


def admit(
    spec: Time, slots: Longs, times: Longs, watermark: int | None, meta: Meta, valid: Flags | None = None
) -> Admitted:
    """Sort out fresh rows, in any order, by the watermark of the batch before; where not `valid`, the time is null.

    >>> plain = admit(Time("10 us", slide="4 us"), np.array([0, 0, 0]), np.array([1, 9, 10]), 10, {})
    >>> plain.accept, plain.late
    (array([False,  True,  True]), array([ True,  True, False]))
    >>> keys = {"origin": np.array([8, 0]), "has_origin": np.array([1, 0])}
    >>> first = admit(Time("10 us", origin="first"), np.array([0, 0, 1, 1]), np.array([7, 9, 3, 0]), 10, keys)
    >>> first.late, first.meta["origin"]  # key 0 began at 8; key 1 begins at 3, since a window at 0 would be over
    (array([ True, False, False,  True]), array([8, 3]))
    """
    known = np.ones(len(times), dtype=np.bool_) if valid is None else valid
    times = times if valid is None else np.where(valid, times, 0)
    after: dict[str, Numbers] = dict(meta)
    if not spec.from_first:
        grid = _Grid(spec, np.full(1, spec.origin_us), np.zeros(len(times), dtype=np.int64), times)
        return Admitted(known & grid.has_open(watermark), ~known | grid.has_missed(watermark), after)
    origin, has_origin = (np.array(meta[name], dtype=np.int64) for name in ("origin", "has_origin"))
    fixed, too_old = np.zeros((2, len(times)), dtype=np.bool_)
    if watermark is not None:
        fixed = ((has_origin > 0) & (origin < watermark))[slots]
        too_old = times <= watermark - spec.size_us
    grid, before = _Grid(spec, origin, slots, times), times < origin[slots]
    late = ~known | np.where(fixed, before | grid.has_missed(watermark), too_old)
    accept = known & np.where(fixed, grid.has_open(watermark), ~too_old)
    # the rows that may still move an origin
    moving = accept & ~fixed
    least = np.where(has_origin > 0, origin, np.iinfo(np.int64).max)
    np.minimum.at(least, slots[moving], times[moving])
    has_origin[slots[moving]] = 1
    after["origin"], after["has_origin"] = np.where(has_origin > 0, least, 0), has_origin
    return Admitted(accept, late, after)


def fire_time(
    spec: Time, edges: Longs, times: Longs, closed_upto: int | None, watermark: int, first: Longs | None = None
) -> Fired:
    """Return the windows with rows and closed_upto < end <= watermark, over rows sorted by (key, time).

    `closed_upto` None = none closed yet; `first` holds each key's origin where the spec says origin="first". The times
    are those of the log, the batch's rows among them.

    >>> times = np.array([1, 5, 12, 3])
    >>> fired = fire_time(Time("10 us", slide="4 us"), np.array([0, 3, 4]), times, None, 12)
    >>> fired.slot, fired.start
    (array([0, 0, 0, 1, 1]), array([-8, -4,  0, -4,  0]))
    >>> fired.lo, fired.hi
    (array([0, 0, 0, 3, 3]), array([1, 2, 2, 4, 4]))
    """
    origins = np.full(len(edges) - 1, spec.origin_us) if first is None else np.asarray(first, dtype=np.int64)
    if not len(times):
        return Fired.none()
    slots = slots_of(edges)
    grid = _Grid(spec, origins, slots, times)
    low, high = grid.first, grid.last
    opens, closes = low, np.minimum(high, grid.last_closed(watermark)[slots])
    if closed_upto is not None:
        opens = np.maximum(low, grid.last_closed(closed_upto)[slots] + 1)
    same = slots[1:] == slots[:-1]
    begin = opens.copy()  # windows that begin with this row: after the last window of the row before it
    begin[1:] = np.where(same, np.maximum(opens[1:], high[:-1] + 1), opens[1:])
    stop = closes.copy()  # windows that end with this row: before the first window of the row after it
    stop[:-1] = np.where(same, np.minimum(closes[:-1], low[1:] - 1), closes[:-1])
    row, window = runs(begin, np.maximum(closes - begin + 1, 0))
    ends = np.repeat(np.arange(len(times)), np.maximum(stop - opens + 1, 0))
    slot = slots[row]
    start = origins[slot] + window * spec.slide_us
    return Fired(slot, row, ends + 1, start, start + spec.size_us, window)


def advance(spec: Time, edges: Longs, times: Longs, closed_upto: int | None, watermark: int, meta: Meta) -> Advance:
    """Fire what the watermark closes, empty windows too if asked for; say which rows of the log stay.

    >>> spec = Time("2 us", empty=True)
    >>> new = {"next": np.array([0]), "has_next": np.array([0])}
    >>> step = advance(spec, np.array([0, 3]), np.array([1, 2, 9]), None, 8, new)
    >>> step.fired.start, step.fired.rows, step.keep, step.meta["next"]
    (array([0, 2, 4, 6]), array([1, 1, 0, 0]), array([False, False,  True]), array([4]))
    """
    first = np.asarray(meta["origin"], dtype=np.int64) if spec.from_first else None
    fired = fire_time(spec, edges, times, closed_upto, watermark, first)
    origins = np.full(len(edges) - 1, spec.origin_us) if first is None else first
    grid = _Grid(spec, origins, slots_of(edges), times)
    keep = grid.has_open(watermark)
    if first is not None:  # while an origin may still go down, a row in a gap may yet be in a window
        keep |= (first >= watermark)[grid.slots]
    after: dict[str, Numbers] = dict(meta)
    if spec.empty:
        fired, after["next"], after["has_next"] = _with_empty(grid, edges, fired, watermark, meta)
    return Advance(fired, keep, after)


# --- the grid --------------------------------------------------------------------------------------------------------


class _Grid:
    """The windows of rows whose keys have their own origins: `Time`'s arithmetic, row by row."""

    def __init__(self, spec: Time, origins: Longs, slots: Longs, times: Longs) -> None:
        self.spec, self.origins, self.slots, self.times = spec, origins, slots, times
        since = times - origins[slots]
        self.last = since // spec.slide_us
        self.first = (since - spec.size_us) // spec.slide_us + 1
        if spec.from_first:
            np.maximum(self.first, 0, out=self.first)  # there is none before the origin
        # no window with rows ends later, so a watermark beyond says no more; and it stays within 64 bits
        self._latest = int(times.max(initial=0)) + spec.size_us

    def last_closed(self, watermark: int) -> Longs:
        """Return, per key, the greatest window with end <= watermark (exact up to the last one with rows)."""
        capped = min(watermark, self._latest)
        return (capped - self.spec.size_us - self.origins) // self.spec.slide_us

    def has_open(self, watermark: int | None) -> Flags:
        inside = self.first <= self.last
        return inside if watermark is None else inside & (self.last > self.last_closed(watermark)[self.slots])

    def has_missed(self, watermark: int | None) -> Flags:
        if watermark is None:
            return np.zeros(len(self.times), dtype=np.bool_)
        return (self.first <= self.last) & (self.first <= self.last_closed(watermark)[self.slots])


def _with_empty(grid: _Grid, edges: Longs, fired: Fired, watermark: int, meta: Meta) -> tuple[Fired, Longs, Longs]:
    """Return the windows with the empty ones among them, and `next` and `has_next` after."""
    spec, keys = grid.spec, len(edges) - 1
    following, started = (np.array(meta[name], dtype=np.int64) for name in ("next", "has_next"))
    # from: what was to come next, or the first window ever; upto: the last closed, but not after the last with rows
    heads = np.flatnonzero(np.append(True, fired.slot[1:] != fired.slot[:-1])[: len(fired)])
    begins = heads[started[fired.slot[heads]] == 0]
    following[fired.slot[begins]] = fired.number[begins]
    started[fired.slot[begins]] = 1
    inside = grid.first <= grid.last
    some, last = last_rows(np.concatenate([[0], np.cumsum(np.bincount(grid.slots[inside], minlength=keys))]))
    upto = following - 1
    upto[some] = np.minimum(grid.last[inside][last], grid.last_closed(watermark)[some])
    count = np.where(started > 0, np.maximum(upto - following + 1, 0), 0)
    if int(count.sum()) > MOST_EMPTY + len(fired):
        raise TooManyEmptyWindows(
            f"{spec.describe()}: a gap in the event times holds {int(count.sum()) - len(fired)} empty windows; "
            "leave empty=True out, or make the slide longer"
        )
    slot, number = runs(following, count)
    at = (np.cumsum(count) - count - following)[fired.slot] + fired.number  # where the ones with rows go
    hi = np.zeros(len(slot), dtype=np.int64)
    hi[at] = fired.hi
    hi = np.maximum(np.maximum.accumulate(hi), edges[slot])  # an empty one stands after the rows of the one before
    lo = hi.copy()
    lo[at] = fired.lo
    start = grid.origins[slot] + number * spec.slide_us
    return Fired(slot, lo, hi, start, start + spec.size_us, number), following + count, started
