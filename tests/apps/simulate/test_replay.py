"""`penstock simulate replay`: a run that is known exactly is recorded, rebuilt and run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.apps.simulate.replay import judged, main, own_policy, replay
from penstock.cli import main as command_line
from penstock.control.decision import Decision, Policy, Static
from penstock.control.histogram import LogHistogram
from penstock.control.models.batch_service import launches
from penstock.control.observation import Bound
from penstock.control.policies.adaptive import Adaptive
from penstock.engine.sim.batch import BatchHost
from penstock.engine.sim.checks import SimulationError
from penstock.engine.sim.loads import Load, steps
from penstock.engine.sim.recorded import recorded
from penstock.engine.sim.replayed import ReplayHost, replayed
from penstock.engine.sim.spec import Operator
from penstock.errors import FlowError
from penstock.observe.observer import ROWS
from penstock.observe.record import BatchRecord, OperatorStats
from penstock.observe.telemetry import TelemetryLog, telemetry_dir

BOUND = Bound("in->out", (ROWS, "score"), mean_s=1.0, over_s=5.0)
LOAD = Load("steps", 140.0, steps([(0.0, 600.0), (40.0, 2400.0), (90.0, 1200.0)]))
EPOCH = 1_700_000_000.0


class Recording(BatchHost):
    """The simulator's micro-batch host, writing the records that a live job would."""

    def run(self, policy: Policy, bound: Bound = BOUND) -> list[BatchRecord]:
        records: list[BatchRecord] = []
        decision = policy.decide(None, self.start())
        while not self.finished:
            cut, due = self.now, self.came
            rows, arrivals = self.waiting[:, 1].copy(), self.waiting[:, 0].copy()
            seen = self.advance(decision)
            if rows.sum() == 0.0:
                continue
            done = float(arrivals[rows > 0.0][0]) + seen.latency[bound.name][3]
            stages = []
            for name, view in seen.operators.items():
                busiest = view.utilisation * seen.interval_s
                stages.append(
                    OperatorStats(
                        name, "map", stage=name, width=view.width, tasks=view.width, rows_in=int(rows.sum()),
                        busy_s=busiest * view.width / view.skew, busy_max_s=busiest, concurrency=view.width,
                    )
                )  # fmt: skip
            record = BatchRecord(
                len(records), run="a", started=EPOCH + cut, visible=EPOCH + done, rows_in=int(rows.sum()),
                due=int(due), backlog=0, parts={"run": done - cut, "wait": self.now - done}, operators=tuple(stages),
                latency={"out": LogHistogram.of(done - arrivals[rows > 0.0], rows[rows > 0.0])},
                latency_from="arrival", decision={"widths": self.widths(), "lifetime_s": decision.lifetime_s},
                control=self.note(policy, bound),
            )  # fmt: skip
            records.append(record)
            decision = policy.decide(seen, decision)
        return records

    def note(self, policy: Policy, bound: Bound) -> dict[str, Any]:
        limits = {o.name: {"lo": o.lo, "hi": o.hi} for o in self.operators.values()}
        stated = {"name": bound.name, "mean_s": bound.mean_s, "over_s": bound.over_s, "sinks": ["out"]}
        return {
            "policy": type(policy).__name__,
            "bounds": [stated],
            "inputs": {"slots": self.parallelism, "operators": limits},
        }


def a_run(
    policy: Policy, load: Load = LOAD, *, width: int = 1, noise: float = 0.08, seed: int = 5, fixed_s: float = 0.2
) -> list[BatchRecord]:
    operators = [Operator("score", 0.001, width=width, hi=12)]
    host = Recording(operators, load, fixed_s=fixed_s, seed=seed, bounds=(BOUND,), noise=noise, parallelism=16)
    return host.run(policy)


@cache
def adaptive_run(seed: int = 5) -> tuple[BatchRecord, ...]:
    return tuple(a_run(Adaptive(), seed=seed))


def checkpoint(folder: Path, records: Sequence[BatchRecord]) -> Path:
    with TelemetryLog(telemetry_dir(folder)) as log:
        for record in records:
            log.append(record)
    return folder


class Every:
    """Widths 1 to 4 in turn, and two lifetimes: so that rows and tasks can be told from what is fixed."""

    def __init__(self) -> None:
        self.calls = 0

    def decide(self, observed: Any, current: Decision) -> Decision:
        self.calls += 1
        return Decision({"score": 3 + self.calls % 4}, 0.3 + 0.4 * (self.calls // 5 % 2))


# -- the run taken apart -------------------------------------------------------------------------------------------


def test_load_costs_and_bounds_are_found_again() -> None:
    records = a_run(Every(), noise=0.0)
    model = recorded(records)
    assert model.policy == "Every"
    assert [bound.mean_s for bound, _ in model.bounds] == [1.0]
    assert (model.slots, dict(model.limits)) == (16, {"score": (1, 12)})
    # the load: as many rows, at about the rate that was offered
    assert model.came[-1] == sum(r.rows_in for r in records)
    times = np.array([20.0, 70.0, 120.0])
    rates = (np.interp(times + 5, model.at_s, model.came) - np.interp(times - 5, model.at_s, model.came)) / 10.0
    assert rates == pytest.approx([600.0, 2400.0, 1200.0], rel=0.05)
    # the costs: a batch is 0.2 s, and 1 ms a row over the width
    assert [cost.fixed_s for cost in model.costs] == pytest.approx([0.2] * len(records), abs=1e-6)
    assert (model.row_s, model.task_s) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert {round(cost.stages[0].service_s, 9) for cost in model.costs} == {0.001}
    assert (model.sinks["out"].lag, model.sinks["out"].offset_s) == (0, pytest.approx(0.0, abs=0.03))


def test_what_rows_and_tasks_cost_outside_of_operators_is_told_apart() -> None:
    def dearer(record: BatchRecord) -> BatchRecord:
        more = 5e-5 * record.rows_in + 0.02 * launches(record.decision["widths"]["score"])
        parts = {"run": record.parts["run"] + more, "wait": max(0.0, record.parts["wait"] - more)}
        return replace(record, parts=parts, visible=record.visible + more)

    model = recorded([dearer(record) for record in a_run(Every(), noise=0.0)])
    assert (model.row_s, model.task_s) == pytest.approx((5e-5, 0.02), rel=1e-3)
    assert [cost.fixed_s for cost in model.costs] == pytest.approx([0.2] * len(model.costs), abs=1e-4)


def windowed_run(
    lifetime_s: float = 0.7, *, every_s: float = 1.0, phase_s: float = 0.3, work_s: float = 0.2, lag: int = 0
) -> Any:
    """A job in front of a window, played by hand: a batch closes what was complete when it was cut.

    With a lag of 1, when the batch before it was cut (Spark's rule)::

        complete         w               w               w
        cut          0       1       2       3       4
        closed, lag 0        0..1    1..2
        closed, lag 1                0..1    1..2
    """
    bound = {"name": "in->out", "p95_s": 1.0, "over_s": 5.0, "every_s": every_s, "sinks": ["out"]}
    records = []
    for i in range(120):
        cut, visible = EPOCH + i * lifetime_s, EPOCH + i * lifetime_s + work_s
        low, high = (i - lag - 1) * lifetime_s, (i - lag) * lifetime_s
        ends = [phase_s + k * every_s for k in range(200) if max(low, 0.0) < phase_s + k * every_s <= high]
        stage = OperatorStats("bars", "window", stage="bars", width=1, tasks=1, rows_in=70, concurrency=1)
        records.append(
            BatchRecord(
                i, run="a", started=cut, visible=visible, rows_in=70, due=70 * (i + 1), backlog=0,
                parts={"run": work_s, "wait": lifetime_s - work_s}, operators=(stage,),
                latency_from="arrival" if ends else "cut",  # as a job says it where nothing was closed
                latency={"out": LogHistogram.of([visible - EPOCH - w for w in ends])},
                decision={"widths": {"bars": 1}, "lifetime_s": lifetime_s},
                control={"policy": "Static", "bounds": [bound]},
            )
        )  # fmt: skip
    return records


class CutsAtEnds:
    def __init__(self, lifetime_s: float) -> None:
        self.lifetime_s = lifetime_s

    def decide(self, observed: Any, current: Decision) -> Decision:
        return replace(current, lifetime_s=self.lifetime_s, at_ends=True)


@pytest.mark.parametrize("lag", [0, 1])
def test_windows_are_closed_as_in_the_run_and_cut_for_when_a_policy_asks(lag: int) -> None:
    records = windowed_run(lag=lag)
    model = recorded(records)
    ends = model.sinks["out"].ends
    assert ends is not None and ends.every_s == 1.0
    began_after = model.began - EPOCH  # time 0 of a model is its first row's arrival
    assert (ends.phase_s + began_after) % 1.0 == pytest.approx(0.3, abs=0.01)
    assert model.sinks["out"].error_s == pytest.approx(0.0, abs=0.01)
    assert model.sinks["out"].lag == lag

    def mean_s(found: Sequence[BatchRecord]) -> float:
        return LogHistogram.total(r.latency["out"] for r in found[10:] if "out" in r.latency).mean or 0.0

    again = replayed(model, Static(), seed=1)
    assert mean_s(again) == pytest.approx(mean_s(records), rel=0.05)
    # A batch that begins as the window ends, and with a lag one right after it: their work, whatever the lifetime.
    asked = replayed(model, CutsAtEnds(5.0), seed=1)
    assert mean_s(asked) == pytest.approx(0.2 * (1 + lag), abs=0.03)
    assert len(asked) == pytest.approx((1 + lag) * model.duration_s, abs=5), "a batch a slide, with a lag two"
    # Batches in between do not make a window wait: one that would still be at work as it ends is not begun.
    between = replayed(model, CutsAtEnds(0.3), seed=1)
    assert len(between) > (1.5 + lag) * model.duration_s
    assert mean_s(between) == pytest.approx(0.2 * (1 + lag), abs=0.03)


def test_what_closing_windows_costs_does_not_grow_with_the_rows_of_another_batch() -> None:
    """Small batches close, large ones read: each costs what it cost, also with the other's rows."""
    records = []
    for i, record in enumerate(windowed_run()):
        rows, busy = (1400, 0.02) if i % 2 else (18_000, 0.01)
        stage = replace(record.operators[0], rows_in=rows, busy_s=busy, busy_max_s=busy)
        records.append(replace(record, rows_in=rows, due=None, backlog=None, operators=(stage,)))
    stages = [cost.stages[0] for cost in recorded(records).costs]
    assert (
        {stage.seconds(1400, 1) for stage in stages} == {stage.seconds(18_000, 1) for stage in stages} == {0.01, 0.02}
    )


def test_windows_whose_ends_cannot_be_told_are_taken_by_their_batch() -> None:
    rng = np.random.default_rng(3)
    scattered = [replace(r, latency={"out": LogHistogram.of([float(rng.uniform(0.2, 1.2))])}) for r in windowed_run()]
    assert recorded(scattered).sinks["out"].ends is None


def test_results_that_come_a_batch_after_their_rows_are_noticed() -> None:
    """A window closes in the batch after the row that completes it."""
    records = a_run(Every(), noise=0.0)
    later = [
        replace(b, latency={"out": LogHistogram.of([(a.latency["out"].mean or 0.0) + b.visible - a.visible])})
        for a, b in pairwise(records)
    ]
    sink = recorded([replace(records[0], latency={}), *later]).sinks["out"]
    assert (sink.lag, sink.offset_s) == (1, pytest.approx(0.0, abs=0.03))


def test_a_stream_that_does_not_say_what_is_due_counts_what_was_read() -> None:
    records = [replace(r, due=None, backlog=None) for r in a_run(Every(), noise=0.0)]
    model = recorded(records)
    assert not model.due_known
    assert model.came[-1] == sum(r.rows_in for r in records)
    assert ReplayHost(model, seed=1).arrived() is None


def test_only_the_last_run_counts_and_an_earlier_one_is_mentioned() -> None:
    records = a_run(Every(), noise=0.0)
    earlier = [replace(record, run="b", started=record.started - 900.0) for record in records[:30]]
    model = recorded([*earlier, *records])
    assert len(model.records) == len(records)
    assert "earlier runs" in model.notes[0]


# -- and run again -------------------------------------------------------------------------------------------------


def test_the_same_widths_and_lifetime_give_the_same_batches() -> None:
    """Without noise and with a policy that changes nothing, the replay is the run."""
    records = a_run(Static(), Load("flat", 60.0, lambda t: np.full_like(t, 800.0)), width=2, noise=0.0)
    again = replayed(recorded(records), Static(), seed=1)
    assert len(again) == pytest.approx(len(records), abs=2)
    for name in ("mean_s", "p95_s", "width_s"):
        live, sim = (getattr(judged(r, [(BOUND, ("out",))], label="", policy=""), name) for r in (records, again))
        assert sim == pytest.approx(live, rel=0.03), name


@pytest.mark.parametrize("seed", [5, 6])
def test_replaying_the_runs_own_policy_gives_about_its_fulfilment(seed: int) -> None:
    records = adaptive_run(seed)
    model = recorded(records)
    live = judged(records, model.bounds, label="measured", policy="adaptive")
    runs = [judged(replayed(model, Adaptive(), seed=s), model.bounds, label="", policy="") for s in (1, 2)]
    assert live.fulfilled is not None
    assert float(np.mean([run.fulfilled or 0.0 for run in runs])) == pytest.approx(live.fulfilled, abs=0.05)
    assert float(np.mean([run.width_s for run in runs])) == pytest.approx(live.width_s, rel=0.2)


def test_another_policy_is_predicted_from_the_run_of_one() -> None:
    """What static widths would do, told by a run of `Adaptive`, against their own runs; 2 are too few at the peak."""
    model = recorded(adaptive_run())
    for width in (2, 3, 4):
        truth = judged(a_run(Static(), width=width), model.bounds, label="measured", policy="static")
        told = replace(model, start=Decision({"score": width}))
        guess = judged(replayed(told, Static(), seed=1), model.bounds, label="simulated", policy="static")
        assert guess.fulfilled == pytest.approx(truth.fulfilled, abs=0.05 if width > 2 else 0.1)
        if width > 2:
            assert guess.mean_s == pytest.approx(truth.mean_s, rel=0.15)


def test_a_static_set_up_is_replayed_as_it_was_whatever_its_policy_is_called() -> None:
    class Fixed:
        def decide(self, observed: Any, current: Decision) -> Decision:
            return Decision({"score": 3}, 0.4)

    records = a_run(Fixed())
    model = recorded([replace(records[0], decision={"widths": {"score": 1}, "lifetime_s": 0.0}), *records[1:]])
    assert own_policy(model) == "static"
    assert (dict(model.start.widths), model.start.lifetime_s) == ({"score": 3}, 0.4)
    live, again = (judged(r, model.bounds, label="", policy="") for r in (records, replayed(model, Static(), seed=1)))
    assert again.fulfilled == pytest.approx(live.fulfilled, abs=0.05)
    assert again.mean_s == pytest.approx(live.mean_s, rel=0.1)


def test_a_seed_decides_the_replay_and_the_books_are_checked() -> None:
    model = recorded(adaptive_run())
    one, same, other = (replayed(model, Adaptive(), seed=s) for s in (1, 1, 2))
    assert one == same != other
    host = ReplayHost(model, seed=1)
    for _ in range(30):
        host.batch(Decision({"score": 2}, lifetime_s=0.5))
    host.check()
    host.spent += 1.0
    with pytest.raises(SimulationError):
        host.check()


def test_a_batch_is_cut_early_once_enough_rows_wait() -> None:
    model = recorded(a_run(Static(), Load("flat", 60.0, lambda t: np.full_like(t, 800.0)), width=4, noise=0.0))
    host = ReplayHost(model, seed=1)
    for _ in range(10):
        patient = host.batch(Decision({"score": 4}, lifetime_s=2.0))
    assert patient is not None
    assert patient.rows_in == pytest.approx(1600, rel=0.1)
    for _ in range(10):
        hasty = host.batch(Decision({"score": 4}, lifetime_s=2.0, cut_rows=600))
    assert hasty is not None
    assert hasty.rows_in == pytest.approx(600, rel=0.05)


def test_a_span_without_results_is_judged_by_the_batch_that_made_it_wait() -> None:
    bounds = [(BOUND, ("out",))]

    def batch(number: int, visible: float, latency: float) -> BatchRecord:
        return BatchRecord(number, started=visible - 0.1, visible=visible, latency={"out": LogHistogram.of([latency])})

    slow = judged([batch(0, 0.5, 0.4), batch(1, 24.0, 20.0), batch(2, 26.0, 0.4)], bounds, label="", policy="")
    assert (slow.fulfilled, slow.spans) == (2 / 6, 6), "the first and the last span of six"
    idle = judged([batch(0, 0.5, 0.4), batch(1, 24.0, 0.4), batch(2, 26.0, 0.4)], bounds, label="", policy="")
    assert idle.fulfilled == 1.0


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_says_what_is_measured_and_what_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, target = checkpoint(tmp_path / "ckpt", adaptive_run()), tmp_path / "rows.json"
    with pytest.raises(SystemExit) as left:
        command_line(["simulate", "replay", str(folder), "--policy", "adaptive,static", "--seeds", "2",
                      "--json", str(target)])  # fmt: skip
    assert not left.value.code
    out = capsys.readouterr().out
    assert "mean 1000 ms over 5 s" in out
    assert "adaptive (measured)" in out
    assert "static (simulated, 2 seeds)" in out
    rows = json.loads(target.read_text())
    assert [(row["label"], row["policy"]) for row in rows] == [
        ("measured", "adaptive"), *[("simulated", "adaptive")] * 2, *[("simulated", "static")] * 2
    ]  # fmt: skip
    assert rows[0]["bound_ms"] == 1000.0
    assert abs(rows[1]["fulfilled"] - rows[0]["fulfilled"]) <= 0.05
    assert rows[3]["fulfilled"] < 0.5, "one task cannot do it"


def test_a_bound_can_be_given_and_the_runs_own_policy_is_the_default(tmp_path: Path) -> None:
    records = [replace(r, control={"policy": "Adaptive"}) for r in adaptive_run()]
    folder = checkpoint(tmp_path, records)
    with pytest.raises(FlowError, match="required no latency.*--bound MS"):
        main(folder)
    target = tmp_path / "rows.json"
    assert main(folder, bound_ms=1500.0, over_s=10.0, seeds=1, json_path=str(target)) == 0
    rows = json.loads(target.read_text())
    assert [row["policy"] for row in rows] == ["adaptive", "adaptive"]
    assert rows[0]["bound_ms"] == 1500.0
    assert replay(folder, Adaptive(), bound_ms=1500.0).label == "simulated"


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "replay.png"
    assert main(checkpoint(tmp_path, a_run(Every())), policy="static", seeds=1, plot_path=str(target)) == 0
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_what_cannot_be_replayed_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="does not exist"):
        main(tmp_path / "nowhere")
    with pytest.raises(FlowError, match="no telemetry"):
        main(tmp_path)
    records = a_run(Every())
    with pytest.raises(FlowError, match="last run has 19 batches with rows; a replay needs 20"):
        main(checkpoint(tmp_path / "short", records[:19]))
    with pytest.raises(FlowError, match="its policy, Every, is none of the library's"):
        own_policy(recorded(records))
    with pytest.raises(SystemExit) as left:
        command_line(["simulate", "replay"])
    assert left.value.code == 2
    with pytest.raises(SystemExit) as left:
        command_line(["simulate", "primetest", str(tmp_path)])
    assert left.value.code == 2
