"""Template graphs, the runtime graphs they induce, and which constraints may be attached."""

from __future__ import annotations

import itertools

import pytest

from penstock.control.models.constraints import Constraint, attach, between
from penstock.control.models.graph import TemplateGraph, Wiring, all_to_all, one_to_one
from penstock.errors import PolicyError


@pytest.mark.parametrize("wired", [all_to_all, one_to_one, lambda i, j: (i + j) % 3 == 0])
def test_acceptance_1_the_induced_runtime_graph_by_enumeration(wired: Wiring) -> None:
    widths = {"a": 2, "b": 3, "c": 5}
    streams = [("a", "b"), ("b", "c"), ("a", "c")]
    graph = TemplateGraph(widths, dict.fromkeys(streams, wired)).runtime()
    assert len(graph.subtasks) == len(set(graph.subtasks)) == sum(widths.values())
    expected = set()
    for one, other in itertools.product(graph.subtasks, repeat=2):
        if (one[0], other[0]) in streams and wired(one[1], other[1]):
            expected.add((one, other))
    assert set(graph.channels) == expected and len(graph.channels) == len(expected)
    for stream in streams:
        assert set(graph.channels_of(stream)) == {c for c in expected if (c[0][0], c[1][0]) == stream}
    for subtask in graph.subtasks:
        assert set(graph.outgoing.get(subtask, ())) == {c for c in expected if c[0] == subtask}
        assert set(graph.incoming.get(subtask, ())) == {c for c in expected if c[1] == subtask}


DIAMOND = TemplateGraph(
    {"s": 1, "a": 2, "b": 2, "t": 1},
    dict.fromkeys([("s", "a"), ("s", "b"), ("a", "b"), ("a", "t"), ("b", "t")], all_to_all),
)


@pytest.mark.parametrize(
    ("constraints", "rule"),
    [
        ([Constraint("c", ("s", ("s", "a"), "a"), 20.0)], "must not begin with the source 's'"),
        (
            [between("c", ("s", "a", "t"), 20.0), between("d", ("s", "a", "b"), 20.0)],
            "shares the stream 's->a' with 'c'",
        ),
        (
            [between("c", ("s", "a", "t"), 20.0), between("d", ("s", "b", "t"), 20.0, over_s=9.0)],
            "all spans must be equal",
        ),
        ([between("c", ("a", "s"), 20.0)], "the graph has no stream 'a->s'"),
    ],
)
def test_acceptance_2_attachment_is_refused_with_its_rule(constraints: list[Constraint], rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        attach(DIAMOND, constraints)


def test_acceptance_2_cycles_and_broken_sequences_are_refused() -> None:
    with pytest.raises(PolicyError, match="it has a cycle among a, b"):
        TemplateGraph({"s": 1, "a": 1, "b": 1}, dict.fromkeys([("s", "a"), ("a", "b"), ("b", "a")], all_to_all))
    with pytest.raises(PolicyError, match="stream 'a->t' follows task 'b'"):
        Constraint("c", (("a", "b"), "b", ("a", "t")), 20.0)
    with pytest.raises(PolicyError, match="at least one element"):
        Constraint("c", (), 20.0)
    with pytest.raises(PolicyError, match="bound must be greater than 0"):
        between("c", ("s", "a", "t"), 0.0)
    with pytest.raises(PolicyError, match="there is no task 'x'"):
        TemplateGraph({"s": 1}, {("s", "x"): all_to_all})
    with pytest.raises(PolicyError, match="parallelism must be at least 1"):
        TemplateGraph({"s": 0})


def test_acceptance_2_sharing_only_a_task_is_accepted() -> None:
    both = [between("c", ("s", "a", "b"), 20.0), between("d", ("s", "b", "t"), 30.0)]
    assert attach(DIAMOND, both) == tuple(both)
    assert set(both[0].tasks) == {"a"} and set(both[1].tasks) == {"b"}
    shared = [Constraint("c", (("s", "a"), "a", ("a", "b"), "b"), 20.0), between("d", ("s", "b", "t"), 30.0)]
    assert attach(DIAMOND, shared) == tuple(shared)
