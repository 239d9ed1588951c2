"""How the reader of a stream ends: without a word, where its query was stopped.

Spark runs a stream's reader in a process of its own and closes the connection when the query stops. The process takes
that for a failure, cannot report it either, and prints three tracebacks to the terminal of whoever stopped the job.
"""

from __future__ import annotations

import os
import sys
import traceback

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class EndsQuietly:
    """A stream reader whose process ends where Spark is gone. Where something else failed, that is still reported."""

    def stop(self) -> None:
        """Leave: Spark calls this last, with the end of its connection as the exception in flight."""
        process, error = getattr(sys.modules.get("__main__"), "__spec__", None), sys.exception()
        if process is None or process.name != _RUNNER or not isinstance(error, EOFError):
            return
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        if innermost.f_globals.get("__name__") == "pyspark.serializers":  # Spark's connection, nothing of the reader's
            os._exit(0)
