"""Look into a checkpoint from outside: what it remembers, whether its files are whole, and where to go back to.

Nothing here writes, but for `go_back`. A job may run meanwhile: a manifest and the files that it names never change,
and they stay for Spark's `minBatchesToRetain` batches. No Spark is needed, but for `as_dataframe`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.engine.spark.files import Folder
from penstock.engine.spark.state import DEAD, HASH, Segment, counting, group_of, hashes_of, merge_newest
from penstock.errors import CheckpointError, PenstockError
from penstock.observe.state_view import OperatorState, StateView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HIDDEN = (HASH, DEAD)


def describe(checkpoint: str, version: int | None = None) -> StateView:
    """Return what a checkpoint remembers, operator by operator; `version` is a batch id, the newest if left out.

    A damaged file is no error here: the view's `damage` says what is wrong and what to do about it.
    """
    opened = Checkpoint(checkpoint)
    if version is None and not opened.versions:
        return opened.view(None, ())
    chosen = opened.choose(version)
    bad = opened.first_damage(chosen)
    said = None if bad is None else str(opened.refusal(chosen, bad))
    # Of a damaged manifest there is nothing to show: it names no operators.
    states = tuple(opened.state_of(name, chosen) for name in opened.operators(chosen))
    return opened.view(chosen, states, said)


def read(checkpoint: str, operator: str, version: int | None = None) -> pa.Table:
    """Return the state of an operator: key columns, then what it remembers; a damaged file is refused.

    A `stateful` operator has one row per key. A window over panes has the rows of its log (`_ps_pane`, partials named
    `_ps_*`): rows of the same key and pane, written by different batches, are not yet combined. A window over content
    has the rows it may still need. What waits for the watermark or for panes is a part of its own, such as
    `bars.pending`; `describe` names them. No state at all: no columns.
    """
    opened = Checkpoint(checkpoint)
    chosen = opened.choose(version)
    opened.need(operator, chosen)
    opened.check(chosen, operator)
    table = opened.rows_of(operator, chosen)
    return table.select([name for name in table.column_names if name not in HIDDEN])


def as_dataframe(spark: SparkSession, checkpoint: str, operator: str, version: int | None = None) -> DataFrame:
    """Return `read(...)` as a Spark DataFrame; the rows pass through the driver once."""
    table = read(checkpoint, operator, version)
    if not table.column_names:
        message = f"checkpoint {checkpoint}: operator '{operator}' has no state yet, so its columns are not known. "
        raise CheckpointError(message + "Remedy: ask again when a batch with rows has ended.")
    return spark.createDataFrame(table)


def check(checkpoint: str, version: int | None = None) -> None:
    """Read every file that a version needs and refuse a missing or damaged one, naming the version to go back to."""
    opened = Checkpoint(checkpoint)
    if version is not None or opened.versions:
        opened.check(opened.choose(version))


def damage(checkpoint: str) -> CheckpointError | None:
    """Return what `check` would raise, None if the newest version is whole: for one who already knows of a fault."""
    try:
        check(checkpoint)
    except CheckpointError as error:
        return error
    return None


def go_back(checkpoint: str, version: int) -> list[int]:
    """Forget every batch after `version`, so that the next start runs them anew; returns their ids.

    No job may run on the checkpoint meanwhile, and the sources must still have the rows. Batches may be cut otherwise
    than before; a file sink replaces the files of a batch as that batch is run again.
    """
    opened = Checkpoint(checkpoint)
    opened.check(opened.choose(version))
    if not opened.spark_knows(version):
        message = f"checkpoint {checkpoint}: Spark has no record of batch {version} any more. "
        raise CheckpointError(message + "Remedy: go back to a newer version, or start on a new checkpoint.")
    forgotten: set[int] = set()
    # Manifests first: cut short, this leaves a Spark that asks for a manifest which is gone, and refuses; never a mix.
    for root, kind in (("penstock", "manifests"), ("spark", "commits"), ("spark", "offsets"), ("penstock", "log"),
                       ("penstock", "sinks")):  # fmt: skip
        folder = Folder(f"{opened.path}/{root}")
        for name in folder.names(kind):
            number = name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) > version:
                folder.delete(f"{kind}/{name}")
                forgotten.add(int(number))
    return sorted(forgotten)


@dataclass(frozen=True)
class Damage:
    """A file that is not as its manifest says."""

    file: str
    what: str  # "is missing", "is damaged: ..."
    operator: str | None  # None: it is a manifest


def owner(name: str) -> str:
    """Return the operator of a part of its state: a window may keep several, such as `bars` and `bars.pending`.

    >>> owner("bars.pending"), owner("bars")
    ('bars', 'bars')
    """
    return name.split(".", 1)[0]


def names_at_start(text: str, names: list[str]) -> tuple[str, ...] | None:
    """Return the names, joined by spaces, that a text begins with, up to a comma or colon; names may hold spaces.

    >>> names_at_start("k a b, state (total bigint)", ["a b", "k", "total"])
    ('k', 'a b')
    >>> names_at_start("(none): n bigint", ["n"]) is None
    True
    """
    for name in sorted(names, key=len, reverse=True):
        after = text.removeprefix(name)
        if after == text:
            continue
        if after[:1] in (",", ":"):
            return (name,)
        rest = names_at_start(after[1:], names) if after.startswith(" ") else None
        if rest is not None:
            return (name, *rest)
    return None


class Checkpoint:
    """A checkpoint opened for reading."""

    def __init__(self, path: str) -> None:
        self.path = str(path).rstrip("/")
        self.folder = Folder(f"{self.path}/penstock")
        known = self.folder.get("flow.json")
        if known is None:
            raise CheckpointError(
                f"{self.path} is not a Penstock checkpoint. Remedy: name the folder given to start()."
            )
        self.lines: list[str] = known["flow"]
        self.format, self.groups = int(known["version"]), int(known["groups"])
        self._manifests: dict[int, dict[str, Any] | Damage] = {}

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The batches whose manifests are kept, ascending."""
        return tuple(sorted(int(name) for name in self.folder.names("manifests") if name.isdigit()))

    def choose(self, version: int | None) -> int:
        """Return the version asked for, the newest for None; refuse one that is not there."""
        if not self.versions:
            raise CheckpointError(f"checkpoint {self.path}: no batch has ended yet. Remedy: let the job run on.")
        if version is not None and version not in self.versions:
            kept = f"versions {self.versions[0]} to {self.versions[-1]} are kept"
            raise CheckpointError(f"checkpoint {self.path} has no version {version}. Remedy: {kept}, name one of them.")
        return self.versions[-1] if version is None else version

    def manifest(self, version: int) -> dict[str, Any] | Damage:
        """Return a manifest, or what is wrong with it."""
        if version not in self._manifests:
            file = f"manifests/{version:08d}"
            try:
                found: dict[str, Any] | Damage = self.folder.get(file) or Damage(file, "is missing", None)
            except (PenstockError, ValueError):
                found = Damage(file, "is damaged: its checksum does not match", None)
            self._manifests[version] = found
        return self._manifests[version]

    def segments(self, operator: str, version: int) -> list[dict[str, Any]]:
        """Return the state files of an operator, oldest first, as the manifest names them."""
        manifest = self.manifest(version)
        return [] if isinstance(manifest, Damage) else manifest["state"].get(operator, [])

    def operators(self, version: int) -> list[str]:
        """Return the names of the operators that may hold state, and of parts of it that there are."""
        manifest = self.manifest(version)
        if isinstance(manifest, Damage):
            return []
        return sorted(name for name, entries in manifest["state"].items() if entries or name == owner(name))

    def need(self, operator: str, version: int) -> None:
        """Refuse an operator that holds no state."""
        names = self.operators(version)
        if operator not in names and not isinstance(self.manifest(version), Damage):
            remedy = f"name one of {', '.join(names)}" if names else "no operator of this flow does"
            raise CheckpointError(f"checkpoint {self.path}: operator '{operator}' holds no state. Remedy: {remedy}.")

    # -- whole or not --------------------------------------------------------------------------------------------

    def spark_knows(self, version: int) -> bool:
        """Whether Spark could go on after this batch: it has its offsets and its commit."""
        folder = Folder(f"{self.path}/spark")
        return all(str(version) in folder.names(kind) for kind in ("offsets", "commits"))

    def first_damage(self, version: int, operator: str | None = None) -> Damage | None:
        """Return the first file of a version that is not whole; only the state of one operator if given."""
        manifest = self.manifest(version)
        if isinstance(manifest, Damage):
            return manifest
        needed = [(name, entry) for name, entries in manifest["state"].items() for entry in entries]
        if operator is not None:
            needed = [(name, entry) for name, entry in needed if name == operator]
        elif version == self.versions[-1] and not self.spark_knows(version):  # it may yet have to be published
            needed += [
                (port.split(".")[0], entry) for port, entries in manifest["outputs"].items() for entry in entries
            ]
        for name, entry in needed:
            what = self._wrong(entry)
            if what is not None:
                return Damage(entry["file"], what, name)
        return None

    def _wrong(self, entry: dict[str, Any]) -> str | None:
        try:
            with self.folder.system.open_input_stream(self.folder.at(entry["file"])) as stream:
                data = stream.read()
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read ({error})"
        if len(data) != entry["bytes"]:
            return f"is damaged: it has {len(data)} bytes, its manifest says {entry['bytes']}"
        return None if zlib.crc32(data) == entry["crc"] else "is damaged: its checksum does not match its manifest"

    def check(self, version: int, operator: str | None = None) -> None:
        """Refuse a version one of whose files is not whole."""
        damage = self.first_damage(version, operator)
        if damage is not None:
            raise self.refusal(version, damage)

    def whole_before(self, version: int) -> int | None:
        """Return the newest older version whose files are all whole and from which Spark can go on."""
        for older in reversed([number for number in self.versions if number < version]):
            if self.spark_knows(older) and self.first_damage(older) is None:
                return older
        return None

    def refusal(self, version: int, damage: Damage) -> CheckpointError:
        """Return the error: file, operator, the version to go back to, the remedy."""
        whose = "" if damage.operator is None else f", state of operator '{damage.operator}',"
        text = f"checkpoint {self.path}: {damage.file}{whose} {damage.what} (version {version}). "
        older = self.whole_before(version)
        if older is None:
            text += "No older version that is kept is whole. Remedy: restore the file from a copy of the checkpoint, "
            return CheckpointError(f"{text}or start on a new checkpoint.")
        again = f"batch {older + 1} is" if older + 1 == version else f"batches {older + 1} to {version} are"
        text += f"The newest older version whose files are all whole is {older}. Remedy: restore the file from a copy, "
        text += f"or go back with `penstock state {self.path} --back-to {older}` and start again: {again} run anew."
        return CheckpointError(text)

    # -- content -------------------------------------------------------------------------------------------------

    def rows_of(self, operator: str, version: int) -> pa.Table:
        """Return the rows that count, with their hash; where keys are overwritten, the newest of each."""
        pieces = []
        for entry in reversed(self.segments(operator, version)):  # newest first
            segment = Segment(**entry)
            table = self.folder.open_table(segment.file, segment.crc)
            live = counting(segment.groups, self.groups)
            pieces.append(table.filter(pa.array(live[group_of(hashes_of(table), self.groups)])))
        if not pieces:
            return pa.table({})
        if any(DEAD in piece.column_names for piece in pieces):
            return merge_newest(pieces, self.key_of(operator, pieces[0].column_names), drop_dead=True)
        return pa.concat_tables(pieces[::-1]).combine_chunks()

    def line_of(self, name: str) -> str:
        """Return the line of the flow's description that is about an operator, or about whose part this is."""
        operator = owner(name)
        for line in self.lines:
            words = line.split(" ", 1)
            if len(words) == 2 and words[1].startswith((f"{operator} <- ", f"{operator}:", f"{operator},")):
                return line
        return ""

    def key_of(self, name: str, columns: list[str]) -> tuple[str, ...]:
        """Return which of an operator's columns are its key, as the flow's description has it."""
        _, found, rest = self.line_of(name).partition(", key ")
        return names_at_start(rest, columns) or () if found else ()

    def state_of(self, operator: str, version: int) -> OperatorState:
        """Return the figures of one operator; keys and rows are counted if its files are whole, else 0."""
        entries = self.segments(operator, version)
        manifest = self.manifest(version)
        assert not isinstance(manifest, Damage)
        whole = self.first_damage(version, operator) is None
        table = self.rows_of(operator, version) if whole else pa.table({})
        key = self.key_of(operator, table.column_names)
        groups = keys = 0
        if table.num_rows:
            groups = len(np.unique(group_of(hashes_of(table), self.groups)))
            keys = table.select([HASH, *key]).group_by([HASH, *key]).aggregate([]).num_rows
        batches = [int(entry["file"].split("/")[1]) for entry in entries]
        return OperatorState(
            operator,
            self.line_of(operator).split(" ", 1)[0] or "?",
            key,
            groups,
            keys,
            table.num_rows,
            len(entries),
            sum(entry["bytes"] for entry in entries),
            min(batches, default=None),
            manifest["windows"].get(operator, {}).get("watermark"),
        )

    def view(self, version: int | None, states: tuple[OperatorState, ...], damage: str | None = None) -> StateView:
        """Return the view of a version."""
        flow = self.lines[0].removeprefix("flow ") if self.lines else "?"
        return StateView(self.path, flow, self.format, self.groups, version, self.versions, states, damage)
