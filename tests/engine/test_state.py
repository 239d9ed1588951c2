"""Keyed segments against a dictionary: random keys, widths, merges, deletions and forced hash collisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.spark import row_runs, state
from penstock.engine.spark.files import Folder
from penstock.engine.spark.logs import of_groups
from penstock.engine.spark.state import (
    DEAD,
    GROUPS,
    HASH,
    KeyedSegments,
    Segment,
    fold,
    group_mask,
    group_of,
    hashes_of,
    merge_newest,
)
from penstock.errors import CheckpointError

STATE = pa.schema([("total", pa.int64())])
KEYS = st.one_of(st.none(), st.integers(0, 40).map(str))


def hash_of(key: str | None, spread: int) -> int:
    """A poor hash: with spread 1 all keys of a group collide."""
    number = -1 if key is None else int(key)
    return ((number % 7) << 60) | (number % spread)


def rows(keys: list[str | None], totals: list[int], dead: list[bool], spread: int) -> pa.Table:
    hashes = np.array([hash_of(key, spread) for key in keys], dtype=np.uint64)
    table = pa.table(
        {
            HASH: pa.array(hashes.view(np.int64)),
            "k": pa.array(keys, pa.string()),
            "total": pa.array(totals, pa.int64()),
            DEAD: pa.array(dead, pa.bool_()),
        }
    )
    return table.take(pa.array(np.argsort(hashes, kind="stable")))


batches = st.lists(
    st.tuples(st.dictionaries(KEYS, st.tuples(st.integers(-5, 5), st.booleans()), max_size=12), st.integers(1, 5)),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(batches, st.sampled_from([1, 3, 10**6]))
def test_segments_equal_a_dictionary(
    history: list[tuple[dict[str | None, tuple[int, bool]], int]], spread: int
) -> None:
    """Each batch changes some keys with another width; after each, lookups and the whole state are those of a dict."""
    with TemporaryDirectory() as root:
        folder = Folder(root)
        folder.make("b")
        segments: list[Segment] = []
        truth: dict[str | None, int] = {}
        for number, (changes, width) in enumerate(history):
            reports = []
            for task in range(width):
                owned = group_mask(np.array([g for g in range(GROUPS) if g % width == task]))
                mine = [
                    k
                    for k in changes
                    if int(group_of(np.array([hash_of(k, spread)], dtype=np.uint64), GROUPS)[0]) % width == task
                ]
                table = rows(mine, [changes[k][0] for k in mine], [changes[k][1] for k in mine], spread)
                report = KeyedSegments(folder, segments, ("k",), STATE).save(table, owned, "b", f"{number}-{task}")
                if report is not None:
                    reports.append(report)
            segments = fold(segments, reports)
            for key, (total, dead) in changes.items():
                truth.pop(key, None) if dead else truth.update({key: total})
            assert whole(folder, segments) == truth
            assert looked_up(folder, segments, [*truth, "none such", None], spread) == {
                key: truth.get(key) for key in [*truth, "none such", None]
            }
        assert len(segments) <= 5 * 13


def whole(folder: Folder, segments: list[Segment]) -> dict[Any, Any]:
    table = KeyedSegments(
        folder, segments, ("k",), pa.schema([(HASH, pa.int64()), ("k", pa.string()), ("total", pa.int64())])
    ).read_all()
    return {row["k"]: row["total"] for row in table.to_pylist()}


def looked_up(folder: Folder, segments: list[Segment], keys: list[str | None], spread: int) -> dict[Any, Any]:
    distinct = list(dict.fromkeys(keys))
    hashes = np.array([hash_of(key if key != "none such" else "39", spread) for key in distinct], dtype=np.uint64)
    found, is_new = KeyedSegments(folder, segments, ("k",), STATE).lookup(
        hashes, pa.table({"k": pa.array(distinct, pa.string())})
    )
    values = found.column("total").to_pylist()
    assert [value is None for value in values] == is_new.tolist()
    return dict(zip(distinct, values, strict=True))


def test_merge_keeps_the_newest_of_each_key_and_sorts_by_unsigned_hash() -> None:
    new = pa.table({HASH: [-1, 5], "k": ["z", "a"], "total": [9, 1], DEAD: [False, True]})
    old = pa.table({HASH: [5, 7, -1], "k": ["a", "b", "z"], "total": [100, 2, 100], DEAD: [False, False, False]})
    merged = merge_newest([new, old], ("k",), drop_dead=True)
    assert merged.select(["k", "total"]).to_pylist() == [{"k": "b", "total": 2}, {"k": "z", "total": 9}]


def test_a_chain_of_small_changes_on_a_large_state_stays_short_and_cheap(tmp_path: Path) -> None:
    """1 % of the keys change in each of 40 batches: few segments, and far fewer bytes than 40 whole states."""
    folder = Folder(str(tmp_path))
    folder.make("b")
    random = np.random.default_rng(0)
    hashes = np.sort(random.integers(0, 2**64, 20_000, dtype=np.uint64))
    everything = pa.table({HASH: hashes.view(np.int64), "k": np.arange(20_000), "total": np.zeros(20_000, np.int64)})
    all_groups = (1 << GROUPS) - 1
    first = KeyedSegments(folder, [], ("k",), STATE).save(everything, all_groups, "b", "first")
    assert first is not None
    segments, written = fold([], [first]), 0
    for number in range(40):
        picked = np.sort(random.choice(20_000, 200, replace=False))
        changed = everything.take(pa.array(picked)).set_column(2, "total", pa.array(np.full(200, number)))
        report = KeyedSegments(folder, segments, ("k",), STATE).save(changed, all_groups, "b", str(number))
        assert report is not None
        segments = fold(segments, [report])
        written += report["new"]["bytes"]
    assert len(segments) <= 8
    assert written < 5 * first["new"]["bytes"]


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    lost = Segment("b/lost.arrow", 1, 10, 0, 1)
    with pytest.raises(CheckpointError, match="lost.arrow: cannot be read"):
        KeyedSegments(folder, [lost], ("k",), STATE).lookup(np.array([0], dtype=np.uint64), pa.table({"k": ["a"]}))


@pytest.mark.parametrize("ordered", [True, False])
def test_the_rows_of_some_groups_are_found_in_sorted_and_unsorted_logs(ordered: bool) -> None:
    random = np.random.default_rng(3)
    hashes = random.integers(0, 2**64, 500, dtype=np.uint64)
    table = pa.table({HASH: (np.sort(hashes) if ordered else hashes).view(np.int64), "x": np.arange(500)})
    for share in (0.0, 0.05, 0.6):
        wanted = random.random(GROUPS) < share
        pieces = of_groups(table, wanted)
        rows = wanted[group_of(hashes_of(table), GROUPS)]
        assert [x for piece in pieces for x in piece.column("x").to_pylist()] == np.flatnonzero(rows).tolist()
        if ordered and share:  # what a task wrote it reads in one piece, though its groups are not neighbours
            assert len(of_groups(table.filter(pa.array(rows)), wanted)) == 1


def test_runs_of_rows_are_moved_as_gathers_would_move_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_runs, "WORTH_A_SLICE", 2)  # so that both ways are taken
    random = np.random.default_rng(4)
    for _ in range(200):
        counts = [random.integers(0, 9, 5) for _ in range(2)]
        old, new = (pa.table({"x": random.integers(0, 99, int(count.sum()))}) for count in counts)
        slots = np.concatenate([np.repeat(np.arange(5), count) for count in counts])
        both = np.concatenate([old.column("x").to_numpy(), new.column("x").to_numpy()])
        found = row_runs.behind_each_other(old, counts[0], new, counts[1])
        assert found.column("x").to_pylist() == both[np.argsort(slots, kind="stable")].tolist()
        keep = np.repeat(random.random(5) < 0.5, counts[0])
        assert row_runs.keep_rows(old, keep).column("x").to_pylist() == old.column("x").to_numpy()[keep].tolist()
        rows = (
            np.arange(random.integers(0, 5), random.integers(5, 9))
            if random.random() < 0.5
            else random.integers(0, 9, 3)
        )
        table = pa.table({"x": np.arange(9) * 7})
        assert row_runs.take_rows(table, rows).column("x").to_pylist() == (rows * 7).tolist()


def test_a_large_segment_is_checked_once_and_not_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_LARGE", 1)
    folder = Folder(str(tmp_path))
    folder.make("b")
    table = pa.table({HASH: [1], "k": ["a"], "total": [2]})
    change = KeyedSegments(folder, [], ("k",), STATE).save(table, 1, "b", "one")
    assert change is not None
    segment = Segment(**change["new"])
    assert state.open_segment(folder, segment).num_rows == 1
    assert folder.at(segment.file) not in state._open_files
    assert state.open_segment(folder, replace(segment, crc=segment.crc ^ 1)).num_rows == 1  # was checked before
    with pytest.raises(CheckpointError, match="checksum does not match"):
        folder.open_table(segment.file, segment.crc ^ 1)
