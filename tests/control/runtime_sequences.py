"""Slow, obvious code over runtime graphs: random graphs, and all runtime sequences of a constraint one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from penstock.control.models.constraints import Constraint, between
from penstock.control.models.graph import Channel, RuntimeGraph, Subtask, TemplateGraph, Wiring, all_to_all, one_to_one

Element = Subtask | Channel


def random_wiring(random: np.random.Generator) -> Wiring:
    """All to all, one to one, or any pairs."""
    kind = int(random.integers(0, 3))
    if kind < 2:
        return (all_to_all, one_to_one)[kind]
    pairs = random.random((8, 8)) < 0.5
    return lambda i, j: bool(pairs[i, j])


def random_path(random: np.random.Generator, tasks: int, *, dead_ends: bool = True) -> tuple[TemplateGraph, Constraint]:
    """A path of tasks of random widths, and a constraint on it that begins and ends with a stream or a task."""
    names = [f"t{i}" for i in range(tasks)]
    graph = TemplateGraph(
        {name: int(random.integers(1, 4)) for name in names},
        {(a, b): random_wiring(random) if dead_ends else all_to_all for a, b in pairwise(names)},
    )
    outer = between("c", names, 50.0).sequence
    first = int(random.integers(0, 2)) if len(outer) > 2 else 0  # drop the first stream: begins with a task
    sequence = outer[first:] + ((names[-1],) if random.random() < 0.5 else ())
    return graph, Constraint("c", sequence, 50.0)


def runtime_sequences(graph: RuntimeGraph, constraint: Constraint) -> Iterator[tuple[Element, ...]]:
    """Every runtime sequence that the template sequence induces: connected elements, one of each kind."""

    def extend(prefix: tuple[Element, ...]) -> Iterator[tuple[Element, ...]]:
        if len(prefix) == len(constraint.sequence):
            yield prefix
            return
        wanted = constraint.sequence[len(prefix)]
        last = prefix[-1] if prefix else None
        if isinstance(wanted, str):
            for subtask in graph.subtasks:
                if subtask[0] == wanted and (last is None or last[1] == subtask):
                    yield from extend((*prefix, subtask))
        else:
            for channel in graph.channels:
                if (channel[0][0], channel[1][0]) == wanted and (last is None or channel[0] == last):
                    yield from extend((*prefix, channel))

    yield from extend(())


def is_channel(element: Element) -> bool:
    return isinstance(element[0], tuple)


def channels_in(sequence: tuple[Element, ...]) -> set[Channel]:
    return {element for element in sequence if is_channel(element)}  # type: ignore[misc]


def subtasks_in(sequence: tuple[Element, ...]) -> set[Subtask]:
    """The subtasks of a sequence and both ends of its channels."""
    inner = {element for element in sequence if not is_channel(element)}
    return inner | {end for channel in channels_in(sequence) for end in channel}  # type: ignore[return-value]
