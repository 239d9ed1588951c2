"""Telemetry files: what is appended is read again, after rotation, kills and other versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import CheckpointError
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import TelemetryLog, read


def write(directory: Path, *records: BatchRecord, **options: int) -> None:
    with TelemetryLog(directory, **options) as log:
        for record in records:
            log.append(record)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_appended_is_read(tmp_path: Path, job: list[BatchRecord]) -> None:
    write(tmp_path / "deep" / "telemetry", *job[:3])
    assert list(read(tmp_path / "deep" / "telemetry")) == job[:3]


def test_a_record_is_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    with TelemetryLog(tmp_path) as log:
        log.append(BatchRecord(1))
        assert [r.batch for r in read(tmp_path)] == [1]


def test_a_restart_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, BatchRecord(number), keep=2)
    assert names(tmp_path) == ["telemetry-0.jsonl"]
    assert [r.batch for r in read(tmp_path)] == [0, 1, 2, 3, 4]


def test_files_rotate_by_size_in_numerical_order_and_the_oldest_go(tmp_path: Path) -> None:
    line = len(json.dumps(BatchRecord(10).to_json(), separators=(",", ":"))) + 1
    records = [BatchRecord(number) for number in range(10, 34)]
    write(tmp_path, *records, max_bytes=2 * line, keep=100)
    assert len(names(tmp_path)) == 12
    assert all(path.stat().st_size == 2 * line for path in tmp_path.iterdir())
    assert list(read(tmp_path)) == records
    write(tmp_path, BatchRecord(34), max_bytes=2 * line, keep=3)
    assert names(tmp_path) == ["telemetry-10.jsonl", "telemetry-11.jsonl", "telemetry-12.jsonl"]
    assert [r.batch for r in read(tmp_path)] == [30, 31, 32, 33, 34]


def test_a_line_longer_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, BatchRecord(1), BatchRecord(2), max_bytes=1, keep=5)
    assert names(tmp_path) == ["telemetry-0.jsonl", "telemetry-1.jsonl"]
    assert [r.batch for r in read(tmp_path)] == [1, 2]


def test_wherever_a_kill_tears_the_last_line_the_others_stay(tmp_path: Path) -> None:
    write(tmp_path, BatchRecord(1), BatchRecord(2))
    path = tmp_path / "telemetry-0.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert [r.batch for r in read(tmp_path)] == [1]
        write(tmp_path, BatchRecord(3))
        assert [r.batch for r in read(tmp_path)] == [1, 3]


def test_a_replay_supersedes_the_earlier_record(tmp_path: Path, job: list[BatchRecord]) -> None:
    write(tmp_path, *job)
    assert [(r.batch, r.superseded) for r in read(tmp_path)] == [
        (0, False), (1, False), (2, False), (3, True), (3, False), (4, False),
    ]  # fmt: skip


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "telemetry-0.jsonl").write_text('{"batch": 9, "later": {"a": 1}}\n')
    (tmp_path / "notes.txt").write_text("not telemetry")
    assert [r.batch for r in read(tmp_path)] == [9]


def test_a_whole_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "telemetry-0.jsonl").write_text('{"batch": 1}\nrubbish\n{"batch": 2}\n')
    with pytest.raises(CheckpointError, match=r"telemetry-0\.jsonl, line 2"):
        list(read(tmp_path))


def test_numpy_numbers_are_written_and_nan_is_refused(tmp_path: Path) -> None:
    with TelemetryLog(tmp_path) as log:
        log.append(BatchRecord(1, rows_in=np.int64(5), parts={"run": np.float64(0.5)}))
        with pytest.raises(ValueError, match="JSON compliant"):
            log.append(BatchRecord(2, parts={"run": float("nan")}))
    assert [(r.batch, r.rows_in, r.parts) for r in read(tmp_path)] == [(1, 5, {"run": 0.5})]


def test_no_directory_has_no_records(tmp_path: Path) -> None:
    assert list(read(tmp_path / "none")) == []
