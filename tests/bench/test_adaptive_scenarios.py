"""What the live runs run: the functions against slow and obvious ones, and each short flow for a few batches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.bench.adaptive import functions as fn
from penstock.bench.adaptive import short, suite
from penstock.bench.adaptive.description import Built
from penstock.bench.adaptive.live import state_requirements
from penstock.bench.adaptive.scenarios import FULL, SCENARIOS

NO_DRAWS = np.random.default_rng(0)


def points_of(line: int, height: int) -> list[int]:
    """One line of the Mandelbrot set, point by point."""
    shades = []
    for pixel in range(fn.PIXELS):
        c = complex(-2.125 + 3.0 * pixel / fn.PIXELS, -1.5 + 3.0 * line / height)
        z, n = c, 0
        while n < fn.ITERATIONS and abs(z) <= 2.0:
            z, n = z * z + c, n + 1
        shades.append(n * 255 // fn.ITERATIONS)
    return shades


def test_a_line_of_the_set_is_what_it_is_point_by_point() -> None:
    lines = [0, 17, 40, 50]
    drawn = fn.mandelbrot(pa.record_batch({"i": lines, "line": lines}), height=100)

    assert drawn.column("line").to_pylist() == lines
    for line, pixels in zip(lines, drawn.column("pixels").to_pylist(), strict=True):
        assert list(pixels) == points_of(line, 100)
    assert len(set(points_of(50, 100))) > 10, "there is something to see"


def test_a_viewer_sees_what_the_cameras_saw_with_the_line_over_it() -> None:
    shown = fn.pictures(np.arange(300), NO_DRAWS)
    batch = pa.record_batch({"i": pa.array(shown["i"]), "data": shown["data"]})
    decoded = fn.decode(batch)
    packed = fn.pack(fn.encode(fn.overlay(decoded)))

    for number in (0, 1, 299):
        feeds = np.frombuffer(decoded.column("data")[number].as_py(), np.uint8).reshape(fn.FEEDS, fn.HIGH, fn.WIDE)
        assert feeds.std() > 10.0, "there is something to see"
        want = np.block([[feeds[0], feeds[1]], [feeds[2], feeds[3]]])
        for x in range(2 * fn.WIDE):
            for y in range(2 * fn.HIGH - 6, 2 * fn.HIGH):
                want[y, x] = 255 if (x + number) % 16 < 8 else want[y, x] // 2
        assert np.array_equal(fn.unpacked(packed.column("data")[number].as_py()), want)
    damaged = bytearray(packed.column("data")[0].as_py())
    damaged[-1] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        fn.unpacked(bytes(damaged))


def test_frames_cost_what_the_thesis_says_they_do() -> None:
    per_s = 1e6 / fn.frames(np.arange(3000), NO_DRAWS, period=3000)["wait_us"]

    assert per_s.min() == pytest.approx(5 * 7.0)
    assert per_s.max() == pytest.approx(5 * 20.0)
    assert np.abs(np.diff(per_s)).max() < 0.1, "from frame to frame it hardly changes"


def run_for(spark: SparkSession, folder: Path, built: Built, done: Callable[[Any], bool]) -> Any:
    """Run a flow live, with its requirements, until something is done; then flush."""
    job = built.flow.start(spark, str(folder / "ckpt"))
    try:
        end = time.monotonic() + 300.0
        while not done(job):
            assert not job.await_end(0.05)
            assert time.monotonic() < end
    finally:
        job.stop(flush=True)
    return job


def streamed(spark: SparkSession, folder: Path, name: str, build: Any, rows: int) -> tuple[Any, Built]:
    """The short scenario's flow over its first rows, with what came out kept."""
    scenario = SCENARIOS[name]
    built = build(spark, ps.sources.constant(10.0 * rows, 0.1))
    ends = [promise.end for promise in built.promises] or [built.target.farm]
    for number, end in enumerate(ends):
        end.write("memory", name=f"kept{number}")
    state_requirements(built, scenario, 2.0)
    return run_for(spark, folder, built, lambda job: job.memory("kept0").num_rows >= rows), built


@pytest.mark.parametrize(
    ("name", "rows", "want"),
    [
        ("service", 600, lambda i: fn.doubling(i, NO_DRAWS, half=36_000)["wait_us"]),
        ("frames", 40, lambda i: fn.frames(i, NO_DRAWS, period=3000)["wait_us"]),
    ],
)
def test_a_farm_whose_rows_say_what_they_cost_gives_each_row_once(
    spark: SparkSession, tmp_path: Path, name: str, rows: int, want: Callable[[npt.NDArray[np.int64]], Any]
) -> None:
    job, _ = streamed(spark, tmp_path, name, SCENARIOS[name].build, rows)

    kept = job.memory("kept0").sort_by("i")
    assert kept.column("i").to_pylist() == list(range(rows))
    assert kept.column("wait_us").to_pylist() == pytest.approx(want(np.arange(rows)).tolist())


def test_the_peak_of_a_scenario_is_its_dearest_part(spark: SparkSession) -> None:
    for name, column in (("service", "wait_us"), ("frames", "wait_us"), ("mandelbrot", "line")):
        scenario = SCENARIOS[name]
        assert scenario.build_peak is not None
        peak, usual = (
            build(spark, ps.sources.constant(scenario.peak)).flow.reads[0].frame._penstock_replay.rows.arrays(0, 1000)
            for build in (scenario.build_peak, scenario.build)
        )
        if column == "line":
            assert 4000 <= min(peak[1].to_pylist()) <= max(peak[1].to_pylist()) < 5000, "of 10 000"
        else:
            assert set(peak[1].to_pylist()) == {800.0 if name == "service" else 1e6 / 35.0}
            assert min(usual[1].to_pylist()) < max(peak[1].to_pylist())


def test_a_quicker_machine_draws_more_lines(spark: SparkSession) -> None:
    """The dearest keep 0.55 of a core busy, whatever they take; an image takes 20 s."""
    scenario = short.mandelbrot()
    assert scenario.sized is not None
    for line_s, per_s in ((0.0005, 1100.0), (0.001, 550.0)):
        found = scenario.sized(line_s)
        assert (found.peak, found.low) == pytest.approx((per_s, per_s / 4.0))
        lines = (
            found.build(spark, found.load).flow.reads[0].frame._penstock_replay.rows.arrays(0, 40_000)[1].to_pylist()
        )
        assert (min(lines), max(lines) + 1) == (0, 20.0 * per_s)


def test_what_a_row_and_a_batch_cost_is_measured_in_a_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of `service` at its peak waits 0.8 ms; a batch at the low rate takes longer than its rows alone."""
    monkeypatch.setattr(suite, "CALIBRATION_S", 4.0)
    row_s = suite.dearest_row(spark, SCENARIOS["service"])
    assert row_s == pytest.approx(0.0008, rel=0.5)
    assert suite.fixed_cost(spark, SCENARIOS["service"]) > 0.002


def test_lines_are_drawn_once_each(spark: SparkSession, tmp_path: Path) -> None:
    job, _ = streamed(spark, tmp_path, "mandelbrot", partial(short.drawing, height=1000), 60)

    kept = job.memory("kept0").sort_by("line")
    assert kept.column("line").to_pylist() == list(range(60))
    assert list(kept.column("pixels")[31].as_py()) == points_of(31, 1000)


def test_both_ways_of_a_tweet(spark: SparkSession, tmp_path: Path) -> None:
    rows = 500
    job, built = streamed(spark, tmp_path, "tweets", short.tweeting, rows)

    sent = built.flow.reads[0].frame._penstock_replay
    texts = sent.rows.arrays(0, rows)[1].to_pylist()
    good, bad = set(fn.GOOD), set(fn.BAD)
    moods = {}
    for i, text in enumerate(texts):
        score = sum((word in good) - (word in bad) for word in text.split())
        moods[i] = (score > 0) - (score < 0)
    kept = job.memory("kept0").to_pylist()
    assert {row["i"]: row["mood"] for row in kept} == moods
    assert len(kept) == rows

    # The tweets came within a tenth of a second: nearly always all of them are in the same four windows.
    named = Counter(row["topic"] for row in kept)
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in job.memory("kept1").to_pylist():
        found.setdefault(row["window"]["start"], []).append(row)
    whole = [sorted(rows, key=lambda row: row["rank"]) for rows in found.values()]
    best = sorted(named.items(), key=lambda entry: (-entry[1], entry[0]))[: fn.TOP]
    assert len(whole) in (4, 5)
    assert any([(row["topic"], row["n"]) for row in rows] == best for rows in whole)


def test_a_chain_gives_the_same_fused_and_split(spark: SparkSession, tmp_path: Path) -> None:
    packets = {}
    for policy, build in SCENARIOS["livestream"].variants.items():
        job, _ = streamed(spark, tmp_path / policy, "livestream", build, 100)
        assert len(job.host.plan.stages) == (1 if policy == "fused" else 4)
        packets[policy] = {row["i"]: row["data"] for row in job.memory("kept0").to_pylist()}
    made = fn.pictures(np.arange(100), NO_DRAWS)
    batch = pa.record_batch({"i": pa.array(made["i"]), "data": made["data"]})
    want = fn.pack(fn.encode(fn.overlay(fn.decode(batch)))).column("data").to_pylist()
    assert packets["fused"] == packets["split"] == dict(enumerate(want))


def test_the_other_scenarios_build_and_may_require_what_they_are_judged_by(spark: SparkSession) -> None:
    for scenario in (*FULL, SCENARIOS["low-load"]):
        built = scenario.build(spark, scenario.load)
        state_requirements(built, scenario, 1.0)
        (latency,) = built.flow.requirements
        assert latency.limits == {scenario.statistic: 1.0}
        assert built.operator in built.flow.operators
