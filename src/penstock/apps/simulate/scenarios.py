"""The scenarios that `penstock simulate` knows: what each runs by default and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.apps.simulate import farm_scenarios, nephele_scenarios
from penstock.engine.sim.loop import Trace
from penstock.engine.sim.measures import Row
from penstock.errors import FlowError

Results = list[tuple[Row, Trace]]


@dataclass(frozen=True)
class Scenario:
    """One scenario: its name, the thesis' policies and ours, and how one policy is run."""

    name: str
    about: str
    policies: tuple[str, ...]  # the thesis' own first
    run: Callable[[str, int], Results]


def _spar(program: str, about: str) -> Scenario:
    policies = ("spar-throughput", "spar-wudp", "adaptive")
    return Scenario(f"spar-{program}", about, policies, lambda p, s: farm_scenarios.spar(program, p, s))


def _mpr(program: str, about: str) -> Scenario:
    policies = ("mpr-mape", "mpr-mape-guarded", "adaptive")
    return Scenario(f"mpr-{program}", about, policies, lambda p, s: farm_scenarios.mpr(program, p, s))


_ALL = (
    Scenario(
        "primetest",
        "001, section 5.3: a stair case of load, bounds of 20 to 100 ms",
        ("nephele", "adaptive"),
        nephele_scenarios.primetest,
    ),
    Scenario(
        "batching",
        "001, section 4.6: immediate, adaptive and full-buffer shipping while the load rises",
        ("immediate", "batching", "ship-when-full", "adaptive"),
        nephele_scenarios.batching,
    ),
    Scenario(
        "twitter",
        "001, section 5.3: two weeks of tweets, two constraints",
        ("nephele", "adaptive"),
        nephele_scenarios.twitter,
    ),
    Scenario(
        "livestream",
        "001, sections 5.2 and 5.4: video pipelines, batching alone and with chaining",
        ("batching", "nephele", "adaptive"),
        nephele_scenarios.livestream,
    ),
    _spar("lane", "003, chapter 6: Lane Detection, as fast as possible"),
    _spar("person", "003, chapter 6: Person Recognition, as fast as possible"),
    _spar("bzip2", "003, chapter 6: Pbzip2, as fast as possible"),
    _mpr("mandelbrot", "004, chapter 7: Mandelbrot towards a throughput goal"),
    _mpr("prime", "004, chapter 7: Prime Numbers towards a throughput goal"),
)
SCENARIOS = {scenario.name: scenario for scenario in _ALL}
NAMES = (*SCENARIOS, "compare", "replay")


def scenario(name: str) -> Scenario:
    """A scenario by its name.

    >>> scenario("primetest").policies[0]
    'nephele'
    """
    if name not in SCENARIOS:
        raise FlowError(f"scenario '{name}'", "there is no such scenario", "use one of " + ", ".join(NAMES))
    return SCENARIOS[name]
