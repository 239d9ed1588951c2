"""`penstock simulate SCENARIO [--policy P] [--seed N] [--json FILE] [--plot FILE]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from penstock.apps.simulate import compare as comparison
from penstock.apps.simulate.plot import plot as draw
from penstock.apps.simulate.report import compare_text, text
from penstock.apps.simulate.scenarios import NAMES, Results, scenario
from penstock.control.policies import registry
from penstock.engine.sim.loads import SHAPES
from penstock.engine.sim.measures import Row
from penstock.errors import FlowError


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

    `policy` runs one policy (or several, with commas) instead of the scenario's own; `seeds` is for `compare` only: how
    many seeds each shape is run with (10 if left out, 1 if a seed is meant by `seed`).

    >>> main("spar-bzip2", policy="adaptive")  # doctest: +ELLIPSIS
    spar-bzip2 (simulated, seed 1)
    ...
    0
    """
    if name not in NAMES:
        raise FlowError(f"scenario '{name}'", "there is no such scenario", "use one of " + ", ".join(NAMES))
    chosen = None if policy is None else tuple(p.strip() for p in policy.split(","))
    for one in chosen or ():
        registry.entry_of(one)  # a wrong name is refused before anything is run
    if name == "compare":
        rows, results = _compare(chosen, seed, seeds, processes, traces=plot_path is not None)
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


def _compare(
    chosen: Sequence[str] | None, seed: int, seeds: int | None, processes: int, *, traces: bool
) -> tuple[list[Row], Results]:
    """All policies over all shapes; with `traces`, ours on every shape for the picture."""
    policies = chosen or (comparison.OURS, *comparison.CAUSAL, *comparison.KNOWING)
    count = seeds if seeds is not None else len(comparison.SEEDS)
    rows = comparison.compare(policies, tuple(SHAPES), range(seed, seed + count), processes=processes)
    results = [comparison.measured(shape, policies[0], seed) for shape in list(SHAPES)[:6]] if traces else []
    return rows, results
