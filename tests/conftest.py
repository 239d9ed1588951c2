"""One Spark session for the whole test run: starting one costs 7-10 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.engine.spark.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("local[4,4]", app="penstock-tests")
    yield session
    session.stop()
