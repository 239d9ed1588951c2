"""Batches are cut when windows end, however long their lifetime is; those that a latency counts on close at once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.decision import Decision
from penstock.control.observation import Observation
from penstock.engine.spark.controller import slide_s
from penstock.engine.spark.job import Job
from penstock.flow import operators as op
from penstock.observe.record import BatchRecord
from tests.engine.tools import rows, stream

RATE = 200


class AtEnds:
    """Batches that would last a minute, cut at the ends of windows."""

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        return replace(current, lifetime_s=60.0, at_ends=True)


def await_closings(job: Job, records: list[BatchRecord], batches: int, *, within_s: float) -> None:
    """Let a job run until so many batches closed windows, or time is up."""
    deadline = time.monotonic() + within_s
    while sum(record.rows_out > 0 for record in records) < batches and time.monotonic() < deadline:
        assert not job.await_end(0.1)


def test_windows_come_out_in_time_and_whole(spark: SparkSession, tmp_path: Path) -> None:
    """::

    event time  |----- 1 s -----|----- 1 s -----|
    batches                     A B             A B      A reads past the end, B closes
    """
    flow = ps.Flow("ends")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    bars = flow.read(source, time="scheduled").window(ps.Time("1 s"), name="bars").aggregate(n=ps.count())
    bars.write("memory", name="out")
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), AtEnds())
    try:
        job.on_batch(records.append)
        await_closings(job, records, 3, within_s=50.0)  # less than one lifetime
        found = job.memory("out")
    finally:
        job.stop()
    assert sum(record.rows_out > 0 for record in records) >= 3, "each but the first is cut before its time"
    assert all(record.decision["at_ends"] for record in records[1:])
    assert set(found.column("n").to_pylist()[1:]) == {RATE}, "the first window begins before the stream does"


class AtOnce:
    """Batches that follow each other at once, and at the ends of windows."""

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        return replace(current, lifetime_s=0.0, at_ends=True)


def test_batches_that_follow_at_once_wait_for_a_window_that_ends_before_they_would(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A batch at work when a window ends makes it wait, so none begins shortly before."""
    flow = ps.Flow("ends")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    bars = flow.read(source, time="scheduled").window(ps.Time("2 s"), name="bars").aggregate(n=ps.count())
    bars.write("memory", name="out")
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), AtOnce())
    try:
        job.on_batch(records.append)
        await_closings(job, records, 4, within_s=60.0)
        found = job.memory("out")
    finally:
        job.stop()
    closing = [n for n, record in enumerate(records) if record.rows_out > 0]
    assert len(closing) >= 4
    assert any(records[n - 2].parts.get("wait", 0.0) > 0.0 for n in closing), "it waited for an end"
    assert set(found.column("n").to_pylist()[1:]) == {2 * RATE}


def test_windows_that_no_latency_counts_on_cut_nothing(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("ends")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    read = flow.read(source, time="scheduled")
    often = read.window(ps.Time("200 ms"), name="often").aggregate(n=ps.count())
    often.write("memory", name="ticks")
    bars = read.window(ps.Time("2 s"), name="bars").aggregate(n=ps.count())
    bars.write("memory", name="out")
    flow.require(ps.Latency(read, bars, mean="5 s"))
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), AtEnds())
    try:
        job.on_batch(records.append)
        deadline = time.monotonic() + 50.0
        while sum(record.latency["out"].count > 0 for record in records) < 3 and time.monotonic() < deadline:
            assert not job.await_end(0.1)
    finally:
        job.stop()
    assert job.host.controller.awaited == {"bars"}
    closing = [n for n, record in enumerate(records) if record.latency["out"].count > 0]
    assert len(closing) >= 3, "each but the first is cut before its time"
    assert closing[2] - closing[1] == 1, "a batch a slide of `bars`, which it closes, however often `often` ends"


@pytest.mark.parametrize("width", [1, 2])
def test_windows_behind_windows_close_in_the_batch_whose_rows_complete_them(
    spark: SparkSession, tmp_path: Path, width: int
) -> None:
    """A row a millisecond, batches of 1500 of them::

    rows       |--- 1.499 ---|--- 2.999 ---|---- 4.499 ----|--- 5.999 ---|
    seconds     0..1          1..2          2..3, 3..4      4..5             each is closed by a row after its end
    pairs                                   0..2            2..4             ... and here by a second after it
    """
    flow = ps.Flow("twice")
    read = flow.read(stream(spark, 6000, per_batch=1500, keys=20), time="scheduled")
    seconds = read.window(ps.Time("1 s"), key="k", replicas=width, name="seconds").aggregate(n=ps.count())
    pairs = seconds.window(ps.Time("2 s"), key="k", replicas=width, name="pairs").aggregate(n=ps.sum("n"))
    seconds.write("memory", name="ones")
    pairs.write("memory", name="twos")
    flow.require(ps.Latency(read, pairs, mean="1 h"))
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), ps.Static(), available_now=True)
    job.on_batch(records.append)
    assert job.await_end(120)
    job.stop()
    assert [record.rows_out for record in records] == [20, 20, 60, 40]
    assert [sum(job.memory(name).column("n").to_pylist()) for name in ("ones", "twos")] == [5000, 4000]
    assert all(record.latency["ones"].count for record in records), "rows of the same batch say when it was complete"


def test_a_window_whose_rows_stay_away_does_not_hurry_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows come for a second and then no more, while the stream goes on: it is cut for once, not for ever."""
    flow = ps.Flow("rare")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    read = flow.read(source, time="scheduled")
    rare = read.filter(f"i < {RATE}").window(ps.Time("2 s"), name="rare").aggregate(n=ps.count())
    rare.write("memory", name="out")
    flow.require(ps.Latency(read, rare, mean="5 s"))
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), AtEnds())
    try:
        job.on_batch(records.append)
        assert not job.await_end(8.0)
    finally:
        job.stop()
    assert 2 <= len(records) <= 8, "batches of a minute, but for the first and some as the window should have ended"


def test_a_flush_and_a_requirement_do_not_wait_for_the_next_cut(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("long")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    read = flow.read(source, time="scheduled")
    read.window(ps.Time("1 h"), name="hours").aggregate(n=ps.count()).write("memory", name="out")
    job = flow.start(spark, str(tmp_path / "ckpt"), ps.Static(), lifetime=300.0)
    began = time.monotonic()
    try:
        while job.host.finished < 0 and time.monotonic() - began < 60.0:
            assert not job.await_end(0.05)
        job.require(ps.Cost(max_width=1))
        while job.host.finished < 1 and time.monotonic() - began < 120.0:
            assert not job.await_end(0.05)
        assert job.host.finished >= 1
    finally:
        job.stop(flush=True)
    assert time.monotonic() - began < 200.0, "less than a lifetime"
    assert sum(job.memory("out").column("n").to_pylist()) > 0


def test_only_windows_that_end_at_regular_times_have_such_ends(spark: SparkSession) -> None:
    flow = ps.Flow("ends")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    read = flow.read(source, time="scheduled")
    kinds = {
        "plain": ps.Time("4 s", slide="1 s"),
        "tuples": ps.Time("4 s", every=5),
        "first": ps.Time("4 s", origin="first"),
        "count": ps.Count(3),
    }
    for name, spec in kinds.items():
        read.window(spec, name=name).aggregate(n=ps.count())
    nodes = {name: flow.operators[name] for name in kinds}
    assert {n: slide_s(node) for n, node in nodes.items() if isinstance(node, op.Window)} == {
        "plain": 1.0, "tuples": None, "first": None, "count": None,
    }  # fmt: skip


def test_windows_without_such_ends_are_not_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("ends")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(RATE))
    read = flow.read(source, time="scheduled")
    bars = read.window(ps.Time("2 s"), name="bars").aggregate(n=ps.count())
    bars.write("memory", name="out")
    tuples = read.window(ps.Time("2 s", every=50), name="tuples").aggregate(n=ps.count())
    tuples.write("memory", name="each")
    flow.require(ps.Latency(read, bars, mean="5 s"), ps.Latency(read, tuples, mean="5 s"))
    job = flow.start(spark, str(tmp_path / "ckpt"))
    job.stop()
    assert job.host.controller.awaited == {"bars"}
