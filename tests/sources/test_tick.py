"""The ticks of an idle stream, by clocks that are set by hand."""

from __future__ import annotations

import time

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.sources.tick import TickReader

ALL = ReadAllAvailable()


def test_a_clock_that_is_set_back_does_not_stop_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    wall clock   100 s   101   | set back | 41    42    43
    offset       100     101                101   102   103
    """
    wall, real = [100.4], [7.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    monkeypatch.setattr(time, "monotonic", lambda: real[0])
    reader = TickReader()
    offset = reader.initialOffset()
    told = []
    for wall[0], real[0] in ((101.4, 8.0), (41.9, 8.5), (42.4, 9.0), (42.9, 9.5), (43.4, 10.0)):
        offset = reader.latestOffset(offset, ALL)
        told.append(offset["second"])
    assert told == [101, 101, 102, 102, 103]
    wall[0] = 3701.0
    assert reader.latestOffset(offset, ALL) == {"second": 3701}, "the clock governs where it is ahead"


def test_what_is_there_now_ends_at_the_second_that_was_now(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [100.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    reader = TickReader()
    reader.prepareForTriggerAvailableNow()
    wall[0] = 500.0
    assert reader.latestOffset({"second": 90}, ALL) == {"second": 100}
