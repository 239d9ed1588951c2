"""Which operators could be fused, and which should: thesis 001, section 4.7, Algorithms 9 and 10.

A *chain* is a path of constrained tasks, each with one stream in and one out along it, of equal parallelism, wired one
to one, neighbours on the same worker (4.7.3). The *primary chain* of a task is the longest chain that contains it. A
primary chain is cut into chains by Algorithm 10: fewest chains first, none busier than rho_max, and evener than no
chaining at all:

    util(chain)  = sum of rho^max of its tasks                                        (4.13)
    maxUtil      = the largest util of the chains                                     (4.14)
    utilVar      = mean of (util - mean util)^2 over the chains                       (4.15)
    take the first partitioning with   maxUtil <= rho_max   and   utilVar < utilVar(unchained)

It takes the *first* such partitioning, not the evenest; and tasks of exactly equal utilisation are never chained, as no
variance is below 0. Both are the thesis' and kept. Comparisons have a tolerance, so that rounding decides neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from penstock.control.checks import above, at_least
from penstock.control.models.constraints import Constraint
from penstock.control.models.graph import RuntimeGraph, TemplateGraph
from penstock.errors import PolicyError

Chain = tuple[str, ...]
Partitioning = tuple[Chain, ...]

_SAME = 1e-9  # utilisations closer than this are equal


def find_primary_chains(
    graph: TemplateGraph,
    runtime: RuntimeGraph,
    constraints: Sequence[Constraint],
    schedule: Mapping[tuple[str, int], str],
) -> tuple[Chain, ...]:
    """The primary chains of all constrained tasks, in the order of the graph; every such task is in exactly one.

    >>> from penstock.control.models.constraints import between
    >>> from penstock.control.models.graph import all_to_all, one_to_one
    >>> wiring = {("src", "dec"): all_to_all, ("dec", "enc"): one_to_one, ("enc", "snk"): all_to_all}
    >>> graph = TemplateGraph({"src": 1, "dec": 2, "enc": 2, "snk": 1}, wiring)
    >>> runtime = graph.runtime()
    >>> schedule = {subtask: f"w{subtask[1]}" for subtask in runtime.subtasks}
    >>> find_primary_chains(graph, runtime, [between("c", ("src", "dec", "enc", "snk"), 50.0)], schedule)
    (('dec', 'enc'),)
    """
    constrained = {task for constraint in constraints for task in constraint.tasks}
    next_of: dict[str, str] = {}
    for sender, receiver in graph.streams:
        if {sender, receiver} <= constrained and _fusible(graph, runtime, schedule, sender, receiver):
            next_of[sender] = receiver
    heads = [task for task in graph.tasks if task in constrained and task not in next_of.values()]
    return tuple(_follow(head, next_of) for head in heads)


def _fusible(
    graph: TemplateGraph,
    runtime: RuntimeGraph,
    schedule: Mapping[tuple[str, int], str],
    sender: str,
    receiver: str,
) -> bool:
    """Conditions 3 to 6 of 4.7.3 for two neighbours; and one channel into each receiver, which the thesis means."""
    if sum(a == sender for a, _ in graph.streams) != 1 or sum(b == receiver for _, b in graph.streams) != 1:
        return False
    if graph.parallelism[sender] != graph.parallelism[receiver]:
        return False
    for i in range(1, graph.parallelism[sender] + 1):
        out = runtime.outgoing.get((sender, i), ())
        into = runtime.incoming.get((receiver, i), ())
        if len(out) != 1 or len(into) != 1 or schedule[out[0][0]] != schedule[out[0][1]]:
            return False
    return True


def _follow(head: str, next_of: Mapping[str, str]) -> Chain:
    chain = [head]
    while chain[-1] in next_of:
        chain.append(next_of[chain[-1]])
    return tuple(chain)


def utilisation(chain: Chain, busiest: Mapping[str, float]) -> float:
    """util(chain): the sum of its tasks' rho^max. Too high rather than too low: chaining itself saves work.

    >>> utilisation(("a", "b"), {"a": 0.25, "b": 0.5})
    0.75
    """
    return sum(busiest[task] for task in chain)


def variance(partitioning: Partitioning, busiest: Mapping[str, float]) -> float:
    """utilVar(partitioning).

    >>> variance((("a",), ("b",)), {"a": 0.25, "b": 0.75})
    0.0625
    """
    loads = [utilisation(chain, busiest) for chain in partitioning]
    mean = sum(loads) / len(loads)
    return sum((load - mean) ** 2 for load in loads) / len(loads)


def partitionings(chain: Chain, parts: int) -> Iterator[Partitioning]:
    """All ways to cut a chain into `parts` chains, cut positions in lexicographic order: C(n - 1, parts - 1).

    >>> list(partitionings(("a", "b", "c"), 2))
    [(('a',), ('b', 'c')), (('a', 'b'), ('c',))]
    """
    for cuts in combinations(range(1, len(chain)), parts - 1):
        yield tuple(chain[a:b] for a, b in pairwise((0, *cuts, len(chain))))


def partition(chain: Chain, busiest: Mapping[str, float], most_utilisation: float = 0.9) -> Partitioning:
    """Algorithm 10: how a primary chain is to be cut.

    >>> def cut(*loads):
    ...     return partition(tuple("abcd"[: len(loads)]), dict(zip("abcd", loads)))
    >>> cut(0.2, 0.1, 0.1, 0.3)
    (('a', 'b', 'c', 'd'),)
    >>> cut(0.8, 0.3, 0.2, 0.6)
    (('a',), ('b',), ('c', 'd'))
    >>> cut(0.5, 0.1, 0.1, 0.5)
    (('a',), ('b', 'c', 'd'))
    >>> cut(0.85, 0.85, 0.1)
    (('a',), ('b',), ('c',))
    """
    above("chaining", "most_utilisation", most_utilisation, 0.0)
    for task in chain:
        if task not in busiest:
            raise PolicyError(f"task '{task}'", "its utilisation is not known", "skip stale intervals")
        at_least(f"task '{task}'", "utilisation", busiest[task], 0.0)
    unchained = tuple((task,) for task in chain)
    if any(busiest[task] > most_utilisation + _SAME for task in chain):
        return unchained  # every partitioning has a chain that is too busy
    limit = variance(unchained, busiest) - _SAME**2
    # Fewer chains than this are too busy whatever the cuts, so Algorithm 10 would find nothing there.
    for parts in range(_fewest(chain, busiest, most_utilisation), len(chain)):
        for candidate in partitionings(chain, parts):
            if max(utilisation(part, busiest) for part in candidate) > most_utilisation + _SAME:
                continue
            if variance(candidate, busiest) < limit:
                return candidate
    return unchained


def _fewest(chain: Chain, busiest: Mapping[str, float], most_utilisation: float) -> int:
    """The least number of chains that none of which need be too busy: fill each as far as it goes."""
    parts, load = 1, 0.0
    for task in chain:
        if load > 0.0 and load + busiest[task] > most_utilisation + _SAME:
            parts, load = parts + 1, 0.0
        load += busiest[task]
    return parts
