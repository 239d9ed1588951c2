"""The ledger of a job: what each batch decided, wrote and published. Exactly-once rests on it.

    <checkpoint>/spark/            Spark's own offsets and commits
    <checkpoint>/penstock/flow.json        what flow the checkpoint belongs to
    <checkpoint>/penstock/log/<id>         what changes results (watermarks, ticks), and the plan, for audit
    <checkpoint>/penstock/files/<id>/...   attempt-unique files of batch id: state, outputs, stage reports
    <checkpoint>/penstock/manifests/<id>   which of those files count: written last, seen whole or not at all
    <checkpoint>/penstock/sinks/<id>       the sinks that have published batch id
    <checkpoint>/penstock/telemetry/       one line per batch

A batch reads only what manifest id-1 names; files that no manifest names do not exist.
"""

from __future__ import annotations

import difflib
import uuid
from typing import Any

from penstock.engine.spark.files import Folder
from penstock.errors import CheckpointError

VERSION = 1


class Ledger:
    """Reads and writes the documents of one checkpoint, and removes what is no longer needed."""

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint.rstrip("/")
        self.folder = Folder(f"{self.checkpoint}/penstock")
        for name in ("log", "files", "manifests", "sinks", "telemetry"):
            self.folder.make(name)
        self.identifier = ""  # of the checkpoint, in the names of the files its flow publishes
        self._purged_to: int | None = None
        self._with_live_files: set[int] = set()

    @property
    def spark_checkpoint(self) -> str:
        """Where Spark keeps its own logs."""
        return f"{self.checkpoint}/spark"

    def claim(self, description: list[str], groups: int) -> None:
        """Bind the checkpoint to a flow, or refuse a flow that differs from the one it belongs to."""
        known = self.folder.get("flow.json")
        if known is None:
            known = {"version": VERSION, "flow": description, "groups": groups, "id": uuid.uuid4().hex[:8]}
            self.folder.put("flow.json", known)
        if known["version"] != VERSION:
            raise CheckpointError(
                f"checkpoint {self.checkpoint} has format {known['version']}, this Penstock writes {VERSION}. "
                "Remedy: use the Penstock version that wrote it, or a new checkpoint."
            )
        if known["flow"] != description:
            changes = [line for line in difflib.ndiff(known["flow"], description) if line[0] in "+-"]
            raise CheckpointError(
                f"checkpoint {self.checkpoint} belongs to another flow (- it, + this):\n"
                + "\n".join(changes)
                + "\nRemedy: start the changed flow on a new checkpoint, or change it back."
            )
        if known["groups"] != groups:
            raise CheckpointError(
                f"checkpoint {self.checkpoint} has {known['groups']} key groups, this Penstock uses {groups}. "
                "Remedy: use the Penstock version that wrote it, or a new checkpoint."
            )
        self.identifier = known["id"]

    def manifest(self, batch: int) -> dict[str, Any] | None:
        """Return the manifest of a batch, None if it was not finished."""
        return self.folder.get(f"manifests/{batch:08d}")

    def before(self, batch: int) -> dict[str, Any]:
        """Return the manifest that batch starts from."""
        if batch == 0:
            return {"id": -1, "state": {}, "windows": {}, "outputs": {}}
        manifest = self.manifest(batch - 1)
        if manifest is None:
            raise CheckpointError(
                f"checkpoint {self.checkpoint}: Spark runs batch {batch}, but manifest {batch - 1} is missing. "
                "Remedy: restore the folder penstock/manifests, or start on a new checkpoint."
            )
        return manifest

    def newest(self) -> int | None:
        """Return the id of the newest manifest."""
        names = [name for name in self.folder.names("manifests") if name.isdigit()]
        return max(map(int, names)) if names else None

    def log(self, batch: int, entry: dict[str, Any]) -> dict[str, Any]:
        """Log what changes the results of a batch; a replay gets back what was logged first."""
        known = self.folder.get(f"log/{batch:08d}")
        if known is not None:
            return known
        self.folder.put(f"log/{batch:08d}", entry)
        return entry

    def begin_files(self, batch: int) -> str:
        """Make the folder of a batch's files and return its relative path."""
        self.folder.make("files", f"{batch:08d}")
        return f"files/{batch:08d}"

    def finish(self, batch: int, manifest: dict[str, Any]) -> None:
        """Write the manifest: from here on the batch is done, whatever happens."""
        self.folder.put(f"manifests/{batch:08d}", manifest)

    def published(self, batch: int) -> set[str]:
        """Return the sinks that have published a batch."""
        document = self.folder.get(f"sinks/{batch:08d}")
        return set(document["sinks"]) if document else set()

    def mark_published(self, batch: int, sinks: set[str]) -> None:
        """Record that sinks have published a batch."""
        self.folder.put(f"sinks/{batch:08d}", {"sinks": sorted(sinks)})

    def purge(self, batch: int, keep: int) -> None:
        """Remove what no manifest within `keep` batches of `batch` needs.

        Called while `batch` runs, so Spark has committed batch - 1 and will never ask for less; state
        files stay as long as the oldest kept manifest names them.
        """
        oldest = batch - keep
        kept = self.manifest(oldest) if oldest > 0 else None
        if kept is None:
            return
        start = self._first_kept(oldest) if self._purged_to is None else self._purged_to
        self._with_live_files |= set(range(start, oldest))
        live: dict[int, set[str]] = {}
        for segments in kept["state"].values():
            for segment in segments:
                folder, name = segment["file"].split("/")[1:]
                live.setdefault(int(folder), set()).add(name)
        for number in sorted(n for n in self._with_live_files if n < oldest):
            self._purge_files(number, live.get(number, set()))
        for number in range(start, oldest):
            for kind in ("log", "manifests", "sinks"):
                self.folder.delete(f"{kind}/{number:08d}")
        self._purged_to = oldest

    def _first_kept(self, oldest: int) -> int:
        """After a restart: note the file folders below `oldest`, return the first manifest that is there."""
        self._with_live_files = {int(n) for n in self.folder.names("files") if n.isdigit() and int(n) < oldest}
        return min((int(name) for name in self.folder.names("manifests") if name.isdigit()), default=oldest)

    def _purge_files(self, number: int, needed: set[str]) -> None:
        if not needed:
            self.folder.delete_folder(f"files/{number:08d}")
            self._with_live_files.discard(number)
            return
        for name in self.folder.names(f"files/{number:08d}"):
            if name not in needed:
                self.folder.delete(f"files/{number:08d}/{name}")
