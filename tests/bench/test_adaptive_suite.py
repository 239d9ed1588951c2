"""The order of the live runs: what is run with what, what is kept, what is said; the runs themselves are made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.bench.adaptive import suite
from penstock.bench.adaptive.description import Built, Scenario, Target
from penstock.bench.adaptive.judging import Spans
from penstock.bench.adaptive.live import Fixed, Outcome
from penstock.bench.adaptive.scenarios import SCENARIOS
from penstock.bench.adaptive.table import table
from penstock.control.histogram import LogHistogram

F_S, ROW_S = 0.2, 0.001
NOBODY: Any = None


class Runs:
    """Stands in for `run`: keeps what it was asked for; a width of 3 is enough, ours costs a third."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, dict[str, Any]]] = []

    def __call__(self, spark: Any, scenario: Scenario, policy: Any, bound_s: float, **options: Any) -> Outcome:
        self.asked.append((scenario.name, policy, {**options, "bound_s": bound_s}))
        fast = policy is None or policy.width >= 3 or scenario.widths == (1,)
        is_fused = options.get("build") is not None and options["build"] is scenario.variants.get("fused")
        spent = 10.0 if policy is None else 20.0 if is_fused else 30.0
        more: dict[str, Any] = {}
        if scenario.name == "frames":
            more = {"target_per_s": 100.0, "rates_per_s": [101.0 if fast else 60.0], "least_width_after_s": 4.0}
        if scenario.name == "tweets":
            seen = LogHistogram.of([0.3]).to_json()
            more = {"statistics": {"out": "mean", "hot": "p95"}, "latency": {"out": seen, "hot": seen}}
        return Outcome(
            bound_s=bound_s,
            spans=Spans([fast] * 4, [fast] * 4),
            latency=LogHistogram.of([0.3 if fast and (policy is None or is_fused) else 0.4]),
            cpu_seconds=spent,
            width_seconds=spent,
            reconfigurations=0,
            model_error=None,
            uneven=[],
            seconds=12.0,
            each={"out": Spans([fast], [fast]), "hot": Spans([True], [True])} if scenario.name == "tweets" else {},
            more=more,
        )


def without_spark(scenario: Scenario) -> Scenario:
    """The same scenario whose flow is only as much as the suite looks at."""
    target = Target(NOBODY, 100.0, 42.0) if scenario.name == "frames" else None
    built = Built(NOBODY, (), "farm", target)
    sized = scenario.sized
    return replace(
        scenario,
        build=lambda spark, load: built,
        sized=None if sized is None else lambda row_s: replace(without_spark(sized(row_s)), probe_s=row_s),
    )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made, session = Runs(), SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(suite, "run", made)
    monkeypatch.setattr(suite, "fixed_cost", lambda spark, scenario: F_S)
    monkeypatch.setattr(suite, "dearest_row", lambda spark, scenario: ROW_S)
    monkeypatch.setattr(suite, "machine", lambda spark: {"cores": 2, "load_at_start": 0.1, "master": "none"})
    monkeypatch.setattr(suite, "SCENARIOS", {name: without_spark(made) for name, made in SCENARIOS.items()})
    monkeypatch.setattr(suite.ps, "local_session", lambda master, app: session, raising=False)
    return made


def test_short_scenarios_run_with_policies_of_their_own(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    names = ("low-load", "frames", "tweets", "livestream")

    assert suite.main(json_path=str(path), only=",".join(names)) == 0

    rows = json.loads(path.read_text())["rows"]
    assert [(row["scenario"], row["policy"]) for row in rows] == [
        ("low-load", "adaptive"), ("low-load", "at-once"), ("frames", "adaptive"), ("frames", "static"),
        ("tweets", "adaptive"), ("tweets", "static"), ("livestream", "adaptive"), ("livestream", "fused"),
        ("livestream", "split"),
    ]  # fmt: skip
    assert [row["runs"] for row in rows] == [1, 1, 1, 1, 3, 3, 1, 1, 1]
    assert rows[0]["bound_ms"] == pytest.approx(6 * F_S * 1e3), "a p95"
    assert rows[2]["bound_ms"] is None and rows[2]["target_per_s"] == 100.0
    assert [promise["bound_ms"] for promise in rows[4]["promises"]] == pytest.approx([800.0, 1200.0])
    said = capsys.readouterr().out
    assert "frames: static set-up is width 3, trigger 0 ms" in said
    assert "tweets: static set-up is width 3, trigger 600 ms" in said

    count = len(runs.asked)
    assert suite.main(json_path=str(path), only=",".join(names)) == 0
    assert len(runs.asked) == count, "all of it is in the file"


def test_the_static_set_up_is_sought_at_the_dearest_part(runs: Runs) -> None:
    suite.main(only="service", policies="static")

    scenario = SCENARIOS["service"]
    probes = [(p.width, round(p.lifetime_s, 3), o) for _, p, o in runs.asked if o.get("seconds") == scenario.probe_s]
    tried = [(width, lifetime) for width, lifetime, _ in probes]
    assert tried == [(w, s) for w in (1, 2) for s in (0.6, 0.4, 0.2, 0.0)] + [(3, 0.6)], "least width, longest trigger"
    assert all(options["build"] is scenario.build_peak for _, _, options in probes)
    name, policy, options = runs.asked[-1]
    assert isinstance(policy, Fixed)
    assert (name, policy.operator, policy.width, policy.lifetime_s) == ("service", "farm", 3, pytest.approx(0.6))
    assert options["bound_s"] == pytest.approx(4 * F_S)


def test_each_round_has_a_bound_of_its_own_and_the_static_set_up_follows_where_f_moved(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F:  0.20  |  0.21 (static stays)  |  0.30 (static anew)."""
    measured = iter([0.20, 0.21, 0.30])
    monkeypatch.setattr(suite, "fixed_cost", lambda spark, scenario: next(measured))

    assert suite.main(json_path=str(tmp_path / "out.json"), only="mandelbrot", policies="adaptive,static") == 0

    scenario = SCENARIOS["mandelbrot"]
    live = [(p, o["bound_s"]) for _, p, o in runs.asked if "seconds" not in o]
    assert [bound for _, bound in live] == pytest.approx([0.8, 0.8, 0.84, 0.84, 1.2, 1.2])
    assert [p is None for p, _ in live] == [True, False, False, True, True, False], "the order turns round by round"
    assert scenario.sized is not None
    probes = [o["bound_s"] for _, _, o in runs.asked if o.get("seconds") == ROW_S]
    assert len(probes) > 0, "the scenario is as the cost of a row has it"
    assert sorted(set(probes)) == pytest.approx([0.8, 1.2])
    ours = json.loads((tmp_path / "out.json").read_text())["rows"][0]
    assert (ours["bound_ms"], ours["F_ms"]) == pytest.approx((840.0, 210.0)), "the medians"
    assert [run["F_ms"] for run in ours["each"]] == pytest.approx([200.0, 210.0, 300.0])
    assert "800-1200 ms mean" in table([ours])


def test_fused_and_split_run_at_the_same_trigger(runs: Runs) -> None:
    suite.main(only="livestream", policies="fused,split")

    (_, fused, how), (_, split, other) = runs.asked[-2:]
    assert fused.lifetime_s == split.lifetime_s == pytest.approx(0.5 * 4 * F_S)
    assert how["build"] is SCENARIOS["livestream"].variants["fused"] is not other["build"]


def test_a_scenario_without_a_wanted_policy_is_left_out(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(only="frames", policies="elastic") == 0
    assert runs.asked == []
    assert "frames: none of its policies (adaptive, static) is wanted" in capsys.readouterr().out
