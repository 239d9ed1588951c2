"""What a checkpoint remembers, for people: one row per operator, and whether its files are whole."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from penstock.observe.render import number, table


@dataclass(frozen=True)
class OperatorState:
    """The state of one operator as one manifest names it.

    >>> OperatorState("sums", "stateful", ("k",), 64, 20, 20, 1, 1714).bytes_per_key
    85.7
    """

    operator: str  # its name, or that of a part of its state: "bars.pending"
    kind: str  # "stateful", "window", ...
    key: tuple[str, ...]
    groups: int  # key groups that hold something
    keys: int
    rows: int  # a stateful operator has one per key, a window one per key and pane (or tuple) that it still needs
    files: int
    bytes: int  # of the files, what newer ones have replaced included
    oldest_batch: int | None = None  # that wrote one of the files
    watermark: int | None = None  # microseconds since the epoch, for windows

    @property
    def bytes_per_key(self) -> float | None:
        """Bytes of the files per key; None without keys.

        >>> OperatorState("w", "window", (), 0, 0, 0, 0, 0).bytes_per_key is None
        True
        """
        return self.bytes / self.keys if self.keys else None


@dataclass(frozen=True)
class StateView:
    """What `penstock state` shows. `str(view)` is text, `view.to_json()` a dict with these fields as keys.

    >>> view = StateView("ckpt", "trading", 1, 64, 5, (3, 4, 5), (OperatorState("sums", "stateful", ("k",), 9, 20, 20,
    ...     1, 1714, 5),))
    >>> print(view)
    state of flow 'trading', checkpoint ckpt, format 1, 64 key groups
    version 5 (the manifest of batch 5); versions 3 to 5 are kept; every file it names is whole
    <BLANKLINE>
    operator   kind       key   groups   keys   rows   files   bytes   bytes/key   oldest batch   watermark
    ────────...
    sums       stateful   k          9     20     20       1   1,714          86              5           -
    """

    checkpoint: str
    flow: str
    format: int
    groups: int
    version: int | None  # the batch whose manifest is shown; None: no batch has ended
    versions: tuple[int, ...]  # the manifests that are kept
    operators: tuple[OperatorState, ...] = ()
    damage: str | None = None  # what is wrong, and the remedy

    def to_json(self) -> dict[str, Any]:
        """A plain dict with the fields of this class as keys.

        >>> StateView("ckpt", "f", 1, 64, None, ()).to_json()["version"] is None
        True
        """
        return asdict(self)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 140) -> str:
        """The view as plain text without colour codes.

        >>> print(StateView("ckpt", "f", 1, 64, None, ()).text())
        state of flow 'f', checkpoint ckpt, format 1, 64 key groups
        no batch has ended yet
        """
        out = io.StringIO()
        Console(file=out, width=width, force_terminal=False, color_system=None, legacy_windows=False).print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()

    def __rich__(self) -> Group:
        head = f"state of flow '{self.flow}', checkpoint {self.checkpoint}, format {self.format}, "
        head += f"{self.groups} key groups\n"
        if self.version is None:
            return Group(Text(head + "no batch has ended yet"), *self._damage())
        head += f"version {self.version} (the manifest of batch {self.version}); versions {self.versions[0]} to "
        head += f"{self.versions[-1]} are kept; "
        head += "every file it names is whole" if self.damage is None else "NOT every file it names is whole"
        names = ["operator", "kind", "key", "groups", "keys", "rows", "files", "bytes", "bytes/key", "oldest batch"]
        rows = ([*_cells(state), _moment(state.watermark)] for state in self.operators)
        shown = table([*names, "watermark"], rows, left=3) if self.operators else Text("no operator holds state")
        return Group(Text(head), shown, *self._damage())

    def _damage(self) -> list[Text]:
        return [] if self.damage is None else [Text(f"error: {self.damage}")]


def _cells(state: OperatorState) -> list[str]:
    counts = (state.groups, state.keys, state.rows, state.files, state.bytes, state.bytes_per_key, state.oldest_batch)
    return [state.operator, state.kind, " ".join(state.key) or "(none)", *(number(count) for count in counts)]


def _moment(microseconds: int | None) -> str:
    """An instant in UTC, to the millisecond.

    >>> _moment(1_700_000_002_499_000)
    '2023-11-14 22:13:22.499Z'
    """
    if microseconds is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(microseconds // 1_000_000, tz=UTC)
    except (OverflowError, ValueError, OSError):  # beyond year 9999: a flow over all of time
        return str(microseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{microseconds % 1_000_000 // 1000:03d}Z"
