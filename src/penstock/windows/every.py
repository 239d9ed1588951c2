"""Slide-by-tuple windows, `Time(size, every=n)`: every n-th tuple of a key fires, what it holds is a range of time.

The trigger counts and the eviction keeps time (002 section 2.2.3.4, expressions 10-14, with the digest's corrections:
the top end is closed and is the triggering tuple itself, so equal times are exact):

    W_i  =  { x : number(x) <= i * n  and  time(x) >= time(t_(i*n)) - size }            i = 1, 2, ...

    size 5 us, every 3      tuple   1 2 3   4 5      6 7 8  9
                            time    0 1 1   2 2      7 7 7  8
                                    [   W1]
                                            [       W2]          2 >= 7 - 5
                                                     [     W3]   3 <= time <= 8

A tuple may be in no window: the ones between two triggers that lie more than `size` before the second. Published as
start = time(t) - size and end = time(t) + 1 us, exclusive as for all Time windows, so `end` - 1 us is the trigger's
time. End of stream: tuples after the last trigger fire nothing.
"""

from __future__ import annotations

import numpy as np

from penstock.windows.firing import (
    Advance,
    Fired,
    Longs,
    Meta,
    Numbers,
    first_at_least,
    last_rows,
    rows_of,
    runs,
    slots_of,
)
from penstock.windows.time import Time

META: dict[str, type] = {"count": np.int64}
"""Per key: how many tuples it has had."""


def advance(spec: Time, edges: Longs, known: Longs, values: Numbers | None, meta: Meta) -> Advance:
    """Fire every n-th tuple; `values` are the event times, ascending in each key; see `windows/firing.py`.

    >>> times = np.array([0, 1, 1, 2, 2, 7])
    >>> step = advance(Time("5 us", every=3), np.array([0, 6]), np.array([0]), times, {"count": np.array([0])})
    >>> step.fired.lo, step.fired.hi, step.fired.start, step.fired.end
    (array([0, 3]), array([3, 6]), array([-4,  2]), array([2, 8]))
    """
    assert values is not None
    assert spec.every is not None
    times = np.asarray(values, dtype=np.int64)
    seen = np.asarray(meta["count"], dtype=np.int64)
    total = seen + rows_of(edges) - known
    first_row = edges[:-1] - (seen - known)  # where tuple 1 of the key would stand
    slot, number = runs(seen // spec.every, total // spec.every - seen // spec.every)
    trigger = first_row[slot] + (number + 1) * spec.every - 1
    start = times[trigger] - spec.size_us
    fired = Fired(
        slot,
        first_at_least(times, edges[slot], trigger, start),
        trigger + 1,
        start,
        times[trigger] + 1,
        number,
    )
    # a later trigger is not earlier than the last row, so its window starts no earlier than last - size (002 4.11)
    some, last = last_rows(edges)
    needed = np.zeros(len(edges) - 1, dtype=np.int64)
    needed[some] = times[last] - spec.size_us
    return Advance(fired, times >= needed[slots_of(edges)], {"count": total})
