"""What a stage manager knows of its processes, and when it becomes a sample (thesis 004, 5.5.1, listing 5.11).

- Counters are per interval, not cumulative (the thesis does not say so; its sample shows it).
- A sample is written only when every process of the stage was heard, and at least ``least_s`` after the one before.
- ``averageItemsProduced`` is over the processes' own intervals: the pause of a reconfiguration is outside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.control.checks import at_least

Sample = dict[str, dict[str, float]]


@dataclass
class _Interval:
    consumed: int = 0
    produced: int = 0
    seconds: float = 0.0


class StageStatistics:
    """Collects the check-ins of one stage.

    >>> stage = StageStatistics(least_s=0.3)
    >>> stage.report("Compute0", consumed=10, produced=9, seconds=0.5)
    >>> stage.sample(1.0, live=["Compute0", "Compute1"]) is None       # Compute1 has not been heard
    True
    >>> stage.report("Compute1", consumed=4, produced=4, seconds=0.5)
    >>> stage.sample(1.0, live=["Compute0", "Compute1"])["Compute0"]
    {'ItemsConsumed': 10, 'ItemsProduced': 9, 'averageItemsProduced': 18.0}
    """

    def __init__(self, *, least_s: float = 0.3) -> None:
        self._least_s = at_least("stage statistics", "least_s", least_s, 0.0)
        self._last_s = 0.0
        self._now: dict[str, _Interval] = {}

    def report(self, name: str, *, consumed: int, produced: int, seconds: float) -> None:
        """Take one check-in: what the process did since its last one."""
        held = self._now.setdefault(name, _Interval())
        held.consumed += consumed
        held.produced += produced
        held.seconds += seconds

    def sample(self, now_s: float, live: Iterable[str], *, final: bool = False) -> Sample | None:
        """Return the sample and begin the next interval; None if someone was not heard, or it is too early.

        A process that was banned within the interval was alive in it and has its entry. ``final`` writes whatever is
        held, at the end of the stream (the thesis is silent there; without it the last items are in no sample).
        """
        if any(name not in self._now for name in live) or not (final or now_s - self._last_s >= self._least_s):
            return None
        out: Sample = {
            name: {
                "ItemsConsumed": held.consumed,
                "ItemsProduced": held.produced,
                "averageItemsProduced": held.produced / held.seconds if held.seconds > 0 else 0.0,
            }
            for name, held in sorted(self._now.items())
        }
        self._now, self._last_s = {}, now_s
        return out
