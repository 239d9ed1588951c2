"""Latency constraints on a path of the template graph: thesis 001, sections 4.1 and 4.2.

A template sequence S alternates connected streams and tasks. It begins with a stream or a task that is no source (a
source has no subtask latency) and ends with a stream or any task. The constraint (S, l, t) bounds the mean: over any
span t, the mean latency of the items that enter S is to be at most l (Eq. 4.1). Several constraints may be attached if
no two share a *stream* and all have the same t; sharing a task is allowed (elastic scaling is then a heuristic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.control.checks import above
from penstock.control.models.graph import Stream, TemplateGraph
from penstock.control.observation import Bound
from penstock.errors import PolicyError

Element = str | Stream  # a task by its name, a stream by its two ends


@dataclass(frozen=True)
class Constraint:
    """(S, l, t) under a name. Times in any one unit (the digest's tables use milliseconds), `over_s` in seconds.

    >>> c = Constraint("fast", (("source", "score"), "score", ("score", "sink")), bound=20.0)
    >>> c.tasks, c.streams
    (('score',), (('source', 'score'), ('score', 'sink')))
    """

    name: str
    sequence: tuple[Element, ...]
    bound: float | None  # l; None only measures (chaining needs no bound)
    over_s: float = 5.0  # t

    def __post_init__(self) -> None:
        where = f"constraint '{self.name}'"
        if self.bound is not None:
            above(where, "bound", self.bound, 0.0)
        above(where, "over_s", self.over_s, 0.0)
        if not self.sequence:
            raise PolicyError(where, "a sequence has at least one element", "name a stream or a task")
        for before, after in pairwise(self.sequence):
            if not _connected(before, after):
                rule = f"a sequence alternates connected streams and tasks, but {_text(after)} follows {_text(before)}"
                raise PolicyError(where, rule, "list them in flow order")

    @property
    def tasks(self) -> tuple[str, ...]:
        """tasksOf(S): the tasks in the sequence. The ends of an outer stream are not among them."""
        return tuple(element for element in self.sequence if isinstance(element, str))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams in the sequence."""
        return tuple(element for element in self.sequence if not isinstance(element, str))


def between(name: str, path: Sequence[str], bound: float | None, *, over_s: float = 5.0) -> Constraint:
    """The usual constraint: from the stream that leaves the path's first task to the one that enters its last.

    >>> between("fast", ("source", "score", "sink"), 20.0).sequence
    (('source', 'score'), 'score', ('score', 'sink'))
    """
    elements: list[Element] = []
    for sender, receiver in pairwise(path):
        elements += [(sender, receiver), receiver]
    return Constraint(name, tuple(elements[:-1]), bound, over_s)


def attach(graph: TemplateGraph, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints, if they may be attached to the graph (4.2); an error names the rule that one breaks.

    >>> from penstock.control.models.graph import all_to_all
    >>> graph = TemplateGraph({"source": 1, "score": 2}, {("source", "score"): all_to_all})
    >>> attach(graph, [Constraint("late", ("source", ("source", "score")), 20.0)])
    Traceback (most recent call last):
    ...
    penstock.errors.PolicyError: constraint 'late': a sequence must not begin with the source 'source'. Remedy: ...
    """
    for constraint in constraints:
        where = f"constraint '{constraint.name}'"
        first = constraint.sequence[0]
        if isinstance(first, str) and first in graph.sources:
            rule = f"a sequence must not begin with the source '{first}'"
            raise PolicyError(where, rule, "begin with the stream that leaves it")
        for element in constraint.sequence:
            known = element in graph.parallelism if isinstance(element, str) else element in graph.wiring
            if not known:
                raise PolicyError(where, f"the graph has no {_text(element)}", "name what is in the graph")
    refuse_shared([(c.name, [f"{a}->{b}" for a, b in c.streams], c.over_s) for c in constraints], where="constraint")
    return tuple(constraints)


def refuse_shared(named: Sequence[tuple[str, Sequence[str], float]], *, where: str) -> None:
    """Refuse two constraints that share a stream or differ in their span (4.2): (name, streams, span) each.

    >>> refuse_shared([("a", ["x->y"], 5.0), ("b", ["x->y"], 5.0)], where="bound")
    Traceback (most recent call last):
    ...
    penstock.errors.PolicyError: bound 'b': it shares the stream 'x->y' with 'a'. Remedy: ...
    """
    owner: dict[str, str] = {}
    for name, streams, span in named:
        if span != named[0][2]:
            rule = f"all spans must be equal, got {span:g} s beside {named[0][2]:g} s of '{named[0][0]}'"
            raise PolicyError(f"{where} '{name}'", rule, "give both the same span")
        for stream in streams:
            if stream in owner:
                rule = f"it shares the stream '{stream}' with '{owner[stream]}'"
                raise PolicyError(f"{where} '{name}'", rule, "thesis 001 forbids it (4.2); use another policy")
            owner[stream] = name


def mean_bounds(bounds: Sequence[Bound], views: set[str]) -> tuple[Bound, ...]:
    """The bounds that thesis 001 can work on: those with a mean. One that states only a percentile is refused.

    >>> mean_bounds((Bound("a", ("x",), mean_s=0.1), Bound("b", ("y",))), {"x", "y"})
    (Bound(name='a', operators=('x',), mean_s=0.1, p95_s=None, p99_s=None, over_s=5.0, every_s=None),)
    """
    for bound in bounds:
        if bound.mean_s is None and (bound.p95_s is not None or bound.p99_s is not None):
            rule = "thesis 001 bounds the mean, and this states only a percentile"
            raise PolicyError(f"bound '{bound.name}'", rule, "add mean=, or use another policy")
    refuse_shared([(b.name, b.streams(views), b.over_s) for b in bounds], where="bound")
    return tuple(bound for bound in bounds if bound.mean_s is not None)


def _connected(before: Element, after: Element) -> bool:
    if isinstance(before, str):
        return not isinstance(after, str) and after[0] == before
    return isinstance(after, str) and before[1] == after


def _text(element: Element) -> str:
    return f"task '{element}'" if isinstance(element, str) else f"stream '{element[0]}->{element[1]}'"
