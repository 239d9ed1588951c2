"""Which job of a batch closes a window: the one that takes its rows in, or a *tick*, its tasks once more without rows.

A task that has all rows of a key closes the key's windows itself. Two kinds of windows it cannot close so:

- those that close at once (a latency counts on them): none of several tasks knows how far the others have come;
- those of many panes whose tasks only append, each the rows it happened to read, to a log that all share.

Both are closed by a tick inside the batch. It costs 30-40 ms, most of it for one more job, so windows that append are
closed *ahead* where that can be: while its rows are still on their way, each task closes, from the log, windows of a
share of the keys. That holds if no row of the batch lies in these windows, which is known once all tasks have ended.
A stream in order is like that. If one row does, what was closed ahead does not count, and a tick follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.engine.spark.logs import MAX_SEGMENTS
from penstock.engine.spark.runner import Reports
from penstock.engine.spark.stages import Plan, Stage
from penstock.engine.spark.watermarks import has_passed, in_force
from penstock.flow import operators as op
from penstock.windows.panes import reached_by
from penstock.windows.time import Time

HELD_ROWS = 1 << 19  # rows of a window's log that one task reads at a time: what bounds a worker's memory


class Ticks:
    """Decides, for the windows of one flow, what is closed when in a batch."""

    def __init__(self, windows: Mapping[str, op.Window]) -> None:
        self.windows = windows
        self._shares: dict[str, int] = {}  # tasks that took rows in last time, of windows that could be closed ahead

    def alone(self, name: str, entry: dict[str, Any]) -> bool:
        """Whether one task has all rows of a window that is closed at once: it knows the watermark, and closes."""
        return name in entry.get("at_once", []) and entry["widths"][name] == 1 and name not in entry["appends"]

    def ahead(
        self, plan: Plan, before: dict[str, Any], entry: dict[str, Any], tasks_of: Callable[[Stage], int | None]
    ) -> dict[str, int]:
        """Return the windows to be closed ahead in a batch, each with the number of tasks that share its keys.

        Not those whose results go through further steps at once: these could not be taken back. `tasks_of` says how
        many tasks will read rows, if that is known. Where they are fewer than the window is wide, tasks without rows
        are to help.
        """
        found = {}
        for stage in plan.stages:
            name, log = stage.name, before["state"].get(stage.name, [])
            share = self._shares.get(name, 0) if name in entry["appends"] else 0
            closed = before["windows"].get(name, {}).get("watermark")
            if not share or not has_passed(self.windows[name], closed, entry["watermarks"][name]):
                continue
            if (tasks := tasks_of(stage)) is not None:
                share = max(tasks, entry["widths"][name])
            plain = not stage.steps and stage.outlet is None and name not in entry.get("at_once", [])
            few = sum(segment["rows"] for segment in log) <= share * HELD_ROWS and len(log) <= 2 * MAX_SEGMENTS
            if plain and few:
                found[name] = share
        return found

    def settle(self, entry: dict[str, Any], clocks: dict[str, Any], reports: Reports) -> None:
        """Let what was closed ahead count, or take it back: a window that still `appends` is closed by a tick."""
        for name in [name for name in entry["appends"] if name in reports]:
            watermark, found, share = entry["watermarks"][name], reports[name], clocks[name]["ahead"]
            apart = watermark is None or self._lie_behind(name, watermark, found)
            if share and apart and share <= len(found):  # each share had its task
                entry["appends"].remove(name)
            elif share:
                for report in found:
                    report["taps"].pop(name, None)
                    report.get("closed", {}).pop(name, None)
                    report["ops"][name]["rows_out"] = 0
            self._shares[name] = len(found) if apart else 0

    def _lie_behind(self, name: str, watermark: int, reports: Iterable[dict[str, Any]]) -> bool:
        """Whether all rows that a batch appended lie behind the windows that a watermark closes."""
        changes = [report.get("state", {}).get(name) for report in reports]
        least = [change["new"]["lo"] for change in changes if change and change["new"]]
        spec = self.windows[name].spec
        assert isinstance(spec, Time)  # what appends has panes
        return not least or min(least) >= reached_by(spec, watermark)

    def entry(self, manifest: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any] | None:
        """Return the entry of a tick that closes what a batch has left open; None if there is nothing to close.

        Logs that were only appended to are written anew by a tick, too, when they are long.
        """
        if entry["flush"]:
            return None
        watermarks = {name: known.get("watermark") for name, known in manifest["windows"].items()}
        ripe = [name for name in entry["appends"] if len(manifest["state"].get(name, [])) > 2 * MAX_SEGMENTS]
        for name in {*entry["appends"], *entry.get("at_once", [])}:
            known, node = manifest["windows"][name], self.windows[name]
            reached = [] if name not in entry["appends"] else [entry["watermarks"][name]]
            if name in entry.get("at_once", []):
                reached.append(in_force(known, node.spec, entry["cut_us"], idle=False))
            watermarks[name] = max((one for one in reached if one is not None), default=known["watermark"])
            if has_passed(node, known["watermark"], watermarks[name]):
                ripe.append(name)
        if ripe:
            return {**entry, "idle": True, "watermarks": watermarks, "ripe": ripe, "appends": []}
        for name, watermark in watermarks.items():  # no window lies between the two
            manifest["windows"][name]["watermark"] = watermark
        return None


def together(manifest: dict[str, Any], closed: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest that a batch and a tick in it leave together."""
    outputs = {**closed["outputs"]}
    for port, written in manifest["outputs"].items():
        outputs[port] = [*written, *outputs.get(port, [])]
    return {**closed, "outputs": outputs}
