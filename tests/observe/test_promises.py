"""Whether a report says truly how often a bound was kept, and what a policy is shown of a run's records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.control.histogram import LogHistogram
from penstock.control.observation import Bound
from penstock.observe.fixed_cost import FixedCost
from penstock.observe.observer import ROWS, Observer
from penstock.observe.promise import promises
from penstock.observe.record import BatchRecord, OperatorStats
from penstock.observe.report import Report

BOUND = {"name": "a->b", "mean_s": 0.5, "over_s": 2.0, "sinks": ["out"]}


def batch(number: int, latency_s: float, **control: object) -> BatchRecord:
    return BatchRecord(
        number,
        visible=100.0 + number,
        latency={"out": LogHistogram.of([latency_s])},
        latency_from="arrival",
        parts={"run": 0.1},
        control={"bounds": [BOUND], **control},
    )


def test_a_bound_is_judged_span_by_span() -> None:
    """Spans of two seconds: batches 0-1 keep it on average, 2-3 do not, 4-5 do."""
    records = [batch(n, s) for n, s in enumerate([0.2, 0.6, 0.4, 0.7, 0.1, 0.1])]
    (found,) = promises(records)
    assert (found.intervals, found.kept) == (3, pytest.approx(2 / 3))
    assert found.measured_ms == pytest.approx(350, rel=0.02)
    assert "kept in 66.7 % of 3 intervals of 2 s" in str(Report.of(records))


def test_an_infeasible_bound_is_said_with_the_least_and_what_would_help() -> None:
    verdict = {
        "kind": "mean",
        "bound_s": 0.5,
        "least_s": 0.9,
        "feasible": False,
        "parts_s": {"wait": 0.3, "fixed": 0.6},
    }
    records = [batch(0, 1.0, verdict=verdict, outcome={"a->b": {"predicted_s": 0.8, "measured_s": 1.0}})]
    text = str(Report.of(records))
    assert "NOT FEASIBLE here (least 900 ms)" in text
    assert "the fixed cost of a batch" in text
    assert "off by 20.0 %" in text


def test_of_two_limits_the_verdict_is_about_the_one_that_governs() -> None:
    both = BOUND | {"p95_s": 0.8}
    verdict = {"kind": "p95", "bound_s": 0.8, "least_s": 0.6, "feasible": True, "parts_s": {"fixed": 0.4}}
    mean, p95 = promises([batch(0, 0.4, bounds=[both], verdict=verdict)])
    assert (mean.feasible, mean.least_ms, mean.parts_ms) == (True, None, {})
    assert (p95.feasible, p95.least_ms, p95.parts_ms) == (True, 600.0, {"fixed": 400.0})
    mean, p95 = promises([batch(0, 0.4, bounds=[both], verdict=verdict | {"feasible": False, "least_s": 0.9})])
    assert (mean.feasible, p95.feasible) == (None, False), "whether the looser one could be kept is not said"
    assert (mean.advice, bool(p95.advice)) == ("", True)


def test_latency_from_the_cut_is_not_held_against_a_prediction_from_arrival() -> None:
    told = {"outcome": {"a->b": {"predicted_s": 0.8, "measured_s": 0.4}}}
    (known,) = promises([batch(0, 0.4, **told)])
    assert known.predicted_off_by == 1.0
    (unknown,) = promises([replace(batch(0, 0.4, **told), latency_from="cut")])
    assert unknown.predicted_off_by is None


def test_a_policy_that_raised_is_counted() -> None:
    assert "the policy raised 1 times" in str(Report.of([BatchRecord(1, parts={"run": 0.1}, control={"error": "x"})]))


def test_costs_of_batch_row_and_task_are_told_apart() -> None:
    """Known truth, 5 % noise, sizes and widths that vary on their own."""
    random = np.random.default_rng(1)
    cost = FixedCost()
    for _ in range(60):
        rows, tasks = int(random.integers(1_000, 50_000)), int(random.integers(1, 9))
        cost.add(rows, tasks, (0.1 + 3e-6 * rows + 0.03 * tasks) * random.normal(1.0, 0.05))
    fixed, per_row, per_task = cost.fit()
    assert fixed == pytest.approx(0.1, rel=0.3)
    assert per_row == pytest.approx(3e-6, rel=0.3)
    assert per_task == pytest.approx(0.03, rel=0.3)


def test_where_sizes_and_widths_never_change_the_usual_costs_stand() -> None:
    cost = FixedCost()
    for _ in range(20):
        cost.add(1000, 2, 0.2)
    fixed, per_row, per_task = cost.fit()
    assert fixed + 1000 * per_row + 2 * per_task == pytest.approx(0.2, rel=0.02)
    assert per_task == pytest.approx(0.004, rel=0.1)


def test_an_observation_has_offered_rates_service_times_and_what_waits() -> None:
    """1000 rows a second fall due; a batch of 500 rows keeps two tasks busy for 0.1 and 0.15 s."""
    stats = OperatorStats(
        "score", "map", width=2, tasks=2, rows_in=500, busy_s=0.25, busy_max_s=0.15, stage="score", groups=(100, 400)
    )
    observer = Observer({"score": (1, 8)}, slots=4)
    bound = Bound("a->b", (ROWS, "score"), mean_s=1.0)
    seen = None
    for number in range(8):
        cut = 10.0 + 0.5 * number
        record = BatchRecord(
            number,
            rows_in=500,
            due=500 * (number + 1),
            backlog=0,
            parts={"run": 0.3},
            operators=(stats,),
            latency={"out": LogHistogram.of([0.6])},
            decision={"widths": {"score": 2}},
        )
        observer.add(record, cut)
        arrived = int(1000 * (0.5 * (number + 1) + 0.3))
        seen = observer.look(cut + 0.3, cut + 0.5, arrived, (bound,), {"a->b": ("out",)}, {})
    assert seen is not None
    view = seen.operators["score"]
    assert seen.operators[ROWS].arrivals_per_s == pytest.approx(1000)
    assert view.service_s == pytest.approx(0.0005)
    assert view.skew == pytest.approx(1.2)
    assert view.groups == (100, 400)
    assert seen.backlog_items == pytest.approx(500)  # 300 came since the cut, 200 more come until the next
    assert seen.latency["a->b"][0] == pytest.approx(0.6)
    launched = 3  # two tasks and the exchange in front of them
    rest = seen.fixed_s + launched * seen.task_s + 500 * seen.operators[ROWS].service_s
    assert rest == pytest.approx(0.15, rel=0.05)


def test_a_required_rate_is_what_a_batch_did_in_its_own_time() -> None:
    """A batch of 1 row takes 0.1 s, the next, of 120 rows, 4 s: its farm does 30 rows a second, not 1200."""
    observer, rates = Observer({"score": (1, 8)}, slots=4), []
    for number, (cut, end, rows) in enumerate([(10.0, 10.1, 1), (10.1, 14.1, 120)]):
        stats = OperatorStats("score", "map", width=1, tasks=1, rows_in=rows, busy_s=rows / 31.0, stage="score")
        record = BatchRecord(number, rows_in=rows, operators=(stats,), decision={"widths": {"score": 1}})
        observer.add(record, cut)
        seen = observer.look(end, end, None, (), {}, {"score": 100.0})
        assert seen is not None
        rates.append(seen.operators["score"].completed_per_s)
    assert rates == pytest.approx([10.0, 30.0])


@pytest.mark.parametrize(
    ("width", "busy_s", "each"), [(1, 0.01, 1), (1, 0.17, 2), (2, 0.27, 3), (2, 3.0, 4), (8, 0.1, 1)]
)
def test_a_farm_on_demand_has_as_many_tasks_as_its_work_is_worth(width: int, busy_s: float, each: int) -> None:
    """At least one a replica, at most four; one for each 40 ms of work, told for the width that it has, or for two."""
    observer = Observer({"score": (1, 8)}, slots=4, tasks_each={"score": 4})
    stats = OperatorStats("score", "map", width=width, tasks=width, rows_in=10, busy_s=busy_s, stage="score")
    observer.add(BatchRecord(0, rows_in=10, operators=(stats,), decision={"widths": {"score": width}}), 1.0)
    seen = observer.look(1.1, 1.2, None, (), {}, {})
    assert seen is not None
    assert seen.operators["score"].tasks_each == each
