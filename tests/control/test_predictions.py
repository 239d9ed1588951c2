"""The prediction log against plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.control.models.predictions import PredictionLog
from penstock.errors import PolicyError


def test_errors_of_two_models_over_the_same_subject() -> None:
    random = np.random.default_rng(3)
    log = PredictionLog(keep=5)
    told: dict[str, list[float]] = {"a": [], "b": []}
    outcomes = []
    for step in range(40):
        for model, values in told.items():
            values.append(float(random.uniform(0, 1)))
            log.predict(model, "score", at_s=float(step), value=values[-1])
        outcomes.append(float(random.uniform(0, 1)))
        assert log.settle("score", at_s=step + 1.0, measured=outcomes[-1]) == 2
    for model, values in told.items():
        errors = np.array(outcomes) - np.array(values)
        assert log.mean_absolute_error(model) == pytest.approx(np.abs(errors).mean())
        assert log.bias(model) == pytest.approx(errors.mean())
        assert log.relative_error(model) == pytest.approx(np.abs(errors).sum() / sum(outcomes))
        assert log.mape(model) == pytest.approx(np.mean(np.abs(errors) / np.array(outcomes)))
        assert log.count(model) == 40
    assert log.mape() == pytest.approx(np.mean([log.mape("a"), log.mape("b")]))
    assert log.models == ("a", "b") and len(log.settled) == 5


def test_a_prediction_is_judged_by_what_comes_after_it_and_only_once() -> None:
    log = PredictionLog()
    log.predict("a", "score", at_s=5.0, value=1.0)
    assert log.settle("other", at_s=10.0, measured=2.0) == 0
    assert log.settle("score", at_s=5.0, measured=2.0) == 0
    assert log.settle("score", at_s=10.0, measured=2.0) == 1
    assert log.settle("score", at_s=15.0, measured=9.0) == 0
    assert log.mean_absolute_error("a") == 1.0


def test_infinite_is_counted_and_nan_refused() -> None:
    log = PredictionLog()
    log.predict("a", "score", at_s=5.0, value=1.0)
    log.predict("a", "score", at_s=6.0, value=math.inf)
    assert log.unbounded("a") == 1 and log.settle("score", at_s=10.0, measured=2.0) == 0
    with pytest.raises(PolicyError, match="must be a finite number"):
        log.predict("a", "score", at_s=5.0, value=math.nan)
    with pytest.raises(PolicyError, match="measured must be a finite number"):
        log.settle("score", at_s=5.0, measured=math.nan)
