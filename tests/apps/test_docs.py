"""The complete examples of the how-to pages run; the reference is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.apps.reference import reference
from tests.apps.blocks import ROOT, blocks, run_page

PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_page_runs(spark: SparkSession, tmp_path: Path, page: Path) -> None:
    run_page(page, tmp_path, spark=spark)


def test_every_how_to_page_has_an_example_that_runs() -> None:
    assert {page.stem for page in (ROOT / "docs" / "how-to").glob("*.md")} <= {page.stem for page in PAGES}


def test_reference_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "reference.md").read_text()
    assert committed == reference(), "run: python -m penstock.apps.reference > docs/reference.md"


def test_reference_has_every_public_name() -> None:
    text = reference()
    for name in ps.__all__:
        assert f"## `ps.{name}`" in text, name
    for name in ps.sources.__all__:
        assert name in text, name
