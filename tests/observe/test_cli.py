"""The command line: what it prints and with which exit code it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from penstock.errors import PenstockError
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import telemetry_dir
from tests.observe.tools import checkpoint_of, run


@pytest.fixture
def checkpoint(tmp_path: Path, job: list[BatchRecord]) -> Path:
    return checkpoint_of(tmp_path, job)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Stand-ins for what the commands start; each call is noted, and answered with exit code 3."""
    calls: list[dict[str, object]] = []
    for name in ("penstock.apps.demo", "penstock.bench.engine", "penstock.bench.torture"):
        module = ModuleType(name)
        module.main = lambda _name=name, **given: calls.append({"of": _name, **given}) or 3  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_report_as_text(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", str(checkpoint)) == 0
    assert capsys.readouterr().out == Path(__file__).with_name("golden_report.txt").read_text(encoding="utf-8")


def test_report_as_json_of_the_last_seconds(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", str(checkpoint), "--json", "--last", "1.5") == 0
    assert json.loads(capsys.readouterr().out)["batches"] == 2


def test_a_checkpoint_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", str(tmp_path / "none")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "does not exist" in captured.err
    assert run("report", str(tmp_path)) == 2
    assert "is not a Penstock checkpoint" in capsys.readouterr().err


def test_a_checkpoint_without_telemetry_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry_dir(tmp_path).parent.mkdir(parents=True)
    assert run("report", str(tmp_path)) == 0
    assert "nothing measured yet" in capsys.readouterr().out


def test_last_must_be_positive(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", str(checkpoint), "--last", "0") == 2
    assert "more than 0 seconds" in capsys.readouterr().err


def test_an_expected_error_is_its_message_and_exit_code_1(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (telemetry_dir(checkpoint) / "telemetry-0.jsonl").write_text("rubbish\n")
    assert run("report", str(checkpoint)) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: telemetry file telemetry-0.jsonl, line 1")
    assert captured.err.count("\n") == 1


def test_commands_pass_their_options_on(called: list[dict[str, object]]) -> None:
    assert run("demo", "--seconds", "5", "--out", "x") == 3
    assert run("bench", "engine", "--json", "f.json", "--quick") == 3
    assert run("torture", "--kills", "2", "--seed", "9") == 3
    assert run("torture") == 3
    assert called == [
        {"of": "penstock.apps.demo", "seconds": 5.0, "out": "x"},
        {"of": "penstock.bench.engine", "json_path": "f.json", "quick": True},
        {"of": "penstock.bench.torture", "kills": 2, "seed": 9},
        {"of": "penstock.bench.torture", "kills": 50, "seed": 0},
    ]


def test_an_error_of_a_command_is_one_line(
    called: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> int:
        raise PenstockError("the stream ran dry")

    monkeypatch.setattr(sys.modules["penstock.apps.demo"], "main", fail)
    assert run("demo") == 1
    assert capsys.readouterr().err == "error: the stream ran dry\n"


def test_python_m_penstock(tmp_path: Path) -> None:
    def module(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "penstock", *args], capture_output=True, text=True, check=False)

    assert module("version").stdout.strip().count(".") == 2
    gone = module("report", str(tmp_path / "none"))
    assert (gone.returncode, gone.stdout, gone.stderr.count("\n")) == (2, "", 1)


def test_a_report_needs_no_spark(checkpoint: Path) -> None:
    code = (
        "import sys\nfrom penstock.cli import main\n"
        f"try:\n    main(['report', {str(checkpoint)!r}])\nexcept SystemExit:\n    pass\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
