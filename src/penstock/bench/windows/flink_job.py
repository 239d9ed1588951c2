"""Window queries in Flink SQL, in an environment of its own: reads one JSON line per query, answers with one.

Run by `penstock.bench.windows.flink` with the Python that has apache-flink; it knows nothing of Penstock. The events
are made by Flink's own datagen source from their formula, in memory: no file is read, which is to Flink's advantage.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def environment(parallelism: int) -> Any:
    """A streaming table environment on a mini cluster."""
    # Only the environment of this script has it.
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # noqa: PLC0415

    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = made.get_config()
    config.set("parallelism.default", str(parallelism))
    config.set("pipeline.object-reuse", "true")  # spares copies between operators
    config.set("table.local-time-zone", "UTC")
    return made


def statements(query: dict[str, Any]) -> list[str]:
    """The source, the sink and the query, as SQL.

    >>> query = {"sql": {"t_ms": "i", "k": "MOD(i, 3)", "v": "CAST(i AS DOUBLE)"}, "rows": 10, "size_ms": 1000,
    ...     "slide_ms": 500, "out": None}
    >>> print(statements(query)[1])
    CREATE TABLE results (k BIGINT, start_ms BIGINT, total DOUBLE, top DOUBLE) WITH ('connector' = 'blackhole')
    """
    sql, size, slide = query["sql"], query["size_ms"], query["slide_ms"]
    sink = f"'filesystem', 'path' = '{query['out']}', 'format' = 'csv'" if query["out"] else "'blackhole'"
    # window_start is a local time in UTC without a zone: whole seconds and milliseconds make it a number.
    start = "CAST(EXTRACT(EPOCH FROM window_start) AS BIGINT) * 1000 + EXTRACT(MILLISECOND FROM window_start)"
    # A millisecond behind the latest event: more events of the same millisecond, of which the dense case has a hundred,
    # are then not late.
    in_time = "ts - INTERVAL '0.001' SECOND"
    hop = f"HOP(TABLE events, DESCRIPTOR(ts), {interval(slide)}, {interval(size)})"
    return [
        f"CREATE TABLE events (i BIGINT, k AS {sql['k']}, v AS {sql['v']}, ts AS TO_TIMESTAMP_LTZ({sql['t_ms']}, 3), "
        f"WATERMARK FOR ts AS {in_time}) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000000', "
        "'fields.i.kind' = 'sequence', 'fields.i.start' = '0', "
        f"'fields.i.end' = '{query['rows'] - 1}')",
        f"CREATE TABLE results (k BIGINT, start_ms BIGINT, total DOUBLE, top DOUBLE) WITH ('connector' = {sink})",
        f"INSERT INTO results SELECT k, {start}, SUM(v), MAX(v) FROM TABLE({hop}) GROUP BY k, window_start, window_end",
    ]


def interval(milliseconds: int) -> str:
    """A duration in SQL.

    >>> interval(500)
    "INTERVAL '0.500' SECOND(3, 3)"
    """
    return f"INTERVAL '{milliseconds // 1000}.{milliseconds % 1000:03d}' SECOND(3, 3)"


def run(made: Any, query: dict[str, Any]) -> dict[str, Any]:
    """Run one query to its end; seconds are Flink's own net run time of the job, submission not counted."""
    for name in ("events", "results"):
        made.execute_sql(f"DROP TABLE IF EXISTS {name}")
    source, sink, insert = statements(query)
    made.execute_sql(source)
    made.execute_sql(sink)
    result = made.execute_sql(insert)
    result.wait()
    done = result.get_job_client().get_job_execution_result().result()
    return {"seconds": done.get_net_runtime() / 1000.0}


def main() -> None:
    """Answer queries until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Flink and its JVM print to stdout: that is not for the reader of the answers
    made = environment(int(sys.argv[1]))
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        try:
            answer = run(made, json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
