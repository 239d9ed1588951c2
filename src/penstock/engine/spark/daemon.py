"""The parent of Spark's Python workers: imports the heavy libraries once, then forks.

Spark starts it by `spark.python.daemon.module`. A worker forked from it serves its first task in
milliseconds instead of about a second, and shares the libraries' memory with its siblings.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy  # noqa: E402, F401
import pandas  # noqa: E402, F401
import pyarrow.compute  # noqa: E402, F401
import pyspark.sql.worker.plan_data_source_read  # noqa: E402
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

_forget_directory = zipimport.zipimporter.invalidate_caches
_installed = frozenset(sys.path)  # Spark's own archives: pyspark.zip, py4j, and the jar of its core


def _keep_installed(importer: zipimport.zipimporter) -> None:
    """Forget what a zip archive holds, unless it was there from the start: those do not change under a running worker.

    A worker invalidates all import caches before its first task. For each package inside pyspark.zip, and for the
    jar of Spark's core, that reads an archive's directory anew: 0.5-1 s of CPU for every worker that starts, so a
    stage that gets wider would stall for as long.
    """
    if importer.archive not in _installed:
        _forget_directory(importer)


if __name__ == "__main__":
    zipimport.zipimporter.invalidate_caches = _keep_installed  # type: ignore[assignment, method-assign]
    # A worker collects garbage after every task. Among all that NumPy, pandas and Arrow have imported that takes 40 ms
    # of CPU, and finds nothing; what is here before the fork is left out of it.
    gc.collect()
    gc.freeze()
    manager()
