"""The application graph of thesis 001 (section 2.3.1): template level and runtime level.

A template graph G = (V, E, p, w) has tasks, streams, a degree of parallelism per task and a wiring
function per stream. It induces the runtime graph: subtasks v_k,1 .. v_k,p(v_k), and a channel between
subtask i of v_k and subtask j of v_l wherever w(v_k, v_l, i, j) holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from penstock.errors import FlowError

Wiring = Callable[[int, int], bool]


def all_to_all(i: int, j: int) -> bool:
    """Every subtask may send to every subtask (an exchange).

    >>> all_to_all(1, 2)
    True
    """
    return True


def one_to_one(i: int, j: int) -> bool:
    """Subtask i sends to subtask i only (fused operators).

    >>> one_to_one(1, 2)
    False
    """
    return i == j


@dataclass(frozen=True)
class Task:
    """A task of the template graph with its degree of parallelism p and its limits.

    A task that `follows` others is fused with them: it has as many subtasks as the widest of them, whatever
    its own figures say.
    """

    name: str
    kind: str
    parallelism: int = 1
    lo: int = 1
    hi: int = 1
    follows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """A stream of the template graph: from one task to another, with its wiring function."""

    source: str
    target: str
    wiring: Wiring = all_to_all
    name: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells one stream from another."""
        return (self.source, self.target, self.name)


@dataclass(frozen=True)
class RuntimeGraph:
    """Subtasks as (task, number) and channels as pairs of subtasks; numbers start at 1 as in the thesis."""

    subtasks: tuple[tuple[str, int], ...]
    channels: tuple[tuple[tuple[str, int], tuple[str, int]], ...]


@dataclass(frozen=True)
class Constraint:
    """An upper bound on the mean latency of a template sequence over any span of time (001 section 4.2).

    `sequence` alternates tasks (str) and streams (`Edge.key`), connected.
    """

    sequence: tuple[str | tuple[str, str, str], ...]
    bound_ms: float
    span_s: float = 5.0

    @property
    def streams(self) -> frozenset[tuple[str, str, str]]:
        """The streams the sequence contains."""
        return frozenset(element for element in self.sequence if isinstance(element, tuple))


@dataclass(frozen=True)
class TemplateGraph:
    """A frozen, acyclic template graph.

    >>> graph = TemplateGraph((Task("a", "read", 2), Task("b", "map", 3)), (Edge("a", "b"),))
    >>> runtime = graph.runtime()
    >>> len(runtime.subtasks), len(runtime.channels)
    (5, 6)
    """

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        for name in names:
            if names.count(name) > 1:
                raise FlowError(f"task '{name}'", "two tasks have this name", "give each task its own name")
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in names:
                    where = f"stream {edge.source} -> {edge.target}"
                    raise FlowError(where, f"there is no task '{end}'", "add the task first")
        for task in self.tasks:
            _check_parallelism(task.name, task.parallelism)
            for leader in task.follows:
                if not any(edge.source == leader and edge.target == task.name for edge in self.edges):
                    rule = f"it follows '{leader}', from which it reads nothing"
                    raise FlowError(f"task '{task.name}'", rule, "follow a task that it reads from")
        before: dict[str, set[str]] = {name: set() for name in names}
        for edge in self.edges:
            before[edge.target].add(edge.source)
        try:
            tuple(TopologicalSorter(before).static_order())
        except CycleError as error:
            path = " -> ".join(error.args[1])
            raise FlowError(
                "graph", f"a template graph is acyclic, but {path}", "remove one of these streams"
            ) from None

    def task(self, name: str) -> Task:
        """Return the task of this name."""
        for task in self.tasks:
            if task.name == name:
                return task
        known = ", ".join(task.name for task in self.tasks)
        raise FlowError(f"task '{name}'", f"the graph has no such task (there are {known})", "name one of them")

    def order(self) -> tuple[str, ...]:
        """Return the task names, each after those it reads from."""
        before: dict[str, list[str]] = {task.name: [] for task in self.tasks}
        for edge in self.edges:
            before[edge.target].append(edge.source)
        return tuple(TopologicalSorter(before).static_order())

    def parallelism(self, widths: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return p, the number of subtasks of every task, with `widths` in place of the tasks' own.

        >>> graph = TemplateGraph((Task("a", "map", 2), Task("b", "filter", follows=("a",))), (Edge("a", "b"),))
        >>> graph.parallelism(), graph.parallelism({"a": 5})
        ({'a': 2, 'b': 2}, {'a': 5, 'b': 5})
        """
        own = {task.name: task.parallelism for task in self.tasks}
        for name, width in (widths or {}).items():
            leaders = self.task(name).follows
            if leaders:
                rule = f"it runs in the subtasks of {', '.join(leaders)}, and has no width of its own"
                raise FlowError(f"task '{name}'", rule, f"set the width of {leaders[0]}")
            own[name] = _check_parallelism(name, width)
        for name in self.order():
            leaders = self.task(name).follows
            if leaders:
                own[name] = max(own[leader] for leader in leaders)
        return own

    def runtime(self, widths: Mapping[str, int] | None = None) -> RuntimeGraph:
        """Return the induced runtime graph, with `widths` in place of the tasks' own parallelism."""
        p = self.parallelism(widths)
        subtasks = tuple((name, i) for name in p for i in range(1, p[name] + 1))
        channels = tuple(
            ((edge.source, i), (edge.target, j))
            for edge in self.edges
            for i in range(1, p[edge.source] + 1)
            for j in range(1, p[edge.target] + 1)
            if edge.wiring(i, j)
        )
        return RuntimeGraph(subtasks, channels)

    def attach(self, constraint: Constraint) -> TemplateGraph:
        """Return the graph with one more constraint, refused where 001 section 4.2 forbids it."""
        self._check_sequence(constraint.sequence)
        if not constraint.bound_ms > 0:
            raise FlowError("constraint", f"the bound must be above 0 ms, got {constraint.bound_ms}", "state a bound")
        if not constraint.span_s > 0:
            raise FlowError("constraint", f"the span must be above 0 s, got {constraint.span_s}", "state a span")
        for other in self.constraints:
            shared = constraint.streams & other.streams
            if shared:
                source, target, _ = sorted(shared)[0]
                raise FlowError(
                    "constraint",
                    f"two constraints may not share a stream, but both contain {source} -> {target}",
                    "join them into one, or end one before that stream",
                )
            if other.span_s != constraint.span_s:
                raise FlowError(
                    "constraint",
                    f"all constraints have one time span, got {constraint.span_s} s beside {other.span_s} s",
                    "use the same span",
                )
        return TemplateGraph(self.tasks, self.edges, (*self.constraints, constraint))

    def _check_sequence(self, sequence: Iterable[str | tuple[str, str, str]]) -> None:
        elements = tuple(sequence)
        keys = {edge.key for edge in self.edges}
        targets = {edge.target for edge in self.edges}
        if not elements:
            raise FlowError("constraint", "a sequence has at least one element", "name a stream or a task")
        for element in elements:
            known = element in keys if isinstance(element, tuple) else any(t.name == element for t in self.tasks)
            if not known:
                raise FlowError("constraint", f"{element!r} is not in the graph", "name its tasks and streams")
        first = elements[0]
        if isinstance(first, str) and first not in targets:
            raise FlowError(
                "constraint",
                f"a sequence starts with a stream or a task that has inputs, but '{first}' is a source",
                f"start with the stream that leaves '{first}'",
            )
        for left, right in pairwise(elements):
            if isinstance(left, tuple) == isinstance(right, tuple):
                rule = f"a sequence alternates tasks and streams, but {right!r} follows {left!r}"
                raise FlowError("constraint", rule, "put a stream between two tasks, a task between two streams")
            joined = left[1] == right if isinstance(left, tuple) else isinstance(right, tuple) and right[0] == left
            if not joined:
                raise FlowError("constraint", f"{left!r} and {right!r} are not connected", "follow the graph")


def _check_parallelism(name: str, width: int) -> int:
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise FlowError(f"task '{name}'", f"a task has 1 or more subtasks, got {width!r}", "pass 1 or more")
    return width
