"""A local Spark session with the settings that make a micro-batch cheap.

Any session works with Penstock; this one is what the demo, the tests and the benchmarks use. What a
running session can still take is set while a flow starts, for its query alone, so a user's own session profits too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.engine.spark.java import java_home

# Set on any session that runs a flow (measured: docs/decisions/001-engine.md).
RUNTIME_CONF = {
    # Rename-based log writes: about 70 ms a batch less than the default on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Widths are Penstock's decision; AQE would replan (and re-submit) every exchange.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A file is cut at (size + this) / tasks: with Spark's 4 MB one of two tasks got three of four row groups.
    "spark.sql.files.openCostInBytes": "262144",
    # The text of each plan is built for a UI that nobody reads at 10 batches a second.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
}

# Garbage collection without long pauses. By itself the parallel collector starts with a small heap and shrinks the room
# in which objects of a batch may die young. They reach the old generation (6 MB/s at 10 batches a second), and every 50
# to 100 s all stands still for 130-180 ms, more than half of a tight bound. With the heap whole from the start and room
# for what a batch leaves behind it is 0.6 MB/s (docs/decisions/001-engine.md).
STEADY_HEAP = (
    "-XX:+UseParallelGC",
    "-XX:InitialRAMPercentage=100",  # of the memory, but never more than the heap's limit: as -Xms, whatever that is
    "-XX:-UseAdaptiveSizePolicy",
    "-XX:SurvivorRatio=4",
    "-XX:MetaspaceSize=192m",  # Spark's classes: else their growth alone asks for four full collections at the start
)

# Only a new session can take these.
STATIC_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Loopback TCP holds small Arrow batches for 20-40 ms; Unix sockets do not (realtime spike, e).
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers fork from a daemon that has already imported NumPy, Arrow and Penstock.
    "spark.python.daemon.module": "penstock.engine.spark.daemon",
    # Without a native Hadoop library every file costs a fork of chmod: fork cheaply, and write no .crc twin.
    # -Xss: Spark matches the text of an exception by a regex that overflows the default stack when a query stops.
    # arrow: Spark's writers grow a vector before they set a value; every bound need not be checked again.
    "spark.driver.extraJavaOptions": (
        f"-Djdk.lang.Process.launchMechanism=VFORK -Xss4m {' '.join(STEADY_HEAP)} "
        "-Darrow.enable_unsafe_memory_access=true "
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # What an exchange writes stays in this machine's memory: to compress it and add it up costs more than to write it.
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.session.timeZone": "UTC",
}

QUERY_LOGGER = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"

# One BLAS thread per Python worker: Spark's tasks are the parallelism.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
# A worker keeps the memory of one batch for the next. Given back and taken anew, as allocators do by default with
# arrays of a megabyte, every page of it is faulted in again: a third of the time of closing windows (decision 001).
# What a large task used is given back after it (`worker_memory`).
KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "MIMALLOC_PURGE_DELAY": "1000",  # ms; Arrow's own allocator gives pages back after 10
}
WORKER_ENV = ONE_THREAD | KEPT_MEMORY


def prepare_environment() -> None:
    """Point Spark at this interpreter and at a fit Java; users forget both."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def local_session(master: str = "local[2,4]", app: str = "penstock", **conf: str) -> SparkSession:
    """Start (or get) a local session tuned for short batches.

    `master` is Spark's; in `local[2,4]` the 4 is the number of attempts of a task, without which a killed
    Python worker ends the query. Keyword arguments are further settings, dots written as double underscores:
    `local_session(spark__driver__memory="4g")`.

    The session reads and writes local files without checksum twins, which saves about 10 ms a batch. Spark's own
    RocksDB state store cannot live with that: to run such a query in the same session, pass
    `spark__hadoop__fs__file__impl="org.apache.hadoop.fs.LocalFileSystem"`.
    """
    prepare_environment()
    builder = SparkSession.builder.master(master).appName(app)
    settings = STATIC_CONF | RUNTIME_CONF | {key.replace("__", "."): value for key, value in conf.items()}
    settings |= {f"spark.executorEnv.{name}": value for name, value in WORKER_ENV.items()}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Set some of a session's settings for a while; afterwards it has its own back."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, known in before.items():
            if known is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, known)


def hush(spark: SparkSession) -> None:
    """Keep Spark's log of failed queries off: their Job reports them, with the user's error first, not last."""
    levels = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    levels.core.config.Configurator.setLevel(QUERY_LOGGER, levels.Level.OFF)
