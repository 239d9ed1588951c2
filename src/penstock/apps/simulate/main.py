"""`penstock simulate SCENARIO [--policy P] [--seed N] [--json FILE] [--plot FILE]`; `list` names the scenarios."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.apps.simulate import compare as comparison
from penstock.apps.simulate.plot import WHERE
from penstock.apps.simulate.plot import plot as draw
from penstock.apps.simulate.report import compare_text, text
from penstock.apps.simulate.scenarios import NAMES, SCENARIOS, Results, scenario
from penstock.control.policies import registry
from penstock.engine.sim.loads import SHAPES
from penstock.engine.sim.measures import Row
from penstock.errors import FlowError
from penstock.observe.picture import require_matplotlib


@dataclass(frozen=True)
class _Extent:
    """How much `compare` runs."""

    seed: int
    seeds: int
    processes: int


def main(
    name: str,
    *,
    policy: str | None = None,
    seed: int = 1,
    json_path: str | None = None,
    plot_path: str | None = None,
    seeds: int | None = None,
    processes: int = 1,
) -> int:
    """Run a scenario, print its report, and write rows and picture where asked; returns the exit code.

    `policy` runs one policy (or several, with commas) instead of the scenario's own. `seeds` and `processes` are for
    `compare`: how many seeds each shape is run with, from `seed` on (10 if left out), and in how many processes.

    >>> main("spar-lane", policy="adaptive")  # doctest: +ELLIPSIS
    spar-lane (simulated, seed 1)
    ...
    0
    """
    if name == "list":
        print(listing())
        return 0
    if name not in NAMES:
        raise FlowError(f"scenario '{name}'", "there is no such scenario", "use one of " + ", ".join(NAMES))
    if name == "replay":  # it has a command of its own
        raise FlowError("scenario 'replay'", "it needs a run", "penstock simulate replay CHECKPOINT")
    chosen = None if policy is None else tuple(p.strip() for p in policy.split(","))
    for one in chosen or ():
        registry.entry_of(one)  # a wrong name is refused before anything is run
    if plot_path is not None:
        require_matplotlib(WHERE)  # the same for a picture that cannot be drawn
    if name == "compare":
        extent = _Extent(seed, len(comparison.SEEDS) if seeds is None else seeds, processes)
        rows, results = _compare(chosen, extent, traces=plot_path is not None)
        print(compare_text(rows))
    else:
        plan = scenario(name)
        results = [pair for p in chosen or plan.policies for pair in plan.run(p, seed)]
        rows = [row for row, _ in results]
        print(text(rows))
    if json_path is not None:
        Path(json_path).write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n", encoding="utf-8")
    if plot_path is not None:
        draw(results, plot_path)
    return 0


def listing() -> str:
    """The scenarios, one line each.

    >>> "primetest" in listing() and "compare" in listing()
    True
    """
    lines = [f"{s.name:<16} {s.about}; policies: {', '.join(s.policies)}" for s in SCENARIOS.values()]
    lines.append(f"{'compare':<16} all policies over {len(SHAPES)} load shapes: {', '.join(SHAPES)}")
    lines.append(f"{'replay':<16} a job's run, by the telemetry in its CHECKPOINT, under any policy")
    return "\n".join(lines)


def _compare(chosen: Sequence[str] | None, extent: _Extent, *, traces: bool) -> tuple[list[Row], Results]:
    """All policies over all shapes; with `traces`, the first policy on some shapes for the picture."""
    policies = chosen or (comparison.OURS, *comparison.CAUSAL, *comparison.KNOWING)
    seeds = range(extent.seed, extent.seed + extent.seeds)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows = comparison.compare(policies, tuple(SHAPES), seeds, processes=extent.processes, progress=say)
    shown = list(SHAPES)[:6] if traces else []
    return rows, [comparison.measured(shape, policies[0], extent.seed) for shape in shown]
