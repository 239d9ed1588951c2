"""The Monitor of thesis 004's MAPE loop (section 7.1, listing 7.1).

::

    T = sum of ItemsProduced over the samples newer than the last seen / (newest stamp - last seen stamp)

The time between stamps holds the pause of a reconfiguration, which the processes' own averages leave out: after an
addition T looks low and provokes the next one (the thesis saw it with Lane Detection). The listing divides by zero
when there is no new sample, uses an undefined time in the first round and counts nothing once the last seen sample
has gone from the file; here the first two make no decision, and the third counts all that is newer.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.policies.mpr_files import Sample


class MapeMonitor:
    """Turns a growing set of samples into throughput.

    >>> def sample(*produced):
    ...     return {f"Compute{i}": {"ItemsProduced": n} for i, n in enumerate(produced)}
    >>> first, second = {1675563904635: sample(81348)}, {1675563909814: sample(74916, 50587)}     # listing 5.11
    >>> monitor = MapeMonitor()
    >>> monitor.throughput(first) is None, round(monitor.throughput(first | second), 2)
    (True, 24233.06)
    >>> monitor.throughput(second) is None                                                    # nothing new
    True
    """

    def __init__(self) -> None:
        self._last_ms: int | None = None

    def throughput(self, samples: Mapping[int, Sample] | None) -> float | None:
        """Return items per second since the last call that saw a new sample; None where nothing can be said."""
        if not samples:
            return None
        newest, last = max(samples), self._last_ms
        self._last_ms = newest if last is None else max(newest, last)
        if last is None or newest <= last:
            return None
        new = (sample for stamp, sample in samples.items() if stamp > last)
        items = sum(counters["ItemsProduced"] for sample in new for counters in sample.values())
        return items / ((newest - last) / 1000.0)
