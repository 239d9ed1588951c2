"""`penstock simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from penstock.apps.simulate.main import main
from penstock.apps.simulate.scenarios import NAMES, scenario
from penstock.cli import main as command_line
from penstock.errors import FlowError, PolicyError

FIELDS = {
    "scenario", "policy", "seed", "bound_ms", "fulfilled", "p95_ms", "subtask_hours", "worker_hours",
    "reconfigurations", "amplitude", "settle_s", "overshoot", "violations", "loss_vs_best_static",
}  # fmt: skip


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as left:
        command_line(args)
    return int(left.value.code or 0)


def test_a_scenario_prints_thesis_here_ours_and_the_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "spar-lane", "--seed", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "spar-lane (simulated, seed 2)"
    names = [line.split()[0] for line in lines[2:]]
    theirs = ["spar-throughput", "thesis", "difference", "spar-wudp", "thesis", "difference"]
    assert names == [*theirs, "adaptive", "against", "loss", "deciding"]
    assert re.search(r"thesis .* 4\.52", lines[3])
    assert re.search(r"[+-]\d+\.\d points", lines[4])


def test_rows_are_json_with_null_where_nothing_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rows.json"
    assert run("simulate", "mpr-mandelbrot", "--policy", "adaptive,static", "--json", str(target)) == 0
    rows = json.loads(target.read_text())
    assert [row["policy"] for row in rows] == ["adaptive", "static"]
    for row in rows:
        assert row.keys() >= FIELDS
        assert row["bound_ms"] is None
        assert row["loss_vs_best_static"] is None
        assert 0.0 <= row["fulfilled"] <= 1.0
    assert "simulated" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_rows_and_another_one_others(tmp_path: Path) -> None:
    texts = []
    for i, seed in enumerate((3, 3, 4)):
        target = tmp_path / f"{i}.json"
        assert main("spar-lane", policy="spar-wudp", seed=seed, json_path=str(target)) == 0
        texts.append(target.read_text().replace('"seed": 4', '"seed": 3'))
    assert texts[0] == texts[1] != texts[2]


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "lane.png"
    assert run("simulate", "spar-lane", "--policy", "adaptive", "--plot", str(target)) == 0
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_without_matplotlib_one_line_says_what_to_install_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run("simulate", "spar-lane", "--plot", str(tmp_path / "x.png")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "pip install 'penstock[plot]'" in captured.err


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(FlowError, match="primetest"):
        main("primetime")
    with pytest.raises(FlowError, match="no such scenario"):
        scenario("primetime")
    with pytest.raises(PolicyError, match="use one of adaptive"):
        main("spar-lane", policy="adaptiv")


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "list") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == list(NAMES)


def test_simulating_starts_no_spark(capsys: pytest.CaptureFixture[str]) -> None:
    before = "pyspark.sql.connect" in sys.modules
    assert main("spar-lane", policy="adaptive") == 0
    assert ("pyspark.sql.connect" in sys.modules) == before
    assert "spar-lane" in capsys.readouterr().out
