"""The verdicts of the live runs, on records that were made up, and the targets that rows miss."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.bench.adaptive.description import OVER_S, Built, Promise, Scenario, Target
from penstock.bench.adaptive.judging import Spans, falls_to, in_spans, judge, latency_verdicts, rates, worst
from penstock.bench.adaptive.live import Outcome, judge_promises, judge_target
from penstock.bench.adaptive.scenarios import SCENARIOS
from penstock.bench.adaptive.suite import Results, main
from penstock.bench.adaptive.table import misses, row, table
from penstock.control.histogram import LogHistogram
from penstock.flow.operators import Width
from penstock.observe.record import BatchRecord


def batch(visible: float, width: int = 1, rows: int = 1, **latency: float) -> BatchRecord:
    """A batch in which every row at a sink had the same latency."""
    seen = {sink: LogHistogram.of([value]) for sink, value in latency.items()}
    return BatchRecord(
        int(visible * 10), visible=visible, rows_in=rows, latency=seen, decision={"widths": {"f": width}}
    )


def outcome(**changed: Any) -> Outcome:
    """An outcome in which all went well."""
    known: dict[str, Any] = {
        "bound_s": 0.8, "spans": Spans([True] * 20, [True] * 20), "latency": LogHistogram.of([0.2, 0.4]),
        "cpu_seconds": 10.0, "width_seconds": 50.0, "reconfigurations": 3, "model_error": 0.1, "uneven": [1.2],
        "seconds": 60.0,
    }  # fmt: skip
    return Outcome(**{**known, **changed})


def test_a_span_without_a_batch_is_broken_and_one_without_a_result_is_not_judged() -> None:
    seen = [batch(0.5, out=0.1), batch(4.0), batch(10.0, out=0.1)]

    assert latency_verdicts(seen, 0.0, "mean", 0.5) == [True, None, False, True]
    assert judge(seen, 0.0, [], "mean", 0.5).fulfilled == [True, False, True]
    assert latency_verdicts([], 0.0, "mean", 0.5) == []


def test_p95_is_not_the_mean() -> None:
    seen = [batch(0.1 * n, out=1.0 if n > 16 else 0.1) for n in range(1, 21)]

    assert latency_verdicts(seen, 0.0, "mean", 0.5) == [True]
    assert latency_verdicts(seen, 0.0, "p95", 0.5) == [False]


def test_only_spans_within_two_after_a_step_are_unsettled() -> None:
    spans = in_spans([False, True, True, False, True], start=100.0, steps=[100.0 + 1.5 * OVER_S])

    assert spans.fulfilled == [False, True, True, False, True]
    assert spans.settled == [False, True]


def test_of_two_latencies_the_worse_governs_and_each_is_kept() -> None:
    scenario = SCENARIOS["tweets"]
    nobody: Any = None  # streams are not looked at here
    seen = [
        batch(0.5, out=0.3, hot=0.3),
        batch(3.5, out=0.3, hot=0.9),
        batch(6.5, out=0.6, hot=0.3),
        batch(9.5, out=0.3),
    ]
    built = Built(nobody, (Promise(nobody, nobody, "out"), Promise(nobody, nobody, "hot", "p95")), "f")

    found = outcome(bound_s=0.4)
    judge_promises(found, built, scenario, 0.4, seen, 0.0, [])

    assert found.spans.fulfilled == [True, False, False, True]
    assert found.each["out"].fulfilled == [True, True, False, True]
    assert found.each["hot"].fulfilled == [True, False, True], "0.4 s of mean are 0.6 s of p95; the last has no window"
    shown = row(scenario, "adaptive", [Outcome.from_json(json.loads(json.dumps(found.to_json())))])
    assert [promise["bound_ms"] for promise in shown["promises"]] == pytest.approx([400.0, 600.0])
    assert [promise["fulfilled"] for promise in shown["promises"]] == pytest.approx([0.75, 2 / 3], rel=1e-3)
    assert worst([[None, True], [None, None]]) == [None, True]


def test_rates_do_not_depend_on_where_batches_end() -> None:
    """A steady 50 rows/s in batches of any length is 50 rows/s in every span."""
    ends = [0.0, 0.7, 2.9, 3.3, 5.0, 8.8, 9.1, 13.0]
    seen = [batch(end, rows=round(50 * (end - before))) for before, end in zip([-1.0, *ends], ends, strict=False)]

    assert rates(seen, 0.0, 12.5) == pytest.approx([50.0] * 4)
    assert rates([], 0.0, 12.0) == []


def test_a_target_is_judged_while_it_holds_and_the_width_after() -> None:
    flow: Any = SimpleNamespace(operators={"f": SimpleNamespace(width=Width(1, 4))})  # as much as is looked at
    built = Built(flow, (), "f", Target(cast(Any, None), per_s=100.0, until_s=9.0))
    rows = [100.0] * 3 + [150.0] * 3 + [90.0] * 3 + [10.0] * 6
    widths = [2] * 3 + [4] * 6 + [3] * 2 + [1] * 4
    seen = [batch(float(n), width=w, rows=int(r)) for n, (r, w) in enumerate(zip(rows, widths, strict=True), 1)]
    seen.insert(0, batch(0.0, width=2, rows=0))

    found = outcome()
    judge_target(found, built, seen, start=0.0, end=15.0, began=0.0)

    assert found.spans.fulfilled == [True, True, False], "what comes after the target is not judged"
    assert found.more["rates_per_s"] == [100.0, 150.0, 90.0]
    assert found.more["least_width_after_s"] == 3.0
    assert falls_to(seen[:11], "f", 1, 9.0) is None


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"spans": Spans([True] * 18 + [False] * 2, [True] * 20)}, ["90.0% of the intervals"]),
        ({"spans": Spans([True] * 39 + [False], [True] * 29 + [False])}, ["96.7% of the settled intervals"]),
        ({"width_seconds": 81.0}, ["0.81 of the static set-up's width_seconds"]),
        ({"cpu_seconds": 1000.0}, []),
        ({"model_error": 0.3}, ["the model is off by 30%"]),
        ({"uneven": [1.4, 1.6, 1.6]}, ["the busiest task has 1.60 times the mean"]),
    ],
)
def test_each_target_that_ours_misses_is_said(changed: dict[str, Any], missed: list[str]) -> None:
    scenario = SCENARIOS["hotkey"]
    rows = [
        row(scenario, "static", [outcome(width_seconds=100.0)]),
        row(scenario, "adaptive", [outcome(**changed)]),
    ]

    found = misses(rows)

    assert len(found) == len(missed)
    assert all(text in said for text, said in zip(missed, found, strict=True))
    assert "hotkey" in table(rows)


def test_the_rows_of_the_short_scenarios_have_targets_of_their_own() -> None:
    low, chain, film = SCENARIOS["low-load"], SCENARIOS["livestream"], SCENARIOS["frames"]
    at_once = row(low, "at-once", [outcome(cpu_seconds=20.0)])
    assert misses([at_once, row(low, "adaptive", [outcome(cpu_seconds=9.0)])]) == []
    assert (
        "0.55 of trigger-at-once's cpu_seconds"
        in misses([at_once, row(low, "adaptive", [outcome(cpu_seconds=11.0)])])[0]
    )

    split = row(chain, "split", [outcome(latency=LogHistogram.of([0.5]))])
    fast = outcome(latency=LogHistogram.of([0.3]), cpu_seconds=9.0)
    assert misses([split, row(chain, "fused", [fast])]) == []
    assert len(misses([split, row(chain, "fused", [outcome(latency=LogHistogram.of([0.5]))])])) == 3

    more = {"rates_per_s": [101.0], "target_per_s": 100.0, "least_width_after_s": 4.0}
    held = row(film, "adaptive", [outcome(more=more, latency=LogHistogram())])
    assert misses([held]) == []
    assert (held["bound_ms"], held["p95_ms"], held["least_width_after_s"]) == (None, None, 4.0)
    assert "100 rows/s" in table([held])
    wide = row(film, "adaptive", [outcome(more={**more, "least_width_after_s": None})])
    assert misses([wide]) == ["frames: without a target the width did not fall to the least"]


def test_what_is_finished_is_not_made_again(tmp_path: Path) -> None:
    """Also of results that an earlier version wrote, whose outcomes had fewer fields."""
    about, made = {"cores": 2}, outcome().to_json()
    first = Results(tmp_path / "out.json", about, fresh=False)
    first.piece("staircase/adaptive/0", lambda: {k: v for k, v in made.items() if k not in ("each", "more")})

    again = Results(tmp_path / "out.json", about, fresh=False)
    kept = again.piece("staircase/adaptive/0", lambda: pytest.fail("it is there"))
    assert Outcome.from_json(kept).spans == outcome().spans
    assert Results(tmp_path / "out.json", about, fresh=True).pieces == {}
    assert Results(tmp_path / "out.json", {"cores": 4}, fresh=False).pieces == {}, "another machine begins anew"


def test_rows_of_a_part_do_not_replace_the_others_and_another_machine_s_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    first = Results(path, {"cores": 2}, fresh=False)
    first.write([{"scenario": "a", "policy": "x", "n": 1}, {"scenario": "b", "policy": "x", "n": 1}])
    again = Results(path, {"cores": 2}, fresh=False)
    again.piece("b/x/0", lambda: 1)
    again.write([{"scenario": "b", "policy": "x", "n": 2}])
    rows = json.loads(path.read_text())["rows"]
    assert [(row["scenario"], row["n"]) for row in rows] == [("a", 1), ("b", 2)]

    Results(path, {"cores": 64}, fresh=False).write()
    assert json.loads(path.read_text())["rows"] == []
    assert json.loads((tmp_path / "out.old.json").read_text())["rows"] == rows


def test_every_scenario_says_what_it_runs_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name, scenario in SCENARIOS.items():
        assert isinstance(scenario, Scenario)
        assert scenario.policies and scenario.runs in (1, 3)
        assert all(0.0 < step < scenario.seconds for step in scenario.steps_s), name
        assert scenario.load.duration >= scenario.seconds, f"{name}: rows come until the end"
    assert main(only="service,nonsense") == 2
    assert main(policies="fused,magic") == 2
    said = capsys.readouterr().out
    assert "there is no nonsense; scenarios: staircase" in said
    assert "there is no magic" in said
