"""The reference of the public API from its docstrings: `python -m penstock.apps.reference > docs/reference.md`."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import penstock

# What a user meets without naming it: made by the names of the package, hence not among them.
MET = {
    "Job": ("penstock.engine.spark.job", "made by `flow.start`"),
    "WindowedStream": ("penstock.flow.windowed", "made by `stream.window`"),
    "Report": ("penstock.observe.report", "made by `job.report`"),
    "LiveView": ("penstock.observe.live", "for `job.on_batch`"),
    "BatchRecord": ("penstock.observe.record", "what a listener of `job.on_batch` gets"),
    "OperatorStats": ("penstock.observe.record", "of each operator, in a `BatchRecord`"),
    "Observation": ("penstock.control.observation", "what a policy's `decide` gets"),
    "OperatorView": ("penstock.control.observation", "of each operator, in an `Observation`"),
    "Bound": ("penstock.control.observation", "of each latency required, in an `Observation`"),
    "Schedule": ("penstock.sources.schedule", "made by the functions of `ps.sources`"),
}
HEADER = """# Reference

Made from the docstrings by `python -m penstock.apps.reference > docs/reference.md`. Do not edit.
"""


def main() -> int:
    """Print the reference."""
    sys.stdout.write(reference())
    return 0


def reference() -> str:
    """Return the whole reference as Markdown."""
    blocks = [HEADER, f"{text_of(penstock)}\n\nNames of the package `penstock`, here as `ps`:\n"]
    for name in penstock.__all__:
        if name != "sources":
            blocks += entry(f"ps.{name}", getattr(penstock, name))
    blocks.append(f"## `ps.sources`\n\n{text_of(penstock.sources)}\n")
    for name in penstock.sources.__all__:
        if name not in MET:
            blocks += entry(f"ps.sources.{name}", getattr(penstock.sources, name), level=3)
    blocks.append("## Objects that these give you\n")
    for name, (home, where) in MET.items():
        blocks += entry(name, getattr(importlib.import_module(home), name), level=3, note=where)
    return "\n".join(blocks).rstrip() + "\n"


def entry(name: str, value: Any, level: int = 2, note: str = "") -> Iterator[str]:
    """Yield the section of one class or function, the methods of a class below it."""
    told = f"*{note}*\n\n" if note else ""
    yield f"{'#' * level} `{name}`\n\n{told}```python\n{name}{signature(value)}\n```\n\n{text_of(value)}\n"
    if inspect.isclass(value):
        own = name.rsplit(".", 1)[-1]
        for method, found in members(value):
            yield f"```python\n{own}.{method}{signature(found)}\n```\n\n{text_of(found)}\n"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented public methods and properties that a class itself defines, as written."""
    for name, raw in vars(kind).items():
        found = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
        found = getattr(found, "fget", None) or getattr(found, "func", None) or found
        if not name.startswith("_") and inspect.isfunction(found) and inspect.getdoc(found):
            yield name, raw if isinstance(raw, property) else found


class _Text(str):
    """An annotation as it was written, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(value: Any) -> str:
    """Return the arguments of something that can be called, one to a line where they are many.

    >>> signature(lambda a, b="c": a)
    "(a, b='c')"
    """
    if isinstance(value, property) or not callable(value):
        return ""
    try:
        found = inspect.signature(value)
    except ValueError:  # an exception that takes what any exception takes
        return ""
    arguments = [_plain(p) for p in found.parameters.values() if p.name not in ("self", "cls")]
    returns = found.return_annotation
    whole = found.replace(
        parameters=arguments, return_annotation=_Text(returns) if isinstance(returns, str) else returns
    )
    # The address of a default object would be another one in every run.
    text = re.sub(r" at 0x[0-9a-f]+", "", str(whole)).replace("<factory>", "...")
    if len(text) <= 90:
        return text
    star = [p.kind is p.KEYWORD_ONLY for p in arguments]
    lines = [f"    {argument},\n" for argument in map(str, arguments)]
    if any(star) and not any(p.kind is p.VAR_POSITIONAL for p in arguments):
        lines.insert(star.index(True), "    *,\n")
    arrow = text.rpartition(") -> ")[2] if ") -> " in text else ""
    return f"(\n{''.join(lines)})" + (f" -> {arrow}" if arrow else "")


def _plain(argument: inspect.Parameter) -> inspect.Parameter:
    written = argument.annotation
    return argument.replace(annotation=_Text(written)) if isinstance(written, str) else argument


def text_of(value: Any) -> str:
    """Return a docstring as Markdown: examples become blocks of code.

    >>> print(text_of(signature).splitlines()[0])
    Return the arguments of something that can be called, one to a line where they are many.
    """
    own = value.__doc__ if not isinstance(value, property) else value.fget.__doc__
    lines, out, inside = inspect.cleandoc(own or "").splitlines(), list[str](), False
    for line in lines:
        starts = line.startswith(">>>")
        if starts and not inside:
            out.append("```pycon")
        if inside and not line.strip():
            out.append("```")
        inside = starts or (inside and bool(line.strip()))
        out.append(line)
    return "\n".join(out + (["```"] if inside else []))


if __name__ == "__main__":
    sys.exit(main())
