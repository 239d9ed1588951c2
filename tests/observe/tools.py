"""What several tests of reports use: a checkpoint with telemetry in it, and the command line called."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import TelemetryLog, telemetry_dir


def run(*args: str) -> int:
    """Call `penstock ...` and return its exit code."""
    with pytest.raises(SystemExit) as left:
        main(args)
    return int(left.value.code or 0)


def checkpoint_of(folder: Path, records: Iterable[BatchRecord]) -> Path:
    """Write records as a job would, and return the folder."""
    with TelemetryLog(telemetry_dir(folder)) as log:
        for record in records:
            log.append(record)
    return folder
