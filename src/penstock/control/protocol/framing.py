"""How an item travels: a header and its payload parts (thesis 004, 5.4.9, listings 5.7, 5.8 and 5.10).

``header = (id, incomingMsgs)`` in 12 bytes, then ``incomingMsgs`` parts. Part 0 is the fixed record; the members of
dynamic size are its last members, one 8-byte slot each, and are sent in that order. On arrival part i fills slot
``len(record) / 8 - left``, where ``left`` is the number of parts still to come, itself included. (Listing 5.8 starts
its loop at 1: part 0 is sent before.)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.protocol.kernel import ProtocolError
from penstock.errors import PolicyError

HEADER = struct.Struct("<qi")  # 12 bytes; DSParLib's header has 20
SLOT = 8


@dataclass(frozen=True)
class Record:
    """A record of fixed members (``struct`` letters, C alignment) followed by members of dynamic size.

    >>> line = Record("ii", dynamic=1)          # LineToRender {int size; int line; char* M}
    >>> frames = line.publish(7, (3, 40), b"abc")
    >>> [len(frame) for frame in frames]
    [12, 16, 3]
    >>> line.receive(frames)
    (7, (3, 40), (b'abc',))
    """

    fixed: str
    dynamic: int = 0

    def __post_init__(self) -> None:
        if self.dynamic < 0:
            raise PolicyError("record", f"dynamic members cannot be {self.dynamic}", "give 0 or more")

    @property
    def layout(self) -> struct.Struct:
        """The fixed part in memory: its members and one pointer-sized slot for each dynamic one."""
        return struct.Struct("@" + self.fixed + "P" * self.dynamic)

    def publish(self, item_id: int, values: Sequence[object], *parts: bytes) -> list[bytes]:
        """Return the messages of one item: header, fixed record, then every dynamic member."""
        if len(parts) != self.dynamic:
            raise PolicyError(
                "record", f"{self.dynamic} dynamic members, {len(parts)} parts given", "give one part each"
            )
        record = self.layout.pack(*values, *([0] * self.dynamic))
        return [HEADER.pack(item_id, 1 + len(parts)), record, *parts]

    def receive(self, frames: Sequence[bytes]) -> tuple[int, tuple[object, ...], tuple[bytes, ...]]:
        """Return id, fixed values and dynamic parts of one item; each part is placed by its slot."""
        item_id, left = HEADER.unpack(frames[0])
        if left != len(frames) - 1 or left != 1 + self.dynamic:
            raise ProtocolError(f"item {item_id} announces {left} parts; {len(frames) - 1} came")
        record = frames[1]
        first = len(record) // SLOT - self.dynamic
        slots: dict[int, bytes] = {}
        left -= 1
        for part in frames[2:]:
            slots[len(record) // SLOT - left] = part
            left -= 1
        values = self.layout.unpack(record)
        return item_id, values[: len(values) - self.dynamic], tuple(slots[first + i] for i in range(self.dynamic))
