"""How long `Adaptive` lets output batches live on a continuous host.

Longer batches make items cheaper (001, section 4.5), so they get what a bound leaves after the queues; but three things
are worth more than that:

- **a full queue that can be borne.** Bounded queues make an overload wait so long and no longer: its greatest mean wait
  is learnt (`w_full`). If batches that leave room for it still get a good share of the bound, they are cut to that,
  and an overload then never breaks the bound: batches <= margin x bound - service - transport - w_full;
- **recovery.** In the interval after an overload was seen, new subtasks start and a backlog is worked off. Shorter
  batches pay for that once;
- **steadiness.** Shorter batches make items dearer, and widths follow an interval later, so a lifetime falls slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.adaptive_paths import Path

_FULL = 0.97  # from here on an operator counts as saturated
_FADES = 0.8  # what was learnt of full queues counts so much when the next are seen
_WORTHY = 0.6  # batches are cut for full queues only if this share of what they could have is left
_RECOVERY = 0.6  # of its lifetime a batch gets while an overload is worked off
_SHORTEST = 0.9  # but no less than this times the delay it should have: short batches make items dear
_STEPS = (0.8, 1.5)  # a lifetime moves by these factors at most: shorter batches are dearer, and widths must follow


class Shipping:
    """Output-batch lifetimes, with a memory of how long items wait before full queues.

    >>> from penstock.control.observation import Bound
    >>> view = OperatorView("score", 4, 1, 8, arrivals_per_s=400.0, completed_per_s=400.0, service_s=0.005,
    ...     service_cv=1.0, interarrival_s=0.01, arrival_cv=1.0, wait_s=0.005, batch_wait_s=0.02, queue_items=2.0,
    ...     utilisation=0.5)
    >>> bound = Bound("fast", ("source", "score"), mean_s=0.1)
    >>> seen = Observation(5.0, 5.0, {"score": view}, (bound,), {"fast": (0.03, 0.05, 0.06, 0.1)})
    >>> path = Path(bound, 0.1, [view], allowed_s=0.02, most_s=0.02, batches_s=0.07)
    >>> Shipping().lifetimes([path], seen, Decision(lifetimes={"source->score": 0.1}))
    {'source->score': 0.14}
    """

    def __init__(self) -> None:
        self._full_s: dict[str, float] = {}  # per operator: the mean wait before its full queues

    def lifetimes(self, paths: Sequence[Path], observed: Observation, current: Decision) -> dict[str, float]:
        """The lifetime of every stream that may be batched; where bounds share one, the tightest governs."""
        self._learn(observed)
        chosen: dict[str, float] = {}
        fused = {f"{a}->{b}" for chain in current.chains for a, b in pairwise(chain)}  # no batches there
        for path in paths:
            streams = [s for s in path.bound.streams(observed.operators) if s in current.lifetimes and s not in fused]
            if not streams:
                continue
            target = self._affordable_s(path) / len(streams)
            recovery = self._recovers(path, observed)
            for stream in streams:
                view = observed.operators.get(stream.split("->")[1])
                lifetime = _lifetime(float(current.lifetimes[stream]), view, target)
                if recovery:
                    lifetime = min(lifetime, max(_RECOVERY * float(current.lifetimes[stream]), _SHORTEST * target))
                chosen[stream] = min(chosen.get(stream, lifetime), lifetime)
        return {**current.lifetimes, **chosen}

    def _learn(self, observed: Observation) -> None:
        for name, view in observed.operators.items():
            if view.utilisation >= _FULL:
                self._full_s[name] = max(_FADES * self._full_s.get(name, 0.0), view.wait_s)

    def _affordable_s(self, path: Path) -> float:
        """What batches may take: what the queues leave, or less where that makes full queues bearable."""
        full = sum(self._full_s.get(view.name, 0.0) for view in path.views)
        bearable = path.batches_s + path.allowed_s - full
        return min(path.batches_s, bearable) if bearable >= _WORTHY * path.batches_s else path.batches_s

    def _recovers(self, path: Path, observed: Observation) -> bool:
        """Whether shorter batches may bring a broken bound back: an overload that is short against the interval."""
        measured = observed.latency.get(path.bound.name)
        if measured is None or measured[0] <= path.limit_s:
            return False
        batches = sum(view.batch_wait_s for view in path.views)
        return batches > 0.3 * path.limit_s and measured[0] - batches <= 0.5 * observed.interval_s


def _lifetime(now: float, view: OperatorView | None, target: float) -> float:
    """The next lifetime: in proportion to the delay, which is half of it where batches are large, else nearly all."""
    delay = 0.0 if view is None else view.batch_wait_s
    if now <= 0.0 or delay <= 0.0:
        return target
    return min(now * min(max(target / delay, _STEPS[0]), _STEPS[1]), 2.0 * target)
