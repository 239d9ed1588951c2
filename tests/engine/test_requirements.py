"""What is required of a flow reaches the policy of a live job, and what it decides takes effect at the next batch."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.errors import FlowError, PolicyError
from penstock.observe.observer import ROWS
from penstock.observe.record import BatchRecord
from tests.engine.tools import RUNNING, expected_sums, parquet, rows, running_sum, static, stream


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A stage that waits: 0.5 ms a row."""
    time.sleep(0.0005 * batch.num_rows)
    return batch


class Watching:
    """Keeps what it is shown, and changes nothing."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        assert observed is not None
        self.seen.append(observed)
        return current


def live(spark: SparkSession, per_second: float, **farm: Any) -> tuple[ps.Flow, Any, Any]:
    """A farm behind a live replay."""
    flow = ps.Flow("live")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(per_second))
    read = flow.read(source, name="quotes")
    farm_stream = read.map(slow, name="farm", chunk=32, replicas=ps.elastic(1, 4), **farm)
    farm_stream.write("memory", name="out")
    return flow, read, farm_stream


def until(job: Any, records: list[BatchRecord], enough: int, patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while len(records) < enough and time.monotonic() < end:
        assert not job.await_end(0.05)
    assert len(records) >= enough


def test_a_policy_sees_rates_costs_and_latency(spark: SparkSession, tmp_path: Path) -> None:
    flow, read, farm = live(spark, 400)
    flow.require(
        ps.Latency(read, farm, mean="2 s", over="1 s"), ps.Throughput(farm, at_least=100), ps.Cost(max_width=3)
    )
    policy, records = Watching(), list[BatchRecord]()
    job = flow.start(spark, str(tmp_path / "ckpt"), policy, lifetime=0.4)
    try:
        job.on_batch(records.append)
        until(job, records, 6)
    finally:
        job.stop()
    seen = [observed for observed in policy.seen if ROWS in observed.operators][2:]
    assert seen
    for observed in seen:
        view = observed.operators["farm"]
        assert observed.micro_batch
        assert observed.parallelism == spark.sparkContext.defaultParallelism
        assert (view.lo, view.hi) == (1, 3), "no wider than the cost allows"
        assert view.service_s == pytest.approx(0.0005, rel=1.0)
        assert observed.target_per_s == {"farm": 100.0}
        assert observed.bounds[0].name == "quotes->farm"
        assert observed.bounds[0].operators == (ROWS, "farm")
    measured = [observed.latency["quotes->farm"] for observed in seen if "quotes->farm" in observed.latency]
    assert measured
    assert all(0.0 < mean <= p95 <= p99 <= most for mean, p95, p99, most in measured)
    total = sum(observed.operators[ROWS].arrivals_per_s for observed in seen) / len(seen)
    assert total == pytest.approx(400, rel=0.2)


def test_the_default_policy_keeps_what_is_required_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    """A generous bound lets batches live long; a load that one task cannot serve makes the farm wider."""
    flow, read, farm = live(spark, 2500)
    flow.require(ps.Latency(read, farm, mean="2 s", over="2 s"))
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"))
    try:
        job.on_batch(records.append)
        end = time.monotonic() + 60.0

        def is_wider() -> bool:  # in a batch that something was expected of: a cold one tries two tasks
            return any(r.decision["widths"]["farm"] > 1 and r.control.get("outcome") for r in list(records))

        while time.monotonic() < end and not is_wider():
            assert not job.await_end(0.05)
        assert is_wider()
        job.require(ps.Cost(max_width=1))
        before = len(records)
        until(job, records, before + 3)
        assert records[-1].decision["widths"]["farm"] == 1, "a requirement changes on the live job"
        assert not all(r.control.get("outcome") for r in records[before:]), "one batch was not cut as it was planned"
    finally:
        job.stop()
    reasons = [record.control["reason"] for record in records if "reason" in record.control]
    assert any("farm 1 -> " in reason for reason in reasons)
    assert any("verdict" in record.control for record in records)
    assert any(record.control.get("outcome") for record in records), "predictions are held against what happened"


def test_a_bound_that_cannot_be_kept_is_said_and_the_job_runs_as_fast_as_it_can(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow, read, farm = live(spark, 300)
    flow.require(ps.Latency(read, farm, mean="1 ms", over="2 s"))
    records: list[BatchRecord] = []

    def until_said(text: str) -> None:
        end = time.monotonic() + 60.0
        while text not in caplog.text and time.monotonic() < end:
            assert not job.await_end(0.05)
        assert text in caplog.text

    with caplog.at_level(logging.WARNING, logger="penstock"):
        job = flow.start(spark, str(tmp_path / "ckpt"))
        try:
            job.on_batch(records.append)
            until_said("flow 'live': a mean of 1 ms is not feasible: the least here is ")
            promise = job.report().promises[0]
            job.require(ps.Latency(read, farm, mean="1 s", over="2 s"))
            until(job, records, len(records) + 3)
        finally:
            job.stop()
    assert promise.feasible is False
    assert promise.least_ms is not None and promise.least_ms > 1.0
    assert promise.advice
    tight = [r for r in records if any(b["mean_s"] == 0.001 for b in r.control.get("bounds", []))]
    assert {record.decision["lifetime_s"] for record in tight} == {0.0}
    assert caplog.text.count("is not feasible") == 1, "once"
    assert records[-1].control["verdict"]["feasible"]
    seen = job.memory("out").column("i").to_pylist()
    assert seen == list(range(len(seen))), "each row once, in order"


class Failing:
    """Decides once, and then does what a policy must not do."""

    def __init__(self) -> None:
        self.calls = 0

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        self.calls += 1
        if self.calls == 1:
            return replace(current, widths={"sums": 3})
        if self.calls == 2:
            raise ValueError("a policy with a bug")
        if self.calls == 3:
            return None  # type: ignore[return-value]
        if self.calls == 4:
            return replace(current, widths={"sums": 1}, lifetime_s=float("nan"))
        return replace(current, routes={"sums": (99,)})  # no such task, and not as many groups


def test_of_a_policy_that_fails_the_last_decision_stays_and_it_is_said(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    total = 3000
    flow = ps.Flow("raising")
    read = flow.read(stream(spark, total))
    sums = read.stateful(running_sum, name="sums", replicas=ps.elastic(1, 4), **RUNNING)
    sums.write("parquet", path=str(tmp_path / "out"), name="out")
    flow.require(ps.Latency(read, sums, mean="1 s"))
    records: list[BatchRecord] = []
    with caplog.at_level(logging.WARNING, logger="penstock"):
        job = flow.start(spark, str(tmp_path / "ckpt"), Failing(), available_now=True)
        job.on_batch(records.append)
        try:
            assert job.await_end(60)
        finally:
            job.stop()
    assert [record.decision["widths"]["sums"] for record in records] == [1, 3, 3, 3, 3, 3]
    assert ["error" in record.control for record in records] == [False, True, True, True, False, False]
    assert "a policy with a bug" in records[1].control["error"]
    assert "lifetime_s" in records[3].control["error"]
    assert job.host.controller.errors == 3
    assert "policy Failing raised; the last decision stays: ValueError: a policy with a bug" in caplog.text
    report = job.report()
    assert report.policy_errors == 3
    assert "the policy raised 3 times; the last decision stayed" in str(report)
    after, _ = expected_sums(static(spark, total).toArrow())
    written = parquet(tmp_path / "out").to_pylist()
    assert len(written) == total
    assert {row["i"]: row["so_far"] for row in written} == after


def test_policies_go_by_name_and_decide_every_interval(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("named")
    read = flow.read(stream(spark, 1000))
    farm = read.map(slow, name="farm", replicas=ps.elastic(1, 4))
    farm.write("memory", name="out")
    flow.require(ps.Latency(read, farm, p95="1 s", over="2 s"))
    job = flow.start(spark, str(tmp_path / "ckpt"), "utilisation", available_now=True)
    try:
        assert job.await_end(60)
    finally:
        job.stop()
    assert job.host.controller.interval_s == 2.0
    assert sorted(job.memory("out").column("i").to_pylist()) == list(range(1000))


def test_a_policy_that_cannot_work_on_a_bound_does_not_start(spark: SparkSession, tmp_path: Path) -> None:
    flow, read, farm = live(spark, 10)
    flow.require(ps.Latency(read, farm, p95="1 s"))
    for policy in ("elastic", "nephele", "batching"):
        with pytest.raises(PolicyError, match="'quotes->farm': thesis 001 bounds the mean.* Remedy: add mean="):
            flow.start(spark, str(tmp_path / policy), policy)
    flow, read, farm = live(spark, 200)
    flow.require(ps.Latency(read, farm, mean="1 s"))
    job = flow.start(spark, str(tmp_path / "live"), "elastic")
    try:
        with pytest.raises(PolicyError, match="thesis 001 bounds the mean"):
            job.require(ps.Latency(read, farm, p95="1 s"))
        assert [bound.mean_s for bound in job.host.controller.bounds] == [1.0], "what was required before still is"
    finally:
        job.stop()


def test_requirements_that_do_not_fit_the_flow_are_refused(spark: SparkSession) -> None:
    flow, read, farm = live(spark, 10)
    _, other_read, _ = live(spark, 10)
    with pytest.raises(FlowError, match="'quotes' is a stream of another flow"):
        flow.require(ps.Latency(other_read, farm, mean="1 s"))
    with pytest.raises(FlowError, match="no path leads from 'farm' to 'quotes'"):
        flow.require(ps.Latency(farm, read, mean="1 s"))
    with pytest.raises(FlowError, match="nothing behind 'lonely' is written"):
        flow.require(ps.Latency(read, read.map(slow, name="lonely"), mean="1 s"))
    with pytest.raises(FlowError, match="it can require a Latency, a Throughput or a Cost, got str"):
        flow.require("fast")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="mean must be more than zero"):
        ps.Latency(read, farm, mean="0 s")
    for rate in (0, -1, float("nan"), "many"):
        with pytest.raises(FlowError, match="at_least must be a rate above 0"):
            ps.Throughput(farm, at_least=rate)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="max_width must be a whole number"):
        ps.Cost(max_width=0)
    flow.require(ps.Latency(read, farm, mean="1 s")).require(ps.Latency(read, farm, mean="2 s"))
    assert [requirement.mean_s for requirement in flow.requirements] == [2.0], "the later replaces the earlier"  # type: ignore[union-attr]
