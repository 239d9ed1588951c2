"""The contests over time windows: each peer beside Penstock, slide by slide, then Penstock at all slides in turn.

A slow peer runs a prefix of the same events, long enough to take `at_least_s` seconds; its results are compared on that
prefix. The run that is compared is not timed, nor are those of `WARM_S` seconds after it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.bench.streams import Bench
from penstock.bench.windows import truth
from penstock.bench.windows.engines import Files, Inputs, Runner, Shape
from penstock.bench.windows.flink import Flink
from penstock.bench.windows.journal import Row

Read = Callable[[Path], pa.Table]

WARM_S = 20.0  # for which a player runs before it is timed
MORE_ROUNDS = 3  # times as many, where players are held against each other in runs of a second


@dataclass(frozen=True)
class Effort:
    """How much is run."""

    rows: int  # of a streaming case
    per_batch: int
    batch_rows: int  # of the batch DataFrame
    at_least_s: float  # that a slow peer runs
    runs: int  # of quick ones; a slow peer runs once

    def to_json(self) -> dict[str, float]:
        """Its settings, for the results file."""
        return dict(vars(self))


@dataclass(frozen=True)
class Player:
    """An engine ready to run a shape: how it runs, and how its results are read."""

    engine: str
    shape: Shape
    run: Runner
    read: Read
    note: str = ""


@dataclass(frozen=True)
class Checked:
    """A run whose results were compared."""

    rows: int
    results: int  # all that it wrote, those of open windows included
    equal: bool
    seconds: float


class Arena:
    """Runs players over events, each run in a folder of its own that is removed behind it."""

    def __init__(self, bench: Bench, effort: Effort, flink: Flink | None) -> None:
        self.bench, self.effort, self.flink = bench, effort, flink
        self.inputs = Inputs(bench.folder / "inputs", effort.per_batch)
        self._count = 0

    def files(self, player: Player, rows: int) -> Files:
        """The input of a player; Flink makes its own."""
        if player.engine == "flink":
            return Files(Path(), rows)
        return self.inputs.of(player.shape.events, rows)

    def time(self, player: Player, rows: int) -> float:
        """Seconds of one run whose results go nowhere."""
        folder = self._fresh()
        seconds = player.run(self.files(player, rows), folder / "checkpoint", None)
        shutil.rmtree(folder, ignore_errors=True)
        return seconds

    def warm(self, player: Player, rows: int) -> None:
        """Run a player for a while: the JVM takes minutes to compile all that a batch runs through."""
        until = time.monotonic() + (WARM_S if self.effort.runs > 1 else 0.0)
        self.time(player, rows)
        while time.monotonic() < until:
            self.time(player, rows)

    def check(self, player: Player, rows: int) -> Checked:
        """One run whose results are compared with the truth."""
        folder, shape = self._fresh(), player.shape
        seconds = player.run(self.files(player, rows), folder / "checkpoint", folder / "results")
        found = player.read(folder / "results")
        limit = shape.events.closed_by(rows)
        wanted = truth.expected(shape.events, rows, shape.size_ms, shape.slide_ms, limit)
        if not wanted.num_rows:
            raise RuntimeError(f"{shape.label}: {rows} rows close no window, so nothing was compared")
        equal = truth.same_rows(found, wanted, shape.size_ms, limit)
        shutil.rmtree(folder, ignore_errors=True)
        said = f"{found.num_rows} results, {'equal' if equal else 'NOT EQUAL'} to the truth ({wanted.num_rows} rows)"
        self.bench.say(f"  {shape.label}, {player.engine}, checked: {rows} rows in {seconds:.1f} s, {said}")
        return Checked(rows, found.num_rows, equal, seconds)

    def prefix(self, player: Player) -> int:
        """How many rows make the player run for `at_least_s` seconds; all of them where that is less."""
        least = player.shape.least_rows
        self.time(player, least)  # a cold engine would look slow, and get too short a prefix
        return sized(lambda rows: self.time(player, rows), least, self.effort.rows, self.effort.at_least_s)

    def rounds(self, players: Sequence[Player], rows: dict[Player, int], runs: int) -> dict[Player, list[float]]:
        """Time players in turn, the order turning round from run to run."""
        found: dict[Player, list[float]] = {player: [] for player in players}
        for number in range(runs):
            order: Iterable[Player] = players if number % 2 == 0 else reversed(players)
            for player in order:
                seconds = self.time(player, rows[player])
                found[player].append(seconds)
                speed = f"{rows[player] / seconds / 1e3:.4g} k rows/s"
                self.bench.say(f"  {player.shape.label}, {player.engine}, run {number + 1}/{runs}: {speed}")
        return found

    def row(self, player: Player, checked: Checked, runs: Sequence[float], beside: Sequence[float] = ()) -> Row:
        """The row of a player's runs."""
        shape = player.shape
        return Row.of(
            player.engine,
            shape.case,
            runs,
            rows=checked.rows,
            results=checked.results,
            equal=checked.equal,
            size_s=shape.size_ms / 1000,
            slide_s=shape.slide_ms / 1000,
            beside=list(beside),
            note=player.note,
        )

    def _fresh(self) -> Path:
        self._count += 1
        folder = self.bench.folder / f"run-{self._count:04d}"
        folder.mkdir()
        return folder


def sized(run: Callable[[int], float], least: int, most: int, at_least_s: float) -> int:
    """The number of rows, from `least` to `most`, for which `run(rows)` takes `at_least_s` seconds, found by trying.

    >>> sized(lambda rows: rows / 1000, least=500, most=10**6, at_least_s=60.0) >= 60_000
    True
    >>> sized(lambda rows: rows / 1e6, least=500, most=10**6, at_least_s=60.0)
    1000000
    """
    rows = min(least, most)
    while rows < most:
        seconds = run(rows)
        if seconds >= at_least_s:
            return rows
        if rows * at_least_s >= most * max(seconds, 1e-9) * 0.8:  # at this pace all of them take hardly longer
            return most
        aimed = 1.15 * rows * at_least_s / max(seconds, 1e-9)
        if seconds >= at_least_s / 4:  # long enough to trust the pace
            return min(most, int(aimed))
        rows = min(most, int(min(aimed, 10 * rows)))  # a short run is mostly fixed cost: go up step by step
    return most


def flat(arena: Arena, ours: Sequence[Player], tumbling_peer: Player) -> list[Row]:
    """Penstock at every slide, and Spark's tumbling window, in turn.

    Runs of about a second, held against each other: it takes more of them than elsewhere for the noise to go.
    """
    players = [*ours, tumbling_peer]
    rows = arena.effort.rows
    checks = {player: arena.check(player, rows) for player in players}
    for player in players:
        arena.warm(player, rows)
    found = arena.rounds(players, dict.fromkeys(players, rows), MORE_ROUNDS * arena.effort.runs)
    tumbling = next(player for player in ours if player.shape == tumbling_peer.shape)
    made = [arena.row(player, checks[player], found[player]) for player in ours]
    return [
        *made,
        arena.row(tumbling_peer, checks[tumbling_peer], found[tumbling_peer], _speeds(rows, found[tumbling])),
    ]


def beside(arena: Arena, ours: Player, peer: Player) -> list[Row]:
    """One peer at one slide, in turn with Penstock at the same."""
    rows = arena.prefix(peer)
    checked = arena.check(peer, rows)
    if checked.seconds < arena.effort.at_least_s and rows < arena.effort.rows:  # it got quicker as it warmed up
        longer = 1.2 * rows * arena.effort.at_least_s / checked.seconds
        rows = min(arena.effort.rows, int(longer))
        checked = arena.check(peer, rows)
    slow = checked.seconds >= arena.effort.at_least_s / 2
    arena.warm(ours, arena.effort.rows)
    counts = {ours: arena.effort.rows, peer: rows}
    found = arena.rounds([ours, peer], counts, 1 if slow else arena.effort.runs)
    return [arena.row(peer, checked, found[peer], _speeds(arena.effort.rows, found[ours]))]


def frames(arena: Arena, ours: Player, peer: Player) -> list[Row]:
    """A batch DataFrame against a query by hand, both over all rows."""
    rows = arena.effort.batch_rows
    checks = {player: arena.check(player, rows) for player in (ours, peer)}
    for player in (ours, peer):
        arena.warm(player, rows)
    found = arena.rounds([ours, peer], {ours: rows, peer: rows}, max(3, arena.effort.runs))
    return [
        arena.row(ours, checks[ours], found[ours]),
        arena.row(peer, checks[peer], found[peer], _speeds(rows, found[ours])),
    ]


def _speeds(rows: int, seconds: Sequence[float]) -> list[float]:
    return [rows / each for each in seconds]


def plain_parquet(folder: Path) -> pa.Table:
    """Results that already have the columns of the truth."""
    return pq.read_table(folder)


def flink_runner(flink: Flink, shape: Shape) -> Runner:
    """Flink as a runner: it needs no files and no checkpoint folder."""

    def run(files: Files, checkpoint: Path, out: Path | None) -> float:
        return flink.run(shape.events, files.rows, shape.size_ms, shape.slide_ms, out)

    return run
