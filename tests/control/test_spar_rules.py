"""Thesis 003, chapter 5: rewriting rules, flags, two-stage fallback. Numbers: the digest's acceptance list."""

from __future__ import annotations

import pytest

from penstock.control.decision import Static
from penstock.control.policies.spar_latency import LatencyConstraint
from penstock.control.policies.spar_queue import QueueCongestion
from penstock.control.policies.spar_rules import WIDTH_VARIABLE, Adaptive, Program, build, parse_flag
from penstock.control.policies.spar_throughput import TargetThroughput
from penstock.control.policies.spar_wudp import Wudp
from penstock.control.protocol.farm import FarmSettings, by_policy, run_farm
from penstock.errors import PolicyError


def f1() -> None: ...


def f2(item: int) -> int:
    return item * item + 1


def f3(item: int) -> None: ...


TWO, THREE = Program(f1, f2, replicate=4), Program(f1, f2, f3, replicate=4)


def test_a12_static_plans() -> None:
    assert build(TWO).plan() == "farm(A(f1), B(f2))"
    assert build(THREE).plan() == "farm(A(f1), B(f2), C(f3))"
    assert build(THREE).width == 4


def test_a13_adaptive_plans() -> None:
    assert build(THREE, Adaptive("throughput", 60.0)).plan() == "farm(A(f1).RegulatorT(), B(f2), C(f3).MonitorT())"
    assert build(THREE, Adaptive("latency", 0.24)).plan() == "farm(A(f1).RegulatorL(), B(f2), C(f3).MonitorL())"
    for flag in (Adaptive("throughput"), Adaptive("throughput", 60.0), Adaptive("latency", 0.24), Adaptive("latency")):
        farm = build(TWO, flag)
        assert farm.plan() == "farm(A(f1).RegulatorQ(), B(f2))"
        assert isinstance(farm.policy(), QueueCongestion)


def test_a14_a_flag_without_a_number_needs_none() -> None:
    wudp = build(THREE, parse_flag(["spar_adaptive-throughput"]))
    assert isinstance(wudp.policy(), Wudp) and wudp.parameters == {"scaling_factor": 2}
    target = build(THREE, parse_flag(["spar_adaptive-throughput", "60", "1"]))
    assert isinstance(target.policy(), TargetThroughput)
    assert target.parameters == {"target_per_s": 60.0, "scaling_factor": 1}
    latency = build(THREE, parse_flag(["--spar_adaptive-latency", "240", "1"]))
    assert isinstance(latency.policy(), LatencyConstraint)
    assert latency.parameters == {"constraint_s": 0.24, "scaling_factor": 1}
    automatic = build(THREE, parse_flag(["spar_adaptive-latency"]))
    assert isinstance(automatic.policy(), LatencyConstraint) and automatic.parameters["automatic"]


def test_a15_the_environment_gives_the_static_width() -> None:
    farm = build(Program(f1, f2, f3), environ={WIDTH_VARIABLE: "5"})
    assert isinstance(farm.policy(), Static) and farm.width == 5
    run = run_farm(FarmSettings(items=100, start=farm.width))
    assert [count > 0 for count in run.received] == [True] * 5 + [False] * 9
    assert build(THREE, environ={WIDTH_VARIABLE: "5"}).width == 4  # Replicate counts more


@pytest.mark.parametrize(
    "flag", [None, Adaptive("throughput"), Adaptive("throughput", 60.0), Adaptive("latency", 0.05)]
)
@pytest.mark.parametrize("program", [TWO, THREE])
def test_a16_user_functions_are_left_as_they_are(program: Program, flag: Adaptive | None) -> None:
    farm = build(program, flag)
    assert farm.program is program and farm.program.work is f2
    settings = FarmSettings(items=400, work=farm.program.work, ordered=True)
    run = run_farm(settings, by_policy(farm.policy(), settings))
    assert run.output == [f2(item) for item in range(400)]


@pytest.mark.parametrize(
    "words",
    [[], ["spar_adaptive-speed"], ["spar_adaptive-throughput", "fast"], ["spar_adaptive-latency", "-1"], ["x"] * 4],
)
def test_flags_that_cannot_be_read_are_refused(words: list[str]) -> None:
    with pytest.raises(PolicyError, match="adaptive flag"):
        parse_flag(words)


@pytest.mark.parametrize("environ", [{}, {WIDTH_VARIABLE: "0"}, {WIDTH_VARIABLE: "many"}, {WIDTH_VARIABLE: "-3"}])
def test_a_static_farm_needs_a_width(environ: dict[str, str]) -> None:
    with pytest.raises(PolicyError, match=WIDTH_VARIABLE):
        build(Program(f1, f2), environ=environ)
