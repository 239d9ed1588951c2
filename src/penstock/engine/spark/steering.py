"""A job steered by two files (thesis 004, sections 4.11 and 5.5): any program in any language can be the controller.

- ``stats_stage<k>.json`` is written after each batch, one file per stage: what every replica consumed and produced;
- ``parameters.json`` says how many replicas each stage is to have; it is read before each batch.

Stage k is the k-th operator of the flow that has a width. Files are replaced as a whole (`os.replace`), so that a
reader never sees half of one; a controller should do the same. A `parameters.json` that is missing, half written or
wrong is reported once and changes nothing, and the next good one counts (004, acceptance 20).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.control.decision import Decision
from penstock.control.policies.mpr_files import (
    Sample,
    read_parameters,
    read_statistics,
    write_parameters,
    write_statistics,
)
from penstock.errors import FlowError
from penstock.flow.flow import Flow
from penstock.observe.record import BatchRecord, OperatorStats

log = logging.getLogger("penstock")

PARAMETERS = "parameters.json"
_LONGEST = 1 << 16  # bytes of a parameters file that are read; more is none of ours


class Steering:
    """The two files of a job in a folder; `stages` has the least and most width of each stage, in flow order.

    A statistics file keeps the last `keep` samples. `problems` has the last 100 complaints, oldest first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     steering = Steering(folder, {"score": (1, 8)})
    ...     _ = (Path(folder) / "parameters.json").write_text('{"stage1": 4}')
    ...     steering.widths({"score": 1})
    {'score': 4}
    """

    def __init__(self, folder: str | os.PathLike[str], stages: Mapping[str, tuple[int, int]], keep: int = 50) -> None:
        if not stages:
            rule = "there is no operator whose width could be steered"
            raise FlowError("steering", rule, "give a map replicas=ps.elastic(1, 8), or leave steering out")
        if keep < 1:
            raise FlowError("steering", f"keep must be at least 1, got {keep}", "keep 1 sample or more")
        self.folder, self.stages, self.keep = Path(folder), dict(stages), keep
        self.problems: list[str] = []
        self._content: bytes | None = None  # of parameters.json, when it was last looked at
        self._sizes: dict[str, int] = {}  # what the last good file asked for
        self._samples = [self._earlier(number) for number in range(1, len(stages) + 1)]

    # -- parameters.json: in -----------------------------------------------------------------------

    def widths(self, current: Mapping[str, int]) -> dict[str, int]:
        """The widths that the file asks for, within the stages' limits; those of now where it says nothing usable."""
        self._look()
        return {name: self._sizes.get(name, width) for name, width in current.items()}

    def begin(self, widths: Mapping[str, int]) -> dict[str, int]:
        """The widths to start with: those of the file, as in the thesis; where there is none, it is written with ours.

        A controller then finds the stages and their sizes without knowing the flow.
        """
        if not (self.folder / PARAMETERS).exists():
            self._replace(PARAMETERS, write_parameters([widths[name] for name in self.stages]))
        return self.widths(widths)

    def _look(self) -> None:
        try:
            with (self.folder / PARAMETERS).open("rb") as file:
                content = file.read(_LONGEST + 1)
        except OSError as error:
            if self._content != b"":  # what an empty file holds: as good as none
                self._complain(f"{PARAMETERS}: it cannot be read ({error})")
            self._content = b""
            return
        if content != self._content:
            self._content = content
            self._take(content)

    def _take(self, content: bytes) -> None:
        """Take the sizes out of a file's content, or say what is wrong with it."""
        if len(content) > _LONGEST:
            self._complain(f"{PARAMETERS}: it is longer than {_LONGEST} bytes")
            return
        text = content.decode(errors="replace")
        sizes = _sizes_in(text, len(self.stages))
        if sizes is None:
            self._complain(f"{PARAMETERS}: {_whats_wrong(text, len(self.stages))}")
            return
        for (name, (lo, hi)), size in zip(self.stages.items(), sizes, strict=True):
            self._sizes[name] = min(max(size, lo), hi)
            if self._sizes[name] != size:
                limits = f"'{name}' can have {lo} to {hi} replicas, not {size}"
                self._complain(f"{PARAMETERS}: {limits}; it gets {self._sizes[name]}")

    def _complain(self, problem: str) -> None:
        self.problems = [*self.problems[-99:], problem[:400]]
        log.warning("steering in %s: %s", self.folder, problem[:400])

    # -- stats_stage<k>.json: out ------------------------------------------------------------------

    def sample(self, record: BatchRecord) -> None:
        """Add what each stage did in a batch to its statistics file; a stage that did not run has no sample.

        `averageItemsProduced` is per second of the whole cycle, waits included.
        """
        by_name = {stats.name: stats for stats in record.operators}
        for number, name in enumerate(self.stages, 1):
            if name not in by_name:
                continue
            samples = self._samples[number - 1]
            stamp = max(int(record.visible * 1e3), max(samples, default=0) + 1)  # a clock set back adds no sample twice
            samples[stamp] = counters(by_name[name], record.cycle_s)
            while len(samples) > self.keep:
                del samples[min(samples)]
            self._replace(f"stats_stage{number}.json", write_statistics(number, samples))

    def _earlier(self, number: int) -> dict[int, Sample]:
        """The samples of an earlier start, so that a controller that counts on goes on counting."""
        try:
            text = (self.folder / f"stats_stage{number}.json").read_text()
        except (OSError, UnicodeDecodeError):
            return {}
        return dict(list((read_statistics(text) or {}).items())[-self.keep :])

    def _replace(self, name: str, text: str) -> None:
        """Write a file as a whole: readers see the one before or this one."""
        half = self.folder / f".{name}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            half.write_text(text)
            os.replace(half, self.folder / name)
        except OSError as error:  # a full disk must not end the job: statistics are for others to read
            problem = f"{name}: it cannot be written ({error})"
            if problem not in self.problems:
                self._complain(problem)


class Steered:
    """The policy of a job that is steered by files: the widths of `parameters.json`, all else as it is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = Steered(Steering(folder, {"score": (1, 8)}))
    ...     _ = (Path(folder) / "parameters.json").write_text('{"stage1": 3}')
    ...     policy.decide(None, Decision({"score": 1}, lifetime_s=0.5))
    Decision(widths={'score': 3}, lifetime_s=0.5...)
    """

    def __init__(self, steering: Steering) -> None:
        self.steering = steering

    def decide(self, observed: Any, current: Decision) -> Decision:
        """The current decision with the widths that the file asks for."""
        return replace(current, widths=self.steering.widths(current.widths))


def steering_of(flow: Flow, steering: bool | str | os.PathLike[str], policy: Any, checkpoint: str) -> Steering | None:
    """What `flow.start(..., steering=)` means; None if it is off."""
    where = f"flow '{flow.name}'"
    if steering is False:
        return None
    if policy is not None:
        raise FlowError(where, "with steering=, the widths come from a file, not from a policy", "pass one of the two")
    folder = steering
    if steering is True:
        local = checkpoint.removeprefix("file://").removeprefix("file:")
        if ":" in local:
            rule = f"the files of steering=True go to the checkpoint, which is not a local folder: {checkpoint}"
            raise FlowError(where, rule, "pass steering='some/local/folder'")
        folder = Path(local) / "penstock" / "steering"
    if not isinstance(folder, (str, os.PathLike)):
        raise FlowError(where, f"steering must be True or a folder, got {steering!r}", "pass steering='some/folder'")
    widths = {name: getattr(node, "width", None) for name, node in flow.operators.items()}
    return Steering(folder, {name: (width.lo, width.hi) for name, width in widths.items() if width is not None})


def counters(stats: OperatorStats, seconds: float) -> dict[str, dict[str, float]]:
    """A batch's sample of one stage: what every replica did, by process name; together they are the sums.

    >>> stats = OperatorStats("score", width=2, rows_in=7, rows_out=4, replicas=((5, 2), (2, 2)))
    >>> counters(stats, seconds=0.5)["Compute1"]
    {'ItemsConsumed': 2, 'ItemsProduced': 2, 'averageItemsProduced': 4.0}
    """
    sample: dict[str, dict[str, float]] = {}
    for i, (consumed, produced) in enumerate(stats.replicas or ((stats.rows_in, stats.rows_out),)):
        per_s = round(produced / seconds, 2) if seconds > 0.0 else 0.0
        sample[f"Compute{i}"] = {
            "ItemsConsumed": consumed,
            "ItemsProduced": produced,
            "averageItemsProduced": per_s,
        }
    return sample


def _sizes_in(text: str, stages: int) -> tuple[int, ...] | None:
    try:
        return read_parameters(text, [1] * stages)
    except RecursionError:  # brackets within brackets, thousands deep
        return None


def _whats_wrong(text: str, stages: int) -> str:
    """Why a text is no parameters file, for a person."""
    wanted = f"give every stage a whole number, as in {write_parameters([1] * stages)}"
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return f"it is not JSON; {wanted}"
    if not isinstance(body, dict):
        return f"it is not a JSON object; {wanted}"
    missing = [f"stage{k}" for k in range(1, stages + 1) if f"stage{k}" not in body]
    if missing:
        return f"it has no {', '.join(missing)}; {wanted}"
    return f"{', '.join(f'{name} is {value!r}' for name, value in sorted(body.items()))[:200]}; {wanted}"
