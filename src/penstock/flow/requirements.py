"""What a user requires of a flow: a latency to keep, a throughput to reach, a width not to pass.

They are plain descriptions; `flow.require(...)` checks them against the flow, `job.require(...)` changes them on a
running job. A requirement of the same kind on the same streams replaces the one before.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.durations import Duration, microseconds
from penstock.errors import FlowError

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.stream import Stream


class Latency:
    """An upper bound on the time from a row's arrival to its result being visible behind the stream `end`.

    `start` is the stream from which the operators count that the bound is kept by; time runs from the arrival of a row
    at its source. `mean`, `p95` and `p99` are durations, at least one of them; each span of `over` is judged by itself.
    Where several bounds touch the same rows, the tightest governs.

    >>> from types import SimpleNamespace as Fake      # in a program: streams of a flow
    >>> quotes, bars = Fake(flow=None, port="quotes"), Fake(flow=None, port="bars")
    >>> Latency(quotes, bars, mean="1500 ms", over="5 s")
    Latency(quotes -> bars: mean 1.5 s over 5 s)
    >>> Latency(quotes, bars)
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: latency quotes -> bars: it states no bound. Remedy: pass mean=, p95= or p99=.
    """

    def __init__(
        self,
        start: Stream,
        end: Stream,
        *,
        mean: Duration | None = None,
        p95: Duration | None = None,
        p99: Duration | None = None,
        over: Duration = "5 s",
    ) -> None:
        where = f"latency {_port(start, 'its first argument')} -> {_port(end, 'its second argument')}"
        self.start, self.end = start, end
        self.name = where.removeprefix("latency ").replace(" ", "")
        self.mean_s, self.p95_s, self.p99_s = (
            None if value is None else microseconds(value, name=name, where=where) / 1e6
            for name, value in (("mean", mean), ("p95", p95), ("p99", p99))
        )
        self.over_s = microseconds(over, name="over", where=where) / 1e6
        if not self.limits:
            raise FlowError(where, "it states no bound", "pass mean=, p95= or p99=")

    @property
    def limits(self) -> dict[str, float]:
        """The bounds stated, in seconds, by "mean", "p95" and "p99"."""
        stated = {"mean": self.mean_s, "p95": self.p95_s, "p99": self.p99_s}
        return {name: value for name, value in stated.items() if value is not None}

    def __repr__(self) -> str:
        limits = ", ".join(f"{name} {_seconds(value)}" for name, value in self.limits.items())
        return f"Latency({self.start.port} -> {self.end.port}: {limits} over {_seconds(self.over_s)})"


class Throughput:
    """A rate that an operator is to reach, in rows per second, with as few replicas as that takes.

    >>> from types import SimpleNamespace as Fake      # in a program: a stream of a flow
    >>> Throughput(Fake(flow=None, port="marks"), at_least=5000)
    Throughput(marks: at least 5000 rows/s)
    """

    def __init__(self, stream: Stream, *, at_least: float) -> None:
        where = f"throughput {_port(stream, 'its first argument')}"
        self.stream, self.name = stream, stream.port
        number = isinstance(at_least, numbers.Real) and not isinstance(at_least, bool)
        if not (number and math.isfinite(at_least) and at_least > 0):
            raise FlowError(where, f"at_least must be a rate above 0, got {at_least!r}", "state rows per second")
        self.at_least = float(at_least)

    def __repr__(self) -> str:
        return f"Throughput({self.stream.port}: at least {self.at_least:g} rows/s)"


@dataclass(frozen=True)
class Cost:
    """What may be spent: no operator is made wider than `max_width`; one that was given more replicas keeps them.

    >>> Cost(max_width=4)
    Cost(max_width=4)
    """

    max_width: int

    def __post_init__(self) -> None:
        if isinstance(self.max_width, bool) or not isinstance(self.max_width, int) or self.max_width < 1:
            rule = f"max_width must be a whole number, 1 or more, got {self.max_width!r}"
            raise FlowError("cost", rule, "pass the most replicas that an operator may have")

    @property
    def name(self) -> str:
        """One per flow: a later one replaces it."""
        return "cost"


Requirement = Latency | Throughput | Cost


def check(flow: Flow, requirement: Any) -> Requirement:
    """Return a requirement that fits the flow; refuse any other."""
    where = f"flow '{flow.name}'"
    if not isinstance(requirement, (Latency, Throughput, Cost)):
        rule = f"it can require a Latency, a Throughput or a Cost, got {type(requirement).__name__}"
        raise FlowError(where, rule, "pass ps.Latency(...), ps.Throughput(...) or ps.Cost(...)")
    if isinstance(requirement, Cost):
        return requirement
    streams = (requirement.start, requirement.end) if isinstance(requirement, Latency) else (requirement.stream,)
    for stream in streams:
        if stream.flow is not flow:
            raise FlowError(f"{requirement!r}", f"'{stream.port}' is a stream of another flow", "use this flow's own")
    if isinstance(requirement, Latency):
        first, last = (stream.port.partition(".")[0] for stream in streams)
        if first not in flow.ancestors(requirement.end.port):
            raise FlowError(f"{requirement!r}", f"no path leads from '{first}' to '{last}'", "name them in flow order")
        if not flow.sinks_behind(requirement.end.port):
            rule = f"nothing behind '{last}' is written, so its latency cannot be measured"
            raise FlowError(f"{requirement!r}", rule, "write the stream, or one behind it, to a sink")
    return requirement


def merged(known: tuple[Requirement, ...], added: Requirement) -> tuple[Requirement, ...]:
    """The requirements with one more, in place of one of the same kind and name."""
    kept = [r for r in known if not (type(r) is type(added) and r.name == added.name)]
    return (*kept, added)


def _port(stream: Any, what: str) -> str:
    port = getattr(stream, "port", None)
    if not isinstance(port, str):
        raise FlowError("requirement", f"{what} must be a stream of a flow, got {stream!r}", "pass what read() gave")
    return port


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1.0 else f"{value * 1e3:g} ms"
