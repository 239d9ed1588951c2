"""How many replicas at least, at most and at the start (thesis 003, sections 4.4.2, 4.5.1 and 4.6).

::

    throughput, no-parameter, queue:  Nmax = H - 2     emitter and collector need a hardware thread each
    latency:                          Nmax = P - 1     hyper-threads add latency, so physical cores only
    all:                              Nmin = 2, N0 = H / 2, clamped into the bounds

H hardware threads, P physical cores. Section 4.4.2 first takes the physical cores as the maximum; 4.6 replaces it by
H - 2, and all reported experiments agree with that. On a small machine, where the formula falls below Nmin, Nmax is
Nmin.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.checks import at_least, ordered
from penstock.errors import PolicyError

STRATEGIES = ("throughput", "wudp", "queue", "latency")


@dataclass(frozen=True)
class WidthBounds:
    """Least, most and first number of replicas.

    >>> WidthBounds(lo=2, hi=14, start=8).hi
    14
    """

    lo: int
    hi: int
    start: int


def resolve_bounds(
    strategy: str,
    *,
    physical_cores: int,
    hardware_threads: int,
    least: int = 2,
    most: int | None = None,
    start: int | None = None,
) -> WidthBounds:
    """Return the bounds of a strategy on a machine; ``most`` and ``start`` override the formulas.

    >>> resolve_bounds("throughput", physical_cores=8, hardware_threads=16)
    WidthBounds(lo=2, hi=14, start=8)
    >>> resolve_bounds("latency", physical_cores=8, hardware_threads=16)        # H / 2 = 8 is above Nmax
    WidthBounds(lo=2, hi=7, start=7)
    >>> resolve_bounds("wudp", physical_cores=2, hardware_threads=2)            # H - 2 = 0 is not usable
    WidthBounds(lo=2, hi=2, start=2)
    """
    where = "width bounds"
    if strategy not in STRATEGIES:
        raise PolicyError(where, f"no strategy {strategy!r}", "use one of " + ", ".join(STRATEGIES))
    at_least(where, "physical_cores", physical_cores, 1)
    at_least(where, "least", least, 1)
    ordered(where, "physical_cores", physical_cores, "hardware_threads", hardware_threads)
    if most is None:
        most = max(least, physical_cores - 1 if strategy == "latency" else hardware_threads - 2)
    ordered(where, "least", least, "most", most)
    first = hardware_threads // 2 if start is None else start
    return WidthBounds(least, most, min(max(first, least), most))
