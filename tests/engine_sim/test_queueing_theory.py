"""The item-level simulator against queueing theory: waits of M/M/1, M/D/1 and M/G/1, Little's law, conservation."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.engine.sim.checks import check_run
from penstock.engine.sim.items import Stage, run_items
from penstock.engine.sim.lindley import departures

SERVICE_S = 0.01


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 1.5])
def test_the_mean_wait_is_pollaczeks_and_khinchines(cv: float, utilisation: float) -> None:
    """W = rho / (1 - rho) * (1 + cv^2) / 2 * s, for Poisson arrivals and any service time (cv 1: M/M/1, 0: M/D/1)."""
    waits = []
    for seed in range(3):
        born = np.cumsum(np.random.default_rng(1000 + seed).exponential(SERVICE_S / utilisation, 60_000))
        run = run_items((Stage("a", service_s=SERVICE_S, service_cv=cv),), born, seed=seed)
        check_run(run)
        waits.append(run.measured(0).wait_s)
    theory = utilisation / (1 - utilisation) * (1 + cv * cv) / 2 * SERVICE_S
    assert np.mean(waits) == pytest.approx(theory, rel=0.05)


def test_the_same_seed_gives_the_same_run() -> None:
    born = np.cumsum(np.random.default_rng(1).exponential(0.01, 500))
    one, two, other = (run_items((Stage("a"), Stage("b")), born, seed=seed) for seed in (5, 5, 6))
    assert one.latencies().tolist() == two.latencies().tolist() != other.latencies().tolist()


def test_bounded_queues_hold_senders_back_and_lose_nothing() -> None:
    """Thesis 001, section 4.6: the sender's service time grows once the receiver's queue is full."""
    born = np.arange(400) * 0.005
    free = run_items((Stage("a", service_s=0.001), Stage("b", service_s=0.01)), born, seed=1)
    full = run_items((Stage("a", service_s=0.001), Stage("b", service_s=0.01, queue=4)), born, seed=1)
    for run in (free, full):
        check_run(run)
        assert len(run.latencies()) == 400
    assert full.measured(0).service_s > 3 * free.measured(0).service_s


def test_lindleys_recursion_is_the_loop_it_stands_for() -> None:
    random = np.random.default_rng(3)
    counts = random.integers(0, 30, 20)
    arrive = np.concatenate([np.sort(random.uniform(0, 10, n)) for n in counts])
    service, free = random.exponential(0.5, len(arrive)), random.uniform(0, 3, 20)
    expected, at = [], 0
    for server, n in enumerate(counts):
        done = free[server]
        for i in range(at, at + n):
            done = max(arrive[i], done) + service[i]
            expected.append(done)
        at += n
    assert departures(arrive, service, counts, free) == pytest.approx(expected)
