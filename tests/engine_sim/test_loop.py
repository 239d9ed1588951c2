"""The feedback loop and its measures, on a host whose every number is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation
from penstock.engine.sim.checks import SimulationError, conserved, little
from penstock.engine.sim.loop import Trace, run, within
from penstock.engine.sim.measures import measure
from tests.control.cases import view

BOUND = Bound("fast", ("v",), mean_s=0.1)


class Scripted:
    """A host that shows given mean latencies, 5 s each, and obeys at once."""

    bounds: tuple[Bound, ...] = (BOUND,)

    def __init__(self, means: Sequence[float | None]) -> None:
        self.means, self.now, self.width, self.checked = list(means), 0.0, 4, False

    @property
    def finished(self) -> bool:
        return not self.means

    def start(self) -> Decision:
        return Decision({"v": 4})

    def advance(self, decision: Decision) -> Observation:
        self.now += 5.0
        self.width = decision.widths["v"]
        mean = self.means.pop(0)
        latency = {} if mean is None else {"fast": (mean, 2 * mean, 3 * mean, 4 * mean)}
        return Observation(self.now, 5.0, {"v": view(width=self.width)}, self.bounds, latency)

    def widths(self) -> dict[str, int]:
        return {"v": self.width}

    def paid(self) -> dict[str, float]:
        return {"v": 5.0 * self.width}

    def check(self) -> None:
        self.checked = True


class Doubles:
    """Doubles the width after every broken interval, and halves it after every kept one above 4."""

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        if observed is None or not observed.latency:
            return current
        width = current.widths["v"]
        return Decision({"v": 2 * width if observed.latency["fast"][0] > 0.1 else max(width // 2, 4)})


def test_every_measure_of_a_scripted_run() -> None:
    host = Scripted([0.05, 0.2, 0.3, 0.05, None, 0.05, 0.11, 0.05])
    trace = run(host, Doubles())
    assert host.checked
    assert [i.widths["v"] for i in trace.intervals] == [4, 4, 8, 16, 8, 8, 4, 8]
    assert trace.changes == [(10.0, 4), (15.0, 8), (20.0, 8), (30.0, 4), (35.0, 4), (40.0, 4)]
    row = measure(trace, scenario="s", policy="p", seed=7, best_width=8, per_worker=4.0)
    assert row.violations == 3
    assert row.fulfilled == pytest.approx(4 / 7)  # the interval without a measurement is no verdict
    assert row.settle_s == pytest.approx(7.5)  # one run of 10 s, one of 5 s
    assert row.reconfigurations == 6
    assert row.amplitude == pytest.approx(32 / 6)
    assert row.overshoot == pytest.approx(1.0)  # 16 against 8
    assert row.subtask_hours == pytest.approx(60 * 5 / 3600)
    assert row.worker_hours == pytest.approx(60 * 5 / 3600 / 4)
    assert row.bound_ms == 100.0
    assert row.p95_ms == pytest.approx(100.0)
    needed = {
        "scenario", "policy", "seed", "bound_ms", "fulfilled", "p95_ms", "subtask_hours", "worker_hours",
        "reconfigurations", "amplitude", "settle_s", "overshoot", "violations", "loss_vs_best_static",
    }  # fmt: skip
    assert needed <= row.to_json().keys()
    later = measure(trace, scenario="s", policy="p", seed=7, skip_s=20.0)
    assert (later.violations, later.reconfigurations) == (1, 4)


def test_a_bound_of_every_kind_is_judged() -> None:
    measured = (0.05, 0.2, 0.3, 0.9)
    assert within(Bound("b", ("v",), mean_s=0.05, p95_s=0.2, p99_s=0.3), measured)
    for broken in ({"mean_s": 0.04}, {"p95_s": 0.19}, {"p99_s": 0.29}):
        assert not within(Bound("b", ("v",), **broken), measured)


def test_an_empty_run_has_no_figures_rather_than_wrong_ones() -> None:
    row = measure(Trace((BOUND,)), scenario="s", policy="p", seed=1)
    assert (row.fulfilled, row.violations, row.p95_ms, row.settle_s, row.amplitude) == (None,) * 5


def test_books_that_do_not_balance_are_refused() -> None:
    with pytest.raises(SimulationError, match="10 items came, but 7 left and 2 are inside"):
        conserved("x", 10, 7, 2)
    with pytest.raises(SimulationError, match="integrates to 4"):
        little("x", 4.0, 4.1)
