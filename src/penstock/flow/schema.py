"""Schemas as users write them (DDL text or StructType), checked for the rules of a flow."""

from __future__ import annotations

import copy

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


def parse(schema: str | StructType, where: str, *, allow_window: bool = False, role: str = "schema") -> StructType:
    """Return a StructType of our own from DDL text or a StructType; refuse names a flow cannot carry."""
    parsed: DataType = schema if isinstance(schema, StructType) else _parse_ddl(schema, where, role)
    if not isinstance(parsed, StructType):
        raise FlowError(where, f"{role} {schema!r} is one type, not columns", f"name its column, as in 'a {schema}'")
    if not parsed.fields:
        raise FlowError(where, f"{role} has no columns", "name at least one, as in 'a long'")
    return check_names(copy.deepcopy(parsed), where, allow_window)


def _parse_ddl(schema: object, where: str, role: str) -> DataType:
    if not isinstance(schema, str):
        kind = type(schema).__name__
        raise FlowError(where, f"{role} is DDL text or a StructType, got {kind}", "write it like 'a long, b double'")
    if not schema.strip():
        return StructType()
    try:
        return _parse_datatype_string(schema)
    except Exception as error:
        reason = first_line(error)
        raise FlowError(
            where, f"{role} {schema!r} is not valid DDL ({reason})", "write it like 'a long, b double'"
        ) from None


def check_names(schema: StructType, where: str, allow_window: bool = False) -> StructType:
    """Refuse reserved and repeated column names; Spark does not tell upper case from lower.

    >>> schema = StructType().add("price", "double").add("Price", "double")
    >>> check_names(schema, "map 'score'")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: map 'score': two columns are named 'Price' (Spark ignores case). \
Remedy: rename one of them.
    """
    seen: set[str] = set()
    for name in schema.names:
        if name.lower().startswith(RESERVED_PREFIX):
            rule = f"column names that begin with {RESERVED_PREFIX} are Penstock's, got '{name}'"
            raise FlowError(where, rule, "rename it")
        if name.lower() == "window" and not allow_window:
            raise FlowError(where, f"the column name '{name}' is taken by window results", "rename the column")
        if name.lower() in seen:
            rule = f"two columns are named '{name}' (Spark ignores case)"
            raise FlowError(where, rule, "rename one of them")
        seen.add(name.lower())
    return schema


def need_columns(schema: StructType, names: tuple[str, ...], where: str, role: str) -> None:
    """Refuse a name that is not a column of the schema.

    >>> need_columns(StructType().add("k", "long"), ("q",), "stateful 'sum'", "key")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: stateful 'sum': key 'q' is not a column (there are k). Remedy: name one of them.
    """
    for name in names:
        if name not in schema.names:
            rule = f"{role} {name!r} is not a column (there are {', '.join(schema.names)})"
            raise FlowError(where, rule, "name one of them")


def need_keys(schema: StructType, names: tuple[str, ...], where: str) -> None:
    """Refuse keys that are no columns, come twice, or cannot be compared for equality."""
    need_columns(schema, names, where, "key")
    for name in names:
        if names.count(name) > 1:
            raise FlowError(where, f"key '{name}' is given twice", "name it once")
        kind: DataType = schema[name].dataType
        if isinstance(kind, (ArrayType, MapType, StructType, VariantType)):
            rule = f"key '{name}' has type {kind.simpleString()}, but a key is of an atomic type"
            raise FlowError(where, rule, "make its fields columns of their own, and use those")


def first_line(error: BaseException) -> str:
    r"""Return the line of an error that says what happened; Spark's own errors go on for pages.

    >>> first_line(ValueError("it broke\nhere"))
    'it broke'
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def columns_text(schema: StructType) -> str:
    """Return a schema as DDL-like text, without nullability.

    >>> columns_text(StructType().add("k", "string").add("unit price", "double"))
    'k string, `unit price` double'
    """
    return ", ".join(
        f"{f.name if f.name.isidentifier() else '`' + f.name + '`'} {f.dataType.simpleString()}" for f in schema.fields
    )
