"""Which pattern carries out a window, and by which path: from what was declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from penstock.errors import FlowError
from penstock.patterns.plan import PATTERNS
from penstock.windows.aggregates import Output
from penstock.windows.time import Time

Path = Literal["native", "panes", "content"]


def choose(
    spec: Any, aggregates: Sequence[Output], *, has_function: bool, pattern: str | None, where: str = "window"
) -> Path:
    """Return the path of a window operator: native panes, Python panes, or its content.

    >>> from penstock.windows.aggregates import bind, count
    >>> outputs = bind({"n": count()}, {})
    >>> choose(Time("10 s"), outputs, has_function=False, pattern=None)
    'native'
    >>> choose(Time("10 s"), outputs, has_function=False, pattern="key")
    'content'
    >>> from penstock.windows.aggregates import Aggregate, quantile
    >>> own = Aggregate(lambda c: c["x"], lambda a, b: a[0] * b[0], lambda s: s[0], columns="x")
    >>> choose(Time("10 s", "1 s"), bind({"p": own}, {"x": "double"}), has_function=False, pattern=None)
    'panes'
    >>> choose(Time("10 s", "1 s"), bind({"m": quantile("x", 0.5)}, {"x": "double"}), has_function=False, pattern=None)
    'content'
    >>> choose(Time("10 s"), (), has_function=True, pattern="pane")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: window: pane farming needs F = H(G(pane), ...), and a function of the whole window \
says no such thing. Remedy: pass pane= and combine= to apply(), or leave pattern= out.
    """
    if pattern is not None and pattern not in PATTERNS:
        raise FlowError(where, f"pattern={pattern!r} is not one of {', '.join(PATTERNS)}", "choose one of them")
    if pattern is not None and not PATTERNS[pattern].runs:
        runs = " and ".join(f"'{row.name}'" for row in PATTERNS.values() if row.runs)
        raise FlowError(where, f"pattern={pattern!r} cannot be run yet", f"use {runs}, or leave it out")
    if pattern == "pane":
        _check_panes(spec, aggregates, has_function, where)
    declared_panes = not aggregates and not has_function
    if declared_panes:
        if pattern == "key":
            rule = "pane= and combine= are for pane farming, not for pattern='key'"
            raise FlowError(where, rule, "pass a function of the whole window, or leave pattern= out")
        _check_panes(spec, aggregates, has_function, where)
        return "panes"
    if has_function or pattern == "key" or not has_fixed_panes(spec):
        return "content"
    if all(output.native for output in aggregates):
        return "native"
    return "panes" if all(output.decomposable for output in aggregates) else "content"


def has_fixed_panes(spec: Any) -> bool:
    """Whether panes lie at times that are the same for every key, so that they can be made before keys meet."""
    return isinstance(spec, Time) and not spec.needs_content


def _check_panes(spec: Any, aggregates: Sequence[Output], has_function: bool, where: str) -> None:
    if has_function:
        rule = "pane farming needs F = H(G(pane), ...), and a function of the whole window says no such thing"
        raise FlowError(where, rule, "pass pane= and combine= to apply(), or leave pattern= out")
    whole = [output.name for output in aggregates if not output.decomposable]
    if whole:
        rule = f"pane farming needs F = H(G(pane), ...), and {whole[0]} needs the whole window"
        raise FlowError(where, rule, "leave pattern= out, or ask for an approximation")
    if isinstance(spec, Time):
        if spec.every is not None:
            raise FlowError(
                where, "slide-by-tuple windows have no panes: every tuple cuts", "pass a function of a window"
            )
        if spec.needs_content:
            rule = "panes lie at the same times for every key, and those of origin='first' and empty=True do not"
            raise FlowError(where, rule, "pass a function of the window, or leave pattern= out")
    elif not hasattr(spec, "partial"):
        raise FlowError(where, "Delta windows have no panes: the data cuts them", "pass a function of a window")
