"""`explain()` before the start: feasible or not, from an earlier run's telemetry or from a calibration."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.histogram import LogHistogram
from penstock.control.models.batch_service import BatchService, launches
from penstock.engine.spark import explained
from penstock.engine.spark.calibration import calibrate, check_harmless, sources_of, stand_in
from penstock.engine.spark.verdict import Verdict, judged, newest_run, verdict
from penstock.errors import CheckpointError, FlowError, UserFunctionError
from penstock.observe.load_limit import highest_rate, least_cycle
from penstock.observe.record import BatchRecord, OperatorStats
from tests.engine.tools import RATE, rows

SLOTS = 4
TASK_S = 0.006  # what a task costs a batch


def work(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def build(spark: SparkSession, *, rate: float = RATE, hi: int = 4, fn: Any = work, **sink: Any) -> Any:
    """Quotes through a farm; the flow and its two streams."""
    flow = ps.Flow("judged")
    source = ps.sources.replay(spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(rate))
    quotes = flow.read(source, name="quotes")
    farm = quotes.map(fn, name="farm", replicas=ps.elastic(1, hi), chunk=64)
    farm.write(**({"format": "memory", "name": "out"} | sink))
    return flow, quotes, farm


def run_of(
    rates: Sequence[float], *, fixed_s: float, row_s: float, width: int, lifetime_s: float, run: str = "a"
) -> list[BatchRecord]:
    """Batches of a host that does what the model says: C = max(L, w), w = F + t launches(p) + rows x cost / p."""
    found, at, due = [], 1000.0, 0
    for number, rate in enumerate(rates):
        model = BatchService(fixed_s + TASK_S * launches(width), row_s, rate, width)
        cycle, took = model.cycle_s(lifetime_s), model.work_s(lifetime_s)
        count = round(rate * cycle)
        due += count
        farm = OperatorStats(
            "farm", "map", width=width, tasks=width, rows_in=count, rows_out=count, busy_s=count * row_s,
            busy_max_s=count * row_s / width, stage="farm",
        )  # fmt: skip
        record = BatchRecord(
            number, run=run, started=at, visible=at + took, rows_in=count, rows_out=count, due=due, backlog=0,
            parts={"spark": 0.25 * took, "run": 0.75 * took, "wait": cycle - took}, operators=(farm,),
            latency={"out": LogHistogram.of(np.linspace(took, took + cycle, 101))}, latency_from="arrival",
            decision={"widths": {"farm": width}, "lifetime_s": lifetime_s},
        )  # fmt: skip
        found.append(record)
        at += cycle
    return found


def judge(spark: SparkSession, records: list[BatchRecord], *, hi: int = 4, **limits: str) -> Verdict:
    flow, quotes, farm = build(spark, hi=hi)
    flow.require(ps.Latency(quotes, farm, over="2 s", **limits))
    return verdict(flow, records, SLOTS, "a run")


@pytest.mark.parametrize("row_s", [0.00001, 0.0004, 0.0016])
@pytest.mark.parametrize("width", [1, 3])
def test_the_least_is_that_of_the_model_and_what_is_below_it_is_not_feasible(
    spark: SparkSession, row_s: float, width: int
) -> None:
    """The truth: the least mean over all widths, 1.5 (F + t launches(p)) / (1 - rho)."""
    rate = 500.0
    records = run_of([rate] * 30, fixed_s=0.2, row_s=row_s, width=width, lifetime_s=1.0)
    truth = min(BatchService(0.2 + TASK_S * launches(p), row_s, rate, p).least_mean_s for p in range(1, SLOTS + 1))
    easy = judge(spark, records, mean=f"{2500 * truth:.0f} ms")
    assert easy.feasible
    assert easy.promises[0].least_ms == pytest.approx(1e3 * truth, rel=0.2)
    assert f"is feasible here at {rate:,.0f} rows/s" in str(easy)
    assert truth <= easy.expected_ms["mean"] / 1e3 <= 2.5 * truth, "between the least and the bound"
    hard = judge(spark, records, mean=f"{600 * truth:.0f} ms")
    assert hard.feasible is False
    assert re.search(r"NOT FEASIBLE here \(least \d+ ms\)", str(hard))
    assert "would help" in str(hard)


def test_the_operator_that_takes_the_budget_is_named(spark: SparkSession) -> None:
    records = run_of([500.0] * 30, fixed_s=0.05, row_s=0.0016, width=1, lifetime_s=1.0)
    found = judge(spark, records, hi=1, mean="200 ms")
    assert found.feasible is False
    assert max(found.promises[0].parts_ms.items(), key=lambda part: part[1] * (part[0] != "wait"))[0] == "farm"
    assert "most of it is operator 'farm': more replicas or cores, or a faster function, would help" in str(found)


def test_predictions_are_of_the_batches_as_they_were_cut(spark: SparkSession) -> None:
    """The run keeps to the model, so the model's predictions of it are right, whatever the plan would have been."""
    records = run_of([500.0] * 30, fixed_s=0.2, row_s=0.0004, width=2, lifetime_s=1.2)
    (promise,) = judge(spark, records, mean="5 s").promises
    assert promise.predicted_off_by is not None
    assert promise.predicted_off_by < 0.05
    assert promise.measured_ms == pytest.approx(
        1e3 * BatchService(0.2 + TASK_S * launches(2), 0.0004, 500.0, 2).mean_s(1.2), rel=0.02
    )
    assert promise.kept == 1.0


def test_a_cold_start_is_learnt_from_and_not_counted(spark: SparkSession) -> None:
    cold = run_of([500.0] * 4, fixed_s=2.0, row_s=0.0004, width=2, lifetime_s=0.0)
    warm = run_of([500.0] * 16, fixed_s=0.2, row_s=0.0004, width=2, lifetime_s=0.0)
    shift_s, rows_before = cold[-1].visible - warm[0].started, cold[-1].due or 0
    later = [
        replace(r, batch=r.batch + 4, started=r.started + shift_s, visible=r.visible + shift_s, due=r.due + rows_before)
        for r in warm
        if r.due is not None
    ]
    flow, quotes, farm = build(spark)
    flow.require(ps.Latency(quotes, farm, mean="1 s", over="1 s"))
    counted = verdict(flow, [*cold, *later], SLOTS, "a run", cold=4).promises[0]
    assert counted.kept == 1.0
    assert verdict(flow, [*cold, *later], SLOTS, "a run").promises[0].kept < 1.0  # type: ignore[operator]


def test_a_load_that_changes_is_judged_at_its_heaviest(spark: SparkSession) -> None:
    steps = [100.0] * 15 + [1500.0] * 20 + [100.0] * 20
    records = run_of(steps, fixed_s=0.2, row_s=0.001, width=4, lifetime_s=0.0)
    found = judge(spark, records, mean="500 ms")
    assert found.rate_per_s == pytest.approx(1500, rel=0.1)
    assert found.feasible is False, "230 ms of fixed cost, busy for 0.375 of the time: 552 ms"
    assert judge(spark, [r for r in records if r.batch < 15], mean="500 ms").feasible


@pytest.mark.parametrize(("row_s", "bound_s"), [(0.0004, 0.9), (0.002, 2.0), (0.001, 0.5), (0.001, 0.3)])
@pytest.mark.parametrize("task_s", [0.0, 0.025])
def test_up_to_what_load_it_is_feasible(row_s: float, bound_s: float, task_s: float) -> None:
    """Against a search over all rates and widths with the model itself."""
    rate, fixed_s = 400.0, 0.2
    view = {"width": 1, "lo": 1, "hi": 8, "arrivals_per_s": rate, "service_us": row_s * 1e6, "skew": 1.0}
    inputs = {"rate_per_s": rate, "fixed_ms": 1e3 * fixed_s, "row_us": 0.0, "task_ms": 1e3 * task_s,
              "operators": {"farm": view}}  # fmt: skip

    def least(rate: float) -> float:
        models = [BatchService(fixed_s + launches(p) * task_s, row_s, rate, p) for p in range(1, SLOTS + 1)]
        return min((model.least_mean_s for model in models if model.utilisation <= 0.85), default=math.inf)

    found = highest_rate(inputs, {"least_s": least(rate), "bound_s": bound_s}, SLOTS)
    truth = max((r for r in range(10 * int(rate) + 1) if least(float(r)) <= bound_s), default=0)
    assert found == pytest.approx(truth, rel=0.01, abs=1.0)


def test_two_operators_are_widened_where_it_saves_the_most() -> None:
    views = {
        "cheap": {"width": 2, "lo": 1, "hi": 4, "arrivals_per_s": 500.0, "service_us": 100.0, "skew": 1.0},
        "dear": {"width": 3, "lo": 1, "hi": 4, "arrivals_per_s": 1000.0, "service_us": 1500.0, "skew": 1.5},
    }
    inputs = {"rate_per_s": 1000.0, "fixed_ms": 100.0, "row_us": 5.0, "task_ms": 20.0, "operators": views}
    every = []
    for cheap in range(1, 5):
        for dear in range(1, 5):
            row_s = 5e-6 + 0.5 * 1e-4 / cheap + 1.5e-3 * (1.0 + 0.25 * (dear - 1)) / dear
            if 600.0 * row_s <= 0.85:
                every.append((0.1 + 0.02 * (launches(cheap) + launches(dear))) / (1.0 - 600.0 * row_s))
    assert least_cycle(inputs, 600.0, SLOTS) == pytest.approx(min(every))
    assert least_cycle(inputs, 5000.0, SLOTS) == math.inf


def test_an_overload_is_said_with_what_could_be_served(spark: SparkSession) -> None:
    """2 ms a row, four tasks at most: 1700 rows/s at 85 %; what comes is 3000."""
    slow_run = run_of([1200.0] * 20, fixed_s=0.2, row_s=0.002, width=4, lifetime_s=1.0)
    falling_behind = [replace(r, due=2.5 * (r.due or 0), backlog=1.5 * (r.due or 0)) for r in slow_run]  # type: ignore[arg-type]
    found = judge(spark, falling_behind, mean="5 s")
    assert found.feasible is False
    assert found.promises[0].least_ms is None
    served = re.search(r"keep up with at most ([\d,]+) rows/s", str(found))
    assert served
    assert int(served[1].replace(",", "")) == pytest.approx(1700, rel=0.1)
    assert "allow more replicas, or make them faster" in str(found)


def test_a_bound_below_the_fixed_cost_is_feasible_at_no_load(spark: SparkSession) -> None:
    records = run_of([500.0] * 30, fixed_s=0.4, row_s=0.0001, width=1, lifetime_s=1.0)
    assert "not feasible at any load" in str(judge(spark, records, mean="300 ms"))
    served = judge(spark, records, mean="3 s")
    assert "times this load, and perhaps beyond" in str(served)


def test_the_newest_run_that_is_long_enough_counts(spark: SparkSession) -> None:
    long = run_of([500.0] * 20, fixed_s=0.2, row_s=0.0001, width=1, lifetime_s=1.0)
    short = run_of([500.0] * 3, fixed_s=0.9, row_s=0.0001, width=1, lifetime_s=1.0, run="b")
    assert newest_run([*long, *short]) == long
    assert newest_run(short) == short
    few = judge(spark, short, mean="2 s")
    assert few.feasible is None
    assert "no verdict: 3 batches had rows, and 8 are needed: let it run longer" in str(few)


def test_what_cannot_be_judged_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow, quotes, farm = build(spark)
    with pytest.raises(FlowError, match="no latency is required of it"):
        flow.explain(checkpoint=tmp_path)
    with pytest.raises(FlowError, match="no latency is required of it"):
        flow.explain(calibrate="1 s")
    flow.require(ps.Latency(quotes, farm, mean="2 s"))
    with pytest.raises(FlowError, match="is not the checkpoint of a job"):
        flow.explain(checkpoint=tmp_path)
    assert not list(tmp_path.iterdir()), "asking makes no folders"
    with pytest.raises(FlowError, match="not by both"):
        flow.explain(checkpoint=tmp_path, calibrate="1 s")
    with pytest.raises(FlowError, match="goes with the text"):
        flow.explain("mermaid", calibrate="1 s")
    with pytest.raises(FlowError, match="calibrate"):
        flow.explain(calibrate="soon")


# -- live ----------------------------------------------------------------------------------------------------------


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(0.0002 * batch.num_rows)
    return batch


def test_an_earlier_run_that_required_nothing_tells_whether_a_bound_is_feasible(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, _, _ = build(spark, fn=slow)
    records: list[BatchRecord] = []
    job = flow.start(spark, str(tmp_path / "ckpt"), lifetime=0.2)
    job.on_batch(records.append)
    end = time.monotonic() + 60
    while len(records) < 10 and time.monotonic() < end:
        assert not job.await_end(0.05)
    job.stop()

    flow, quotes, farm = build(spark, fn=slow)
    flow.require(ps.Latency(quotes, farm, mean="30 s", over="1 s"))
    easy = explained.from_checkpoint(flow, tmp_path / "ckpt")
    assert easy.feasible
    (promise,) = easy.promises
    assert promise.least_ms is not None
    assert promise.measured_ms is not None
    assert 0.0 < promise.least_ms < 2.0 * promise.measured_ms
    assert {"wait", "fixed", "farm"} <= set(promise.parts_ms)
    text = flow.explain(checkpoint=tmp_path / "ckpt")
    assert text.startswith(flow.explain())
    assert "what is required is feasible here at" in text
    assert "a batch's time, measured: run" in text
    flow.require(ps.Latency(quotes, farm, mean="10 ms", over="1 s"))
    assert "NOT FEASIBLE" in flow.explain(checkpoint=tmp_path / "ckpt")

    other = ps.Flow("judged")
    read = other.read(flow.reads[0].frame, name="quotes")
    kept = read.filter("v > 5", name="kept")
    kept.write("memory", name="out")
    other.require(ps.Latency(read, kept, mean="1 s"))
    with pytest.raises(CheckpointError, match="belongs to another flow"):
        other.explain(checkpoint=tmp_path / "ckpt")


def test_a_calibration_judges_and_leaves_no_trace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    called: list[int] = []
    flow, quotes, farm = build(spark, fn=slow, format="parquet", path=str(tmp_path / "out"), name="files")
    farm.write("function", fn=lambda table, batch: called.append(batch), name="alerts")
    flow.require(ps.Latency(quotes, farm, mean="30 s", over="1 s"))
    frame, drawn = flow.reads[0].frame, flow.explain()
    records: list[BatchRecord] = []
    monkeypatch.setattr(explained, "run_calibration", lambda *a, **k: records.extend(calibrate(*a, **k)) or records)
    found = explained.from_calibration(flow, "3 s")
    assert found.feasible
    assert found.rate_per_s == pytest.approx(RATE, rel=0.3)
    assert "a calibration of 3 s, its sinks not written" in str(found)
    assert called == []
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "temporary").iterdir())
    assert flow.reads[0].frame is frame
    assert flow.explain() == drawn
    # The run had a policy of its own, whose notes are in its records: looked at afterwards they come out the same.
    told = judged(flow, records, spark.sparkContext.defaultParallelism)
    live = [record.control.get("verdict") for record in records]
    again = [record.control.get("verdict") for record in told]
    pairs = [(a["least_s"], b["least_s"]) for a, b in zip(live, again, strict=True) if a and b]
    assert len(pairs) > 5
    assert np.median([abs(second / first - 1.0) for first, second in pairs]) < 0.15


def test_a_function_that_fails_in_a_calibration_is_said(spark: SparkSession) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no such model")

    flow, quotes, farm = build(spark, fn=fail)
    flow.require(ps.Latency(quotes, farm, mean="30 s"))
    with pytest.raises(UserFunctionError, match="no such model"):
        flow.explain(calibrate="1 s")


def test_only_sources_that_can_be_read_twice_are_calibrated(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def of(frame: Any) -> Any:
        return ps.Flow("sources").read(frame, name="quotes").flow.reads[0]

    files = spark.readStream.schema("i bigint").format("parquet")
    for frame in (
        files.load(str(tmp_path / "in")),
        spark.readStream.format("rate").load().where("value > 3"),
        build(spark)[0].reads[0].frame.where("i > 3"),
    ):
        check_harmless(of(frame))
    cleaned = files.option("cleanSource", "DELETE").load(str(tmp_path / "in"))
    with pytest.raises(FlowError, match=r"read 'quotes': its files are cleaned up.*cleanSource=DELETE.*reread=True"):
        check_harmless(of(cleaned))
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", 9).load()
    with pytest.raises(FlowError, match=r"read its source \(.*socket.*\) once more"):
        check_harmless(of(socket))
    both = spark.readStream.format("rate").load().selectExpr("cast(value as string) value").union(socket)
    with pytest.raises(FlowError, match="socket"):
        check_harmless(of(both))
    assert {name for name, _ in sources_of(both)} >= {"rate"}


def test_the_stand_in_begins_now_and_shares_no_control_file(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("later")
    source = ps.sources.replay(
        spark, rows, schema="i bigint, v double", schedule=ps.sources.constant(5), start=0, total=100,
        control=tmp_path / "control.json",
    )  # fmt: skip
    flow.read(source, name="quotes").write("console", name="screen")
    twin = stand_in(flow, spark, tmp_path)
    spec = twin.reads[0].frame._penstock_replay  # type: ignore[attr-defined]
    assert (spec.start_us, spec.control, spec.total) == (None, None, 100)
    assert flow.reads[0].frame is source
    assert twin.sinks["screen"].format == "function"
    assert twin.identity() == flow.identity()
