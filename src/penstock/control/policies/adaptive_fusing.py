"""Which farms `Adaptive` chains on a micro-batch host (design, section 6).

The stages of a batch run one after another, and each may use every slot: an exchange is a barrier, no pipeline. For n
rows, two farms of a and b tasks whose rows take s and r seconds need

    apart      n s / a + n r / b + X        X: what the exchange between them costs
    chained    n (s + r) / w                w tasks run both

With w = max(a, b) chained is never slower, so farms are chained. The exception is a farm that may not be as wide as
the others need to be: then they are better off apart, if that saves more than X. So two ways to run a pipeline are
weighed: all of it in one chain, and cut where the greatest width changes. Thesis 001's own rule (section 4.7), which
cuts a chain that is too busy, is for hosts where the parts of a chain run at the same time: `adaptive_chains`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.chaining_chains import Chain

EXCHANGE_S = 0.02  # of a batch: 15 to 30 ms were measured on Spark (decision 007)


def chainings(observed: Observation) -> list[tuple[Chain, ...]]:
    """The ways to chain what the host can chain, the one with the fewest exchanges first.

    >>> from penstock.control.observation import OperatorView
    >>> def farm(name, hi):
    ...     return OperatorView(name, 1, 1, hi, arrivals_per_s=1.0, completed_per_s=1.0, service_s=0.1, service_cv=1.0,
    ...         interarrival_s=1.0, arrival_cv=1.0, wait_s=0.0, batch_wait_s=0.0, queue_items=0.0, utilisation=0.1)
    >>> views = {v.name: v for v in (farm("decode", 2), farm("merge", 8), farm("encode", 8))}
    >>> chainings(Observation(5.0, 5.0, views, pipelines=(("decode", "merge", "encode"),)))
    [(('decode', 'merge', 'encode'),), (('merge', 'encode'),)]
    """
    all_fused, by_limit = [], []
    for pipeline in observed.pipelines:
        views = [observed.operators[name] for name in pipeline if name in observed.operators]
        if len(views) != len(pipeline):
            continue  # not seen yet: nothing is known of it
        if max(v.lo for v in views) <= min(v.hi for v in views):
            all_fused.append(pipeline)
        for _, run in groupby(views, key=lambda v: v.hi):
            members = tuple(v.name for v in run)
            if len(members) > 1:
                by_limit.append(members)
    return sorted({tuple(all_fused), tuple(by_limit)}, key=lambda way: -exchanges_saved(way))


def exchanges_saved(chains: Sequence[Chain]) -> int:
    """How many exchanges there are not.

    >>> exchanges_saved([("decode", "merge", "encode")])
    2
    """
    return sum(len(chain) - 1 for chain in chains)


def as_chained(views: Sequence[OperatorView], chains: Sequence[Chain]) -> list[OperatorView]:
    """The views of stages: those of a chain as one, named by its first, whose rows carry the work of all.

    >>> from penstock.control.observation import OperatorView
    >>> def farm(name, hi, rate):
    ...     return OperatorView(name, 1, 1, hi, arrivals_per_s=rate, completed_per_s=rate, service_s=0.1,
    ...         service_cv=1.0, interarrival_s=1.0, arrival_cv=1.0, wait_s=0.0, batch_wait_s=0.0, queue_items=0.0,
    ...         utilisation=0.1)
    >>> [both] = as_chained([farm("decode", 2, 10.0), farm("merge", 8, 5.0)], [("decode", "merge")])
    >>> both.name, both.hi, round(both.service_s, 3)
    ('decode', 2, 0.15)
    """
    known = {view.name: view for view in views}
    chain_of = {name: chain for chain in chains for name in chain if all(n in known for n in chain)}
    found = []
    for view in views:
        chain = chain_of.get(view.name)
        if chain is None:
            found.append(view)
        elif view.name == chain[0]:
            members = [known[name] for name in chain]
            found.append(
                replace(
                    view,
                    lo=max(v.lo for v in members),
                    hi=min(v.hi for v in members),
                    service_s=sum(_per_row(v, view) * v.service_s for v in members),
                    utilisation=min(1.0, sum(v.utilisation for v in members)),
                )
            )
    return found


def with_members(widths: dict[str, int], chains: Sequence[Chain], views: Sequence[OperatorView]) -> dict[str, int]:
    """The width of each operator: those of a chain have its first one's, as far as their own limits go."""
    limits = {view.name: (view.lo, view.hi) for view in views}
    out = dict(widths)
    for chain in chains:
        for name in chain[1:]:
            if chain[0] in widths and name in limits:
                out[name] = min(max(widths[chain[0]], limits[name][0]), limits[name][1])
    return out


def _per_row(view: OperatorView, first: OperatorView) -> float:
    """Rows that reach an operator for each that reaches the first."""
    return view.completed_per_s / first.completed_per_s if first.completed_per_s > 0.0 else 1.0
