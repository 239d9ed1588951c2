"""What the tests of queries share: windows made of columns, cuts into panes, prices with holes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from penstock.windows.content import Window

FAST = settings(max_examples=200, deadline=None, derandomize=True)

# few different values, so that ties, equal points and repeated medians occur all the time
PRICE = st.one_of(st.none(), st.just(math.nan), st.integers(1, 6).map(float), st.floats(0.5, 1e6))
VOLUME = st.one_of(st.none(), st.integers(0, 5))


def window(**columns: Sequence[Any] | pa.Array) -> Window:
    """A window with these columns; integers and None alone would be of type null."""
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values, _type(values))
        for name, values in columns.items()
    }
    table = pa.table(arrays)
    return Window(table, {"symbol": "A"}, 1, table.num_rows)


def _type(values: Sequence[Any]) -> pa.DataType:
    return pa.int64() if any(isinstance(value, int) for value in values) else pa.float64()


def cut(whole: Window, places: Sequence[int]) -> list[Window]:
    """The window's rows as panes, in order; panes may be empty."""
    table = whole.arrow
    bounds = [0, *sorted(min(place, len(whole)) for place in places), len(whole)]
    return [Window(table.slice(lo, hi - lo), whole.key, lo + 1, hi) for lo, hi in pairwise(bounds)]


CUTS = st.lists(st.integers(0, 40), max_size=6)


def there(*values: Any) -> bool:
    """Neither null nor NaN."""
    return all(value is not None and not math.isnan(value) for value in values)


def by_panes(query: Any, whole: Window, places: Sequence[int]) -> Any:
    """H(G(pane), ...): pane results go through Arrow, as they would through the state."""
    results = [query.pane(pane) for pane in cut(whole, places)]
    return query.combine(pa.Table.from_pylist(results).to_pylist(), whole)


def assert_close(got: dict[str, Any], expected: dict[str, Any], relative: float = 1e-9) -> None:
    assert list(got) == list(expected)
    for name, value in expected.items():
        if value is None or got[name] is None:
            assert got[name] == value, name
        else:
            assert math.isclose(got[name], value, rel_tol=relative, abs_tol=1e-12), (name, got[name], value)
