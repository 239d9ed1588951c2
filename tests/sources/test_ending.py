"""A stopped query is no failure: the process in which Spark runs a stream's reader ends without a word.

The process is the real one. The test is Spark: it speaks the protocol up to the first answer, and is gone.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.serializers import CloudPickleSerializer, UTF8Deserializer, read_int, write_int, write_with_length
from pyspark.sql.datasource import DataSource

from penstock.sources.datasource import ReplaySource
from penstock.sources.tick import TickSource

INITIAL_OFFSET = 884  # the number by which Spark asks for it


def reader_process(tmp_path: Path, source: DataSource, asked: int | None) -> tuple[int, int, str]:
    """What the process of a reader answered at first, its exit code, and what it printed."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        known = {**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": path}
        command = [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
        process = subprocess.Popen(command, env=known, stderr=subprocess.PIPE, text=True)
        try:
            listening.settimeout(60)
            connection, _ = listening.accept()
            with connection, connection.makefile("rwb") as spark:
                assert read_int(spark) == process.pid
                for text in ("{}.{}".format(*sys.version_info), str(tmp_path)):
                    write_with_length(text.encode(), spark)
                write_int(0, spark)  # no archives
                write_with_length(CloudPickleSerializer().dumps(source), spark)
                write_with_length(b'{"type":"struct","fields":[]}', spark)
                write_int(1000, spark)
                spark.flush()
                answer = read_int(spark)
                if asked is not None:
                    write_int(asked, spark)
                    spark.flush()
                    read_int(spark)
                    UTF8Deserializer().loads(spark)
            _, printed = process.communicate(timeout=60)
        finally:
            process.kill()
    return answer, process.returncode, printed


@pytest.mark.parametrize("source", [ReplaySource({"spec": ""}), TickSource({})], ids=["replay", "tick"])
def test_where_spark_is_gone_a_reader_ends_without_a_word(tmp_path: Path, source: DataSource) -> None:
    assert reader_process(tmp_path, source, None) == (0, 0, "")


def test_a_reader_that_fails_says_so(tmp_path: Path) -> None:
    """There is no spec: the first question cannot be answered, and Spark is told why."""
    answer, code, _ = reader_process(tmp_path, ReplaySource({"spec": "no spec"}), INITIAL_OFFSET)
    assert (answer, code) == (0, 255)
