"""Delta windows: a numeric attribute that never decreases moves the windows, not time and not the number of tuples.

Per key (002 section 2.2.3.3 and the digest's section 4.4). The first tuple becomes the marker M and fires nothing. Then

    t fires           iff  a(t) >= a(M) + slide                       reached is enough: both worked examples fire there
    sliding content   =    tuples before t with a(x) >= a(t) - size    filtered first, evicted after; 002 also clips the
                                                                       lower end at 0, which only suits attributes >= 0
    tumbling content  =    tuples before t since the marker, which is in it ("the buffer is flushed")
    and t becomes the marker; it is in no window that it fires.

    a            0.1  1.0  2.1  2.5  3.0  4.2       size 5, slide 2
    fires                   x              x
    sliding     [ 1    2 ]
                [ 1    2    3    4    5 ]
    tumbling    [ 1    2 ][ 3    4    5 ]           size 2

Tumbling (`slide` left out) is not sliding with slide = size: after a jump of more than `size`, the tuples since the
marker would be in no window, and the thesis' tumbling windows lose none. A sliding window after such a jump is empty
and still fires: its range of positions is empty (end = start - 1).

End of stream: only a tuple fires, so the tuples since the last marker are not emitted as a window of their own.

**Finding the triggers without a loop.** Each trigger depends on the one before. Let next(j) be the first row after j in
its key with a >= a(j) + slide. The triggers of a key are next(M), next(next(M)), ...: with pointer doubling, the jump
tables next^1, next^2, next^4, ... reach all of them in log2(longest chain) passes, for all keys at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.durations import Duration, microseconds
from penstock.errors import FlowError, PenstockError
from penstock.windows.arguments import described, distance
from penstock.windows.firing import (
    Advance,
    Fired,
    Longs,
    Meta,
    Numbers,
    first_at_least,
    rows_of,
    slots_of,
)
from penstock.windows.taxonomy import Context

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class DisorderedAttribute(PenstockError, ValueError):
    """An attribute decreased, or is null or NaN. `row` is the arranged row, so that the host can name it in its words.

    >>> error = DisorderedAttribute("km", 7, "is 3, after 5")
    >>> error.row, str(error)
    (7, "Delta on 'km': the value of row 7 is 3, after 5; it must be a number that never decreases within a key")
    """

    def __init__(self, column: str, row: int, problem: str) -> None:
        rule = "it must be a number that never decreases within a key"
        super().__init__(f"Delta on {column!r}: the value of row {row} {problem}; {rule}")
        self.column, self.row, self.problem = column, row, problem


@dataclass(frozen=True, init=False)
class Delta:
    """Windows that move with a column: one fires each time it has advanced by `slide`, and reaches back `size`.

    `slide` left out = tumbling: one fires when the column has advanced by `size`, and holds all tuples since the last.
    `lateness` matters only where rows are ordered by event time: how long a row waits for earlier ones.

    >>> Delta("km", 5, slide=2).describe(), Delta("km", 2.0) == Delta("km", 2)
    ('Delta(km, 5, slide 2)', True)
    >>> Delta("km", float("nan"))
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: Delta: size must be more than 0 and less than 2**62, got nan. Remedy: pass an integer \
or a float more than 0, in the unit of the column.
    """

    column: str
    size: int | float
    slide: int | float
    tumbling: bool
    lateness_us: int

    def __init__(
        self, column: str, size: int | float, slide: int | float | None = None, lateness: Duration = "0 s"
    ) -> None:
        """Read the column and the distances."""
        if not isinstance(column, str) or not column:
            raise FlowError("Delta", f"column must be the name of a column, got {column!r}", 'write Delta("km", 5)')
        size = distance(size, "size", "Delta")
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "slide", size if slide is None else distance(slide, "slide", "Delta"))
        object.__setattr__(self, "tumbling", slide is None)
        object.__setattr__(self, "lateness_us", microseconds(lateness, name="lateness", zero=True, where="Delta"))

    @property
    def context(self) -> Context:
        """Return FCB: a later tuple decides whether a tuple is in the window that it fires (002 section 2.2.3.3).

        The thesis says FCA only. Bounded, for the candidates are the next windows, at most floor(size / slide) + 1:
        their triggers lie at least `slide` apart and no further than `size` after the tuple.

        >>> Delta("km", 5, slide=2).context.words
        'forward context, bounded'
        """
        return Context.FCB

    def describe(self) -> str:
        """Return the spec on one line, as the user would write it.

        >>> Delta("km", 0.5, lateness="1 s").describe()
        'Delta(km, 0.5, lateness 1 s)'
        """
        slide = "" if self.tumbling else f"slide {self.slide}"
        return described("Delta", self.column, str(self.size), slide, lateness_us=self.lateness_us)


def meta_types(floating: bool) -> dict[str, type]:
    """Return the numbers to keep per key, 0 for a new one: tuples and windows so far, marker, last attribute.

    The last two are in the kind of the column: an integer beyond 2**53 would not survive as a float.

    >>> sorted(meta_types(floating=True))
    ['count', 'fired', 'last', 'marker']
    """
    value = np.float64 if floating else np.int64
    return {"count": np.int64, "fired": np.int64, "marker": value, "last": value}


def attribute(column: pa.ChunkedArray, name: str) -> Numbers:
    """Return the attribute of arranged rows as 64-bit integers or floats; a null is an error that names its row.

    >>> attribute(pa.chunked_array([[1, 2]]), "km"), attribute(pa.chunked_array([[0.5]], pa.float32()), "km")
    (array([1, 2]), array([0.5]))
    """
    integer = pa.types.is_integer(column.type) and column.type != pa.uint64()
    if not integer and not pa.types.is_floating(column.type):
        rule = f"the attribute {name!r} must be an integer or floating column, it is {column.type}"
        raise FlowError("Delta", rule, "cast it to bigint or double before")
    if column.null_count:
        raise DisorderedAttribute(name, int(np.argmax(pc.is_null(column).to_numpy())), "is null")
    return np.asarray(column.to_numpy(), dtype=np.int64 if integer else np.float64)


def advance(spec: Delta, edges: Longs, known: Longs, values: Numbers | None, meta: Meta) -> Advance:
    """Fire the windows that the fresh rows complete; `values` is the attribute; see `windows/firing.py`.

    >>> new = {name: np.zeros(1, kind) for name, kind in meta_types(floating=True).items()}
    >>> km = np.array([0.1, 1.0, 2.1, 2.5, 3.0, 4.2])
    >>> step = advance(Delta("km", 5, slide=2), np.array([0, 6]), np.array([0]), km, new)
    >>> step.fired.lo, step.fired.hi, step.meta["marker"]
    (array([0, 0]), array([2, 5]), array([4.2]))
    """
    assert values is not None
    seen = np.asarray(meta["count"], dtype=np.int64)
    fresh_count = rows_of(edges) - known
    slot_of_row = slots_of(edges)
    fresh = np.flatnonzero(np.arange(len(values)) >= (edges[:-1] + known)[slot_of_row])
    news = values[fresh]
    bounds = np.concatenate([[0], np.cumsum(fresh_count)])  # the keys' edges among the fresh rows
    _check_order(spec.column, fresh, news, bounds, seen, meta["last"])

    some = np.flatnonzero(fresh_count)
    marker = np.array(meta["marker"])
    begins = some[seen[some] == 0]
    marker[begins] = news[bounds[begins]]  # the first tuple of a key: it becomes the marker and fires nothing
    trigger = fresh[_triggers(spec, news, bounds, some, marker, seen)]

    slot = slot_of_row[trigger]
    count = np.bincount(slot, minlength=len(seen))
    nth = np.arange(len(slot)) - np.repeat(np.cumsum(count) - count, count)  # of this batch and key
    if spec.tumbling:  # the kept rows begin with the marker
        lo = edges[slot].copy()
        lo[1:] = np.where(nth[1:] > 0, trigger[:-1], lo[1:])
    else:
        lo = first_at_least(values, edges[slot], trigger, _minus(values[trigger], spec.size))
    before_key = (seen - known - edges[:-1])[slot]  # row + this = tuples of the key that came before the row
    number = np.asarray(meta["fired"], dtype=np.int64)[slot] + nth
    fired = Fired(slot, lo, trigger, lo + before_key + 1, trigger + before_key, number)

    last_of_slot = np.append(slot[1:] != slot[:-1], True)[: len(slot)]
    marker[slot[last_of_slot]] = values[trigger[last_of_slot]]
    last = np.array(meta["last"])
    last[some] = news[bounds[some + 1] - 1]
    if spec.tumbling:
        since = edges[:-1].copy()
        since[slot[last_of_slot]] = trigger[last_of_slot]
        keep = np.arange(len(values)) >= since[slot_of_row]
    else:  # the next trigger is neither below the last tuple nor below marker + slide
        keep = values >= _minus(np.maximum(last, _plus(marker, spec.slide)), spec.size)[slot_of_row]
    after: dict[str, Numbers] = {
        "count": seen + fresh_count,
        "fired": np.asarray(meta["fired"], dtype=np.int64) + count,
        "marker": marker,
        "last": last,
    }
    return Advance(fired, keep, after)


def _triggers(
    spec: Delta, news: Numbers, bounds: Longs, some: Longs, marker: Numbers, seen: Longs
) -> NDArray[np.int64]:
    """Return the fresh rows that fire, ascending (numbers among the fresh rows)."""
    sink = len(news)

    def following(lo: Longs, hi: Longs, value: Numbers) -> Longs:
        row = first_at_least(news, lo, hi, _plus(value, spec.slide))
        # where an integer plus slide leaves 64 bits, no value can reach it
        return np.where((row == hi) | _beyond(value, spec.slide), sink, row)

    reached = following(bounds[some] + (seen[some] == 0), bounds[some + 1], marker[some])
    reached = reached[reached < sink]
    ends = np.repeat(bounds[1:], np.diff(bounds))
    jump = np.append(following(np.arange(1, sink + 1), ends, news), sink)
    while True:  # reached = the first 2^i triggers of every key, jump = next^(2^i)
        more = jump[reached]
        more = more[more < sink]
        if not len(more):
            return np.sort(reached)
        reached = np.concatenate([reached, more])
        jump = jump[jump]


def _check_order(column: str, fresh: Longs, news: Numbers, bounds: Longs, seen: Longs, last: Numbers) -> None:
    """Refuse the first fresh row whose attribute is NaN or less than the one before it in its key."""
    before = np.empty_like(news)
    before[1:] = news[:-1]
    some = np.flatnonzero(np.diff(bounds))
    first = bounds[some]
    before[first] = np.where(seen[some] > 0, last[some], news[first])
    bad = ~(news >= before)  # NaN compares False
    if bad.any():
        at = int(np.argmax(bad))
        value, earlier = news[at].item(), before[at].item()
        raise DisorderedAttribute(
            column, int(fresh[at]), "is NaN" if math.isnan(value) else f"is {value}, after {earlier}"
        )


def _plus(values: Numbers, slide: int | float) -> Numbers:
    """Return values + slide as compared with >=: whole for integers; at the end of 64 bits it stops (`_beyond`)."""
    if values.dtype == np.float64:
        return np.asarray(values + float(slide), dtype=np.float64)
    step = math.ceil(slide)
    return np.minimum(values, _MOST - step) + step


def _beyond(values: Numbers, slide: int | float) -> Any:
    return False if values.dtype == np.float64 else values > _MOST - math.ceil(slide)


def _minus(values: Numbers, size: int | float) -> Numbers:
    """Return values - size as compared with >=: whole for integers; below 64 bits it stops, where all values are."""
    if values.dtype == np.float64:
        return np.asarray(values - float(size), dtype=np.float64)
    step = math.floor(size)
    return np.maximum(values, _LEAST + step) - step
