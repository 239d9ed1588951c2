"""Check what user functions give back, and say precisely what is wrong with it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class FunctionFailed(Exception):
    """A user function raised or broke its declaration: carried to the driver as data, not retried."""

    def __init__(self, operator: str, text: str) -> None:
        super().__init__(f"operator '{operator}': {text}")
        self.operator = operator

    @classmethod
    def at(
        cls, operator: str, kind: str, batch: int, chunk: int, row: int | None, rows: pa.RecordBatch, error: Exception
    ) -> FunctionFailed:
        """Build the message: operator, batch, chunk, first bad row, and the user's own traceback."""
        place = f"batch {batch}, source partition {chunk >> 31}, chunk {chunk & ((1 << 31) - 1)}"
        if row is None:
            what = f"no single row of the chunk's {rows.num_rows} fails alone"
        else:
            what = f"first bad row {row}: {rows.slice(row, 1).to_pylist()[0]}"
        return cls(operator, f"({kind}) raised {type(error).__name__}: {error}; {place}, {what}\n{user_trace(error)}")

    def to_json(self) -> dict[str, Any]:
        """Return what a report carries."""
        return {"operator": self.operator, "text": str(self)}


class Undeclared(TypeError):
    """A function returned something other than it declared."""


def user_trace(error: BaseException) -> str:
    """Return the traceback of a user's function without Penstock's own frames above it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if "/penstock/engine/" in frame.filename]
    kept = frames[own[-1] + 1 :] if own else frames
    lines = traceback.format_list(kept) + traceback.format_exception_only(type(error), error)
    return "Traceback (of the function, most recent call last):\n" + "".join(lines).rstrip()


def as_batches(value: Any) -> Iterator[pa.RecordBatch]:
    """Return RecordBatches from a RecordBatch or a Table; refuse anything else."""
    if isinstance(value, pa.RecordBatch):
        yield value
    elif isinstance(value, pa.Table):
        yield from value.combine_chunks().to_batches()
    else:
        message = f"the function must return a pyarrow RecordBatch or Table, it returned {type(value).__name__}"
        raise Undeclared(message)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch in exactly the declared schema; lossless changes are made, others name the column."""
    if batch.schema.equals(schema):
        return batch
    for name in schema.names:
        if name not in batch.schema.names:
            message = f"column '{name}' is declared but missing; the function returned {batch.schema.names}"
            raise Undeclared(message)
    for name in batch.schema.names:
        if name not in schema.names:
            message = f"column '{name}' was returned but is not declared; declared are {schema.names}"
            raise Undeclared(message)
        if batch.schema.names.count(name) > 1:
            raise Undeclared(f"column '{name}' was returned {batch.schema.names.count(name)} times")
    columns = []
    for declared in schema:
        column = batch.column(declared.name)
        if column.type != declared.type:
            if not lossless(column.type, declared.type):
                message = f"column '{declared.name}' is declared {declared.type} but was returned as {column.type}"
                raise Undeclared(message)
            try:
                column = column.cast(declared.type)
            except pa.ArrowInvalid as error:
                message = (
                    f"column '{declared.name}' is declared {declared.type} but was returned as {column.type}: {error}"
                )
                raise Undeclared(message) from None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def lossless(given: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a cast between two Arrow types only changes the form.

    >>> lossless(pa.large_string(), pa.string()), lossless(pa.int64(), pa.float64())
    (True, False)
    """
    if given == declared or pa.types.is_null(given):
        return True
    if pa.types.is_dictionary(given):
        return lossless(given.value_type, declared)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(declared):
        return (given.tz is None) == (declared.tz is None)
    if pa.types.is_list(declared) and (pa.types.is_list(given) or pa.types.is_large_list(given)):
        return lossless(given.value_type, declared.value_type)
    if pa.types.is_struct(declared) and pa.types.is_struct(given):
        mine, theirs = list(given), list(declared)
        return len(mine) == len(theirs) and all(
            a.name == b.name and lossless(a.type, b.type) for a, b in zip(mine, theirs, strict=True)
        )
    pairs = ((pa.large_string(), pa.string()), (pa.large_binary(), pa.binary()), (pa.string_view(), pa.string()))
    return (given, declared) in pairs


def as_mask(value: Any, rows: int) -> pa.BooleanArray:
    """Return a predicate's answer as Arrow booleans, null meaning no; refuse another length or type."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    array = value if isinstance(value, pa.Array) else pa.array(np.asarray(value))
    if not pa.types.is_boolean(array.type) or len(array) != rows:
        message = f"a predicate returns one boolean per row ({rows}), it returned {len(array)} of {array.type}"
        raise Undeclared(message)
    return pc.fill_null(array, False)
