"""The batch protocol: one job per Python step, attempt-unique files, manifests, retention, refusals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark.ledger import Ledger
from penstock.engine.spark.stages import cut
from tests.engine.test_farm import note, notes
from tests.engine.tools import RUNNING, Changing, expected_sums, parquet, run, running_sum, static, stream


def test_a_python_step_with_three_sinks_is_called_once_per_batch(spark: SparkSession, tmp_path: Path) -> None:
    calls, seen = tmp_path / "calls", []
    calls.mkdir()

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        note(str(calls), {"first": batch.column("i")[0].as_py()})
        return batch

    def summed(rows: pa.RecordBatch, state: ps.KeyedState) -> tuple[pa.RecordBatch, ps.KeyedState]:
        note(str(calls), {"stateful": rows.num_rows})
        return running_sum(rows, state)

    flow = ps.Flow("three")
    mapped = flow.read(stream(spark, 1500, per_batch=500)).map(counted, name="counted")
    sums = mapped.stateful(summed, name="summed", replicas=1, **RUNNING)
    mapped.write("memory", name="m")
    mapped.write("function", fn=lambda table, batch: seen.append((batch, table.num_rows)), name="f")
    mapped.write("parquet", path=str(tmp_path / "p"), name="p")
    sums.write("memory", name="s")
    sums.write("json", path=str(tmp_path / "j"), name="j")
    job = run(flow, spark, tmp_path)
    made = notes(calls)
    assert Counter(n["first"] for n in made if "first" in n) == Counter([0, 500, 1000])
    assert [n["stateful"] for n in made if "stateful" in n] == [500, 500, 500]
    assert seen == [(0, 500), (1, 500), (2, 500)]
    assert job.memory("m").num_rows == job.memory("s").num_rows == parquet(tmp_path / "p").num_rows == 1500
    assert spark.read.json(str(tmp_path / "j")).count() == 1500


def test_plan_has_one_job_per_stateful_operator_and_streams_where_it_can(spark: SparkSession) -> None:
    flow = ps.Flow("plan")
    read = flow.read(stream(spark), time="scheduled")
    farm = read.map(lambda b: b, name="a").map(lambda b: b, replicas=2, name="b").map(lambda b: b, name="c")
    farm.stateful(running_sum, name="d", **RUNNING).write("memory", name="out")
    plan = cut(flow)
    assert [[stage.name for stage in job.stages] for job in plan.jobs] == [["stage0", "b", "d"]]
    assert [step.name for step in plan.jobs[0].stages[1].steps] == ["c"]
    farm.write("memory", name="also")  # now c has two readers: it is tapped, and the state has a job of its own
    assert [[stage.name for stage in job.stages] for job in cut(flow).jobs] == [["stage0", "b"], ["d"]]


def test_union_split_sql_and_several_reads(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("shapes")
    left, right = (
        flow.read(stream(spark, 1000, per_batch=400), name="left"),
        flow.read(stream(spark, 600, per_batch=400), name="right"),
    )
    low, high = left.split(lambda b: b.column("i").to_numpy() < 300, rest=True, name="parts")
    both = high.union(right, name="both")
    doubled = both.sql(lambda d: d.selectExpr("i * 2 as i", "k"), name="doubled")
    odd = doubled.flat_map(lambda b: [b, b], name="twice").filter("i > 1000", name="tail")
    low.write("memory", name="low")
    odd.write("memory", name="odd")
    job = run(flow, spark, tmp_path)
    assert sorted(job.memory("low").column("i").to_pylist()) == list(range(300))
    wanted = [2 * i for i in [*range(300, 1000), *range(600)] if 2 * i > 1000 for _ in (0, 1)]
    assert Counter(job.memory("odd").column("i").to_pylist()) == Counter(wanted)


def test_few_rows_of_a_tap_with_several_files_are_read_once_each(spark: SparkSession, tmp_path: Path) -> None:
    """Three replicas write three files; what reads them back runs as one task, and misses or doubles none."""
    flow = ps.Flow("taps")
    farm = flow.read(stream(spark, 1500), time="scheduled").map(lambda b: b, replicas=3, chunk=64, name="farm")
    farm.stateful(running_sum, replicas=1, name="sums", **RUNNING).write("memory", name="s")
    farm.write("json", path=str(tmp_path / "j"), name="j")
    windows = farm.window(ps.Time("100 ms"), name="win").aggregate(n=ps.count())
    windows.sql(lambda d: d.selectExpr("n"), name="counts").write("memory", name="w")
    job = run(flow, spark, tmp_path)
    after, _ = expected_sums(static(spark, 1500).toArrow())
    assert {row["i"]: row["so_far"] for row in job.memory("s").to_pylist()} == after
    assert job.memory("s").num_rows == 1500
    assert sorted(row["i"] for row in spark.read.json(str(tmp_path / "j")).collect()) == list(range(1500))
    # 100 rows a window of 100 ms; batches of 500 rows, and the last batch's watermark closes what came before it.
    assert job.memory("w").column("n").to_pylist() == [100] * 9


def test_files_are_kept_as_long_as_a_manifest_names_them(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "3")
    try:
        flow = ps.Flow("kept")
        read = flow.read(stream(spark, 4000, per_batch=250, keys=50))
        read.stateful(running_sum, name="sums", **RUNNING).write("parquet", path=str(tmp_path / "out"), name="out")
        job = run(flow, spark, tmp_path, policy=Changing((1, 2)))
    finally:
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "20")
    ledger = Ledger(str(tmp_path / "ckpt"))
    manifests = sorted(int(name) for name in ledger.folder.names("manifests"))
    assert manifests[-1] == 15 and manifests[0] >= 12
    for number in manifests:
        manifest = ledger.manifest(number)
        assert manifest is not None
        named = [s["file"] for segments in manifest["state"].values() for s in segments]
        named += [entry["file"] for entries in manifest["outputs"].values() for entry in entries]
        for file in named:
            assert Path(ledger.folder.at(file)).exists(), f"manifest {number} names {file}"
    chain = ledger.manifest(15)["state"]["sums"]  # type: ignore[index]
    assert len(chain) < 8, "segments are merged"
    _, state = expected_sums(static(spark, 4000, keys=50).toArrow())
    assert {row["k"]: (row["total"], row["n"]) for row in job.state("sums").to_pylist()} == state


def test_a_changed_flow_is_refused_on_an_old_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    def build(key_count_column: str) -> ps.Flow:
        flow = ps.Flow("changed")
        read = flow.read(stream(spark, 500))
        options = {**RUNNING, "state_schema": f"total double, {key_count_column} bigint"}
        read.stateful(running_sum, name="sums", **options).write("memory", name="out")
        return flow

    run(build("n"), spark, tmp_path)
    with pytest.raises(ps.CheckpointError, match="(?s)belongs to another flow.*Remedy"):
        build("m").start(spark, str(tmp_path / "ckpt"))


def test_a_damaged_state_file_is_found(spark: SparkSession, tmp_path: Path) -> None:
    def build(total: int) -> ps.Flow:
        flow = ps.Flow("damaged")
        read = flow.read(stream(spark, total, per_batch=250))
        read.stateful(running_sum, name="sums", **RUNNING).write("memory", name="out")
        return flow

    run(build(1000), spark, tmp_path)
    ledger = Ledger(str(tmp_path / "ckpt"))
    newest = ledger.newest()
    assert newest is not None
    manifest = ledger.manifest(newest)
    assert manifest is not None
    victim = Path(ledger.folder.at(manifest["state"]["sums"][-1]["file"]))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(bytes(content))
    job = build(2000).start(spark, str(tmp_path / "ckpt"), available_now=True, restarts=0)
    with pytest.raises(ps.PenstockError, match="checksum does not match its manifest"):
        job.await_end(60)
    job.stop()


def test_a_missing_manifest_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("missing")
    flow.read(stream(spark, 1000, per_batch=250)).write("memory", name="out")
    first = flow.start(spark, str(tmp_path / "ckpt"), lifetime=0.2)
    while first.host.finished < 1:
        assert not first.await_end(0.05)
    first.stop()
    ledger = Ledger(str(tmp_path / "ckpt"))
    for name in ledger.folder.names("manifests"):
        ledger.folder.delete(f"manifests/{name}")
    job = flow.start(spark, str(tmp_path / "ckpt"), available_now=True)
    with pytest.raises(ps.CheckpointError, match="Spark runs batch .* but manifest .* is missing"):
        job.await_end(60)
    job.stop()


def test_manifest_documents_are_whole_or_refused(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    ledger.finish(0, {"id": 0, "state": {}, "windows": {}, "outputs": {}})
    path = Path(ledger.folder.at("manifests/00000000"))
    path.write_text(path.read_text().replace('"id":0', '"id":1'))
    with pytest.raises(ps.CheckpointError, match="damaged"):
        ledger.manifest(0)
    assert json.loads(path.read_text().splitlines()[1])["id"] == 1
