"""How a task's report reaches the driver: as the rows of the job's result, in pieces that one network write takes.

The driver reads them through Py4J, whose answers pass a buffer of 8192 characters. A longer one goes out in two
writes: the second waits until the first is acknowledged, and the reader, who waits for the end of the line, lets that
take the 40 ms of a delayed acknowledgement. A report of 10 KB (the arrivals of 512 rows) so cost a batch 44 ms for each
task. Compressed, most fit into one piece.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

PIECE = 8000  # characters, less than Py4J's buffer
_MORE, _LAST = "+", "."  # what a piece begins with


def packed(report: dict[str, Any]) -> list[str]:
    """Return the rows of a report.

    >>> [piece[0] for piece in packed({"partition": 0, "taps": {}})]
    ['.']
    """
    text = base64.b64encode(zlib.compress(json.dumps(report).encode(), 1)).decode()
    cuts = range(0, len(text), PIECE)
    return [(_LAST if cut == cuts[-1] else _MORE) + text[cut : cut + PIECE] for cut in cuts]


def unpacked(pieces: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the reports in these rows; the pieces of a report stand together, in order.

    >>> list(unpacked([*packed({"partition": 0}), *packed({"partition": 1})]))
    [{'partition': 0}, {'partition': 1}]
    """
    text = ""
    for piece in pieces:
        text += piece[1:]
        if piece[0] == _LAST:
            yield json.loads(zlib.decompress(base64.b64decode(text)))
            text = ""
