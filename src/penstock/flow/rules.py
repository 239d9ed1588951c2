"""The rules that a flow must keep, each a function that refuses with operator, rule and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import FlowError
from penstock.flow.operators import MAX_KEYED_WIDTH, Width
from penstock.flow.schema import first_line

T = TypeVar("T")

# Plans that look at one row at a time: all that a stateless step may contain.
STATELESS_PLANS = frozenset({"Project", "Filter", "Generate", "Expand", "SubqueryAlias", "View", "ResolvedHint"})

# What users know the other plans by.
STATEFUL_PLANS = {
    "Aggregate": "an aggregate",
    "Sort": "a sort",
    "GlobalLimit": "a limit",
    "LocalLimit": "a limit",
    "Offset": "an offset",
    "Tail": "a tail",
    "Distinct": "a distinct",
    "Deduplicate": "a distinct or dropDuplicates",
    "DeduplicateWithinWatermark": "a dropDuplicates",
    "Window": "a window function",
    "Join": "a join",
    "LateralJoin": "a join",
    "AsOfJoin": "a join",
    "Sample": "a sample",
    "Repartition": "a repartition",
    "RepartitionByExpression": "a repartition",
    "RebalancePartitions": "a repartition",
    "Intersect": "an intersect",
    "Except": "an except",
    "Union": "a union",
    "EventTimeWatermark": "a watermark",
    "CollectMetrics": "an observe",
    "MapInArrow": "a Python function",
    "MapInPandas": "a Python function",
    "FlatMapGroupsInPandas": "a grouped Python function",
    "FlatMapGroupsInArrow": "a grouped Python function",
}

SQL_REMEDY = "use map() for Python, stateful(), window() or union() for the rest, or do it before read()"


def check_function(fn: Any, where: str, what: str = "a function") -> None:
    """Refuse what cannot be called.

    >>> check_function(3, "map 'score'")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: map 'score': a function is expected, got int. Remedy: pass a function.
    """
    if not callable(fn):
        raise FlowError(where, f"{what} is expected, got {type(fn).__name__}", f"pass {what}")


def check_choice(value: T, allowed: tuple[str, ...], where: str, option: str) -> T:
    """Refuse a value that is not one of those allowed.

    >>> check_choice("random", ("round_robin", "on_demand"), "map 'score'", "scheduling")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: map 'score': scheduling='random' is not one of round_robin, on_demand. \
Remedy: choose one of them.
    """
    if value not in allowed:
        raise FlowError(where, f"{option}={value!r} is not one of {', '.join(allowed)}", "choose one of them")
    return value


def check_known(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse an option that there is not, and guess which one was meant.

    >>> check_known(["replica"], ["replicas", "ordered"], "map 'score'")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: map 'score': unknown option 'replica' (there are ordered, replicas). \
Remedy: write 'replicas'.
    """
    names = sorted(known)
    for option in given:
        if option not in names:
            close = difflib.get_close_matches(option, names, 1)
            there_are = f"there are {', '.join(names)}" if names else "there are none"
            raise FlowError(
                where, f"unknown option '{option}' ({there_are})", f"write '{close[0]}'" if close else "leave it out"
            )


def check_width(width: Width, where: str, keyed: bool = False) -> Width:
    """Refuse widths that are not whole numbers with 1 <= lo <= hi; keyed state has a most, its key groups.

    >>> check_width(Width(3, 2), "map 'score'")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: map 'score': elastic(3, 2): the lower limit is above the upper. Remedy: swap them.
    """
    for number in (width.lo, width.hi):
        if not isinstance(number, int) or isinstance(number, bool):
            raise FlowError(where, f"replicas are whole numbers, got {number!r}", "pass 1 or more")
        if number < 1:
            raise FlowError(where, f"replicas must be at least 1, got {number}", "pass 1 or more")
    if width.lo > width.hi:
        raise FlowError(where, f"elastic({width.lo}, {width.hi}): the lower limit is above the upper", "swap them")
    if keyed and width.hi > MAX_KEYED_WIDTH:
        rule = f"keyed state has {MAX_KEYED_WIDTH} key groups, so at most that many replicas, got {width.hi}"
        raise FlowError(where, rule, f"pass {MAX_KEYED_WIDTH} or less")
    return width


def check_stateless(result: DataFrame, probe: DataFrame, where: str) -> None:
    """Refuse a DataFrame step whose plan needs state, order, Python, or rows other than its input's."""
    plan, source = _analyzed(result), _analyzed(probe)
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        children = node.children()
        name = node.getClass().getSimpleName()
        if children.isEmpty():
            if not node.equals(source):
                rule = "a sql step works on the stream it is given, but it reads another DataFrame"
                raise FlowError(where, rule, "return what fn was given, transformed; join tables before read()")
        elif name not in STATELESS_PLANS:
            _refuse_plan(STATEFUL_PLANS.get(name, f"{name}, which is not known to be stateless"), where)
        waiting += [children.apply(i) for i in range(children.size())]
    patterns = result.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
    if plan.containsPattern(patterns.PYTHON_UDF()):
        _refuse_plan("a Python function", where)
    if plan.containsPattern(patterns.PLAN_EXPRESSION()):
        _refuse_plan("a subquery", where)


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # the plan has no public view


def _refuse_plan(what: str, where: str) -> None:
    raise FlowError(where, f"a sql step is stateless and runs in the JVM, but it contains {what}", SQL_REMEDY)


# Formats that Spark reads only, and the remedy for a column that a format cannot hold.
READ_ONLY_FORMATS = ("binaryfile",)


def check_format(spark: SparkSession, format: str, schema: StructType, where: str) -> None:
    """Refuse a sink format that Spark does not know, that is no file format, or that cannot hold the columns."""
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().conf()
    try:
        found = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, conf)
    except (Py4JError, PySparkException) as error:
        reason = "" if isinstance(error, Py4JError) else f" ({first_line(error)})"
        rule = f"Spark knows no format {format!r}{reason}"
        raise FlowError(where, rule, "use parquet, orc, json, csv, memory, console or function") from None
    writer = _file_format(spark, found)
    if writer is None or format.lower() in READ_ONLY_FORMATS:
        rule = f"{format!r} is not a format of files that can be written"
        raise FlowError(where, rule, "write('function', fn=...) can reach anything else")
    columns = spark._jsparkSession.parseDataType(schema.json())
    for position, field in enumerate(schema.fields):
        if not writer.supportDataType(columns.apply(position).dataType()):
            rule = f"{format} files cannot hold column '{field.name}' of type {field.dataType.simpleString()}"
            raise FlowError(where, rule, "turn it into text or numbers in a sql step, or write parquet")
    if format.lower() == "text" and len(schema.fields) != 1:
        raise FlowError(where, "text files hold one column", "join the columns into one, or write csv")


def _file_format(spark: SparkSession, found: Any) -> Any | None:
    """Return Spark's FileFormat object behind a data source class; None if it is none."""

    def make(java_class: Any) -> Any:
        gateway: Any = spark.sparkContext._gateway
        jvm: Any = spark._jvm
        no_types, no_values = (gateway.new_array(kind, 0) for kind in (jvm.java.lang.Class, jvm.java.lang.Object))
        return java_class.getDeclaredConstructor(no_types).newInstance(no_values)

    def is_a(java_class: Any, name: str) -> bool:
        base = f"org.apache.spark.sql.execution.datasources.{name}"
        loader = java_class.getClassLoader()
        return bool(spark._jvm.java.lang.Class.forName(base, False, loader).isAssignableFrom(java_class))  # type: ignore[union-attr]

    if is_a(found, "v2.FileDataSourceV2"):
        found = make(found).fallbackFileFormat()
    return make(found) if is_a(found, "FileFormat") else None


def function_name(fn: Callable[..., Any] | None) -> str | None:
    """Return a function's own name if it is a usable operator name.

    >>> function_name(check_width)
    'check_width'
    >>> function_name(lambda x: x) is None
    True
    """
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None
