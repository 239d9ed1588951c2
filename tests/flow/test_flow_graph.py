"""The template graph and the runtime graph it induces (thesis 001, section 2.3.1; its acceptance 1 and 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock as ps
from penstock.flow.graph import Constraint, Edge, Task, TemplateGraph, all_to_all, one_to_one

Wiring = Callable[[int, int], bool]


def even_sums(i: int, j: int) -> bool:
    return (i + j) % 2 == 0


@pytest.mark.parametrize(
    ("wiring", "expected"),
    [
        (all_to_all, {(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)}),
        (one_to_one, {(1, 1), (2, 2)}),
        (even_sums, {(1, 1), (1, 3), (2, 2)}),
        (lambda i, j: False, set()),
    ],
    ids=["all to all", "one to one", "even sums", "none"],
)
def test_one_channel_per_true_wiring(wiring: Wiring, expected: set[tuple[int, int]]) -> None:
    graph = TemplateGraph((Task("a", "read", 2), Task("b", "map", 3)), (Edge("a", "b", wiring),))
    runtime = graph.runtime()
    assert runtime.subtasks == (("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3))
    assert sorted(runtime.channels) == sorted((("a", i), ("b", j)) for i, j in expected)


@st.composite
def graphs(draw: st.DrawFn) -> TemplateGraph:
    size = draw(st.integers(1, 6))
    tasks = tuple(Task(f"t{n}", "map", draw(st.integers(1, 4))) for n in range(size))
    pairs = [(a, b) for a, b in product(range(size), repeat=2) if a < b]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    wirings = st.sampled_from([all_to_all, one_to_one, even_sums])
    edges = tuple(Edge(f"t{a}", f"t{b}", draw(wirings)) for a, b in chosen)
    return TemplateGraph(tuple(draw(st.permutations(tasks))), edges)


@given(graph=graphs(), data=st.data())
def test_random_graphs_by_enumeration(graph: TemplateGraph, data: st.DataObject) -> None:
    names = [task.name for task in graph.tasks]
    widths = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 5)))
    p = {task.name: widths.get(task.name, task.parallelism) for task in graph.tasks}
    runtime = graph.runtime(widths)

    assert len(runtime.subtasks) == sum(p.values())
    assert set(runtime.subtasks) == {(name, i) for name in names for i in range(1, p[name] + 1)}
    expected: Counter[Any] = Counter()
    for left, right in product(runtime.subtasks, repeat=2):
        for edge in graph.edges:
            if (edge.source, edge.target) == (left[0], right[0]) and edge.wiring(left[1], right[1]):
                expected[left, right] += 1
    assert Counter(runtime.channels) == expected
    order = graph.order()
    assert sorted(order) == sorted(names)
    assert all(order.index(edge.source) < order.index(edge.target) for edge in graph.edges)


@given(graph=graphs(), data=st.data())
def test_any_edge_back_makes_a_cycle_and_is_refused(graph: TemplateGraph, data: st.DataObject) -> None:
    if not graph.edges:
        return
    edge = data.draw(st.sampled_from(graph.edges))
    with pytest.raises(ps.FlowError, match=r"graph: a template graph is acyclic, but .* -> ") as caught:
        TemplateGraph(graph.tasks, (*graph.edges, Edge(edge.target, edge.source)))
    assert edge.source in caught.value.rule
    assert edge.target in caught.value.rule


# src -> a -> b -> sink, and src -> c -> sink
TASKS = tuple(Task(name, "map") for name in ("src", "a", "b", "c", "sink"))
SA, AB, BS, SC, CS = (("src", "a", ""), ("a", "b", ""), ("b", "sink", ""), ("src", "c", ""), ("c", "sink", ""))
GRAPH = TemplateGraph(TASKS, tuple(Edge(*key[:2]) for key in (SA, AB, BS, SC, CS)))

REFUSED = [
    (("src", SA, "a"), "a sequence starts with a stream or a task that has inputs, but 'src' is a source", "stream"),
    ((), "a sequence has at least one element", "name a stream or a task"),
    (("a", "b"), "a sequence alternates tasks and streams, but 'b' follows 'a'", "put a stream between two tasks"),
    ((SA, AB), "a sequence alternates tasks and streams", "a task between two streams"),
    ((SA, "b"), "('src', 'a', '') and 'b' are not connected", "follow the graph"),
    (("a", BS), "'a' and ('b', 'sink', '') are not connected", "follow the graph"),
    (("nope",), "'nope' is not in the graph", "name its tasks and streams"),
    ((("a", "c", ""),), "('a', 'c', '') is not in the graph", "name its tasks and streams"),
]


@pytest.mark.parametrize(("sequence", "rule", "remedy"), REFUSED)
def test_sequences_that_are_none(sequence: tuple[Any, ...], rule: str, remedy: str) -> None:
    with pytest.raises(ps.FlowError) as caught:
        GRAPH.attach(Constraint(sequence, 100))
    assert (caught.value.where, rule in caught.value.rule, remedy in caught.value.remedy) == ("constraint", True, True)


@pytest.mark.parametrize("bound", [0, -1, float("nan")])
def test_bounds_and_spans_are_positive(bound: float) -> None:
    with pytest.raises(ps.FlowError, match=r"constraint: the bound must be above 0 ms, got .*Remedy"):
        GRAPH.attach(Constraint((SA,), bound))
    with pytest.raises(ps.FlowError, match=r"constraint: the span must be above 0 s, got .*Remedy"):
        GRAPH.attach(Constraint((SA,), 100, bound))


def test_two_constraints_may_share_a_task_but_no_stream_and_have_one_span() -> None:
    one = GRAPH.attach(Constraint((SA, "a"), 100))
    both = one.attach(Constraint(("a", AB, "b", BS), 200))  # shares task a only
    three = both.attach(Constraint((SC, "c", CS, "sink"), 50))
    assert [c.bound_ms for c in three.constraints] == [100, 200, 50]
    assert GRAPH.constraints == ()  # attaching makes a new graph
    rule = r"constraint: two constraints may not share a stream, but both contain a -> b\. Remedy: join them"
    with pytest.raises(ps.FlowError, match=rule):
        three.attach(Constraint((AB,), 10))
    rule = r"constraint: all constraints have one time span, got 9\.0 s beside 5\.0 s\. Remedy: use the same span"
    with pytest.raises(ps.FlowError, match=rule):
        one.attach(Constraint((SC,), 10, 9.0))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TemplateGraph((Task("a", "map"), Task("a", "map")), ()), r"task 'a': two tasks have this name"),
        (lambda: TemplateGraph((Task("a", "map"),), (Edge("a", "b"),)), r"stream a -> b: there is no task 'b'"),
        (lambda: TemplateGraph((Task("a", "map"),), (Edge("a", "a"),)), r"graph: .* acyclic, but a -> a"),
        (lambda: TemplateGraph((Task("a", "map", 0),), ()), r"task 'a': a task has 1 or more subtasks, got 0"),
        (lambda: TemplateGraph((Task("a", "map", follows=("b",)), Task("b", "map")), ()), r"task 'a': it follows 'b'"),
        (lambda: GRAPH.runtime({"a": 0}), r"task 'a': a task has 1 or more subtasks, got 0"),
        (lambda: GRAPH.runtime({"a": 1.5}), r"task 'a': a task has 1 or more subtasks, got 1.5"),  # type: ignore[dict-item]
        (lambda: GRAPH.runtime({"z": 1}), r"task 'z': the graph has no such task \(there are src, a, b, c, sink\)"),
        (lambda: GRAPH.task("z"), r"task 'z': the graph has no such task"),
    ],
)
def test_graphs_that_are_none(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ps.FlowError, match=message + r".* Remedy: \w"):
        build()


# -- the graph of a flow -----------------------------------------------------------------------------------------------


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.fixture(scope="module")
def flow(spark: SparkSession) -> ps.Flow:
    flow = ps.Flow("trading")
    read = flow.read(spark.createDataFrame([], "k string, v double, ts timestamp"), time="ts", name="quotes")
    clean = read.map(same, name="clean")
    scored = clean.map(same, name="score", replicas=ps.elastic(2, 8))
    high, low = scored.map(same, name="mark").split(same, rest=True, name="parts")
    high.union(low, name="both").write("memory", name="out")
    high.window(ps.Time("1 s"), key="k", name="bars").aggregate(n=ps.count()).write("memory", name="windows")
    return flow


def test_the_graph_of_a_flow_has_its_widths_and_wiring(flow: ps.Flow) -> None:
    graph = flow.graph()
    tasks = {task.name: (task.kind, task.parallelism, task.lo, task.hi, task.follows) for task in graph.tasks}
    assert tasks == {
        "quotes": ("read", 1, 1, 1, ()),
        "clean": ("map", 1, 1, 1, ("quotes",)),
        "score": ("map", 2, 2, 8, ()),
        "mark": ("map", 1, 1, 1, ("score",)),
        "parts": ("split", 1, 1, 1, ("mark",)),
        "both": ("union", 1, 1, 1, ("parts",)),
        "bars": ("window", 1, 1, 64, ()),
        "out": ("sink memory", 1, 1, 1, ()),
        "windows": ("sink memory", 1, 1, 1, ()),
    }
    edges = {edge.key: edge.wiring for edge in graph.edges}
    assert edges == {
        ("quotes", "clean", "quotes"): one_to_one,
        ("clean", "score", "clean"): all_to_all,
        ("score", "mark", "score"): one_to_one,
        ("mark", "parts", "mark"): one_to_one,
        ("parts", "both", "parts.0"): one_to_one,
        ("parts", "both", "parts.rest"): one_to_one,
        ("parts", "bars", "parts.0"): all_to_all,
        ("both", "out", "both"): all_to_all,
        ("bars", "windows", "bars"): all_to_all,
    }


@pytest.mark.parametrize(("score", "bars"), [(2, 1), (5, 3), (1, 4)])
def test_the_runtime_graph_of_a_flow_at_any_widths(flow: ps.Flow, score: int, bars: int) -> None:
    graph = flow.graph()
    runtime = graph.runtime({"score": score, "bars": bars})
    # what is fused with the farm is as wide as the farm: no subtask is without its neighbour
    p = Counter(name for name, _ in runtime.subtasks)
    wide = dict.fromkeys(("score", "mark", "parts", "both"), score)
    assert p == {**wide, "bars": bars, **dict.fromkeys(("quotes", "clean", "out", "windows"), 1)}
    pairs = Counter((left[0], right[0]) for left, right in runtime.channels)
    assert pairs == {
        ("quotes", "clean"): 1,
        ("clean", "score"): score,
        ("score", "mark"): score,
        ("mark", "parts"): score,
        ("parts", "both"): 2 * score,  # two streams: parts.0 and parts.rest
        ("parts", "bars"): score * bars,
        ("both", "out"): score,
        ("bars", "windows"): bars,
    }


def test_a_fused_operator_has_no_width_of_its_own(flow: ps.Flow) -> None:
    rule = (
        r"task 'mark': it runs in the subtasks of score, and has no width of its own\. Remedy: set the width of score"
    )
    with pytest.raises(ps.FlowError, match=rule):
        flow.graph().runtime({"mark": 3})


def test_a_graph_is_immutable_and_later_operators_do_not_change_it(spark: SparkSession) -> None:
    flow = ps.Flow("growing")
    read = flow.read(spark.createDataFrame([], "k string"), name="a")
    before = flow.graph()
    read.map(same, name="b").write("memory", name="out")
    assert [task.name for task in before.tasks] == ["a"]
    assert [task.name for task in flow.graph().tasks] == ["a", "b", "out"]
    assert flow.graph() == flow.graph()
    for thing, attribute in ((before, "tasks"), (before.tasks[0], "hi"), (flow.graph().edges[0], "target")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, attribute, None)
    flow.operators.clear()  # a copy
    flow.sinks.clear()
    assert [task.name for task in flow.graph().tasks] == ["a", "b", "out"]
