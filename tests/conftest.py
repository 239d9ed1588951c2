"""One Spark session for the whole test run: starting one costs 7-10 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.engine.spark.session import STATIC_CONF, local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Most of a test is code that runs once: the quick compiler alone takes less time.
    java = STATIC_CONF["spark.driver.extraJavaOptions"] + " -XX:TieredStopAtLevel=1"
    session = local_session("local[4,4]", app="penstock-tests", spark__driver__extraJavaOptions=java)
    yield session
    session.stop()
