"""Skylines against comparing every pair; pruning never changes a skyline (thesis 000, acceptance 14)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps.queries.points import KINDS, points
from penstock.apps.queries.skyline import BLOCK, Skyline, SkylineBuffer, skyline, undominated_by_earlier
from tests.apps.queries.query_cases import CUTS, FAST, by_panes, cut, there, window

COORDINATE = st.one_of(st.integers(0, 4).map(float), st.floats(-1, 1), st.just(math.inf))


def beats(x: Any, y: Any) -> bool:
    return all(a <= b for a, b in zip(x, y, strict=True)) and any(a < b for a, b in zip(x, y, strict=True))


def slow_skyline(rows: list[Any]) -> list[int]:
    return [i for i, y in enumerate(rows) if not any(beats(x, y) for x in rows)]


@FAST
@given(data=st.data(), dimensions=st.integers(1, 4))
def test_skyline_is_what_no_point_beats(data: st.DataObject, dimensions: int) -> None:
    rows = data.draw(st.lists(st.tuples(*[COORDINATE] * dimensions), max_size=40))
    assert skyline(np.array(rows).reshape(-1, dimensions)).tolist() == slow_skyline(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_more_points_than_a_block(kind: Any, dimensions: int) -> None:
    cloud = points(kind, 3 * BLOCK + 5, dimensions, np.random.default_rng(dimensions)).round(2)  # with ties
    assert skyline(cloud).tolist() == slow_skyline(cloud.tolist())
    keep = undominated_by_earlier(cloud)
    assert keep.tolist() == [not any(beats(x, y) for x in cloud[:i].tolist()) for i, y in enumerate(cloud.tolist())]


@FAST
@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), COORDINATE), COORDINATE, st.integers(0, 3)), max_size=30), places=CUTS
)
def test_query_whole_and_by_panes(rows: list[tuple[Any, ...]], places: list[int]) -> None:
    """Two columns to be small, one to be great; the row's number is carried along."""
    query = Skyline(("x", "y", "z"), most=("z",), carry=("id",))
    whole = window(
        x=[r[0] for r in rows], y=[r[1] for r in rows], z=[float(r[2]) for r in rows], id=list(range(len(rows)))
    )
    ids = [i for i, r in enumerate(rows) if there(*r)]
    right = [ids[i] for i in slow_skyline([(rows[i][0], rows[i][1], -rows[i][2]) for i in ids])]
    got = query(whole).to_pylist()
    assert [row["id"] for row in got] == right
    assert all((row["x"], row["y"], row["z"]) == rows[row["id"]] for row in got)
    assert by_panes(query, whole, places) == got


@FAST
@given(rows=st.lists(st.tuples(COORDINATE, COORDINATE), max_size=30), workers=st.integers(1, 5))
def test_partitions_of_a_window_do_as_panes_do(rows: list[Any], workers: int) -> None:
    """Window partitioning: the collector takes the skyline of the workers' skylines, in any split of the points."""
    query = Skyline()
    parts = [rows[worker::workers] for worker in range(workers)]
    local = [query.pane(window(x=[r[0] for r in part], y=[r[1] for r in part])) for part in parts]
    got = sorted((row["x"], row["y"]) for row in query.combine(local))
    assert got == sorted(rows[i] for i in slow_skyline(rows))


def test_no_panes_no_points() -> None:
    assert Skyline().combine([], None) == []
    assert Skyline()(window(x=[], y=[])).num_rows == 0
    assert len(cut(window(x=[1.0], y=[1.0]), [])) == 1


# --- pruning ---------------------------------------------------------------------------------------------------------


@FAST
@given(
    feed=st.lists(st.tuples(st.integers(0, 4), st.tuples(COORDINATE, COORDINATE)), max_size=40),
    size=st.integers(0, 12),
    together=st.integers(1, 4),
)
def test_pruning_never_changes_the_skyline(feed: list[Any], size: int, together: int) -> None:
    """After every insertion, and while points only expire: the skyline of what is stored is that of the window."""
    times = np.cumsum([gap for gap, _ in feed]).astype(np.int64)
    rows = [point for _, point in feed]
    buffer = SkylineBuffer(size, 2)
    for first in range(0, len(rows), together):
        seen = min(first + together, len(rows))
        buffer.insert(np.array(rows[first:seen]), times[first:seen])
        alive = [rows[i] for i in range(seen) if times[i] >= times[seen - 1] - size]
        assert sorted(map(tuple, buffer.skyline().tolist())) == sorted(alive[i] for i in slow_skyline(alive))
        assert len(buffer) <= len(alive)
    last = int(times[-1]) if len(times) else 0
    for now in range(last, last + size + 2):
        buffer.expire(now)
        alive = [rows[i] for i in range(len(rows)) if times[i] >= now - size]
        assert sorted(map(tuple, buffer.skyline().tolist())) == sorted(alive[i] for i in slow_skyline(alive))


def test_correlated_points_are_pruned_most() -> None:
    """Thesis 000, 4.9.3: stored points, correlated < independent < anticorrelated."""
    stored = {}
    for kind in KINDS:
        cloud = points(kind, 4000, 3, np.random.default_rng(5))
        buffer, sizes = SkylineBuffer(1000, 3), []
        for first in range(0, len(cloud), 100):
            buffer.insert(cloud[first : first + 100], np.arange(first, first + 100))
            sizes.append(len(buffer))
        stored[kind] = float(np.mean(sizes[10:]))
    assert stored["correlated"] < stored["independent"] < stored["anticorrelated"] < 1000
