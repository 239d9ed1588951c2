"""Dynamic task chaining as a policy: fuse neighbours while no chain becomes a bottleneck. Thesis 001, section 4.7.

Per interval, for each primary chain of the host (Algorithm 9), the partitioning of Algorithm 10 on the utilisation of
each operator's busiest subtask (`chaining_chains.py`). A load that rises splits a chain in the next interval.

The host says which runs of operators *could* be fused (`pipelines`: wired one to one, on the same worker, one stream in
and out); equal widths are checked here each interval, as elastic scaling may change them. The thesis has no hysteresis,
so a load near rho_max flips the chaining every interval; `dwell_intervals` (ours, off by default) keeps a chaining for
a while, except that a chain that has become too busy is always split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from penstock.control.checks import above, at_least
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.control.policies.chaining_chains import Chain, Partitioning, partition, utilisation
from penstock.control.policies.registry import Registration
from penstock.errors import PolicyError


class DynamicChaining:
    """The DTC manager of thesis 001. A decision names the chains of two operators or more.

    >>> from penstock.control.observation import OperatorView
    >>> def view(name, utilisation):
    ...     return OperatorView(name, 4, 4, 4, arrivals_per_s=100.0, completed_per_s=100.0, service_s=0.01,
    ...         service_cv=0.5, interarrival_s=0.04, arrival_cv=1.0, wait_s=0.001, batch_wait_s=0.0, queue_items=1.0,
    ...         utilisation=utilisation)
    >>> policy = DynamicChaining(pipelines=[("decode", "merge", "encode")])
    >>> seen = Observation(5.0, 5.0, {n: view(n, u) for n, u in [("decode", 0.2), ("merge", 0.1), ("encode", 0.3)]})
    >>> policy.decide(seen, Decision()).chains
    (('decode', 'merge', 'encode'),)
    >>> seen = Observation(10.0, 5.0, {n: view(n, u) for n, u in [("decode", 0.5), ("merge", 0.1), ("encode", 0.4)]})
    >>> policy.decide(seen, Decision()).chains
    (('merge', 'encode'),)
    """

    def __init__(
        self, *, pipelines: Sequence[Sequence[str]], most_utilisation: float = 0.9, dwell_intervals: int = 0
    ) -> None:
        where = "policy 'chaining'"
        self.pipelines = tuple(tuple(pipeline) for pipeline in pipelines)
        named = [name for pipeline in self.pipelines for name in pipeline]
        if len(set(named)) != len(named):
            raise PolicyError(where, "an operator is in two pipelines", "primary chains are disjoint")
        self.most_utilisation = above(where, "most_utilisation", most_utilisation, 0.0)
        self.dwell_intervals = int(at_least(where, "dwell_intervals", dwell_intervals, 0))
        self.reset()

    def reset(self) -> None:
        """Forget the chaining established and since when."""
        self._now: dict[Chain, Partitioning] = {}
        self._age: dict[Chain, int] = {}

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The chains of Algorithm 9; those of a stale pipeline stay."""
        if observed is None:
            return current
        for pipeline in self.pipelines:
            if not all(name in observed.operators for name in pipeline):
                continue
            loads = {name: observed.operators[name].busiest for name in pipeline}
            wanted = tuple(
                chain
                for run in _equal_widths(pipeline, observed)
                for chain in partition(run, loads, self.most_utilisation)
            )
            self._establish(pipeline, wanted, loads, observed)
        chains = tuple(chain for cut in self._now.values() for chain in cut if len(chain) > 1)
        return replace(current, chains=chains)

    def _establish(self, pipeline: Chain, wanted: Partitioning, loads: dict[str, float], observed: Observation) -> None:
        standing = self._now.get(pipeline)
        age = self._age.get(pipeline, 0) + 1
        if wanted == standing:
            self._age[pipeline] = age
            return
        if standing is not None and age < self.dwell_intervals and self._safe(standing, loads, observed):
            self._age[pipeline] = age
            return
        self._now[pipeline], self._age[pipeline] = wanted, 0

    def _safe(self, chains: Partitioning, loads: dict[str, float], observed: Observation) -> bool:
        """Whether no chain of two or more is too busy or has come to unequal widths."""
        return all(
            utilisation(chain, loads) <= self.most_utilisation
            and len({observed.operators[name].width for name in chain}) == 1
            for chain in chains
            if len(chain) > 1
        )


def _equal_widths(pipeline: Chain, observed: Observation) -> list[Chain]:
    """The pipeline cut where widths differ: a chain needs equal parallelism."""
    return [tuple(run) for _, run in groupby(pipeline, key=lambda name: observed.operators[name].width)]


REGISTRATIONS = (
    Registration(
        "chaining",
        DynamicChaining,
        thesis="001, section 4.7",
        observes=("width", "utilisation", "skew"),
        decides=("chains",),
        needs=("pipelines: runs of operators that the host can fuse",),
    ),
)
