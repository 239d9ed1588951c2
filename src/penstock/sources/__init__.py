"""Deterministic streams for demos, tests and benchmarks: what rows there are, when they are due, which keys."""

from __future__ import annotations

from penstock.sources.api import replay, replay_batch
from penstock.sources.arrivals import poisson
from penstock.sources.keys import hot, uniform, zipf
from penstock.sources.limits import write_limits
from penstock.sources.schedule import Schedule, burst, constant, ramp, sine, staircase, step
from penstock.sources.spec import ReplaySpec, due
from penstock.sources.trace import recorded

__all__ = [
    "ReplaySpec",
    "Schedule",
    "burst",
    "constant",
    "due",
    "hot",
    "poisson",
    "ramp",
    "recorded",
    "replay",
    "replay_batch",
    "sine",
    "staircase",
    "step",
    "uniform",
    "write_limits",
    "zipf",
]
