"""Child processes that are started in a session of their own, so that all of it, and nothing else, can be killed.

A Spark driver is a tree: Python, its JVM, the JVM's Python daemon and the workers, of which the daemon leaves the
process group. The session that `start_new_session=True` makes is left by none of them, so it says who is ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil


class Child:
    """A process in its own session, with its output in a file.

    >>> import sys, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     child = Child([sys.executable, "-c", "import time; time.sleep(60)"], Path(folder) / "log")
    ...     killed = child.kill()
    ...     child.code, killed >= 1, child.members()
    (-9, True, [])
    """

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.pid = self._process.pid
        self.started = time.monotonic()

    @property
    def code(self) -> int | None:
        """The exit code of the driver; None while it runs."""
        return self._process.poll()

    def members(self) -> list[psutil.Process]:
        """The living processes of this session."""
        found = []
        for process in psutil.process_iter(["pid"]):
            try:
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                continue
        return found

    def kill(self, patience: float = 10.0) -> int:
        """SIGKILL the whole tree, driver group first, then each process left; return how many there were."""
        recorded = self.members()
        with contextlib.suppress(ProcessLookupError):  # that group may be gone, and others of the session not
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + patience
        while True:
            # psutil knows a process by id and birth: a number used again is not killed.
            left = [process for process in {*recorded, *self.members()} if _alive(process)]
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            self._process.poll()
            if not left:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes {[process.pid for process in left]} survive SIGKILL")
            time.sleep(0.01)
        self._process.wait(patience)
        return len(recorded)

    def tail(self, lines: int = 30) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
