"""A multicore machine as a formula: how fast N replicas run together (thesis 003: 8 cores, 16 threads).

With P physical cores, H hardware threads, a gain h of a second thread on a core, and a penalty c for each replica
that has to share with emitter and collector::

    S(N) = min(N, P) + h max(0, min(N, H - 2) - P)        up to N = H - 2
    S(N) = S(H - 2) (1 - c (N - (H - 2)))                 beyond
    time of an item = service x N / S(N)                  flat up to P, rising after

The thesis measured such curves (figures 4.21, 4.22) and gives no formula: this one is ours, modelled, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.checks import at_least, between, ordered


@dataclass(frozen=True)
class Machine:
    """Cores, hardware threads and what sharing them costs.

    >>> machine = Machine(8, 16, smt_gain=0.25)
    >>> [machine.speed(n) for n in (2, 8, 14)], machine.slowdown(7), round(machine.slowdown(14), 2)
    ([2.0, 8.0, 9.5], 1.0, 1.47)
    """

    cores: int = 8
    threads: int = 16
    smt_gain: float = 0.3
    sharing_loss: float = 0.1

    def __post_init__(self) -> None:
        at_least("machine", "cores", self.cores, 1)
        ordered("machine", "cores", self.cores, "threads", self.threads)
        between("machine", "smt_gain", self.smt_gain, -1.0, 1.0)
        between("machine", "sharing_loss", self.sharing_loss, 0.0, 0.5)

    def speed(self, replicas: int) -> float:
        """Return the speed of all replicas together, in single cores."""
        free = max(self.cores, self.threads - 2)
        speed = min(replicas, self.cores) + self.smt_gain * max(0, min(replicas, free) - self.cores)
        return speed * max(0.1, 1.0 - self.sharing_loss * max(0, replicas - free))

    def slowdown(self, replicas: int) -> float:
        """Return how much longer an item takes than on a machine of its own."""
        return replicas / self.speed(replicas)
