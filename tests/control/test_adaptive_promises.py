"""What `Adaptive` promises of the queues: against obvious code, and against a simulated run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from penstock.control.decision import Decision
from penstock.control.models.kingman import kingman_wait
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.adaptive import Adaptive
from penstock.control.policies.adaptive_learner import Learner
from penstock.control.policies.adaptive_paths import Path
from penstock.control.policies.adaptive_promises import MODEL, Promises, expected_wait
from penstock.engine.sim.loads import Load
from penstock.engine.sim.loop import run
from penstock.engine.sim.spec import Machine, Operator
from penstock.engine.sim.stream import StreamHost
from tests.control.cases import view

T = 5.0
BOUND = Bound("fast", ("v",), mean_s=0.1)


def one(width: int, rate: float, **given: Any) -> OperatorView:
    values = {"service_s": 0.02, "service_cv": 1.0, "utilisation": rate * 0.02 / width, "queue_items": 0.0, **given}
    return view("v", width=width, arrivals_per_s=rate, completed_per_s=rate, interarrival_s=width / rate, **values)


def learnt(seen: OperatorView, intervals: int = 1) -> Learner:
    learner = Learner(20.0)
    for i in range(intervals):
        learner.add(seen, T * (i + 1), T)
    return learner


@pytest.mark.parametrize("width", [1, 2, 7])
def test_a_steady_queue_waits_as_kingman_says(width: int) -> None:
    seen = one(width, 35.0 * width)
    learner = learnt(seen)
    expected = kingman_wait(0.02, 1.0 / 35.0, 1.0, 1.0)
    assert learner.mean_wait(width, 35.0 * width, seen) == pytest.approx(expected)
    assert learner.wait_at(width, 35.0 * width, 0.0, seen, T) > expected  # what an interval may scatter comes on top
    assert expected_wait(seen, width, learner, T) == pytest.approx(expected)


@pytest.mark.parametrize("hot", [0.05, 0.2])
def test_the_wait_with_a_hot_key_is_that_of_its_subtask_and_the_others_by_their_items(hot: float) -> None:
    width, rate = 5, 120.0
    rates = [rate * (1.0 - hot) / width + (rate * hot if i == 0 else 0.0) for i in range(width)]
    expected = sum(each / rate * kingman_wait(0.02, 1.0 / each, 1.0, 1.0) for each in rates)
    seen = one(width, rate, skew=1.0 + hot * (width - 1))
    assert learnt(seen).mean_wait(width, rate, seen) == pytest.approx(expected)


@pytest.mark.parametrize("queue", [100.0, 1000.0, 6000.0])
def test_a_backlog_adds_what_stepping_through_the_interval_adds(queue: float) -> None:
    width, rate, service = 10, 300.0, 0.02
    seen = one(width, rate, queue_items=queue)
    learner = learnt(seen)
    steady = learner.mean_wait(width, rate, seen)
    work, waits, step = (queue - rate * steady) * service, [], 0.001
    for _ in range(int(T / step)):
        waits.append(work / width)
        work = max(work + (rate * service - width) * step, 0.0)
    assert expected_wait(seen, width, learner, T) - steady == pytest.approx(float(np.mean(waits)), rel=0.01)


def observed(now_s: float, seen: OperatorView | None, mean: float = 0.08) -> Observation:
    views = {} if seen is None else {"v": seen}
    return Observation(now_s, T, views, (BOUND,), {} if seen is None else {"fast": (mean, 0.2, 0.3, 0.4)})


def promised(seen: OperatorView, decided: Decision, current: Decision | None = None) -> Promises:
    promises, path = Promises(), Path(BOUND, 0.1, [seen], 0.05, 0.05, 0.0)
    promises.make([path], decided, current or decided, {"v": learnt(seen)}, observed(T, seen))
    return promises


def test_an_overload_is_no_finite_promise_and_counted_apart() -> None:
    seen = one(4, 300.0)
    assert math.isinf(expected_wait(seen, 4, learnt(seen), T))
    promises = promised(seen, Decision({"v": 4}))
    promises.judge(observed(2 * T, seen))
    assert (promises.log.count(MODEL), promises.log.unbounded(MODEL)) == (0, 1)


def test_what_is_not_decided_stays_and_batches_follow_their_lifetime() -> None:
    seen = one(8, 300.0, wait_s=0.03, batch_wait_s=0.01)
    wait = expected_wait(seen, 8, learnt(seen), T)
    before, after = (Decision({"v": 8}, lifetimes={"->v": life}) for life in (0.02, 0.05))
    for decided, batches in ((before, 0.01), (after, 0.025)):
        promises = promised(seen, decided, before)
        promises.judge(observed(2 * T, seen, mean=0.07))
        assert promises.log.settled[0].predicted == pytest.approx(0.08 - 0.03 + wait - 0.01 + batches)
        assert promises.log.settled[0].measured == 0.07


def test_a_promise_is_judged_only_at_the_widths_it_was_made_for() -> None:
    seen = one(8, 300.0)
    for later, judged in ((one(8, 300.0), 1), (one(9, 300.0), 0), (None, 0)):
        promises = promised(seen, Decision({"v": 8}))
        promises.judge(observed(2 * T, later))
        promises.judge(observed(3 * T, seen))
        assert promises.log.count(MODEL) == judged
    fused = promised(seen, Decision({"v": 8}, chains=(("u", "v"),)), Decision({"v": 8}))
    fused.judge(observed(2 * T, seen))
    assert fused.log.models == ()


def test_what_is_fixed_is_expected_to_wait_as_it_did() -> None:
    sink = view("sink", width=2, lo=2, hi=2, wait_s=0.007)
    assert expected_wait(sink, 2, Learner(20.0), T) == 0.007


def test_in_a_simulated_run_the_promises_are_near_what_is_measured() -> None:
    """Exponential services and arrivals under a slow wave: the model is right, so its error is mostly scatter."""
    load = Load("wave", 600.0, lambda t: 400.0 + 100.0 * np.sin(2.0 * np.pi * t / 300.0))
    host = StreamHost(
        [Operator("v", 0.02, width=12, hi=32)], load, seed=3, bounds=(BOUND,), machine=Machine(scale_up_s=2.0)
    )
    policy = Adaptive()
    trace = run(host, policy)
    log = policy.predictions
    assert log.count(MODEL) > 80
    assert trace.prediction_error == log.mape()
    assert 0.0 < trace.prediction_error < 0.25
    mean = float(np.mean([settled.measured for settled in log.settled]))
    assert abs(log.bias(MODEL) or 0.0) < 0.1 * mean
    policy.reset()
    assert policy.predictions.count(MODEL) == 0


def test_nothing_is_promised_where_there_is_no_bound() -> None:
    policy = Adaptive()
    policy.decide(Observation(T, T, {"v": one(8, 300.0)}), Decision({"v": 8}))
    assert policy.predictions.models == ()
