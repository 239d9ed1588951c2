"""Records survive JSON, and other versions of themselves."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.histogram import LogHistogram
from penstock.control.moments import Moments
from penstock.observe.record import PARTS, BatchRecord, OperatorStats, mark_superseded

counts = st.integers(0, 2**60)
times = st.floats(0.0, 1e9)
moments = st.lists(st.floats(0.0, 1e3), max_size=5).map(Moments.of)
histograms = st.lists(st.floats(0.0, 1e3), max_size=5).map(LogHistogram.of)
operators = st.builds(
    OperatorStats,
    name=st.text(max_size=5), kind=st.sampled_from(["map", "window"]), width=counts, tasks=counts, rows_in=counts,
    rows_out=counts, calls=counts, skipped=counts, busy_s=times, wait_s=times, idle_s=times, service=moments,
    arrivals=moments, concurrency=counts, task_max_s=times, setups=counts, teardowns=counts, state_rows=counts,
    state_bytes=counts, congested=counts,
)  # fmt: skip
records = st.builds(
    BatchRecord,
    batch=counts, run=st.text(max_size=5), started=times, visible=times, rows_in=counts, rows_out=counts,
    due=st.none() | counts, backlog=st.none() | counts, parts=st.dictionaries(st.sampled_from(PARTS), times),
    operators=st.lists(operators, max_size=3).map(tuple),
    latency=st.dictionaries(st.text(max_size=5), histograms, max_size=2),
    latency_from=st.sampled_from(["arrival", "cut"]), decision=st.dictionaries(st.text(max_size=5), counts, max_size=2),
    watermark=st.none() | st.integers(-(2**60), 2**60), replayed=st.booleans(), late=counts, dead=counts,
    superseded=st.booleans(),
)  # fmt: skip


@given(records)
def test_json_round_trip(record: BatchRecord) -> None:
    assert BatchRecord.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False))) == record


def test_parts_keep_their_order_through_json() -> None:
    record = BatchRecord(1, parts=dict.fromkeys(PARTS, 1.0))
    assert tuple(BatchRecord.from_json(json.loads(json.dumps(record.to_json()))).parts) == PARTS


def test_unknown_fields_are_ignored_and_missing_ones_default() -> None:
    value = {"batch": 4, "colour": "red", "operators": [{"name": "f", "taste": "sweet"}]}
    assert BatchRecord.from_json(value) == BatchRecord(4, operators=(OperatorStats("f"),))


def test_only_the_last_record_of_a_batch_stands() -> None:
    marked = mark_superseded([BatchRecord(1), BatchRecord(1), BatchRecord(2), BatchRecord(1)])
    assert [(r.batch, r.superseded) for r in marked] == [(1, True), (1, True), (2, False), (1, False)]
