"""The rules that a flow must keep, each a function that refuses with operator, rule and remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from penstock.errors import FlowError
from penstock.flow.operators import Width

T = TypeVar("T")

# Logical operators that need more than one row at a time: forbidden in a stateless step.
STATEFUL_PLANS = {
    "Aggregate": "an aggregate",
    "Sort": "a sort",
    "GlobalLimit": "a limit",
    "LocalLimit": "a limit",
    "Offset": "an offset",
    "Tail": "a tail",
    "Distinct": "a distinct",
    "Deduplicate": "a dropDuplicates",
    "DeduplicateWithinWatermark": "a dropDuplicates",
    "Window": "a window function",
    "Join": "a join",
    "Sample": "a sample",
    "Repartition": "a repartition",
    "RepartitionByExpression": "a repartition",
    "Intersect": "an intersect",
    "Except": "an except",
    "Union": "a union",
    "EventTimeWatermark": "a watermark",
    "MapInArrow": "a Python function",
    "MapInPandas": "a Python function",
}


def check_function(fn: Any, where: str) -> None:
    """Refuse what cannot be called."""
    if not callable(fn):
        raise FlowError(where, f"a function is expected, got {type(fn).__name__}", "pass a function")


def check_choice(value: T, allowed: tuple[str, ...], where: str, option: str) -> T:
    """Refuse a value that is not one of those allowed."""
    if value not in allowed:
        raise FlowError(where, f"{option}={value!r} is not one of {', '.join(allowed)}", "choose one of them")
    return value


def check_width(width: Width, where: str) -> Width:
    """Refuse widths that are not whole numbers with 1 <= lo <= hi."""
    for number in (width.lo, width.hi):
        if not isinstance(number, int) or isinstance(number, bool):
            raise FlowError(where, f"replicas are whole numbers, got {number!r}", "pass 1 or more")
        if number < 1:
            raise FlowError(where, f"replicas must be at least 1, got {number}", "pass 1 or more")
    if width.lo > width.hi:
        raise FlowError(where, f"elastic({width.lo}, {width.hi}): the lower limit is above the upper", "swap them")
    return width


def check_stateless(result: DataFrame, where: str) -> None:
    """Refuse a DataFrame step whose plan needs state, order or a second stream."""
    for name in _plan_nodes(result._jdf.queryExecution().analyzed()):  # noqa: SLF001 - the plan has no public view
        if name in STATEFUL_PLANS:
            raise FlowError(
                where,
                f"a sql step is stateless, but it contains {STATEFUL_PLANS[name]}",
                "use stateful(), window() or union(), or do it before read()",
            )


def _plan_nodes(plan: Any) -> list[str]:
    names, waiting = [], [plan]
    while waiting:
        node = waiting.pop()
        names.append(node.getClass().getSimpleName())
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return names


def function_name(fn: Callable[..., Any] | None) -> str | None:
    """Return a function's own name if it is a usable operator name.

    >>> function_name(check_width)
    'check_width'
    >>> function_name(lambda x: x) is None
    True
    """
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None
