"""`penstock report --plot`: the picture is written, and its axes show what the timeline has."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FlowError
from penstock.observe.picture import draw, write_picture
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import telemetry_dir
from penstock.observe.timeline import Timeline
from tests.observe.test_timeline import BOUND, batch
from tests.observe.tools import checkpoint_of, run

SIGNS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@pytest.fixture
def records() -> list[BatchRecord]:
    """A bound that is broken in the second span, a width that changes, a restart."""
    before = [batch(n, 0.9 if n in (2, 3) else 0.2, control={"bounds": [BOUND]}) for n in range(4)]
    wider = {"widths": {"score": 3, "bars": 1}, "lifetime_s": 0.5}
    reason = {"bounds": [BOUND], "reason": "score 2 -> 3"}
    return [*before, batch(4, run="b", decision=wider, control=reason), batch(5, run="b", decision=wider)]


@pytest.fixture
def checkpoint(tmp_path: Path, records: list[BatchRecord]) -> Path:
    return checkpoint_of(tmp_path, records)


@pytest.mark.parametrize("ending", sorted(SIGNS))
def test_the_report_command_writes_a_picture(checkpoint: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    target = checkpoint / f"run{ending}"
    assert run("report", str(checkpoint), "--plot", str(target)) == 0
    assert target.read_bytes().startswith(SIGNS[ending])
    said = capsys.readouterr()
    assert said.out.startswith("Penstock report"), "the report is printed as well"
    assert str(target) in said.err


def labels(axis: Any) -> list[str]:
    return list(axis.get_legend_handles_labels()[1])


def test_the_axes_show_what_the_timeline_has(records: list[BatchRecord]) -> None:
    pytest.importorskip("matplotlib")
    shown = Timeline.of(records)
    figure = draw(shown)
    rates, latency, widths, lifetimes, backlog = figure.axes
    assert [a.get_ylabel() for a in (rates, latency, widths, lifetimes, backlog)] == [
        "rows/s", "latency, ms (from arrival)", "width", "batch, ms", "backlog, rows",
    ]  # fmt: skip
    assert labels(rates) == ["due", "processed", "restart"]
    assert labels(latency) == ["mean", "p95", "mean at most", "not kept"]
    assert labels(widths) == ["score", "bars"]
    assert labels(lifetimes) == ["lifetime", "cycle", "work", "decision"]
    assert "kept in" in figure.get_suptitle()
    assert "time between runs is left out" in lifetimes.get_xlabel()
    drawn = {line.get_label(): line for line in latency.get_lines()}
    assert list(drawn["mean at most"].get_ydata()) == [500.0, 500.0]
    assert list(drawn["mean"].get_xdata()) == list(shown.latency[0].at_s)
    steps = {line.get_label(): line for line in widths.get_lines()}
    assert steps["score"].get_drawstyle() == "steps-post"
    assert list(steps["score"].get_ydata()) == [2.0, 3.0, 3.0]
    (ticks,) = [line for line in lifetimes.get_lines() if line.get_label() == "decision"]
    assert list(ticks.get_xdata()) == [when for when, _ in shown.decisions]
    for axis in (rates, latency, widths, lifetimes):  # a restart is marked through the whole picture
        assert [line.get_xdata()[0] for line in axis.get_lines() if line.get_linestyle() == ":"] == list(shown.restarts)


def test_a_run_without_latency_backlog_or_decisions_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_picture(Timeline.of([BatchRecord(1, visible=1.0), BatchRecord(2, visible=2.0)]), tmp_path / "few.png")
    assert (tmp_path / "few.png").stat().st_size > 1000


def test_one_stall_does_not_hide_the_rest() -> None:
    pytest.importorskip("matplotlib")
    usual = [batch(n) for n in range(6)]
    assert draw(Timeline.of(usual)).axes[1].get_yscale() == "linear"
    assert draw(Timeline.of([*usual, batch(6, 60.0)])).axes[1].get_yscale() == "log"


def test_what_cannot_be_drawn_is_one_line_before_anything_is_read(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (telemetry_dir(checkpoint) / "telemetry-0.jsonl").write_text("rubbish\n")
    for target, words in (("x.gif", ".png, .svg or .pdf"), ("none/x.png", "does not exist")):
        assert run("report", str(checkpoint), "--plot", str(checkpoint / target)) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert words in said.err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run("report", str(checkpoint), "--plot", str(checkpoint / "x.png")) == 1
    assert "pip install 'penstock[plot]'" in capsys.readouterr().err


def test_nothing_measured_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(FlowError, match="nothing was measured"):
        write_picture(Timeline.of([]), tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
