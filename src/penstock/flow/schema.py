"""Schemas as users write them (DDL text or StructType), checked for the rules of a flow."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    VariantType,
    _parse_datatype_string,
)

from penstock.errors import FlowError

RESERVED_PREFIX = "_ps_"


def parse(schema: str | StructType, where: str) -> StructType:
    """Return a StructType from DDL text or a StructType; refuse names a flow cannot carry."""
    if isinstance(schema, str):
        try:
            parsed = _parse_datatype_string(schema)
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise FlowError(where, f"schema {schema!r} is not valid DDL ({reason})", "write it like 'a long, b double'") from None
    else:
        parsed = schema
    if not isinstance(parsed, StructType):
        raise FlowError(where, f"a schema is DDL text or a StructType, got {type(schema).__name__}", "pass one of them")
    return check_names(parsed, where)


def check_names(schema: StructType, where: str, allow_window: bool = False) -> StructType:
    """Refuse reserved and repeated column names."""
    seen: set[str] = set()
    for name in schema.names:
        if name.lower().startswith(RESERVED_PREFIX):
            raise FlowError(where, f"column names that begin with {RESERVED_PREFIX} are Penstock's, got '{name}'", "rename it")
        if name.lower() == "window" and not allow_window:
            raise FlowError(where, "the column name 'window' is taken by window results", "rename the column")
        if name.lower() in seen:
            raise FlowError(where, f"two columns are named '{name}'", "rename one of them")
        seen.add(name.lower())
    return schema


def need_columns(schema: StructType, names: tuple[str, ...], where: str, role: str) -> None:
    """Refuse a name that is not a column of the schema."""
    for name in names:
        if name not in schema.names:
            raise FlowError(where, f"{role} '{name}' is not a column (there are {', '.join(schema.names)})", "name one of them")


def need_atomic(schema: StructType, names: tuple[str, ...], where: str) -> None:
    """Refuse keys that cannot be compared for equality."""
    for name in names:
        kind: DataType = schema[name].dataType
        if isinstance(kind, (ArrayType, MapType, StructType, VariantType)):
            raise FlowError(where, f"key '{name}' has type {kind.simpleString()}; a key is of an atomic type", "use its fields")
