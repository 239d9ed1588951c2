"""Time windows: which windows an event time falls into, and the panes they are made of. Arithmetic only.

Window k of `Time(size, slide)` is [start, end) with start = origin + k * slide and end = start + size, for *every*
integer k (event times before the origin have negative k: all divisions floor). This is Spark's `window()` and, with
k = i - 1, thesis 002's expressions (16) and (17).

Panes (thesis 000 section 4.5, pane farming; 002 calls them chunks) are pieces of time such that no window boundary lies
strictly inside one: it is wholly in a window or out of it. The thesis cuts at every gcd(size, slide). Boundaries lie
only at k * slide (starts) and k * slide + rest, rest = size mod slide (ends), so each slide needs two pieces at most,
of unequal length: *pairs* (Krishnamurthy, Wu and Franklin, SIGMOD 2006). With rest = 0, or slide = 2 * gcd, they are
the thesis's panes; else they are fewer: size 10 s and slide 999 ms have 2 per slide where the gcd, 1 ms, makes 999.

    dp = 1, or 2 if rest > 0        panes per slide
    pane q starts at                origin + floor(q / dp) * slide + (q mod dp) * rest
    r  = dp * floor(size / slide) + [rest > 0]      panes per window
    window k = panes k*dp .. k*dp + r - 1           (slide > size: r = 1, and every other pane is in no window)

Three more ways to write them, for which the arithmetic below is not enough and raw rows are kept (`needs_content`):
`every=n` (`windows/every.py`), `origin="first"` (the grid starts at each key's least event time) and `empty=True` (also
the windows without rows between two that have some), both in `windows/time_content.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.durations import Duration, microseconds
from penstock.errors import FlowError
from penstock.windows.arguments import described, duration_text, flag, instant_text, whole
from penstock.windows.taxonomy import Context

END_OF_TIME = 2**63 - 1
"""A watermark that every window has passed: closing up to it flushes."""

Ints = TypeVar("Ints", int, NDArray[np.int64])
"""One event time, pane or window index, or an array of them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, init=False)
class Time:
    """Windows by event time. `slide` left out = tumbling; `slide` > `size` leaves gaps.

    `origin` is where window 0 starts: a timestamp, or "first" for each key's least event time, with no window before
    it. `empty=True` also emits the windows without rows between a key's first and last one with rows. `every=n`, in the
    place of `slide`: every n-th tuple of a key fires and holds the tuples of the last `size`.
    Fields are whole microseconds, so that two ways of writing the same windows are equal.

    >>> Time("1 minute") == Time("60 s", slide="60 s")
    True
    >>> sliding = Time("10 s", slide="4 s")
    >>> sliding.panes_per_window, sliding.panes_per_slide
    (5, 2)
    >>> Time("10 s", slide="1 s", every=5)
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: Time: every=5 says when a window fires, and so does slide='1 s'. Remedy: leave one out.
    """

    size_us: int
    slide_us: int  # = size_us where `every` says when windows fire
    lateness_us: int
    origin_us: int  # 0 where `from_first`
    from_first: bool
    empty: bool
    every: int | None

    def __init__(
        self,
        size: Duration,
        slide: Duration | None = None,
        lateness: Duration = "0 s",
        origin: datetime | str | int | None = None,
        empty: bool = False,
        every: int | None = None,
    ) -> None:
        """Read the durations; window 0 starts at `origin`: a datetime or ISO string with a zone, or microseconds."""
        if every is not None:
            _only_every(every, slide, origin, empty)
        size_us = microseconds(size, name="size", where="Time")
        slide_us = size_us if slide is None else microseconds(slide, name="slide", where="Time")
        self._set("size_us", size_us)
        self._set("slide_us", slide_us)
        self._set("lateness_us", microseconds(lateness, name="lateness", zero=True, where="Time"))
        self._set("origin_us", 0 if origin == "first" else _origin(origin))
        self._set("from_first", origin == "first")
        self._set("empty", flag(empty, "empty", "Time"))
        self._set("every", None if every is None else whole(every, "every", "Time"))

    def _set(self, name: str, value: int | None) -> None:
        object.__setattr__(self, name, value)  # the dataclass is frozen for everyone else

    @property
    def context(self) -> Context:
        """Return CF: a tuple's own time says its windows (002 section 2.2.3.2).

        With `origin="first"` FCF: the key's first tuple says where the grid lies. With `every` FCU: later tuples
        trigger, and how many of them come within `size` after a tuple has no bound (the thesis says FCA only).

        >>> Time("1 s").context, Time("1 s", origin="first").context, Time("1 s", every=2).context
        (<Context.CF: 'CF'>, <Context.FCF: 'FCF'>, <Context.FCU: 'FCU'>)
        """
        return Context.FCU if self.every is not None else Context.FCF if self.from_first else Context.CF

    @property
    def needs_content(self) -> bool:
        """Tell whether panes cannot do it, whatever is computed: raw rows must be kept and arranged.

        >>> Time("1 s").needs_content, Time("1 s", every=2).needs_content, Time("1 s", empty=True).needs_content
        (False, True, True)
        """
        return self.every is not None or self.from_first or self.empty

    def describe(self) -> str:
        """Return the spec on one line, as the user would write it, exactly.

        >>> Time("10 s", slide="500 ms", lateness="1 minute").describe()
        'Time(10 s, slide 500 ms, lateness 1 min)'
        >>> Time("1 hour", origin="2024-01-01T00:00:00Z").describe(), Time("5 s", every=100).describe()
        ('Time(1 h, origin 2024-01-01T00:00:00+00:00)', 'Time(5 s, every 100)')
        """
        words = [duration_text(self.size_us)]
        if self.slide_us != self.size_us:
            words.append(f"slide {duration_text(self.slide_us)}")
        if self.every is not None:
            words.append(f"every {self.every}")
        if self.lateness_us:
            words.append(f"lateness {duration_text(self.lateness_us)}")
        if self.from_first or self.origin_us:
            words.append(f"origin {'first' if self.from_first else instant_text(self.origin_us)}")
        return described("Time", *words, "empty" * self.empty)

    # --- windows ---------------------------------------------------------------------------------------------------

    def first_window(self, time: Ints) -> Ints:
        """Return the least k whose window holds `time`; more than `last_window` if `time` lies in a gap.

        >>> spec = Time("10 us", slide="4 us")
        >>> spec.first_window(9), spec.last_window(9)
        (0, 2)
        >>> spec.first_window(np.array([-1, 10])), spec.last_window(np.array([-1, 10]))
        (array([-2,  1]), array([-1,  2]))
        """
        # end > t  <=>  k * slide > t - origin - size
        return (time - (self.origin_us + self.size_us)) // self.slide_us + 1

    def last_window(self, time: Ints) -> Ints:
        """Return the greatest k whose window starts at or before `time`.

        >>> Time("10 us").last_window(-1)
        -1
        """
        return (time - self.origin_us) // self.slide_us

    def start_of(self, window: Ints) -> Ints:
        """Return the first microsecond of window k.

        >>> Time("10 us", slide="4 us", origin=1).start_of(2)
        9
        """
        return window * self.slide_us + self.origin_us

    def end_of(self, window: Ints) -> Ints:
        """Return the first microsecond after window k.

        >>> Time("10 us", slide="4 us", origin=1).end_of(2)
        19
        """
        return window * self.slide_us + (self.origin_us + self.size_us)

    def last_closed(self, watermark: int) -> int:
        """Return the greatest k with end <= watermark. A Python integer of any size, so END_OF_TIME is safe.

        >>> spec = Time("10 us", slide="4 us")
        >>> spec.last_closed(13), spec.last_closed(14)
        (0, 1)
        """
        return (watermark - self.origin_us - self.size_us) // self.slide_us

    def open_from(self, watermark: int) -> int:
        """Return the least event time that an open window can hold: an older row has no open window at all.

        >>> Time("10 us", slide="4 us").open_from(14)
        8
        """
        return self.start_of(self.last_closed(watermark) + 1)

    def has_open(self, times: NDArray[np.int64], watermark: int) -> NDArray[np.bool_]:
        """Tell which times still fall into an open window (not in a gap, not wholly behind the watermark).

        >>> Time("10 us", slide="20 us").has_open(np.array([5, 15, 25]), watermark=10)
        array([False, False,  True])
        """
        last = self.last_window(times)
        return (last > self.last_closed(watermark)) & (self.first_window(times) <= last)

    def has_missed(self, times: NDArray[np.int64], watermark: int) -> NDArray[np.bool_]:
        """Tell which times missed at least one window: those go to `stream.late` (rows in gaps missed none).

        >>> Time("10 us", slide="4 us").has_missed(np.array([1, 9, 10]), watermark=10)
        array([ True,  True, False])
        """
        first = self.first_window(times)
        return (first <= self.last_closed(watermark)) & (first <= self.last_window(times))

    # --- panes -----------------------------------------------------------------------------------------------------

    @property
    def rest_us(self) -> int:
        """Return size mod slide: where, after a window's start, others end."""
        return self.size_us % self.slide_us

    @property
    def panes_per_window(self) -> int:
        """Return r, the panes of a window."""
        return self.panes_per_slide * (self.size_us // self.slide_us) + (self.rest_us > 0)

    @property
    def panes_per_slide(self) -> int:
        """Return dp, the panes between the starts of two windows: two where windows end between them."""
        return 2 if self.rest_us else 1

    def pane_of(self, time: Ints) -> Ints:
        """Return the pane that holds `time`; panes count from the origin.

        >>> Time("10 us", slide="4 us").pane_of(np.array([-1, 0, 3]))
        array([-1,  0,  1])
        >>> Time("10 us", slide="7 us").pane_of(np.array([-1, 0, 2, 3, 6, 7]))  # cut at 0, 3, 7, 10, ...
        array([-1,  0,  0,  1,  1,  2])
        """
        since = time - self.origin_us
        if not self.rest_us:
            return since // self.slide_us
        # starts up to `since`, and ends up to it: both count a cut
        return since // self.slide_us + (since - self.rest_us) // self.slide_us + 1

    def start_of_pane(self, pane: Ints) -> Ints:
        """Return the first microsecond of a pane; it ends where the next one starts.

        >>> Time("10 us", slide="7 us").start_of_pane(np.array([-1, 0, 1, 2]))
        array([-4,  0,  3,  7])
        """
        if not self.rest_us:
            return self.start_of(pane)
        return self.start_of(pane // 2) + pane % 2 * self.rest_us

    def first_window_of_pane(self, pane: Ints) -> Ints:
        """Return the least k whose window covers the pane; more than `last_window_of_pane` if none does.

        >>> Time("10 us", slide="4 us").first_window_of_pane(5)
        1
        """
        # k * dp + r > q
        return (pane - self.panes_per_window) // self.panes_per_slide + 1

    def last_window_of_pane(self, pane: Ints) -> Ints:
        """Return the greatest k whose window starts at or before the pane.

        >>> Time("10 us", slide="4 us").last_window_of_pane(5)
        2
        """
        # k * dp <= q
        return pane // self.panes_per_slide


def _only_every(every: Any, slide: Any, origin: Any, empty: Any) -> None:
    """Refuse what says nothing about windows that end with their trigger."""
    if slide is not None:
        rule = f"every={every!r} says when a window fires, and so does slide={slide!r}"
        raise FlowError("Time", rule, "leave one out")
    if origin is not None:
        rule = f"windows with every={every!r} end with the tuple that fires them: origin={origin!r} has no meaning"
        raise FlowError("Time", rule, "leave origin out")
    if empty:
        rule = f"a window with every={every!r} holds at least the tuple that fires it: there is no empty one"
        raise FlowError("Time", rule, "leave empty out")


def _origin(origin: datetime | str | int | None) -> int:
    """Return the origin in microseconds since the UTC epoch."""
    remedy = 'pass a datetime with a zone (tzinfo=UTC), an ISO string such as "2024-01-01T00:00:00Z", or "first"'
    value: Any = origin
    if value is None:
        return 0
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise FlowError("Time", f"origin must be a timestamp, got {origin!r}", remedy) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:  # its meaning would depend on the machine's zone
            raise FlowError("Time", f"origin must name its zone, got {origin!r}", remedy)
        return int((value - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise FlowError("Time", f"origin must be a timestamp, got {origin!r}", remedy)
