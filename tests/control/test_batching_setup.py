"""Where batching managers are placed: the conditions of thesis 001, section 4.5.4, by enumerating runtime sequences."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control.models.constraints import between
from penstock.control.models.graph import TemplateGraph, all_to_all, one_to_one
from penstock.control.policies.batching_setup import Subgraph, anchor_task, compute_setup
from penstock.errors import PolicyError
from tests.control.runtime_sequences import channels_in, random_path, runtime_sequences, subtasks_in


def holds(part: Subgraph, sequence: tuple) -> bool:  # type: ignore[type-arg]
    return channels_in(sequence) <= part.channels and subtasks_in(sequence) <= part.subtasks


def test_acceptance_17_on_random_graphs_and_schedules() -> None:
    random = np.random.default_rng(17)
    for _ in range(300):
        template, constraint = random_path(random, int(random.integers(2, 5)))
        graph = template.runtime()
        schedule = {subtask: f"w{random.integers(0, 4)}" for subtask in graph.subtasks}
        setup = compute_setup(graph, [constraint], schedule)
        assert setup == compute_setup(graph, [constraint], schedule)  # deterministic
        anchor = anchor_task(graph, constraint, schedule)
        assert set(setup) == {schedule[s] for s in graph.subtasks if s[0] == anchor}
        sequences = list(runtime_sequences(graph, constraint))
        inside = {worker: [s for s in sequences if holds(part, s)] for worker, part in setup.items()}
        for sequence in sequences:  # each in exactly one subgraph
            assert sum(sequence in held for held in inside.values()) == 1
        for worker, part in setup.items():  # nothing foreign
            assert part.channels == frozenset().union(*(channels_in(s) for s in inside[worker]))
            assert part.subtasks == frozenset().union(*(subtasks_in(s) for s in inside[worker]))


def test_acceptance_17_the_anchor_is_on_most_workers_then_has_fewest_channels() -> None:
    random = np.random.default_rng(18)
    for _ in range(200):
        template, constraint = random_path(random, int(random.integers(2, 6)))
        graph = template.runtime()
        schedule = {subtask: f"w{random.integers(0, 3)}" for subtask in graph.subtasks}
        tasks = constraint.tasks or constraint.streams[0]
        workers = {t: len({schedule[s] for s in graph.subtasks if s[0] == t}) for t in tasks}
        most = [t for t in tasks if workers[t] == max(workers.values())]
        streams = set(constraint.streams)
        touching = {
            t: sum((c[0][0], c[1][0]) in streams and t in (c[0][0], c[1][0]) for c in graph.channels) for t in most
        }
        fewest = [t for t in most if touching[t] == min(touching.values())]
        assert anchor_task(graph, constraint, schedule) == fewest[0]


def test_acceptance_17_two_constraints_on_one_worker_are_merged() -> None:
    streams = [("s", "a"), ("a", "t"), ("s", "b"), ("b", "t")]
    graph = TemplateGraph({"s": 1, "a": 2, "b": 2, "t": 1}, dict.fromkeys(streams, all_to_all)).runtime()
    schedule = {("s", 1): "w0", ("t", 1): "w0", ("a", 1): "w1", ("a", 2): "w2", ("b", 1): "w2", ("b", 2): "w3"}
    one, other = between("c", ("s", "a", "t"), 20.0), between("d", ("s", "b", "t"), 20.0)
    setup = compute_setup(graph, [one, other], schedule)
    assert set(setup) == {"w1", "w2", "w3"}
    assert setup["w2"].subtasks == {("s", 1), ("t", 1), ("a", 2), ("b", 1)}
    alone = [compute_setup(graph, [c], schedule)["w2"] for c in (one, other)]
    assert setup["w2"] == alone[0].merge(alone[1])
    assert len(setup["w2"].as_graph(graph).channels) == 4


def test_a_one_to_one_pipeline_is_split_without_overlap() -> None:
    streams = [("s", "a"), ("a", "b"), ("b", "t")]
    graph = TemplateGraph(dict.fromkeys("sabt", 4), dict.fromkeys(streams, one_to_one)).runtime()
    setup = compute_setup(graph, [between("c", "sabt", 20.0)], {s: f"w{s[1]}" for s in graph.subtasks})
    assert len(setup) == 4 and all(part.size == 7 for part in setup.values())
    assert len(frozenset().union(*(part.subtasks for part in setup.values()))) == 16


def test_a_subtask_without_a_worker_is_refused() -> None:
    graph = TemplateGraph({"s": 1, "t": 1}, {("s", "t"): all_to_all}).runtime()
    with pytest.raises(PolicyError, match="it has no worker"):
        compute_setup(graph, [between("c", ("s", "t"), 20.0)], {("s", 1): "w"})
