"""A checkpoint seen from outside: what it shows, what it refuses, and where one can go back to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.spark.files import arrow_bytes
from penstock.engine.spark.ledger import Ledger
from penstock.engine.spark.state import DEAD, GROUPS, HASH, KeyedSegments, Segment, fold, group_of
from penstock.engine.spark.state_reader import as_dataframe, check, damage, describe, go_back, read
from penstock.errors import CheckpointError
from tests.engine.tools import RUNNING, expected_sums, parquet, run, running_sum, static, stream

EVERY = (1 << GROUPS) - 1
LINES = [
    "flow trading",
    "read quotes, time ts: k bigint, a b string, v double",
    "stateful sums <- quotes, key k a b, state (total bigint): k bigint",
    "window bars <- quotes, key k, time ts, Time(2 s), n = count(): k bigint, n bigint",
]
BATCHES = 5


def hash_of(key: int) -> int:
    return (key * 0x9E3779B97F4A7C15) % 2**64


def changed(keys: list[int], batch: int) -> pa.Table:
    """Keys (k, "a b") whose total becomes the batch's number; a key divisible by 10 is removed in batch 4."""
    hashes = np.array([hash_of(key) for key in keys], dtype=np.uint64)
    table = pa.table(
        {
            HASH: hashes.view(np.int64),
            "k": pa.array(keys, pa.int64()),
            "a b": [f"s{key}" for key in keys],
            "total": pa.array([batch] * len(keys), pa.int64()),
            DEAD: [batch == 4 and key % 10 == 0 for key in keys],
        }
    )
    return table.take(pa.array(np.argsort(hashes, kind="stable")))


def keys_of(batch: int) -> list[int]:
    return [key for key in range(1, 61) if batch == 0 or key % (batch + 1) == 0]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Five batches of a stateful operator and of a window, as a job leaves them, written without Spark."""
    ledger = Ledger(str(tmp_path))
    ledger.claim(LINES, GROUPS)
    sums: list[Segment] = []
    bars: list[Segment] = []
    for kind in ("offsets", "commits"):
        (tmp_path / "spark" / kind).mkdir(parents=True)
    for batch in range(BATCHES):
        folder = ledger.begin_files(batch)
        store = KeyedSegments(ledger.folder, sums, ("k", "a b"), pa.schema([("total", pa.int64())]))
        report = store.save(changed(keys_of(batch), batch), EVERY, folder, "sums")
        assert report is not None
        sums = fold(sums, [report])
        panes = changed([1, 2, 3], batch).select([HASH, "k"]).append_column("_ps_pane", pa.array([batch] * 3))
        buffer, crc = arrow_bytes(panes)
        ledger.folder.write(f"{folder}/panes.arrow", buffer)
        bars = [*bars, Segment(f"{folder}/panes.arrow", 3, buffer.size, crc, EVERY, batch, batch)][-2:]
        waiting = changed([7, 7, 8], batch).select(["a b", "total", "k", HASH])  # rows as they came, the key not first
        buffer, crc = arrow_bytes(waiting)
        ledger.folder.write(f"{folder}/pending.arrow", buffer)
        pending = Segment(f"{folder}/pending.arrow", 3, buffer.size, crc, EVERY)
        state = {"sums": [s.to_json() for s in sums], "bars": [s.to_json() for s in bars]}
        state |= {"bars.pending": [pending.to_json()], "sums.none": []}
        windows = {"bars": {"watermark": 1_700_000_000_000_000 + batch}}
        ledger.log(batch, {"id": batch})
        ledger.finish(batch, {"id": batch, "state": state, "windows": windows, "outputs": {}})
        ledger.mark_published(batch, {"out"})
        for kind in ("offsets", "commits"):
            (tmp_path / "spark" / kind / str(batch)).write_text("v1")
            (tmp_path / "spark" / kind / f".{batch}.crc").write_text("")
    return tmp_path


def truth(version: int) -> dict[int, int]:
    """What each key's total is after a version, batch by batch in a dictionary."""
    known: dict[int, int] = {}
    for batch in range(version + 1):
        known.update(dict.fromkeys(keys_of(batch), batch))
        if batch == 4:
            known = {key: total for key, total in known.items() if key % 10 or key not in keys_of(4)}
    return known


@pytest.mark.parametrize("version", range(BATCHES))
def test_state_is_read_as_of_each_version_that_is_kept(checkpoint: Path, version: int) -> None:
    table = read(str(checkpoint), "sums", version)
    assert table.column_names == ["k", "a b", "total"]
    assert {row["k"]: row["total"] for row in table.to_pylist()} == truth(version)
    assert all(row["a b"] == f"s{row['k']}" for row in table.to_pylist())
    panes = read(str(checkpoint), "bars", version).to_pylist()
    assert sorted((row["k"], row["_ps_pane"]) for row in panes) == sorted(
        (key, batch) for key in (1, 2, 3) for batch in range(max(0, version - 1), version + 1)
    )


def test_the_view_counts_what_is_there(checkpoint: Path) -> None:
    view = describe(str(checkpoint))
    assert (view.flow, view.format, view.groups, view.version, view.versions) == ("trading", 1, 64, 4, (0, 1, 2, 3, 4))
    assert view.damage is None and damage(str(checkpoint)) is None
    bars, pending, sums = view.operators
    assert (pending.operator, pending.kind, pending.key, pending.keys, pending.rows) == (
        "bars.pending",
        "window",
        ("k",),
        2,
        3,
    )
    assert sorted(read(str(checkpoint), "bars.pending").column("k").to_pylist()) == [7, 7, 8]
    left = list(truth(4))
    groups = {int(group_of(np.array([hash_of(key)], dtype=np.uint64), GROUPS)[0]) for key in left}
    assert (sums.kind, sums.key, sums.keys, sums.rows, sums.groups) == (
        "stateful",
        ("k", "a b"),
        len(left),
        len(left),
        len(groups),
    )
    assert (bars.kind, bars.key, bars.keys, bars.rows, bars.files) == ("window", ("k",), 3, 6, 2)
    assert bars.watermark == 1_700_000_000_000_004 and bars.oldest_batch == 3
    on_disk = {path: path.stat().st_size for path in checkpoint.glob("penstock/files/*/panes.arrow")}
    assert bars.bytes == sum(size for path, size in on_disk.items() if path.parent.name in ("00000003", "00000004"))
    assert "sums" in str(view) and "2023-11-14" in str(view) and "every file it names is whole" in str(view)
    assert describe(str(checkpoint), 0).to_json()["operators"][0]["rows"] == 3


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "what"), [(flip, "checksum does not match"), (cut, "bytes, its manifest says"), (Path.unlink, "missing")]
)
def test_a_bad_file_is_refused_with_the_version_to_go_back_to(
    checkpoint: Path, harm: Callable[[Path], None], what: str
) -> None:
    """Version 3's panes are needed by versions 3 and 4, so 2 is the one to go back to."""
    harm(checkpoint / "penstock" / "files" / "00000003" / "panes.arrow")
    with pytest.raises(CheckpointError) as raised:
        check(str(checkpoint))
    text = str(raised.value)
    assert "files/00000003/panes.arrow, state of operator 'bars'," in text and what in text
    assert "whose files are all whole is 2." in text and "--back-to 2" in text and "batches 3 to 4 are run anew" in text
    with pytest.raises(CheckpointError, match="operator 'bars'"):
        read(str(checkpoint), "bars")
    assert read(str(checkpoint), "sums").num_rows == len(truth(4)), "another operator's state is readable"
    view = describe(str(checkpoint))
    assert view.damage == text == str(damage(str(checkpoint))) and "NOT every file" in str(view)
    check(str(checkpoint), 2)


def test_a_damaged_manifest_is_damage_too(checkpoint: Path) -> None:
    flip(checkpoint / "penstock" / "manifests" / "00000004")
    with pytest.raises(CheckpointError, match=r"manifests/00000004 is damaged.*whole is 3\..*batch 4 is run anew"):
        check(str(checkpoint))
    view = describe(str(checkpoint))
    assert view.operators == () and "manifests/00000004" in str(view.damage)


def test_a_version_that_spark_forgot_is_not_offered(checkpoint: Path) -> None:
    (checkpoint / "penstock" / "files" / "00000004" / "panes.arrow").unlink()
    for batch in (1, 2, 3):
        (checkpoint / "spark" / "offsets" / str(batch)).unlink()
    with pytest.raises(CheckpointError, match="all whole is 0"):
        check(str(checkpoint))
    with pytest.raises(CheckpointError, match="Spark has no record of batch 2 any more"):
        go_back(str(checkpoint), 2)
    (checkpoint / "spark" / "commits" / "0").unlink()
    with pytest.raises(CheckpointError, match="No older version that is kept is whole. Remedy: restore"):
        check(str(checkpoint))


def test_going_back_forgets_the_batches_after(checkpoint: Path) -> None:
    flip(checkpoint / "penstock" / "files" / "00000004" / "panes.arrow")
    assert go_back(str(checkpoint), 3) == [4]
    check(str(checkpoint))
    assert describe(str(checkpoint)).version == 3
    left = {path.name for kind in ("offsets", "commits") for path in (checkpoint / "spark" / kind).iterdir()}
    assert left == {f"{before}{batch}{after}" for batch in range(4) for before, after in (("", ""), (".", ".crc"))}
    assert not list(checkpoint.glob("penstock/*/00000004")) or {
        path.parent.name for path in checkpoint.glob("penstock/*/00000004")
    } == {"files"}


def test_a_damaged_version_is_no_version_to_go_back_to(checkpoint: Path) -> None:
    flip(checkpoint / "penstock" / "files" / "00000003" / "panes.arrow")
    with pytest.raises(CheckpointError, match="all whole is 2"):
        go_back(str(checkpoint), 3)
    assert describe(str(checkpoint)).versions == (0, 1, 2, 3, 4), "nothing was removed"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda at: describe(f"{at}/none"), "is not a Penstock checkpoint"),
        (lambda at: describe(str(at), 9), "no version 9. Remedy: versions 0 to 4 are kept"),
        (
            lambda at: read(str(at), "quotes"),
            "operator 'quotes' holds no state. Remedy: name one of bars, bars.pending, sums",
        ),
    ],
)
def test_what_is_not_there(checkpoint: Path, call: Callable[[Path], object], says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        call(checkpoint)
    assert not (checkpoint / "none").exists(), "looking makes no folders"


def test_a_checkpoint_without_a_batch(tmp_path: Path) -> None:
    Ledger(str(tmp_path)).claim(LINES, GROUPS)
    assert "no batch has ended yet" in str(describe(str(tmp_path)))
    check(str(tmp_path))
    with pytest.raises(CheckpointError, match="no batch has ended yet"):
        read(str(tmp_path), "sums")


def test_a_view_needs_no_spark() -> None:
    code = "import sys, penstock.engine.spark.state_reader\n"
    code += "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_job_goes_on_from_the_version_it_was_sent_back_to(spark: SparkSession, tmp_path: Path) -> None:
    """The newest state is lost, the job goes back and runs the rest again: results are those of a run without loss."""

    def flow() -> ps.Flow:
        made = ps.Flow("lossy")
        read_ = made.read(stream(spark, 3000, per_batch=500), time="scheduled")
        read_.stateful(running_sum, name="sums", **RUNNING).write("parquet", path=str(tmp_path / "out"), name="out")
        return made

    run(flow(), spark, tmp_path)
    place = str(tmp_path / "ckpt")
    frame = as_dataframe(spark, place, "sums")
    _, final = expected_sums(static(spark, 3000).toArrow())
    assert {row["k"]: (row["total"], row["n"]) for row in frame.collect()} == final
    newest = describe(place).versions[-1]
    for path in (tmp_path / "ckpt" / "penstock" / "files" / f"{newest:08d}").glob("state-*"):
        path.unlink()
    with pytest.raises(CheckpointError, match=rf"state of operator 'sums', is missing.*--back-to {newest - 1}`"):
        check(place)
    assert go_back(place, newest - 1) == [newest]
    run(flow(), spark, tmp_path)
    after, final = expected_sums(static(spark, 3000).toArrow())
    assert {row["k"]: (row["total"], row["n"]) for row in read(place, "sums").to_pylist()} == final
    rows = parquet(tmp_path / "out")
    assert rows.num_rows == 3000 and {row["i"]: row["so_far"] for row in rows.to_pylist()} == after
