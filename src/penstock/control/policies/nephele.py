"""The three techniques of thesis 001 together, each of which can be switched off: sections 4.3.2 and 4.8.

One feedback cycle: batching takes the share w_ob of what the operators' own latencies leave of the bound, elastic
scaling the rest, and chaining fuses neighbours. In the thesis' order: lifetimes, then parallelisms, then chains.
An operator inside a chain is scaled only with its whole chain, which the thesis leaves open (ours): if elastic scaling
wants unequal widths there, all get the largest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from penstock.control.decision import Decision, Policy
from penstock.control.models.predictions import PredictionLog
from penstock.control.observation import Bound, Observation
from penstock.control.policies.batching import AdaptiveBatching
from penstock.control.policies.chaining import DynamicChaining
from penstock.control.policies.elastic import ElasticScaling
from penstock.control.policies.registry import Registration


class Nephele:
    """Batching, elastic scaling and chaining in one; `elastic` holds further parameters of `ElasticScaling`.

    >>> from penstock.control.observation import Bound, OperatorView
    >>> view = OperatorView("score", width=8, lo=1, hi=64, arrivals_per_s=1600.0, completed_per_s=1600.0,
    ...     service_s=0.004, service_cv=0.5, interarrival_s=0.005, arrival_cv=1.0, wait_s=0.014, batch_wait_s=0.0,
    ...     queue_items=22.4, utilisation=0.8)
    >>> seen = Observation(5.0, 5.0, {"score": view}, (Bound("fast", ("score",), mean_s=0.064),))
    >>> decided = Nephele().decide(seen, Decision({"score": 8}))
    >>> decided.widths, decided.lifetimes
    ({'score': 9}, {'->score': 0.048})
    >>> Nephele(scaling=False).decide(seen, Decision({"score": 8})).widths
    {'score': 8}
    """

    def __init__(
        self,
        *,
        batching: bool = True,
        scaling: bool = True,
        pipelines: Sequence[Sequence[str]] = (),  # chaining is on if there is something to chain
        batching_share: float = 0.8,
        elastic: dict[str, Any] | None = None,
    ) -> None:
        self._elastic = ElasticScaling(batching_share=batching_share, **(elastic or {})) if scaling else None
        self._batching = AdaptiveBatching(batching_share=batching_share) if batching else None
        self._chaining = DynamicChaining(pipelines=pipelines) if pipelines else None

    @property
    def predictions(self) -> PredictionLog:
        """What the queueing model promised beside what was measured; empty if scaling is off."""
        return PredictionLog() if self._elastic is None else self._elastic.predictions

    def reset(self) -> None:
        """Forget what was seen, pauses, predictions and chains."""
        for part in (self._batching, self._elastic, self._chaining):
            if part is not None:
                part.reset()

    def accept(self, bounds: Sequence[Bound], operators: Collection[str]) -> None:
        """Refuse bounds that one of the parts cannot work on."""
        for part in (self._batching, self._elastic):
            if part is not None:
                part.accept(bounds, operators)

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """Lifetimes, then widths, then chains."""
        decided = current
        steps: tuple[Policy | None, ...] = (self._batching, self._elastic)
        for step in steps:
            if step is not None:
                decided = step.decide(observed, decided)
        decided = _together(decided)
        return decided if self._chaining is None else self._chaining.decide(observed, decided)


def _together(decided: Decision) -> Decision:
    """Give the operators of a standing chain one width, the largest of those decided."""
    widths = dict(decided.widths)
    for chain in decided.chains:
        known = [widths[name] for name in chain if name in widths]
        widths.update({name: max(known) for name in chain if name in widths})
    return replace(decided, widths=widths) if widths != dict(decided.widths) else decided


REGISTRATIONS = (
    Registration(
        "nephele",
        Nephele,
        thesis="001, sections 4.3 to 4.8",
        observes=("everything that batching, elastic and chaining do",),
        decides=("lifetimes", "lifetime_s", "widths", "chains"),
        needs=("a bound with mean_s", "pipelines, for chaining"),
    ),
)
