"""Policies on a running job: ours with every technique on and off, and all that go by name. Results never change."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.policies import registry
from penstock.errors import PolicyError
from tests.engine.tools import RUNNING, expected_sums, run, running_sum, static, stream

TOTAL = 2000  # in batches of 500
SWITCHES = ("batching", "scaling", "routing", "chaining")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nothing, by two farms in a row: what can be chained."""
    return batch


def built(spark: SparkSession) -> ps.Flow:
    """Two farms, keyed state, and everything that can be required of them."""
    flow = ps.Flow("policies")
    read = flow.read(stream(spark, TOTAL), name="rows")
    farms = read.map(same, replicas=ps.elastic(1, 3), ordered=True, name="first")
    farms = farms.map(same, replicas=ps.elastic(1, 3), ordered=True, name="second")
    sums = farms.stateful(running_sum, name="sums", replicas=ps.elastic(1, 4), **RUNNING)
    sums.write("memory", name="out")
    return flow.require(ps.Latency(read, sums, mean="1 s"), ps.Throughput(sums, at_least=1000), ps.Cost(max_width=3))


def check(spark: SparkSession, folder: Path, policy: Any) -> Any:
    """Run the flow to its end; it is right, no decision failed, and the job is given back."""
    job = run(built(spark), spark, folder, policy=policy, interval="1 us")
    after, _ = expected_sums(static(spark, TOTAL).toArrow())
    found = job.memory("out").to_pylist()
    assert len(found) == TOTAL
    assert {row["i"]: row["so_far"] for row in found} == after
    assert job.host.controller.errors == 0
    return job


def test_every_combination_of_techniques_runs(spark: SparkSession, tmp_path: Path) -> None:
    for number, switched in enumerate(product((True, False), repeat=len(SWITCHES))):
        job = check(spark, tmp_path / str(number), ps.Adaptive(**dict(zip(SWITCHES, switched, strict=True))))
        if not any(switched):
            assert job.host.decision.chains == () and job.host.decision.routes == {}


def by_name() -> list[str]:
    """The policies that can be made by their name alone."""
    found = []
    for name in registry.names():
        try:
            registry.make(name)
        except PolicyError:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize("name", by_name())
def test_every_policy_that_goes_by_name_runs_a_job(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check(spark, tmp_path, name)
