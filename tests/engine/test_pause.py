"""From cut to cut: the wait of a job, without a job. What needs a job is tested where batches are cut."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.control.decision import Decision
from penstock.engine.spark.pause import Pause

NOBODY: Any = None


class Asked(threading.Event):
    """Waits by putting the clock forward."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """Let the clock go on by so much."""
        assert timeout is not None
        self.clock[0] += timeout
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_lifetime_is_from_cut_to_cut(clock: list[float]) -> None:
    """What Spark takes between two batches is part of the lifetime.

    10.0                     10.3       10.47        10.5
    batch begins ... work ... done .. wait .. Spark .. next batch
    """
    pause = Pause(NOBODY, NOBODY, {}, Asked(clock))
    for gap_s in (0.02, 0.03, 0.2, 0.03, 0.04):
        pause.took(gap_s)
    pause.took(7.0)  # no rows came: that is nobody's cost

    clock[0] = 10.3
    assert pause.next_cut_s(10.0, clock[0], 0.5) == pytest.approx(10.5)
    assert not pause.wait(Decision(lifetime_s=0.5), 10.0, [], {}), "nobody ended it"
    assert clock[0] == pytest.approx(10.47)


def test_a_batch_that_outlasts_its_lifetime_is_followed_at_once(clock: list[float]) -> None:
    pause = Pause(NOBODY, NOBODY, {}, Asked(clock))
    pause.took(0.03)
    clock[0] = 10.6

    pause.wait(Decision(lifetime_s=0.5), 10.0, [], {})
    assert clock[0] == 10.6
    assert pause.next_cut_s(10.0, clock[0], 0.5) == pytest.approx(10.63)


def test_before_a_second_batch_nothing_is_known_of_spark(clock: list[float]) -> None:
    pause = Pause(NOBODY, NOBODY, {}, Asked(clock))
    clock[0] = 10.1

    pause.wait(Decision(lifetime_s=0.5), 10.0, [], {})
    assert clock[0] == pytest.approx(10.5)


def test_a_wait_that_a_user_ends_says_so(clock: list[float]) -> None:
    stopping = Asked(clock)
    pause = Pause(NOBODY, NOBODY, {}, stopping)
    clock[0] = 10.1

    pause.hurry.set()
    assert pause.wait(Decision(lifetime_s=0.5), 10.0, [], {})
    assert clock[0] == 10.1
    assert not pause.wait(Decision(lifetime_s=0.5), 10.0, [], {}), "one wait is ended, not the next"
    clock[0] = 10.1
    stopping.set()
    assert pause.wait(Decision(lifetime_s=0.5), 10.0, [], {})
