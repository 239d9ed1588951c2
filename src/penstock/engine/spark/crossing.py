"""How Spark cuts the rows that cross over to Python into Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT = str(2**31 - 1)  # Spark's word for it


def crossing_conf(crossing: Iterable[StructType]) -> dict[str, str]:
    """Return the settings for rows of these schemas: where all are of fixed width, 10 000 of them are a small batch.

    Spark bounds an Arrow batch by its bytes, too, and for that adds up the sizes of all its columns anew with every
    row: a tenth of what it costs to send rows of seven numbers. Rows that hold text or lists keep that bound.

    >>> numbers, text = StructType().add("v", "double"), StructType().add("s", "string")
    >>> crossing_conf([numbers]), crossing_conf([numbers, text])
    ({'spark.sql.execution.arrow.maxBytesPerBatch': '2147483647'}, {})
    """
    return {BATCH_BYTES: NO_LIMIT} if all(_is_narrow(schema) for schema in crossing) else {}


def _is_narrow(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_narrow(field.dataType) for field in kind)
    return not isinstance(kind, (ArrayType, BinaryType, MapType, StringType, VariantType))
