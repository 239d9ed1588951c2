"""The parent of Spark's Python workers: imports the heavy libraries once, then forks.

Spark starts it by `spark.python.daemon.module`. A worker forked from it serves its first task in
milliseconds instead of about a second, and shares the libraries' memory with its siblings.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy  # noqa: E402, F401
import pandas  # noqa: E402, F401
import pyarrow.compute  # noqa: E402, F401
import pyspark.sql.worker.plan_data_source_read  # noqa: E402
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

if __name__ == "__main__":
    manager()
