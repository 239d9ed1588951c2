"""The clock of a window operator from batch to batch: plain values in, plain values out.

Spark's rule: the watermark of a batch comes from the batches before it, greatest event time minus lateness. Windows
that a latency counts on are closed at once: their own batch's rows count, too, as if a batch without rows followed.
While a stream is idle, its event time goes on at the pace of the wall clock, so that its windows close.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.flow import operators as op
from penstock.windows.kinds import WindowSpec
from penstock.windows.panes import needed_from
from penstock.windows.scans import Longs
from penstock.windows.time import Ints, Time

RESOLUTION_US = 100_000  # of arrival times kept for windows that have no panes
_CUTS = 1000  # batches with rows whose cuts are remembered


def has_passed(node: op.Window, closed: int | None, watermark: int | None) -> bool:
    """Whether a watermark has something to close or to release that the one before it had not."""
    if watermark is None:
        return False
    if closed is None:
        return True
    if node.waits or not isinstance(node.spec, Time) or node.spec.from_first:
        return watermark > closed
    return node.spec.last_closed(watermark) > node.spec.last_closed(closed)


def needed(node: op.Window, watermark: int) -> int:
    """Return the least `hi` of a log segment that an open window may need: a pane, or for raw rows an event time."""
    assert isinstance(node.spec, Time)
    return needed_from(node.spec, watermark) if node.keeps_partials else watermark - node.spec.size_us


def clock_pane(spec: WindowSpec, time: Ints) -> Ints:
    """Return the pane by which the arrival of a row with this event time is kept: the window's own, if it has panes.

    >>> clock_pane(Time("10 us", slide="4 us"), 7), clock_pane(Time("10 us", every=3), 250_000)
    (3, 2)
    """
    if isinstance(spec, Time) and not spec.needs_content:
        return spec.pane_of(time)
    return time // RESOLUTION_US


def moved(watermark: int | None, latest: int | None, spec: WindowSpec) -> int | None:
    """Return the watermark after rows up to an event time; it never goes back.

    >>> spec = Time("10 us", lateness="2 us")
    >>> moved(None, 9, spec), moved(5, 20, spec), moved(5, 6, spec), moved(5, None, spec)
    (7, 18, 5, 5)
    """
    if latest is None:
        return watermark
    reached = latest - spec.lateness_us
    return reached if watermark is None else max(watermark, reached)


def in_force(before: dict[str, Any], spec: WindowSpec, cut_us: int, idle: bool) -> int | None:
    """Return the watermark of a batch, given the operator's entry in the manifest before it.

    >>> spec = Time("10 s", lateness="2 s")
    >>> in_force({}, spec, 0, idle=False) is None
    True
    >>> seen = {"max_event": 30_000_000, "watermark": None, "anchor": 100_000_000}
    >>> in_force(seen, spec, 103_000_000, idle=False), in_force(seen, spec, 103_000_000, idle=True)
    (28000000, 31000000)
    """
    latest = before.get("max_event")
    if latest is None:
        return None
    if idle and before.get("anchor") is not None:
        latest += max(0, cut_us - before["anchor"])
    return moved(before.get("watermark"), int(latest), spec)


class RealTime:
    """How long ago batches were cut in truth, by a clock that nobody sets: `now_s` is its reading.

    The time of an idle stream goes on with the wall clock, by which batches are cut. Were that set an hour ahead, every
    window of the next hour would close, and its rows would be late.

    >>> real = RealTime()
    >>> real.cut(100_000_000, now_s=5.0)
    >>> real.no_later_than(3_700_000_000, 100_000_000, now_s=8.0)  # an hour later by one clock, 3 s by the other
    104000000
    >>> real.no_later_than(103_000_000, 100_000_000, now_s=8.0), real.no_later_than(103_000_000, 7, now_s=8.0)
    (103000000, 103000000)
    """

    def __init__(self) -> None:
        self._cuts: dict[int, float] = {}

    def watermarks(
        self, windows: Mapping[str, op.Window], before: Mapping[str, Any], cut_us: int, idle: bool, now_s: float
    ) -> dict[str, int | None]:
        """Return the watermark of each window operator in a batch that is cut now; None where it has no event time."""
        if not idle:
            self.cut(cut_us, now_s)
        found: dict[str, int | None] = {}
        for name, node in windows.items():
            seen = before.get(name, {})
            at_us = self.no_later_than(cut_us, seen.get("anchor"), now_s)
            found[name] = in_force(seen, node.spec, at_us, idle) if node.time else None
        return found

    def cut(self, cut_us: int, now_s: float) -> None:
        """Note that a batch was cut now."""
        self._cuts[cut_us] = now_s
        while len(self._cuts) > _CUTS:
            del self._cuts[next(iter(self._cuts))]

    def no_later_than(self, cut_us: int, anchor_us: int | None, now_s: float) -> int:
        """A cut as it would be if the clock had not been set since the one at `anchor_us`, give or take a second."""
        since = None if anchor_us is None else self._cuts.get(anchor_us)
        if anchor_us is None or since is None:  # a job that has just begun cannot know
            return cut_us
        return min(cut_us, anchor_us + round((now_s - since + 1.0) * 1e6))


def awaits_a_cut(node: op.Window, entry: dict[str, Any], now_us: int, goes_on: bool = True) -> bool:
    """Whether a batch cut now would close a window, or read past the end of one, if event time `goes_on` as the clock.

    `entry` is the operator's in the manifest of the last batch.

    >>> node = op.Window("w", (), {}, spec=Time("10 s"), time="ts")
    >>> entry = {"max_event": 29_000_000, "watermark": 20_000_000, "anchor": 100_000_000}
    >>> [awaits_a_cut(node, entry, now) for now in (100_500_000, 101_000_000)]
    [False, True]
    """
    if not node.time:
        return False
    return has_passed(node, entry.get("watermark"), in_force(entry, node.spec, now_us, idle=goes_on))


def after(
    before: dict[str, Any],
    watermark: int | None,
    seen: list[dict[str, Any]],
    spec: WindowSpec,
    cut_us: int,
    moves: bool = False,
) -> dict[str, Any]:
    """Return the operator's entry in the manifest of a batch from what its tasks saw.

    `watermark` is what was closed up to; where it `moves`, the batch's own rows were counted, too.
    `firsts` keeps, per pane not yet passed, the earliest arrival of a row in it: the row that will
    complete a window is the first whose event time reaches the window's end plus lateness.
    """
    events = [entry["max_event"] for entry in seen if entry.get("max_event") is not None]
    latest = max([*events, *([before["max_event"]] if before.get("max_event") is not None else [])], default=None)
    if moves:
        watermark = moved(watermark, latest, spec)
    firsts: dict[int, int] = dict(before.get("firsts", []))
    for entry in seen:
        for pane, arrival in zip(*entry.get("first", [[], []]), strict=True):
            if arrival is not None:
                firsts[pane] = min(arrival, firsts.get(pane, arrival))
    if watermark is not None:
        passed = clock_pane(spec, watermark)
        firsts = {pane: arrival for pane, arrival in firsts.items() if pane >= passed}
    return {
        "max_event": latest,
        "watermark": watermark,
        "anchor": cut_us if events else before.get("anchor"),
        "firsts": sorted(firsts.items()),
    }


def completed_at(before: dict[str, Any], spec: WindowSpec, ends: Longs, otherwise: int) -> Longs:
    """Return when the rows that completed the windows with these ends arrived; the tick's time where none did.

    That is the earliest arrival in a pane at or after the end: a suffix minimum, looked up for all windows at once.

    >>> spec = Time("10 us")
    >>> completed_at({"firsts": [(0, 5), (1, 17), (2, 16)]}, spec, np.array([10, 30]), otherwise=99)
    array([16, 99])
    """
    firsts = np.array(before.get("firsts", []), dtype=np.int64).reshape(-1, 2)  # ascending by pane
    earliest = np.append(np.minimum.accumulate(firsts[::-1, 1])[::-1], otherwise)
    ready = clock_pane(spec, ends + spec.lateness_us - 1) + 1  # the first pane that starts there or later
    return earliest[np.searchsorted(firsts[:, 0], ready)]
