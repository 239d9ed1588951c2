"""Count windows: a key's tuples numbered 1, 2, 3, ...; window i holds a fixed range of numbers (000 section 4.1).

    window i   =  tuples (i - 1) * slide + 1  ..  (i - 1) * slide + size       i = 1, 2, ...    (002 expressions 2-5)
    it fires when its last tuple comes                                          (000 section 3.2, 002 section 3.2)

`partial=True` adds the warm-up windows. Thesis 000 section 4.9.1 calls a window computable after every `slide` tuples,
which, taken at its word, also holds before the first one is full: so, while i * slide < size, the tuples 1 .. i * slide
fire as well. The full windows are the same with and without it.

    size 5, slide 2     1  2  3  4  5  6  7
    partial             [  2]                    i * slide < size: i = 1, 2
                        [        4]
    full                [           5]
                              [           7]

End of stream: a window that is not full is not emitted, in a batch DataFrame neither (002 section 4.13: partial windows
at the end of the stream produce nothing; its section 5 recommends to drop them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.durations import Duration, microseconds
from penstock.windows.arguments import described, flag, whole
from penstock.windows.firing import Advance, Fired, Longs, Meta, Numbers, rows_of, runs
from penstock.windows.taxonomy import Context

META: dict[str, type] = {"count": np.int64}
"""Per key: how many tuples it has had."""


@dataclass(frozen=True, init=False)
class Count:
    """Windows of `size` tuples, one every `slide`. `slide` left out = tumbling; `slide` > `size` leaves gaps.

    `lateness` matters only where rows are ordered by event time: how long a row waits for earlier ones.

    >>> Count(10) == Count(10, slide=10)
    True
    >>> Count(1000, slide=200, partial=True).describe()
    'Count(1000, slide 200, partial)'
    >>> Count(0)
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: Count: size must be from 1 to 2147483647 tuples, got 0. Remedy: pass an integer, 1 or \
more.
    """

    size: int
    slide: int
    partial: bool
    lateness_us: int

    def __init__(self, size: int, slide: int | None = None, partial: bool = False, lateness: Duration = "0 s") -> None:
        """Read the numbers of tuples."""
        size = whole(size, "size", "Count")
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "slide", size if slide is None else whole(slide, "slide", "Count"))
        object.__setattr__(self, "partial", flag(partial, "partial", "Count"))
        object.__setattr__(self, "lateness_us", microseconds(lateness, name="lateness", zero=True, where="Count"))

    @property
    def context(self) -> Context:
        """Return CF: a tuple's own number says its windows (002 section 2.2.3.1).

        >>> Count(3).context.words
        'context free'
        """
        return Context.CF

    @property
    def warmups(self) -> int:
        """Return how many partial windows come before the full ones.

        >>> Count(5, slide=2, partial=True).warmups, Count(4, slide=4, partial=True).warmups, Count(5, slide=2).warmups
        (2, 0, 0)
        """
        return (self.size - 1) // self.slide if self.partial else 0

    def describe(self) -> str:
        """Return the spec on one line, as the user would write it.

        >>> Count(10, lateness="2 s").describe()
        'Count(10, lateness 2 s)'
        """
        slide = f"slide {self.slide}" if self.slide != self.size else ""
        return described("Count", str(self.size), slide, "partial" * self.partial, lateness_us=self.lateness_us)

    def fired_after(self, count: Longs) -> Longs:
        """Return how many windows have fired when `count` tuples have come.

        >>> Count(5, slide=2).fired_after(np.array([4, 5, 6, 7]))
        array([0, 1, 1, 2])
        """
        full = np.maximum((count - self.size) // self.slide + 1, 0)
        return full if not self.partial else full + np.minimum(count // self.slide, self.warmups)


def advance(spec: Count, edges: Longs, known: Longs, values: Numbers | None, meta: Meta) -> Advance:
    """Fire the windows that the fresh rows fill; see `windows/firing.py` for the arguments (`values` is not read).

    >>> new = {"count": np.array([0, 0])}
    >>> step = advance(Count(3, slide=2), np.array([0, 4, 6]), np.array([0, 0]), None, new)
    >>> step.fired.slot, step.fired.lo, step.fired.hi, step.keep
    (array([0]), array([0]), array([3]), array([False, False,  True,  True,  True,  True]))
    """
    rows = rows_of(edges)
    seen = np.asarray(meta["count"], dtype=np.int64)
    total = seen + rows - known
    first_row = edges[:-1] - (seen - known)  # where tuple 1 of the key would stand
    before = spec.fired_after(seen)
    slot, number = runs(before, spec.fired_after(total) - before)
    # both numbered from 0: warm-ups first, then the full ones
    start, end = number * spec.slide, number * spec.slide + spec.size  # both as tuples that come before
    if spec.warmups:
        full = number - spec.warmups
        start = np.where(full < 0, 0, full * spec.slide)
        end = np.where(full < 0, (number + 1) * spec.slide, start + spec.size)
    origin = first_row[slot]
    fired = Fired(slot, origin + start, origin + end, start + 1, end, number)
    # the least window that is not full yet starts after this many tuples; it and all later ones need only what follows
    needed = np.maximum((total - spec.size) // spec.slide + 1, 0) * spec.slide
    dropped = np.clip(first_row + needed - edges[:-1], 0, rows)  # the first so many rows of each key
    keep = np.repeat(np.tile([False, True], len(rows)), np.column_stack([dropped, rows - dropped]).ravel())
    return Advance(fired, keep, {"count": total})
