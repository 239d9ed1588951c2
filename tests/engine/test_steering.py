"""The file interface of thesis 004: pure, and on a job that a script steers which knows only the two files."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.decision import Decision, Static
from penstock.control.policies.mpr_files import read_statistics
from penstock.engine.spark.measure import per_replica
from penstock.engine.spark.steering import Steered, Steering, counters
from penstock.observe.record import BatchRecord, OperatorStats
from tests.engine.tools import stream

STAGES = {"score": (1, 8), "sums": (2, 16)}
NOW = {"score": 3, "sums": 4}


def record(number: int, rows: int = 10, width: int = 2, *, names: tuple[str, ...] = ("score", "sums")) -> BatchRecord:
    few = rows // (2 * width), rows // 2 // (2 * width)  # the first replica has the rest
    replicas = (rows - (width - 1) * few[0], rows // 2 - (width - 1) * few[1]), *[few] * (width - 1)
    stats = tuple(
        OperatorStats(name, width=width, tasks=width, rows_in=rows, rows_out=rows // 2, replicas=replicas)
        for name in names
    )
    return BatchRecord(number, visible=1_700_000_000.0 + number, parts={"run": 0.25, "wait": 0.25}, operators=stats)


def asked(tmp_path: Path, text: str | bytes) -> tuple[Steering, dict[str, int]]:
    steering = Steering(tmp_path, STAGES)
    (tmp_path / "parameters.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return steering, steering.widths(NOW)


# -- parameters.json -----------------------------------------------------------------------------------------------


def test_the_file_gives_the_widths_within_the_limits(tmp_path: Path) -> None:
    steering, widths = asked(tmp_path, '{"stage1": 5, "stage2": 6}')
    assert widths == {"score": 5, "sums": 6}
    assert steering.problems == []
    for text, expected in (
        ('{"stage1": 0, "stage2": -3}', {"score": 1, "sums": 2}),
        ('{"stage1": 99, "stage2": 17}', {"score": 8, "sums": 16}),
    ):
        steering, widths = asked(tmp_path, text)
        assert widths == expected
        assert any("'sums' can have 2 to 16 replicas" in problem for problem in steering.problems)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"stage1": 5, "sta', "not JSON"),
        ("", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ('{"stage1": 5}', "no stage2"),
        ('{"stage1": "many", "stage2": 2}', "stage1 is 'many'"),
        ('{"stage1": 2.0, "stage2": 2}', "stage1 is 2.0"),
        ('{"stage1": true, "stage2": 2}', "stage1 is True"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[" * 20_000, "not JSON"),
        ('{"stage1": 5, "stage2": 6}' + " " * 70_000, "longer than 65536 bytes"),
    ],
)
def test_a_wrong_file_is_said_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | bytes, said: str
) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock"):
        steering, widths = asked(tmp_path, text)
        again = steering.widths(NOW)
    assert widths == again == NOW
    assert len(steering.problems) == len(caplog.records) == 1
    assert said in steering.problems[0]
    (tmp_path / "parameters.json").write_text('{"stage1": 5, "stage2": 6}')
    assert steering.widths(NOW) == {"score": 5, "sums": 6}, "the next good file counts"


def test_a_bad_file_after_a_good_one_leaves_what_the_good_one_said(tmp_path: Path) -> None:
    steering, widths = asked(tmp_path, '{"stage1": 5, "stage2": 6}')
    (tmp_path / "parameters.json").write_text('{"stage1": 7')
    assert steering.widths(NOW) == widths
    (tmp_path / "parameters.json").unlink()
    assert steering.widths(NOW) == steering.widths(NOW) == widths
    assert ["not JSON" in steering.problems[0], "cannot be read" in steering.problems[1]] == [True, True]
    assert len(steering.problems) == 2


@given(st.one_of(st.binary(max_size=40), st.dictionaries(st.sampled_from(["stage1", "stage2", "x"]), st.integers())))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_whatever_the_file_holds_widths_stay_within_their_limits(content: bytes | dict[str, int]) -> None:
    steering = Steering("unused", STAGES)
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    steering._take(raw)
    found = {name: steering._sizes.get(name, width) for name, width in NOW.items()}
    if isinstance(content, dict) and {"stage1", "stage2"} <= content.keys():
        expected = {"score": min(max(content["stage1"], 1), 8), "sums": min(max(content["stage2"], 2), 16)}
        assert found == expected
    else:
        assert found == NOW


def test_it_begins_with_the_file_or_writes_one(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "steering"
    assert Steering(folder, STAGES).begin(NOW) == NOW
    assert json.loads((folder / "parameters.json").read_text()) == {"stage1": 3, "stage2": 4}
    (folder / "parameters.json").write_text('{"stage1": 7, "stage2": 8}')
    steering = Steering(folder, STAGES)
    assert steering.begin(NOW) == {"score": 7, "sums": 8}
    assert steering.problems == []


def test_the_policy_changes_widths_and_nothing_else(tmp_path: Path) -> None:
    steering, _ = asked(tmp_path, '{"stage1": 5, "stage2": 6}')
    decided = Steered(steering).decide(None, Decision(NOW, lifetime_s=0.7, row_cap=100))
    assert decided == Decision({"score": 5, "sums": 6}, lifetime_s=0.7, row_cap=100)


# -- stats_stage<k>.json -------------------------------------------------------------------------------------------


def samples(folder: Path, stage: int) -> dict[int, dict[str, dict[str, float]]]:
    found = read_statistics((folder / f"stats_stage{stage}.json").read_text())
    assert found is not None
    return found


def test_a_sample_per_batch_with_one_entry_per_replica_that_adds_up(tmp_path: Path) -> None:
    steering = Steering(tmp_path, STAGES)
    for number, (rows, width) in enumerate([(100, 2), (7, 3), (0, 3), (1001, 4)]):
        steering.sample(record(number, rows, width))
    found = samples(tmp_path, 2)
    assert list(found) == [1_700_000_000_000 + 1000 * number for number in range(4)]
    assert [list(sample) for sample in found.values()][1] == ["Compute0", "Compute1", "Compute2"]
    entries = [entry for sample in found.values() for entry in sample.values()]
    assert sum(entry["ItemsConsumed"] for entry in entries) == 1108
    assert sum(entry["ItemsProduced"] for entry in entries) == 50 + 3 + 0 + 500
    last = list(found.values())[-1]
    busy = {"ItemsConsumed": 626, "ItemsProduced": 314, "averageItemsProduced": 628.0}  # of a cycle of 0.5 s
    idle = {"ItemsConsumed": 125, "ItemsProduced": 62, "averageItemsProduced": 124.0}
    assert last == {"Compute0": busy, "Compute1": idle, "Compute2": idle, "Compute3": idle}, "imbalance shows"
    assert json.loads((tmp_path / "stats_stage1.json").read_text()).keys() == {"stage1"}


def test_a_stage_that_did_not_run_has_no_sample(tmp_path: Path) -> None:
    steering = Steering(tmp_path, STAGES)
    steering.sample(record(0, names=("score",)))
    assert len(samples(tmp_path, 1)) == 1
    assert not (tmp_path / "stats_stage2.json").exists()


def test_the_last_samples_are_kept_over_a_restart_and_a_clock_set_back(tmp_path: Path) -> None:
    for first in (0, 5):
        steering = Steering(tmp_path, STAGES, keep=4)
        for number in range(first, first + 5):
            steering.sample(record(number))
    found = list(samples(tmp_path, 1))
    assert found == [1_700_000_000_000 + 1000 * number for number in range(6, 10)]
    steering.sample(record(1))
    assert max(samples(tmp_path, 1)) == found[-1] + 1
    (tmp_path / "stats_stage1.json").write_text("torn {")
    Steering(tmp_path, STAGES).sample(record(3))
    assert len(samples(tmp_path, 1)) == 1


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    steering = Steering(tmp_path, STAGES, keep=400)
    steering.sample(record(0, width=8))
    done, seen, torn = threading.Event(), [0], [0]

    def read() -> None:
        while not done.is_set():
            found = read_statistics((tmp_path / "stats_stage1.json").read_text())
            torn[0] += found is None
            seen[0] = max(seen[0], len(found or {}))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 120):
        steering.sample(record(number, width=8))
    done.set()
    reader.join()
    assert torn == [0]
    assert seen[0] > 1


def test_a_folder_that_cannot_be_written_is_said_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    steering = Steering(tmp_path / "file" / "below", STAGES)
    for number in range(3):
        steering.sample(record(number))
    assert len(steering.problems) == 2, "once per file"
    assert all("cannot be written" in problem for problem in steering.problems)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=40), st.integers(1, 12))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_every_replica_has_what_its_tasks_did(tasks: list[tuple[int, int]], width: int) -> None:
    """Tasks are dealt out to replicas in turn, as many as there are."""
    told = [{"partition": n, "ops": {"a": {"rows_in": i, "rows_out": o}}} for n, (i, o) in enumerate(tasks)]
    consumed, produced = (sum(column) for column in zip(*tasks, strict=True))
    stats = OperatorStats("a", width=width, rows_in=consumed, rows_out=produced, replicas=per_replica("a", told, width))
    sample = counters(stats, 1.0)
    assert list(sample) == [f"Compute{n}" for n in range(width)]
    for n, entry in enumerate(sample.values()):
        mine = tasks[n::width] if width > 1 else tasks
        assert (entry["ItemsConsumed"], entry["ItemsProduced"]) == (sum(i for i, _ in mine), sum(o for _, o in mine))


# -- on a job ------------------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, sys, time
folder, wanted = sys.argv[1], int(sys.argv[2])
def load(name):
    try:
        with open(os.path.join(folder, name)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
def replicas():
    stats = load("stats_stage1.json")
    if not stats:
        return 0
    samples = stats["stage1"]
    return len(samples[max(samples, key=int)])
while not (load("parameters.json") and replicas() == 1):
    time.sleep(0.02)
sizes = load("parameters.json")
sizes["stage1"] = wanted
with open(os.path.join(folder, "mine.tmp"), "w") as file:
    json.dump(sizes, file)
os.replace(os.path.join(folder, "mine.tmp"), os.path.join(folder, "parameters.json"))
while replicas() != wanted:
    time.sleep(0.02)
print("seen", replicas())
"""


def test_a_script_that_knows_only_the_files_steers_a_job(spark: SparkSession, tmp_path: Path) -> None:
    """004, acceptance 21, 23 and 31; the script is plain Python and imports nothing of ours."""
    flow = ps.Flow("steered")
    farm = flow.read(stream(spark, 1_000_000, per_batch=200)).map(
        lambda batch: batch, replicas=ps.elastic(1, 4), ordered=True, chunk=20, name="farm"
    )
    farm.write("memory", name="out")
    job = flow.start(spark, str(tmp_path), steering=True)
    job.steering.keep = 10**6
    records: list[BatchRecord] = []
    job.on_batch(records.append)
    folder = tmp_path / "penstock" / "steering"
    command = [sys.executable, "-I", "-S", "-c", SCRIPT, str(folder), "3"]
    try:
        script = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        job.stop()
    assert (script.stdout, script.stderr) == ("seen 3\n", "")
    farms = [next(stats for stats in found.operators if stats.name == "farm") for found in records]
    widths = [stats.width for stats in farms]
    change = widths.index(3)
    assert widths == [1] * change + [3] * (len(widths) - change), "from one recorded batch on"
    assert [stats.tasks for stats in farms] == widths
    assert job.steering.problems == []
    assert "farm 1 -> 3" in records[change - 1].control["reason"]
    out = job.memory("out")["i"].to_pylist()
    assert out == list(range(len(out)))
    assert len(out) == 200 * len(records)
    entries = [entry for sample in samples(folder, 1).values() for entry in sample.values()]
    assert sum(entry["ItemsProduced"] for entry in entries) == len(out)


def test_steering_and_a_policy_exclude_each_other(spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.Flow("refused")
    flow.read(stream(spark)).map(lambda batch: batch, replicas=ps.elastic(1, 4)).write("memory")
    with pytest.raises(ps.FlowError, match="from a file, not from a policy"):
        flow.start(spark, str(tmp_path), Static(), steering=True)
    with pytest.raises(ps.FlowError, match="True or a folder, got 3"):
        flow.start(spark, str(tmp_path), steering=3)
    with pytest.raises(ps.FlowError, match="not a local folder"):
        flow.start(spark, "s3://bucket/checkpoint", steering=True)
    plain = ps.Flow("no_width")
    plain.read(stream(spark)).write("memory")
    with pytest.raises(ps.FlowError, match="no operator whose width could be steered"):
        plain.start(spark, str(tmp_path), steering=True)
    assert list(tmp_path.iterdir()) == [], "refused before anything was written"
