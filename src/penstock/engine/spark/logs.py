"""Logs of rows per key group, as a task sees them: read, appended to, rewritten now and then, never overwritten.

A log is a list of segments that the manifest names: the panes of a window, its raw rows, or the rows that wait for the
watermark. `lo` and `hi` bound what a segment holds (panes), so that the driver drops dead segments unread.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.spark.files import arrow_bytes
from penstock.engine.spark.program import Counters, TaskRun
from penstock.engine.spark.state import (
    GROUPS,
    Segment,
    counting,
    first_hashes,
    group_of,
    hashes_of,
    known_good,
    open_segment,
    plain_route,
)

SORTED = b"penstock.sorted"  # in the schema of a segment
MAX_SEGMENTS = 24


def owned_groups(task: TaskRun, operator: str, share: int | None = None) -> int:
    """Return the bit mask of the key groups routed to this task, or of its turns where so many tasks `share` them."""
    mask = 0
    for group, target in enumerate(plain_route(share) if share else task.batch["routes"][operator]):
        if target == task.partition:
            mask |= 1 << group
    return mask


def of_groups(table: pa.Table, wanted: npt.NDArray[np.bool_]) -> list[pa.Table]:
    """Return the rows of these key groups: slices, which touch no other row, where the table is sorted by hash."""
    hashes = hashes_of(table)
    if SORTED not in (table.schema.metadata or {}) and not (hashes[1:] >= hashes[:-1]).all():
        return [table.filter(pa.array(wanted[group_of(hashes, len(wanted))]))]
    edges = np.append(np.searchsorted(hashes, first_hashes(len(wanted))), len(hashes))
    wanted = wanted & (edges[:-1] < edges[1:])
    begin, end = edges[:-1][wanted], edges[1:][wanted]
    apart = begin[1:] > end[:-1]  # groups between two pieces that have no rows here do not part them
    first, last = np.append(True, apart)[: len(begin)], np.append(apart, True)[: len(end)]
    return [table.slice(a, b - a) for a, b in zip(begin[first].tolist(), end[last].tolist(), strict=True)]


@dataclass
class RowLog:
    """The log `name` of an operator, restricted to the key groups of one task."""

    task: TaskRun
    operator: str
    name: str
    shared: bool = False  # the rows at hand are of any group: they can be appended, and nothing else
    share: int | None = None  # read by so many tasks by turns, whatever the route says

    def __post_init__(self) -> None:
        self.mine = (1 << GROUPS) - 1 if self.shared else owned_groups(self.task, self.operator, self.share)
        known = [Segment(**entry) for entry in self.task.batch.get("state", {}).get(self.name, [])]
        self.segments = [segment for segment in known if segment.groups & self.mine]

    @property
    def is_long(self) -> bool:
        """Whether there are so many segments that they should be written as one."""
        return len(self.segments) > MAX_SEGMENTS

    def read(self, below: int | None = None) -> pa.Table | None:
        """Return the rows of this task's groups; None if there is no segment.

        Segments that hold no pane `below` a given one are left out.
        """
        assert self.task.folder is not None
        pieces = []
        for segment in self.segments:
            if below is not None and segment.lo >= below:
                continue
            counts = counting(segment.groups & self.mine, GROUPS)
            table = open_segment(self.task.folder, segment)
            pieces += [table] if counts.all() else of_groups(table, counts)
        return pa.concat_tables(pieces) if pieces else None

    def write(
        self,
        rows: pa.Table | None,
        counters: Counters,
        bounds: tuple[int, int] = (0, 0),
        *,
        whole: bool = False,
        by_hash: bool = False,
    ) -> None:
        """Add rows as one more segment; `whole` puts them in the place of all segments.

        Of rows that are sorted `by_hash`, a reader touches those of its key groups alone.
        """
        assert self.task.folder is not None
        absorbed = [segment.file for segment in self.segments] if whole else []
        new = None
        if rows is not None and rows.num_rows:
            buffer, crc = arrow_bytes(rows.replace_schema_metadata({SORTED: b"hash"}) if by_hash else rows)
            file = f"{self.task.batch['dir']}/log-{self.name}-{self.task.tag}-{uuid.uuid4().hex[:6]}.arrow"
            self.task.folder.write(file, buffer)
            known_good(self.task.folder, file)
            new = Segment(file, rows.num_rows, buffer.size, crc, self.mine, *bounds).to_json()
            counters.state_rows += rows.num_rows
            counters.state_bytes += buffer.size
        if new or absorbed:
            change = {"new": new, "absorbed": absorbed, "groups": self.mine}
            self.task.extra.setdefault("state", {})[self.name] = change
