"""The example of the README runs as it stands and gives what the text says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from tests.apps.blocks import ROOT, blocks, run_page

README = ROOT / "README.md"


def test_there_is_one_example() -> None:
    assert len(blocks(README)) == 1


def test_example_runs(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = run_page(README, tmp_path)
    shown = capsys.readouterr().out
    assert "flow example" in shown
    assert "20,000 rows in" in shown
    prices = ps.sources.replay_batch(
        spark, space["quotes"], schema="price double", keys=space["keys"], schedule=space["load"], total=20_000
    ).toPandas()
    right = np.log(prices["price"]).groupby(prices["symbol"]).sum()
    state = space["job"].state("add_up").to_pandas().set_index("symbol")["total"].sort_index()
    assert state.index.equals(right.index)
    np.testing.assert_allclose(state, right)
    last = (
        spark.read.parquet(str(tmp_path / "out" / "totals")).groupBy("symbol").max("total").toPandas()
    )  # totals grow: logs of about 100
    np.testing.assert_allclose(last.set_index("symbol").sort_index()["max(total)"], right)


def test_links_lead_somewhere() -> None:
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in _links(page):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def _links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    return [link for link in found if "://" not in link and not link.endswith("001-engine.md")]
