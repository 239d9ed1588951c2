"""Files of a checkpoint: attempt-unique data files, and small documents that appear whole or not at all."""

from __future__ import annotations

import json
import os
import uuid
import zlib
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.errors import CheckpointError

_PIECE = 1 << 20


class Folder:
    """A folder on any file system pyarrow knows (local, HDFS, S3 ...), addressed by relative paths."""

    def __init__(self, uri: str) -> None:
        self.uri = str(uri)
        if "://" in self.uri or self.uri.startswith("file:"):
            self.system, self.root = fs.FileSystem.from_uri(self.uri)
        else:
            self.system, self.root = fs.LocalFileSystem(), os.path.abspath(self.uri)
        self.local = isinstance(self.system, fs.LocalFileSystem)

    def at(self, *parts: str) -> str:
        """Return the full path of a relative one."""
        return "/".join((self.root, *parts))

    def make(self, *parts: str) -> None:
        """Make a folder and its parents."""
        self.system.create_dir(self.at(*parts), recursive=True)

    def write(self, relative: str, data: pa.Buffer | bytes) -> None:
        """Write a file that no one reads until a document names it."""
        with self.system.open_output_stream(self.at(relative)) as stream:
            stream.write(data)

    def put(self, relative: str, document: dict[str, Any]) -> None:
        """Write a JSON document with a checksum so that it is seen whole or not at all."""
        body = json.dumps(document, separators=(",", ":"))
        text = f"{zlib.crc32(body.encode()):08x}\n{body}\n"
        temporary = f"{relative}.{uuid.uuid4().hex[:8]}.tmp"
        self.write(temporary, text.encode())
        self.system.move(self.at(temporary), self.at(relative))

    def get(self, relative: str) -> dict[str, Any] | None:
        """Read a JSON document; None if it is not there, an error if it is damaged."""
        try:
            with self.system.open_input_stream(self.at(relative)) as stream:
                text = stream.read().decode()
        except FileNotFoundError:
            return None
        checksum, _, body = text.partition("\n")
        body = body.rstrip("\n")
        if checksum != f"{zlib.crc32(body.encode()):08x}":
            raise CheckpointError(
                f"{self.at(relative)}: checksum does not match, the file is damaged. Remedy: restore it, or "
                "restart from an older copy of the checkpoint."
            )
        document: dict[str, Any] = json.loads(body)
        return document

    def names(self, relative: str) -> list[str]:
        """List the names in a folder; empty if there is no such folder."""
        selector = fs.FileSelector(self.at(relative), allow_not_found=True)
        return [info.base_name for info in self.system.get_file_info(selector)]

    def delete(self, relative: str) -> None:
        """Delete a file if it is there."""
        try:
            self.system.delete_file(self.at(relative))
        except FileNotFoundError:
            return

    def delete_folder(self, relative: str) -> None:
        """Delete a folder and what is in it, if it is there."""
        try:
            self.system.delete_dir(self.at(relative))
        except FileNotFoundError:
            return

    def open_table(self, relative: str, crc: int | None = None) -> pa.Table:
        """Open an Arrow file, memory-mapped where the file system is local; verify its checksum if given."""
        path = self.at(relative)
        try:
            if self.local:
                if crc is not None:
                    self._verify(path, crc)
                return pa.ipc.open_file(pa.memory_map(path)).read_all()
            buffer = self.system.open_input_file(path).read_buffer()
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be read ({error}). Remedy: restore it from a copy of the checkpoint."
            ) from error
        if crc is not None and zlib.crc32(buffer) != crc:
            raise damaged(path)
        return pa.ipc.open_file(pa.BufferReader(buffer)).read_all()

    def _verify(self, path: str, crc: int) -> None:
        """Compare a local file with its checksum, piece by piece: not by the map, whose pages would stay in memory."""
        found = 0
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                found = zlib.crc32(piece, found)
        if found != crc:
            raise damaged(path)


def damaged(path: str) -> CheckpointError:
    """Return the error of a file that is not what its manifest says."""
    return CheckpointError(
        f"{path}: checksum does not match its manifest, the file is damaged. Remedy: restore the file, or go "
        "back to the last manifest whose files are whole."
    )


def arrow_bytes(table: pa.Table) -> tuple[pa.Buffer, int]:
    """Return a table as an Arrow file in memory, and its checksum."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    buffer = sink.getvalue()
    return buffer, zlib.crc32(buffer)
