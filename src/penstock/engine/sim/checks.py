"""What every simulated run must satisfy: nothing is lost or made, and Little's law holds."""

from __future__ import annotations

import numpy as np

from penstock.engine.sim.items import Run
from penstock.errors import PenstockError


class SimulationError(PenstockError):
    """The simulator contradicts itself: a defect of the simulator, never of the scenario."""


def conserved(where: str, came: float, left: float, inside: float, tolerance: float = 1e-6) -> None:
    """Items that came are items that left or are still inside.

    >>> conserved("stage 'a'", came=10, left=7, inside=3)
    >>> conserved("stage 'a'", came=10, left=7, inside=2)
    Traceback (most recent call last):
    ...
    penstock.engine.sim.checks.SimulationError: stage 'a': 10 items came, but 7 left and 2 are inside
    """
    if abs(came - left - inside) > tolerance * max(came, 1.0):
        raise SimulationError(f"{where}: {came:g} items came, but {left:g} left and {inside:g} are inside")


def little(where: str, area: float, sojourns: float, tolerance: float = 1e-6) -> None:
    """Little's law, exact form: the integral of the number inside equals the sum of the times spent inside.

    Divided by the length of the run it reads L = lambda W; as sums it holds for every run, not only on average.

    >>> little("stage 'a'", area=4.0, sojourns=4.0)
    """
    if abs(area - sojourns) > tolerance * max(area, sojourns, 1e-9):
        raise SimulationError(f"{where}: number inside integrates to {area:g}, times inside add up to {sojourns:g}")


def check_run(run: Run) -> None:
    """Check an item-level run, stage by stage.

    >>> from penstock.engine.sim.items import Stage, run_items
    >>> check_run(run_items((Stage("a"), Stage("b")), np.arange(50) * 0.001, seed=3))
    """
    for k, stage in enumerate(run.stages):
        where = f"stage '{stage.name}'"
        queued, finished = run.queued[k], run.finished[k]
        came, left = np.isfinite(queued), np.isfinite(finished)
        if np.any(left & ~came):
            raise SimulationError(f"{where}: an item left that never came")
        conserved(where, float(came.sum()), float(left.sum()), float((came & ~left).sum()))
        spent = np.where(left, finished, run.end_s)[came] - queued[came]
        little(where, float(run.area[k]), float(spent.sum()))
        order = (run.sent[k] <= queued) & (queued <= run.started[k]) & (run.started[k] <= finished)
        if not bool(np.all(order[left])):
            raise SimulationError(f"{where}: an item was handled before it came")
        if k and np.any(np.isfinite(run.sent[k]) & (run.sent[k] > finished_or_now(run, k - 1))):
            raise SimulationError(f"{where}: an item was sent on after its sender had finished with it")


def finished_or_now(run: Run, stage: int) -> np.ndarray:
    """When each item was done at a stage; items that are not done count as done at the end.

    >>> from penstock.engine.sim.items import Stage, run_items
    >>> finished_or_now(run_items((Stage("a", service_cv=0.0),), np.array([0.0]), seed=1), 0).tolist()
    [0.001]
    """
    return np.where(np.isfinite(run.finished[stage]), run.finished[stage], np.inf)
