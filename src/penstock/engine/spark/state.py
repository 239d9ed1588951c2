"""Keyed state in immutable files: sorted segments, newest wins, cost in proportion to what changed.

A *segment* is an Arrow file of rows (hash, key columns, state columns), sorted by the key's 64-bit hash
read as unsigned. A key belongs to *key group* (hash >> 32) * groups >> 32, so a group is one contiguous
range of every segment, and the group of a key never depends on the width. A manifest lists an operator's
segments, oldest first, each with the groups for which it still counts. Tasks add segments and absorb old
ones (size-tiered merging); nothing is ever overwritten.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.spark.files import Folder, arrow_bytes
from penstock.engine.spark.row_runs import take_rows

HASH, DEAD = "_ps_hash", "_ps_dead"
FORMAT_VERSION = 1
GROUPS = 64
LONGEST_CHAIN = 12

U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """One state file as the manifest names it."""

    file: str
    rows: int
    bytes: int
    crc: int
    groups: int  # bit g is set while the segment counts for group g
    lo: int = 0  # least and greatest pane, for pane logs
    hi: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's form."""
        return asdict(self)


def group_of(hashes: U64, groups: int) -> Ints:
    """Return the key group of each hash; monotone in the hash, so groups are contiguous in sorted files.

    >>> group_of(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 64)
    array([ 0, 32, 63])
    """
    return (((hashes >> np.uint64(32)) * np.uint64(groups)) >> np.uint64(32)).astype(np.int64)


def first_hashes(groups: int) -> U64:
    """Return the least hash of each key group.

    >>> group_of(first_hashes(64), 64).tolist() == list(range(64))
    True
    >>> group_of(first_hashes(7)[1:] - np.uint64(1), 7).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    return np.array([-(-(group << 32) // groups) << 32 for group in range(groups)], dtype=np.uint64)


def plain_route(width: int) -> tuple[int, ...]:
    """Return the task of each key group where nobody moved any: by turns."""
    return tuple(group % width for group in range(GROUPS))


def group_mask(groups: Ints) -> int:
    """Return the bit mask of a set of groups."""
    mask = 0
    for group in np.unique(groups):
        mask |= 1 << int(group)
    return mask


def counting(mask: int, groups: int) -> Bools:
    """Return a group mask as one boolean per group.

    >>> counting(0b101, 4)
    array([ True, False,  True, False])
    """
    return np.array([(mask >> group) & 1 for group in range(groups)], dtype=bool)


def hashes_of(table: pa.Table) -> U64:
    """Return the hash column as unsigned NumPy, without a copy where it is one chunk."""
    column = table.column(HASH)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array.to_numpy(zero_copy_only=True).view(np.uint64)


_open_files: OrderedDict[str, pa.Table] = OrderedDict()
_checked: OrderedDict[str, None] = OrderedDict()
_KEEP_OPEN = 256
_KEEP_CHECKED = 4096
_LARGE = 4 << 20  # bytes of a file that is mapped anew by each task: the pages that others touched go back


def open_segment(folder: Folder, segment: Segment) -> pa.Table:
    """Open a segment, checked once per worker process (names are never used twice, so this cannot go stale)."""
    key = folder.at(segment.file)
    table = _open_files.get(key)
    if table is None:
        table = folder.open_table(segment.file, None if key in _checked else segment.crc)
        remember(_checked, key, None, _KEEP_CHECKED)
        if segment.bytes < _LARGE or not folder.local:
            remember(_open_files, key, table, _KEEP_OPEN)
    else:
        _open_files.move_to_end(key)
    return table


def known_good(folder: Folder, file: str) -> None:
    """Note that this process wrote a file: it has its checksum from there, and need not read it back."""
    remember(_checked, folder.at(file), None, _KEEP_CHECKED)


def remember(cache: OrderedDict[str, Any], key: str, value: Any, most: int) -> None:
    """Put something in a cache that forgets the oldest."""
    cache[key] = value
    while len(cache) > most:
        cache.popitem(last=False)


def same_keys(left: pa.Table, right: pa.Table, columns: tuple[str, ...]) -> Bools:
    """Compare two tables' keys row by row; null equals null, NaN equals NaN."""
    equal = np.ones(left.num_rows, dtype=bool)
    for name in columns:
        a, b = left.column(name), right.column(name)
        both_null = pc.and_(pc.is_null(a), pc.is_null(b))
        same = pc.fill_null(pc.equal(a, b), False)
        if pa.types.is_floating(a.type):
            nans = pc.and_(pc.fill_null(pc.is_nan(a), False), pc.fill_null(pc.is_nan(b), False))
            same = pc.or_(same, nans)
        equal &= pc.or_(same, both_null).to_numpy(zero_copy_only=False)
    return equal


class KeyedSegments:
    """The state of one operator as a task sees it."""

    def __init__(
        self, folder: Folder, segments: list[Segment], key: tuple[str, ...], schema: pa.Schema, groups: int = GROUPS
    ) -> None:
        self.folder, self.segments, self.key, self.schema, self.groups = folder, segments, key, schema, groups

    def lookup(self, hashes: U64, keys: pa.Table) -> tuple[pa.Table, Bools]:
        """Return the state rows of these distinct keys (null rows where a key is new) and which are new."""
        count = len(hashes)
        where = np.full(count, -1, dtype=np.int64)  # row in the concatenation of what was found
        resolved = np.zeros(count, dtype=bool)
        dead = np.zeros(count, dtype=bool)
        bit = group_of(hashes, self.groups)
        found: list[pa.Table] = []
        offset = 0
        for segment in reversed(self.segments):
            open_for = counting(segment.groups, self.groups)[bit] & ~resolved
            if not open_for.any():
                continue
            asked = np.flatnonzero(open_for)
            table = open_segment(self.folder, segment)
            rows, hit = self._find(table, hashes[asked], keys, asked)
            if not hit.any():
                continue
            taken = take_rows(table, rows[hit])
            resolved[asked[hit]] = True
            if DEAD in table.column_names:
                dead[asked[hit]] = taken.column(DEAD).to_numpy()
            found.append(taken.select(self.schema.names))
            where[asked[hit]] = offset + np.arange(int(hit.sum()))
            offset += int(hit.sum())
        is_new = ~resolved | dead
        known = found[0] if len(found) == 1 else pa.concat_tables([*found, self.schema.empty_table()])
        if not is_new.any():
            return take_rows(known.combine_chunks(), where), is_new
        return known.combine_chunks().take(pa.array(where, mask=is_new)), is_new

    def _find(self, table: pa.Table, hashes: U64, keys: pa.Table, asked: Ints) -> tuple[Ints, Bools]:
        """Find rows by hash, then compare the keys themselves: a hash may collide."""
        stored = hashes_of(table)
        lo = np.searchsorted(stored, hashes, side="left")
        hi = np.searchsorted(stored, hashes, side="right")
        hit = hi > lo
        rows = lo.astype(np.int64)
        if hit.any():
            candidates = table.select(list(self.key)).take(pa.array(rows[hit]))
            wanted = keys.take(pa.array(asked[hit]))
            equal = same_keys(candidates, wanted, self.key)
            for position in np.flatnonzero(hit)[~equal]:
                rows[position] = -1
                wanted_key = keys.slice(int(asked[position]), 1)
                for row in range(int(lo[position]) + 1, int(hi[position])):
                    if same_keys(table.select(list(self.key)).slice(row, 1), wanted_key, self.key)[0]:
                        rows[position] = row
        return rows, hit & (rows >= 0)

    def save(self, changed: pa.Table, owned: int, folder_of_batch: str, label: str) -> dict[str, Any] | None:
        """Write the changed rows (with hash and key columns), absorbing small newer segments into them.

        Returns what the manifest needs: the new segment, and the files it replaces for the owned groups.
        """
        if changed.num_rows == 0:
            return None
        pieces, absorbed = [changed], list[str]()
        size = changed.num_rows
        mine = [segment for segment in self.segments if segment.groups & owned]
        # Size-tiered: absorb while the next older one is not much larger, so chains stay logarithmic.
        for segment in reversed(mine):
            weight = segment.rows * (segment.groups & owned).bit_count() / max(1, segment.groups.bit_count())
            if weight > 2 * size and len(mine) - len(absorbed) < LONGEST_CHAIN:
                break
            table = open_segment(self.folder, segment)
            counts = counting(owned & segment.groups, self.groups)
            table = table.filter(pa.array(counts[group_of(hashes_of(table), self.groups)]))
            pieces.append(table)
            absorbed.append(segment.file)
            size += table.num_rows
        whole = len(absorbed) == len(mine)
        merged = merge_newest(pieces, self.key, drop_dead=whole)
        buffer, crc = arrow_bytes(merged)
        file = f"{folder_of_batch}/state-{label}-{uuid.uuid4().hex[:12]}.arrow"
        self.folder.write(file, buffer)
        new = Segment(file, merged.num_rows, buffer.size, crc, owned)
        return {"new": new.to_json(), "absorbed": absorbed, "groups": owned}

    def read_all(self) -> pa.Table:
        """Return every live key with its state; for people and tests."""
        pieces = []
        for segment in reversed(self.segments):
            table = open_segment(self.folder, segment)
            live = counting(segment.groups, self.groups)
            pieces.append(table.filter(pa.array(live[group_of(hashes_of(table), self.groups)])))
        if not pieces:
            return self.schema.empty_table()
        return merge_newest(pieces, self.key, drop_dead=True)


def merge_newest(pieces: list[pa.Table], key: tuple[str, ...], *, drop_dead: bool) -> pa.Table:
    """Merge tables, newest first, keeping the newest row of each key, sorted by unsigned hash.

    Which rows stay is told by hash and key alone; the state columns, which may be long lists, are copied once or, where
    the newest table has every key, not at all.
    """
    pieces = [with_dead(piece) for piece in pieces]
    heads = pa.concat_tables([piece.select([HASH, *key, DEAD]) for piece in pieces]).combine_chunks()
    hashes = hashes_of(heads)
    order = np.argsort(hashes, kind="stable")
    same_hash = np.zeros(len(order), dtype=bool)
    same_hash[1:] = hashes[order][1:] == hashes[order][:-1]
    if same_hash.any():
        order = order[_newest_of_runs(heads.take(pa.array(order)), same_hash, key)]
    if drop_dead:
        order = order[~heads.column(DEAD).to_numpy()[order]]
    newest = pieces[0]
    if not len(order) or order.max() < newest.num_rows:
        return take_rows(newest, order).combine_chunks()
    return pa.concat_tables(pieces).take(pa.array(order)).combine_chunks()


def with_dead(table: pa.Table) -> pa.Table:
    """Add the tombstone column where it is missing."""
    if DEAD in table.column_names:
        return table
    return table.append_column(DEAD, pa.array(np.zeros(table.num_rows, dtype=bool)))


def _newest_of_runs(ordered: pa.Table, same_hash: Bools, key: tuple[str, ...]) -> Bools:
    """Within runs of equal hash keep the first (newest) row of each key; collisions are rare and looped over."""
    keep = np.ones(ordered.num_rows, dtype=bool)
    keys = ordered.select(list(key))
    starts = np.flatnonzero(~same_hash)
    run_start = starts[np.cumsum(~same_hash) - 1]
    later = np.flatnonzero(same_hash)
    equal_first = same_keys(keys.take(pa.array(later)), keys.take(pa.array(run_start[later])), key)
    keep[later[equal_first]] = False
    for row in later[~equal_first]:  # another key of the same hash: newest among its own kind?
        start = int(run_start[row])
        mine = keys.slice(int(row), 1)
        keep[row] = not any(same_keys(keys.slice(r, 1), mine, key)[0] for r in range(start + 1, int(row)))
    return keep


def fold(segments: list[Segment], changes: list[dict[str, Any]]) -> list[Segment]:
    """Return an operator's segments after the changes that its winning tasks reported."""
    gone: dict[str, int] = {}
    for change in changes:
        for file in change["absorbed"]:
            gone[file] = gone.get(file, 0) | change["groups"]
    kept = [Segment(**{**s.to_json(), "groups": s.groups & ~gone.get(s.file, 0)}) for s in segments]
    return [s for s in kept if s.groups] + [Segment(**change["new"]) for change in changes if change["new"]]
