"""Adaptive output batching as a policy: batches live as long as the bound's slack allows. Thesis 001, section 4.5.

Per interval and bound, with l_v the operators' latencies (Algorithm 3 on one channel per stream; every path through a
stream passes every operator, so dsl + usl is the sum of l_v):

    target   = max(0, w_ob (l - sum l_v) / streams)
    lifetime = max(0, min(2 target, lifetime + target - measured batch wait))

The channel-level algorithms, for hosts that steer each channel, are in `batching_lifetimes.py`.

On a micro-batch host there is one batch, the cut, for all streams (ours; the thesis has no such host). Its fixed cost
F, and the wait for one's turn in the batch, are not time in the cut, so they are taken off the bound as well:

    target   = max(0, w_ob (l - F - sum l_v - sum w_v))
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.control.checks import between
from penstock.control.decision import Decision
from penstock.control.models.constraints import mean_bounds
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.batching_lifetimes import adjusted, target_delay
from penstock.control.policies.registry import Registration


class AdaptiveBatching:
    """The AOB manager of thesis 001; `batching_share` is w_ob, the share of the channel budget spent in batches.

    One operator of 10 ms before a sink, bound 50 ms: each of the two streams may hold items 0.8 * 40 / 2 = 16 ms.

    >>> def view(name, service_s, batch_wait_s):
    ...     return OperatorView(name, 1, 1, 1, arrivals_per_s=50.0, completed_per_s=50.0, service_s=service_s,
    ...         service_cv=0.0, interarrival_s=0.02, arrival_cv=1.0, wait_s=0.0, batch_wait_s=batch_wait_s,
    ...         queue_items=0.0, utilisation=0.5)
    >>> bound = Bound("fast", ("source", "score", "sink"), mean_s=0.05)
    >>> seen = Observation(5.0, 5.0, {"score": view("score", 0.01, 0.0), "sink": view("sink", 0.0, 0.0)}, (bound,))
    >>> first = AdaptiveBatching().decide(seen, Decision())
    >>> dict(first.lifetimes)
    {'source->score': 0.016, 'score->sink': 0.016}
    >>> seen = Observation(10.0, 5.0, {"score": view("score", 0.01, 0.008), "sink": view("sink", 0.0, 0.016)}, (bound,))
    >>> dict(AdaptiveBatching().decide(seen, first).lifetimes)
    {'source->score': 0.024, 'score->sink': 0.016}
    """

    def __init__(self, *, batching_share: float = 0.8) -> None:
        self.batching_share = between("policy 'batching'", "batching_share", batching_share, 0.0, 1.0)
        self.reset()

    def reset(self) -> None:
        """Forget which operators ever showed something."""
        self._known: set[str] = set()

    def accept(self, bounds: Sequence[Bound], operators: Collection[str]) -> None:
        """Refuse bounds that thesis 001 cannot work on: percentiles alone, streams that several share."""
        mean_bounds(bounds, set(operators))

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The lifetimes of the bounds' streams; a stale bound's streams keep theirs."""
        if observed is None:
            return current
        self._known |= set(observed.operators)
        bounds = mean_bounds(observed.bounds, set(observed.operators))
        paths = [(bound, views) for bound in bounds if (views := observed.path(bound, self._known)) is not None]
        if observed.micro_batch:
            asked = [self._cut(bound, views, observed, current) for bound, views in paths]
            return replace(current, lifetime_s=min(asked)) if asked else current
        lifetimes = dict(current.lifetimes)
        for bound, views in paths:
            lifetimes.update(self._streams(bound, views, observed, current))
        return replace(current, lifetimes=lifetimes)

    def _streams(
        self, bound: Bound, views: tuple[OperatorView, ...], observed: Observation, current: Decision
    ) -> dict[str, float]:
        assert bound.mean_s is not None
        chained = {f"{a}->{b}" for chain in current.chains for a, b in pairwise(chain)}
        open_streams = [
            (stream, view)
            for stream, view in zip(bound.streams(observed.operators), views, strict=True)
            if stream not in chained
        ]
        if not open_streams:
            return {}
        others = sum(view.task_latency_s for view in views)
        target = target_delay(bound.mean_s, others, len(open_streams), self.batching_share)
        return {
            name: adjusted(max(0.0, current.lifetimes.get(name, 0.0)), view.batch_wait_s, target)
            for stream, view in open_streams
            for name in _named(stream, current)
        }

    def _cut(self, bound: Bound, views: tuple[OperatorView, ...], observed: Observation, current: Decision) -> float:
        assert bound.mean_s is not None
        others = observed.fixed_s + sum(view.task_latency_s + view.wait_s for view in views)
        target = target_delay(bound.mean_s, others, 1, self.batching_share)
        return adjusted(max(0.0, current.lifetime_s), views[0].batch_wait_s, target)


def _named(stream: str, current: Decision) -> list[str]:
    """A stream by the names the host has for it: ``"->a"`` is every stream into a, whoever sends."""
    known = [name for name in current.lifetimes if name.endswith(stream)] if stream.startswith("->") else []
    return known or [stream]


REGISTRATIONS = (
    Registration(
        "batching",
        AdaptiveBatching,
        thesis="001, section 4.5",
        observes=("service_s", "latency_s", "batch_wait_s", "bounds", "fixed_s"),
        decides=("lifetimes", "lifetime_s"),
        needs=("a bound with mean_s",),
    ),
)
