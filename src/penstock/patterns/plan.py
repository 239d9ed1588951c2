"""One plan algebra for the parallel patterns of window operators (theses 000 and 002, chapter 4 of each).

Each pattern is a row: what is distributed over the workers, what a worker computes, how results are combined, and what
keeps them in order. A host that can distribute, compute, combine and order by these words can run every pattern; which
are legal for a window follows from what the user declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Distribute = Literal["key", "window", "pane", "slice"]
Compute = Literal["window", "pane", "slice"]
Combine = Literal["none", "panes", "slices"]
Order = Literal["by key", "by window"]


@dataclass(frozen=True)
class Pattern:
    """A named way to spread one window operator over workers.

    >>> PATTERNS["pane"].combine
    'panes'
    """

    name: str
    distribute: Distribute
    compute: Compute
    combine: Combine
    order: Order
    needs: str  # what must be declared for it to be legal
    source: str
    inner: Distribute | None = None  # nested: how the workers of one window share it
    runs: bool = False  # whether a host carries it out today


PATTERNS = {
    row.name: row
    for row in (
        Pattern("key", "key", "window", "none", "by key", "a key", "000 4.4", runs=True),
        Pattern("pane", "key", "pane", "panes", "by key", "F = H(G(pane), ...)", "000 4.5", runs=True),
        Pattern("farm", "window", "window", "none", "by window", "nothing", "000 4.3"),
        Pattern("farm-active", "window", "window", "none", "by window", "no forward context", "000 4.3, 002 4.2"),
        Pattern("partition", "slice", "slice", "slices", "by window", "map and reduce", "000 4.6"),
        Pattern("farm(partition)", "window", "slice", "slices", "by window", "map and reduce", "000 4.7", "slice"),
        Pattern("key(partition)", "key", "slice", "slices", "by key", "a key, map and reduce", "000 4.7", "slice"),
    )
}
