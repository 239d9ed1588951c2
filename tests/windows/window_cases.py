"""What the window tests share: rows lifted to pane rows as Spark will, comparison of results, strategies."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.windows.aggregates import Output, Partial, bind, count, mean, partials_of
from penstock.windows.aggregates import sum as total
from penstock.windows.keys import HASH
from penstock.windows.panes import PANE
from penstock.windows.time import Time

ROW = dict[str, Any]

OUTPUTS = bind(
    {"n": count(), "nx": count("x"), "sx": total("x"), "sd": total("d"), "md": mean("d"), "mx": mean("x")},
    {"x": "long", "d": "double"},
)


def us(n: int) -> str:
    return f"{n} us"


def hash_of(key: Any, collide: bool) -> int:
    """A hash that is no function of order; `collide` puts all keys on two values, one of them negative."""
    code = int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), signed=True)
    return -(code % 2) if collide else code


def lift(rows: Iterable[ROW], spec: Time, outputs: Sequence[Output] = OUTPUTS, collide: bool = False) -> pa.Table:
    """One pane row per (key, pane), with the partials that a native groupBy would give."""
    groups: dict[tuple[Any, int], list[ROW]] = {}
    for row in rows:
        groups.setdefault((row["key"], spec.pane_of(row["time"])), []).append(row)
    partials = partials_of(outputs)
    columns: dict[str, pa.Array] = {
        HASH: pa.array([hash_of(key, collide) for key, _ in groups], pa.int64()),
        "key": pa.array([key for key, _ in groups], pa.string()),
        PANE: pa.array([pane for _, pane in groups], pa.int64()),
    }
    for part in partials:
        kind = pa.int64() if part.kind == "long" else pa.float64()
        columns[part.name] = pa.array([_lift(part, members) for members in groups.values()], kind)
    return pa.table(columns)


def _lift(part: Partial, rows: list[ROW]) -> int | float | None:
    values = rows if part.column is None else [r[part.column] for r in rows if r[part.column] is not None]
    if part.function == "count":
        return len(values)
    if not values:
        return None
    return sum(values) if part.kind == "long" else sum(float(v) for v in values)


def assert_same(got: pa.Table, expected: list[ROW], rows: Sequence[ROW], spec: Time) -> None:
    """Equal windows; longs exactly; doubles within 1e-9 of sum|x| of the window (the rest by NaN/inf class)."""
    found = {(r["key"], r["_ps_start"]): r for r in got.to_pylist()}
    assert len(found) == got.num_rows, "a window twice"
    assert set(found) == {(e["key"], e["start"]) for e in expected}
    for e in expected:
        r = found[e["key"], e["start"]]
        assert (r["_ps_end"], r["_ps_rows"]) == (e["end"], e["rows"])
        weight = sum(
            abs(m["d"])
            for m in rows
            if m["key"] == e["key"]
            and m["d"] is not None
            and e["start"] <= m["time"] < e["end"]
            and math.isfinite(m["d"])
        )
        for output in OUTPUTS:
            a, b = r[output.name], e[output.name]
            if output.kind == "long" or a is None or b is None:
                assert a == b, (output.name, e)
            elif not math.isfinite(b):
                assert a == b or (math.isnan(a) and math.isnan(b)), (output.name, a, b)
            elif output.name in {"sd", "md"}:
                assert abs(a - b) <= 1e-9 * weight, (output.name, a, b)
            else:
                assert a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6), (output.name, a, b)


def partial_columns(table: pa.Table) -> dict[str, Any]:
    return {n: table.column(n).to_pylist() for n in table.column_names if n not in ("key", HASH, PANE)}


def keys(most: int = 20) -> st.SearchStrategy[str | None]:
    return st.one_of(st.none(), st.integers(0, most - 2).map(lambda i: f"k{i}"))


def specs(gaps: bool = True) -> st.SearchStrategy[Time]:
    """Sizes and slides of 1 .. 50 units, lateness 0 .. 60, an origin that is no multiple of anything."""
    return st.builds(
        lambda size, slide, lateness, origin, unit: Time(
            us(size * unit), us((slide if gaps else min(size, slide)) * unit), us(lateness * unit), origin=origin
        ),
        st.integers(1, 50),
        st.integers(1, 50),
        st.integers(0, 60),
        st.one_of(st.none(), st.integers(-100, 100)),
        st.sampled_from([1, 1, 1, 3]),
    )


def values() -> st.SearchStrategy[float | None]:
    special = st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, 1e-300, 1.0])
    return st.one_of(st.floats(-1e3, 1e3), special)


def row(times: st.SearchStrategy[int], most: int = 20) -> st.SearchStrategy[ROW]:
    return st.fixed_dictionaries(
        {
            "key": keys(most),
            "time": times,
            "x": st.one_of(st.none(), st.integers(-1000, 1000)),
            "d": values(),
        }
    )


def batches(most: int = 20) -> st.SearchStrategy[list[list[ROW]]]:
    """Batches with ties, disorder and late rows: each batch draws its times around a base that moves either way."""

    @st.composite
    def draw(draw: st.DrawFn) -> list[list[ROW]]:
        base = draw(st.integers(-60, 60))
        out = []
        for _ in range(draw(st.integers(1, 5))):
            out.append(draw(st.lists(row(st.integers(base - 40, base + 40), most), max_size=12)))
            base += draw(st.integers(-20, 60))
        return out

    return draw()


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables)


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))
