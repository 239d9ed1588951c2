r"""What must be known before a tuple can be put into its windows: the classes of thesis 002 section 2.2.1 (figure 1).

                 windows
               /         \
           FCF             FCA   needs tuples that have not come yet (forward context aware)
          /    \          /    \
        CF   backward    FCB   FCU
             context

The class decides how an operator may be spread: a worker that gets single tuples and keeps its own windows ("active",
002 section 4.3) needs the whole set of windows the moment a tuple comes, so only CF and FCF allow it; a worker that
gets finished windows ("agnostic") takes every class.
"""

from __future__ import annotations

from enum import StrEnum


class Context(StrEnum):
    """The class of a window kind.

    >>> Context.CF == "CF", Context.FCU.words
    (True, 'forward context, unbounded')
    >>> [context.value for context in Context if context.known_on_arrival]
    ['CF', 'FCF']
    """

    CF = "CF"
    """Context free: a tuple's own number or time says its windows."""

    FCF = "FCF"
    """Forward context free: the tuple and the ones before it say its windows."""

    FCB = "FCB"
    """Forward context, bounded: later tuples decide, but among a known range of windows."""

    FCU = "FCU"
    """Forward context, unbounded: later tuples decide, and not even the range is known."""

    @property
    def words(self) -> str:
        """Return the class in words, for explain()."""
        return _WORDS[self]

    @property
    def known_on_arrival(self) -> bool:
        """Tell whether a tuple's windows are known when it comes: what active workers need (002 section 4.3)."""
        return self in {Context.CF, Context.FCF}


_WORDS = {
    Context.CF: "context free",
    Context.FCF: "forward context free",
    Context.FCB: "forward context, bounded",
    Context.FCU: "forward context, unbounded",
}
