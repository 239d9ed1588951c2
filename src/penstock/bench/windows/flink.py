"""Flink SQL as a peer: its environment, made on demand beside ours, and a process in it that answers queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any

from penstock.bench.windows.data import Events, sql_of
from penstock.engine.spark.java import java_home

VERSION = "2.3.0"
ENVIRONMENT = "PENSTOCK_FLINK_ENV"  # where its environment is, or goes
NOTE = (
    f"Flink SQL {VERSION}, HOP window TVF, parallelism 2, heap state, object reuse, events made in memory by datagen "
    "from the same formula, blackhole sink; seconds are Flink's net run time of the job, in a warm JVM"
)


class FlinkMissing(RuntimeError):
    """Flink could not be installed or started."""


def environment_folder() -> Path:
    """Where Flink's environment is, or will be: $PENSTOCK_FLINK_ENV, else `.venv-flink` in the working folder."""
    return Path(os.environ.get(ENVIRONMENT) or ".venv-flink").absolute()


def ensure(say: Callable[[str], None]) -> Path:
    """Return the Python that has Flink, installing it first if need be (some 850 MB)."""
    folder = environment_folder()
    python = folder / "bin" / "python"
    try:
        if not python.exists():
            say(f"  making an environment for Flink {VERSION} in {folder}")
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, text=True)
        probe = [str(python), "-c", "from importlib.metadata import version; print(version('apache-flink'))"]
        known = subprocess.run(probe, capture_output=True, text=True, check=False)
        if known.stdout.strip() != VERSION:
            command = [str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"]
            subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise FlinkMissing(
            f"apache-flink {VERSION} cannot be installed: {(error.stderr or '').strip()[-300:]}"
        ) from error
    except OSError as error:
        raise FlinkMissing(f"no environment for Flink in {folder}: {error}") from error
    return python


class Flink:
    """A Flink process that stays warm over many queries; a context manager."""

    def __init__(self, say: Callable[[str], None], log: Path, parallelism: int = 2) -> None:
        self.say, self.log, self.parallelism = say, log, parallelism
        self._process: subprocess.Popen[str] | None = None
        self._answers: Queue[str] = Queue()

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def run(self, events: Events, rows: int, size_ms: int, slide_ms: int, out: Path | None = None) -> float:
        """Run one window query over so many events; results go nowhere, or to CSV files. Returns seconds."""
        query = {"sql": sql_of(events), "rows": rows, "size_ms": size_ms, "slide_ms": slide_ms}
        answer = self._ask({**query, "out": None if out is None else str(out)})
        if "error" in answer:
            raise RuntimeError(f"Flink: {answer['error']}")
        return float(answer["seconds"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._process = None

    def _ask(self, query: dict[str, Any], patience: float = 1800.0) -> dict[str, Any]:
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(query) + "\n")
        self._process.stdin.flush()
        return self._answer(patience)

    def _start(self) -> None:
        python = ensure(self.say)
        command = [str(python), str(Path(__file__).with_name("flink_job.py")), str(self.parallelism)]
        surroundings = {**os.environ, "JAVA_HOME": str(java_home()), "PYTHONPATH": ""}
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=surroundings
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        self._answer(300.0)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _answer(self, patience: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=patience)
        except Empty as error:
            raise FlinkMissing(f"Flink gave no answer within {patience:.0f} s") from error
        if not line:
            end = self.log.read_text(errors="replace")[-500:]
            raise FlinkMissing(f"the Flink process ended: {end}")
        answer: dict[str, Any] = json.loads(line)
        return answer
