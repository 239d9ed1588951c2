"""How Spark cuts the rows that cross over to Python into Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_LIMIT = str(2**31 - 1)  # Spark's word for it
FEW, MORE = "10000", "32768"  # rows of a batch: Spark's default, and what still is a small one if rows are narrow


def crossing_conf(crossing: Iterable[StructType], rows: str | None = FEW) -> dict[str, str]:
    """Return the settings for rows of these schemas: where all are of fixed width, many of them are a small batch.

    Spark bounds an Arrow batch by its bytes, too, and for that adds up the sizes of all its columns anew with every
    row: a tenth of what it costs to send rows of seven numbers. Rows that hold text or lists keep that bound. `rows` is
    the session's own bound on the rows of a batch; one that somebody chose stays.

    >>> numbers, text = StructType().add("v", "double"), StructType().add("s", "string")
    >>> crossing_conf([numbers], rows="500"), crossing_conf([numbers, text])
    ({'spark.sql.execution.arrow.maxBytesPerBatch': '2147483647'}, {})
    >>> crossing_conf([numbers])["spark.sql.execution.arrow.maxRecordsPerBatch"]
    '32768'
    """
    if not all(_is_narrow(schema) for schema in crossing):
        return {}
    return {BATCH_BYTES: NO_LIMIT} | ({BATCH_ROWS: MORE} if rows == FEW else {})


def _is_narrow(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_narrow(field.dataType) for field in kind)
    return not isinstance(kind, (ArrayType, BinaryType, MapType, StringType, VariantType))
