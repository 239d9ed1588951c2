"""Load shapes: what the names promise, other events with every seed, and no surprises in between."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.engine.sim.loads import SHAPES, shape
from penstock.errors import FlowError


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_positive_smooth_to_ask_and_its_own_with_every_seed(name: str) -> None:
    t = np.arange(0.0, shape(name, 0).duration_s, 0.5)
    curves = []
    for seed in range(10):
        load = shape(name, seed)
        rate, cost, hot = load.rate(t), load.cost(t), load.hot(t)
        assert rate.shape == cost.shape == hot.shape == t.shape
        assert np.isfinite(rate).all()
        assert rate.min() > 0.0
        assert 0.0 <= hot.min() <= hot.max() < 0.1
        assert load.peak() <= 64 / 0.02  # what the comparison's operator can take with all its subtasks
        again = shape(name, seed)
        assert np.array_equal(again.rate(t), rate)
        curves.append(np.concatenate([rate, cost, hot]))
    assert len({c.tobytes() for c in curves}) == 10


@pytest.mark.parametrize(("name", "factor"), [("step2", 2.0), ("step4", 4.0)])
def test_steps_rise_by_their_factor(name: str, factor: float) -> None:
    load = shape(name, 3)
    for up in (load.events[0], load.events[2]):
        before, after = load.rate(np.array([up - 0.01, up + 0.01]))
        assert after / before == factor


def test_deadly_bursts_are_over_before_a_host_has_widened_and_bursts_are_not() -> None:
    for name, least, most in (("deadly", 3.0, 6.0), ("bursts", 25.0, 45.0)):
        load = shape(name, 5)
        t = np.arange(0.0, load.duration_s, 0.01)
        high = load.rate(t) > 500.0
        edges = np.flatnonzero(np.diff(high.astype(int)))
        lengths = np.diff(t[edges])[::2]
        assert lengths.size >= 5
        assert least - 0.05 <= lengths.min() <= lengths.max() <= most + 0.05


def test_the_service_time_doubles_and_the_hot_key_moves_while_the_rate_stays() -> None:
    service, skew = shape("service", 2), shape("skew", 2)
    assert service.cost(np.array([0.0, 600.0, 1200.0])).tolist() == [1.0, 2.0, 1.0]
    assert np.ptp(service.rate(np.arange(0.0, 1300.0))) == 0.0
    assert skew.hot_at(np.array([600.0, 1200.0])).tolist() == [0.0, 3.0]
    assert np.ptp(skew.rate(np.arange(0.0, 1300.0))) == 0.0


def test_an_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FlowError, match=r"no such shape.*bursts, deadly"):
        shape("tsunami", 1)
