"""Kill a running job again and again, then check that no result was lost or doubled.

Every life of the job is a process tree of its own (driver, JVM, Python workers) which dies by SIGKILL: at a random
moment after its first progress, while it starts, or at a named point of a batch. The next life goes on from the
checkpoint. When the kills are spent the job may finish, and what it wrote is compared with the sequential run.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.bench.processes import Child
from penstock.bench.torture_flow import SHAPES, Task, differences, expected, found
from penstock.engine.spark.crash import POINTS, VARIABLE

KILLS_PER_ROUND = 25
BATCHES_PER_KILL = 6
FIRST_PROGRESS_S = 180.0  # a start takes about 10 s; more than this is a hang
Say = Callable[[str], None]


@dataclass(frozen=True)
class Kill:
    """When to kill: `after` seconds from the `start` or the first `progress`, or at a `point` some batches on."""

    since: str
    after: float = 0.0
    point: str = ""
    ahead: int = 0

    def __str__(self) -> str:
        if self.since == "point":
            return f"at point '{self.point}'"
        return f"{self.after:4.1f} s after {'its start' if self.since == 'start' else 'the first progress'}"


def plan(kills: int, seed: int) -> list[Kill]:
    """A third of the kills at named points, each point in turn; an eighth while starting; the rest at work.

    >>> [kill.since for kill in plan(6, seed=0)]
    ['progress', 'point', 'progress', 'progress', 'point', 'start']
    """
    chance = random.Random(seed)
    chosen = []
    for number in range(kills):
        if number % 3 == 1:
            point = POINTS[(number // 3 + seed) % len(POINTS)]
            chosen.append(Kill("point", point=point, ahead=chance.randint(1, 4)))
        elif number % 8 == 5:
            chosen.append(Kill("start", after=chance.uniform(0.1, 20.0)))
        else:
            chosen.append(Kill("progress", after=chance.uniform(0.0, 4.0)))
    return chosen


@dataclass
class Progress:
    """How far a job is, read from its checkpoint as anyone could."""

    checkpoint: Path

    def newest(self, folder: str) -> int:
        """The greatest batch number in a folder of the checkpoint; -1 if there is none."""
        try:
            names = [entry.name for entry in (self.checkpoint / folder).iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdigit()), default=-1)

    @property
    def finished(self) -> int:
        """The last batch with a manifest."""
        return self.newest("penstock/manifests")

    def __str__(self) -> str:
        cut, done, committed = self.newest("spark/offsets"), self.finished, self.newest("spark/commits")
        inside = f"inside batch {cut}" if cut > committed else "between batches"
        return f"{inside} (manifest {done}, committed {committed})"


@dataclass
class Outcome:
    """What one tortured job came to."""

    kills: int = 0
    inside: int = 0  # kills while a batch was cut and not committed
    batches: int = 0
    seconds: float = 0.0
    checks: dict[str, str] = field(default_factory=dict)  # "" = as the sequential run

    @property
    def failed(self) -> int:
        """How many checks failed."""
        return sum(bool(text) for text in self.checks.values())


class Round:
    """One job on one checkpoint, killed by a list of kills."""

    def __init__(self, folder: Path, task: Task, say: Say = print) -> None:
        self.folder, self.task, self.say = folder, task, say
        self.checkpoint, self.out, scratch = folder / "checkpoint", folder / "out", folder / "t"
        for path in (self.checkpoint, self.out, scratch):
            path.mkdir(parents=True, exist_ok=True)
        self.environment = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        self.progress = Progress(self.checkpoint)
        self.lives = 0
        self.outcome = Outcome()

    def run(self, kills: Sequence[Kill]) -> Outcome:
        """Kill, restart, finish, compare. If the job is done before the kills are, the rest of them is left."""
        began = time.monotonic()
        try:
            for number, kill in enumerate(kills, 1):
                if not self._kill(kill, f"kill {number}/{len(kills)}"):
                    break
            else:
                self._finish()
            self.say(f"  the job finished in its life {self.lives}, {self.progress}; now comparing")
            document = json.loads((self.out / "state.json").read_text())
            state = {key: (total, n) for key, (total, n) in document["state"]}
            self.outcome.checks = differences(found(self.out, state), expected(self.task))
        except Died as died:
            self.outcome.checks = {"run": str(died)}
        self.outcome.batches = self.progress.finished + 1
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _start(self, crash: str = "") -> Child:
        self.lives += 1
        task = self.task
        arguments = (self.checkpoint, self.out, task.total, task.per_batch, task.shape, self.lives)
        command = [sys.executable, "-m", "penstock.bench.torture_job", *map(str, arguments)]
        return Child(command, self.folder / f"life-{self.lives}.log", {**self.environment, VARIABLE: crash})

    def _kill(self, kill: Kill, label: str) -> bool:
        """Live one life up to its kill; False if the job had finished before it came."""
        before = self.progress.finished
        child = self._start(f"{kill.point}:{before + kill.ahead}" if kill.since == "point" else "")
        try:
            due = child.started + kill.after if kill.since == "start" else None
            first = None
            while child.code is None:
                now = time.monotonic()
                if first is None and self.progress.finished > before:
                    first = now
                    due = now + kill.after if kill.since == "progress" else due
                if due is not None and now >= due:
                    break
                self._check_patience(child, first, now)
                time.sleep(0.01)
            where = str(self.progress)
            died, alive = child.code, child.kill()
        except BaseException:
            child.kill()
            raise
        if died == 0:
            self.say(f"  {label}: not needed, the job was done")
            return False
        if died is not None and (died != -9 or kill.since != "point"):
            raise Died(f"life {self.lives} ended by itself with code {died}:\n{child.tail()}")
        self.outcome.kills += 1
        self.outcome.inside += where.startswith("inside")
        gained = self.progress.finished - before
        self.say(f"  {label}: {kill}, {alive} processes; {where}, {gained} batches in this life")
        return True

    def _check_patience(self, child: Child, first: float | None, now: float) -> None:
        if first is None and now - child.started > FIRST_PROGRESS_S:
            raise Died(f"life {self.lives} made no progress in {FIRST_PROGRESS_S:.0f} s:\n{child.tail()}")
        if first is not None and now - first > FIRST_PROGRESS_S:
            raise Died(f"life {self.lives} neither ended nor reached its crash point:\n{child.tail()}")

    def _finish(self) -> None:
        """The last life, undisturbed; it must keep progressing."""
        child = self._start()
        try:
            last, at = self.progress.finished, time.monotonic()
            while child.code is None:
                now, newest = time.monotonic(), self.progress.finished
                if newest > last:
                    last, at = newest, now
                if now - at > FIRST_PROGRESS_S:
                    raise Died(f"the last life hangs at batch {newest}:\n{child.tail()}")
                time.sleep(0.05)
            if child.code != 0:
                raise Died(f"the last life ended with code {child.code}:\n{child.tail()}")
        finally:
            child.kill()


class Died(RuntimeError):
    """A life ended, or hung, in a way that torture did not ask for."""


def run(kills: Sequence[Kill], *, batches: int | None = None, first_shape: int = 0, say: Say = print) -> list[Outcome]:
    """Spend the kills on as many jobs as it takes, the plan's shape in turn; folders of failed jobs are kept."""
    left = list(kills)
    outcomes: list[Outcome] = []
    while left:
        share = left[:KILLS_PER_ROUND]
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        shape = SHAPES[(first_shape + len(outcomes)) % len(SHAPES)]
        task = Task.of(batches or 10 + BATCHES_PER_KILL * len(share), shape)
        say(f"job {len(outcomes) + 1} ({shape}): {task.total} rows, {task.per_batch} per batch, {len(share)} kills")
        outcome = Round(folder, task, say).run(share)
        outcomes.append(outcome)
        for name, text in outcome.checks.items():
            say(f"  {'FAILED' if text else 'passed'}: {name}{': ' + text if text else ''}")
        if outcome.failed:
            say(f"  kept for inspection: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        if "run" in outcome.checks or not outcome.kills:
            break
        left = left[outcome.kills :]
    return outcomes


def main(kills: int, seed: int) -> int:
    """Run at least `kills` kills and say how it went; the exit code is 1 if anything differed."""

    def say(text: str) -> None:
        print(text, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the child ends with us
    say(f"torture: {kills} kills of a whole driver tree by SIGKILL, seed {seed}")
    outcomes = run(plan(kills, seed), first_shape=seed, say=say)
    spent, inside = sum(o.kills for o in outcomes), sum(o.inside for o in outcomes)
    batches, seconds = sum(o.batches for o in outcomes), sum(o.seconds for o in outcomes)
    say(f"measured: {spent} kills, {inside} of them inside a batch; {batches} batches, {seconds:.0f} s")
    failed = sum(o.failed for o in outcomes) + (spent < kills)
    if spent < kills:
        say(f"FAILED: only {spent} of {kills} kills were made")
    say(f"{sum(len(o.checks) - o.failed for o in outcomes)} passed, {failed} failed")
    return 1 if failed else 0
