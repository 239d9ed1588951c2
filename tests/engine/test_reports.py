"""Reports of tasks: whole again on the driver, in pieces that are each one answer of Py4J."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.spark.reports import packed, unpacked

PY4J_BUFFER = 8192

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.text(max_size=8), plain, max_size=6), max_size=5))
def test_reports_come_back_in_order(reports: list[dict[str, Any]]) -> None:
    assert list(unpacked(piece for report in reports for piece in packed(report))) == reports


def test_long_reports_come_in_pieces_that_fit_a_buffer() -> None:
    rng = random.Random(1)
    long = {"points": [rng.getrandbits(60) for _ in range(20_000)]}
    pieces = packed(long)
    assert len(pieces) > 10
    assert max(map(len, pieces)) < PY4J_BUFFER - 10
    assert list(unpacked([*packed({"first": 1}), *pieces, *packed({"last": "ü\n\\"})])) == [
        {"first": 1}, long, {"last": "ü\n\\"},
    ]  # fmt: skip
