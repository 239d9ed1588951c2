"""Task chaining of thesis 001: which tasks form a chain, and how Algorithm 10 cuts it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from penstock.control.decision import Decision
from penstock.control.models.constraints import Constraint, between
from penstock.control.models.graph import Stream, TemplateGraph, Wiring, all_to_all, one_to_one
from penstock.control.observation import Observation
from penstock.control.policies.chaining import DynamicChaining
from penstock.control.policies.chaining_chains import find_primary_chains, partition, partitionings
from penstock.errors import PolicyError
from tests.control.cases import view

VIDEO = ("src", "dec", "mrg", "ovl", "enc", "snk")
ONE_WORKER = {(task, i): "w" for task in (*VIDEO, "extra") for i in range(1, 5)}


def video(
    *,
    widths: dict[str, int] | None = None,
    wiring: dict[Stream, Wiring] | None = None,
    constraint: Constraint | None = None,
    moved: dict[tuple[str, int], str] | None = None,
) -> tuple[tuple[str, ...], ...]:
    """The primary chains of the thesis' Livestream pipeline, with something changed."""
    usual: dict[Stream, Wiring] = {
        ("src", "dec"): all_to_all,
        ("dec", "mrg"): one_to_one,
        ("mrg", "ovl"): one_to_one,
        ("ovl", "enc"): one_to_one,
        ("enc", "snk"): all_to_all,
    }
    tasks = dict.fromkeys(VIDEO, 4) | {"extra": 4}
    graph = TemplateGraph({**tasks, **(widths or {})}, {**usual, **(wiring or {})})
    runtime = graph.runtime()
    schedule = {subtask: f"w{subtask[1]}" for subtask in runtime.subtasks} | (moved or {})
    return find_primary_chains(graph, runtime, [constraint or between("c", VIDEO, 50.0)], schedule)


def test_acceptance_32_the_primary_chain_is_maximal() -> None:
    assert video() == (("dec", "mrg", "ovl", "enc"),)


@pytest.mark.parametrize(
    ("change", "chains"),
    [
        ({"widths": {"ovl": 3, "enc": 3}}, [("dec", "mrg"), ("ovl", "enc")]),
        ({"wiring": {("mrg", "ovl"): all_to_all}}, [("dec", "mrg"), ("ovl", "enc")]),
        ({"wiring": {("mrg", "extra"): one_to_one}}, [("dec", "mrg"), ("ovl", "enc")]),  # fan-out
        ({"wiring": {("extra", "ovl"): one_to_one}}, [("dec", "mrg"), ("ovl", "enc")]),  # fan-in
        ({"moved": {("ovl", 2): "elsewhere", ("enc", 2): "elsewhere"}}, [("dec", "mrg"), ("ovl", "enc")]),
        (  # all into one subtask, on the same worker
            {"wiring": {("mrg", "ovl"): lambda i, j: j == 1}, "moved": ONE_WORKER},
            [("dec", "mrg"), ("ovl", "enc")],
        ),
        ({"constraint": Constraint("c", ("mrg", ("mrg", "ovl"), "ovl"), 50.0)}, [("mrg", "ovl")]),
        ({"constraint": Constraint("c", ("enc",), None)}, [("enc",)]),
    ],
)
def test_acceptance_32_what_breaks_a_chain(change: dict[str, Any], chains: list[tuple[str, ...]]) -> None:
    assert video(**change) == tuple(chains)


def test_acceptance_32_a_permutation_is_one_to_one_too() -> None:
    assert video(wiring={("mrg", "ovl"): lambda i, j: i + j == 5}, moved=ONE_WORKER) == (("dec", "mrg", "ovl", "enc"),)


def cut(*loads: float, most: float = 0.9) -> list[list[float]]:
    """Algorithm 10 on tasks of these utilisations; the loads of each chain."""
    names = tuple(f"t{i}" for i in range(len(loads)))
    busiest = dict(zip(names, loads, strict=True))
    return [[busiest[name] for name in chain] for chain in partition(names, busiest, most)]


def test_acceptance_33_the_partitionings_of_the_digest() -> None:
    assert cut(0.5, 0.1, 0.1, 0.5) == [[0.5], [0.1, 0.1, 0.5]]  # the first found, not the evenest
    assert cut(0.2, 0.1, 0.1, 0.3) == [[0.2, 0.1, 0.1, 0.3]]
    assert cut(0.8, 0.3, 0.2, 0.6) == [[0.8], [0.3], [0.2, 0.6]]
    assert cut(0.85, 0.85, 0.1) == [[0.85], [0.85], [0.1]]
    assert cut(0.2, 0.2, 0.2, 0.2) == [[0.2]] * 4  # equal utilisations: no variance is below 0
    assert cut(0.1, 0.1, 0.1) == [[0.1]] * 3  # 0.1 + 0.1 + 0.1 is not 0.3, and must not matter
    assert cut(0.4) == [[0.4]]


def test_acceptance_33_partitionings_are_enumerated_in_lexicographic_order() -> None:
    chain = ("a", "b", "c", "d", "e")
    cuts = [tuple(itertools.accumulate(len(part) for part in p))[:-1] for p in partitionings(chain, 3)]
    assert cuts == [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
    for n, parts in itertools.product(range(1, 8), range(1, 8)):
        names = tuple("abcdefgh"[:n])
        found = list(partitionings(names, parts))
        assert len(found) == (math.comb(n - 1, parts - 1) if parts <= n else 0)
        assert all(sum(p, ()) == names for p in found)


def literal(loads: list[Fraction], most: Fraction) -> list[list[Fraction]]:
    """Algorithm 10 word for word, in exact arithmetic and without short cuts."""

    def variance(parts: list[list[Fraction]]) -> Fraction:
        utils = [sum(part, Fraction(0)) for part in parts]
        mean = sum(utils, Fraction(0)) / len(utils)
        return sum(((u - mean) ** 2 for u in utils), Fraction(0)) / len(utils)

    unchained = [[load] for load in loads]
    for parts in range(1, len(loads)):
        for cuts in itertools.combinations(range(1, len(loads)), parts - 1):
            edges = (0, *cuts, len(loads))
            candidate = [loads[a:b] for a, b in itertools.pairwise(edges)]
            if max(sum(part, Fraction(0)) for part in candidate) <= most and variance(candidate) < variance(unchained):
                return candidate
    return unchained


def test_acceptance_33_and_34_equals_the_literal_algorithm_and_never_exceeds_the_limit() -> None:
    random = np.random.default_rng(33)
    for _ in range(500):
        tenths = [int(x) for x in random.integers(0, 11, random.integers(1, 8))]
        found = cut(*(x / 10 for x in tenths))
        exact = literal([Fraction(x, 10) for x in tenths], Fraction(9, 10))
        assert [[round(x * 10) for x in part] for part in found] == [[int(x * 10) for x in part] for part in exact]
        assert all(sum(part) <= 0.9 + 1e-9 for part in found if len(part) > 1)


def test_a_long_chain_is_cut_at_once() -> None:
    assert len(cut(*[0.05 + 0.001 * i for i in range(24)])) >= 2
    assert len(cut(0.95, *[0.01 * (1 + i % 2) for i in range(40)])) == 41


# --- the policy -------------------------------------------------------------------------------------------------------

INNER = ("dec", "mrg", "ovl", "enc")


def observe(*loads: float, widths: tuple[int, ...] = (4, 4, 4, 4), skew: float = 1.0) -> Observation:
    return Observation(
        0.0,
        5.0,
        {
            name: view(name, utilisation=load, width=width, skew=skew)
            for name, load, width in zip(INNER, loads, widths, strict=True)
        },
    )


def test_acceptance_36_a_chain_is_split_within_one_interval_when_the_load_rises() -> None:
    policy = DynamicChaining(pipelines=[INNER])
    calm = policy.decide(observe(0.2, 0.1, 0.1, 0.3), Decision({"dec": 4}))
    assert calm.chains == (INNER,) and calm.widths == {"dec": 4}
    busy = policy.decide(observe(0.3, 0.15, 0.15, 0.45), calm)
    assert busy.chains == (("dec", "mrg"), ("ovl", "enc"))
    assert policy.decide(observe(0.2, 0.1, 0.1, 0.3), busy).chains == (INNER,)


def test_the_busiest_subtask_counts() -> None:
    policy = DynamicChaining(pipelines=[INNER])
    assert policy.decide(observe(0.2, 0.1, 0.1, 0.3, skew=1.5), Decision()).chains != (INNER,)


def test_unequal_widths_break_a_chain() -> None:
    policy = DynamicChaining(pipelines=[INNER])
    seen = observe(0.2, 0.1, 0.1, 0.3, widths=(4, 4, 5, 5))
    assert policy.decide(seen, Decision()).chains == (("dec", "mrg"), ("ovl", "enc"))


def test_acceptance_7_a_stale_pipeline_keeps_its_chains() -> None:
    policy = DynamicChaining(pipelines=[INNER])
    calm = policy.decide(observe(0.2, 0.1, 0.1, 0.3), Decision())
    stale = Observation(5.0, 5.0, {"dec": view("dec", utilisation=0.9)})
    assert policy.decide(stale, calm).chains == calm.chains
    assert policy.decide(None, calm) is calm


def test_a_dwell_time_holds_a_merge_back_but_never_a_split() -> None:
    policy = DynamicChaining(pipelines=[INNER], dwell_intervals=3)
    decision = policy.decide(observe(0.2, 0.1, 0.1, 0.3), Decision())
    split = policy.decide(observe(0.3, 0.15, 0.15, 0.45), decision)
    assert split.chains != decision.chains
    later = [policy.decide(observe(0.2, 0.1, 0.1, 0.3), split).chains for _ in range(3)]
    assert later == [split.chains, split.chains, (INNER,)]


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(PolicyError, match="an operator is in two pipelines"):
        DynamicChaining(pipelines=[("a", "b"), ("b", "c")])
    with pytest.raises(PolicyError, match="most_utilisation must be greater than 0"):
        DynamicChaining(pipelines=[], most_utilisation=0.0)
    with pytest.raises(PolicyError, match="utilisation must be at least 0"):
        partition(("a",), {"a": math.nan})
    with pytest.raises(PolicyError, match="its utilisation is not known"):
        partition(("a", "b"), {"a": 0.1})
