"""What a live run is described by: a flow, a load over time, what is required of it, and what may be chosen about it.

The bound of a latency is a multiple of F, the fixed cost of a batch that is measured in the same run (`TIMES_F`); the
target of a throughput is a rate of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import SparkSession

import penstock as ps
from penstock.flow.stream import Stream
from penstock.sources.schedule import Schedule

WAITS, COMPUTES = "local[16,4]", "local[2,4]"
OVER_S = 3.0  # the spans that are judged
POLICIES = ("adaptive", "static", "at-once", "elastic", "spar-latency")
OURS_AND_STATIC = ("adaptive", "static")
TIMES_F = {"mean": 4.0, "p95": 6.0}


@dataclass(frozen=True)
class Promise:
    """A latency that is required and judged: between which streams, seen at which sink, by which statistic."""

    start: Stream
    end: Stream
    sink: str = "out"
    statistic: str = "mean"  # or "p95"

    def require(self, bound_s: float) -> ps.Latency:
        """The requirement, as a user states it."""
        limit: dict[str, Any] = {self.statistic: f"{bound_s * 1e6:.0f} us"}
        return ps.Latency(self.start, self.end, over=f"{OVER_S:g} s", **limit)


@dataclass(frozen=True)
class Target:
    """A rate that a farm is to reach up to a moment of the run; from then on next to nothing is required."""

    farm: Stream
    per_s: float
    until_s: float

    def require(self) -> ps.Throughput:
        """The requirement while it holds."""
        return ps.Throughput(self.farm, at_least=self.per_s)

    def none(self) -> ps.Throughput:
        """The requirement in its place: a requirement can be replaced but not taken back, and this asks for nothing."""
        return ps.Throughput(self.farm, at_least=1.0)


@dataclass(frozen=True)
class Built:
    """A flow, what is required of it (latencies, or a target), and the operator whose width is chosen."""

    flow: ps.Flow
    promises: tuple[Promise, ...]
    operator: str
    target: Target | None = None


Build = Callable[[SparkSession, Schedule], Built]


@dataclass(frozen=True)
class Scenario:
    """One load on one flow. `steps_s` are the moments at which the rate (or the cost of a row) jumps.

    `build` makes the flow. `build_peak` makes it as it is at its dearest, for the search of a static set-up: left out
    where the rate `peak` alone says what that is; `probe_s` is how long each pair of the grid runs, long enough to meet
    what changes at the peak. `variants` are the flows of single policies, where these differ. `sized` is the same
    with as much load as this machine can bear, given how long one of the dearest rows takes in the job.
    """

    name: str
    master: str
    load: Schedule
    seconds: float
    steps_s: tuple[float, ...]
    low: float  # rows per second at which F is measured
    peak: float  # rows per second that a static set-up must survive
    build: Build
    widths: tuple[int, ...]  # the grid of the static set-up
    statistic: str = "mean"  # of the first promise, whose bound is `TIMES_F` of it
    pays_for: Literal["width", "cpu"] = "width"  # what it costs: width x time of stages that wait, or CPU seconds
    runs: int = 3
    policies: tuple[str, ...] = POLICIES
    build_peak: Build | None = None
    probe_s: float = 16.0
    variants: Mapping[str, Build] = field(default_factory=dict)
    sized: Callable[[float], Scenario] | None = None

    def bounds_s(self, built: Built, bound_s: float) -> tuple[float, ...]:
        """The bound of each promise, given that of the first: each is its own multiple of the same F."""
        return tuple(bound_s * TIMES_F[p.statistic] / TIMES_F[self.statistic] for p in built.promises)
