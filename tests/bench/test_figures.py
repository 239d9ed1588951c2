"""The benchmark's own arithmetic, and the functions it measures: right, or its figures mean nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.bench.figures import Figure, Target, quantile, table, write
from penstock.bench.functions import keyed_sum
from penstock.bench.rates import Contest


def test_a_figure_is_the_median_of_its_runs_and_says_whether_the_target_holds() -> None:
    row = Figure("b", "map", "rows/s", [3.0, 1.0, 2.0], Target(">=", 2.0), "note").to_json()

    assert (row["value"], row["runs"], row["target"], row["holds"]) == (2.0, [3.0, 1.0, 2.0], ">= 2", True)


def test_what_was_not_measured_never_holds_and_is_null_in_the_file(tmp_path: Path) -> None:
    missing = Figure("c", "ratio", "ratio", [], Target(">=", 5.0), "not measured")

    write(str(tmp_path / "new" / "out.json"), {"cores": 2}, 7, [missing])

    document = json.loads((tmp_path / "new" / "out.json").read_text())
    assert (document["how"], document["machine"], document["runs"]) == ("measured", {"cores": 2}, 7)
    assert (document["rows"][0]["value"], document["rows"][0]["holds"]) == (None, False)
    assert "NO" in table([missing])


def test_quantiles_are_values_that_occurred() -> None:
    values = [float(i) for i in range(1, 101)]

    assert [quantile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert math.isnan(quantile([], 0.5))


def test_a_contest_drops_the_warm_up_turns_the_order_round_and_forms_ratios_within_a_run(tmp_path: Path) -> None:
    order: list[str] = []
    contest = Contest(lambda text: None, "x")
    for name, values in (("a", [9.0, 2.0, 6.0]), ("b", [9.0, 1.0, 2.0])):
        left = iter(values)
        contest.add(name, lambda _, name=name, left=left: (order.append(name), next(left))[1])

    contest.run(tmp_path, 2)

    assert order == ["b", "a", "a", "b", "b", "a"]
    assert contest.ratios("a", "b") == [2.0, 3.0]
    assert contest.ratios("a", "never measured") == []


def test_the_keyed_sum_adds_to_the_state_of_each_key() -> None:
    batch = pa.RecordBatch.from_pydict({"k": [5, 6, 5], "v": [1.0, 2.0, 4.0]})
    known = pa.table({"total": pa.array([10.0, None], pa.float64())})
    state = ps.KeyedState(np.array([0, 1, 0]), pa.table({"k": [5, 6]}), known, np.array([False, True]))

    out, after = keyed_sum(batch, state)

    assert out.to_pydict() == {"k": [5, 6], "total": [15.0, 2.0]}
    assert after["total"].tolist() == [15.0, 2.0]
