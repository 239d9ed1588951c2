"""Draw a flow: as text, as a Mermaid graph, and in the farm notation of thesis 003 (section 5.1.1)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.durations import Duration
from penstock.errors import FlowError
from penstock.flow import operators as op
from penstock.flow.schema import columns_text
from penstock.flow.text import PATTERN_NAMES, computed_text

if TYPE_CHECKING:
    from penstock.flow.flow import Flow

# Words that Mermaid takes for its own where a node is named.
MERMAID_WORDS = frozenset({"end", "graph", "subgraph", "style", "class", "classdef", "click", "linkstyle", "default"})


def explain(flow: Flow, format: str) -> str:
    """Return the drawing in the format asked for."""
    drawings = {"text": as_text, "mermaid": as_mermaid, "farm": as_farms}
    if format not in drawings:
        raise FlowError("explain", f"format={format!r} is not one of {', '.join(drawings)}", "choose one of them")
    return drawings[format](flow)


def verdict(flow: Flow, checkpoint: str | os.PathLike[str] | None, calibrate: Duration | None, reread: bool) -> str:
    """Say whether what is required can be kept here, from an earlier run or from a calibration."""
    if checkpoint is not None and calibrate is not None:
        raise FlowError("explain", "it judges by an earlier run or by a calibration, not by both", "pass one of them")
    # flow describes, the engine runs: as with start(), the engine is asked only when it is called
    from penstock.engine.spark import explained as engine  # noqa: PLC0415

    if checkpoint is not None:
        return str(engine.from_checkpoint(flow, checkpoint))
    assert calibrate is not None
    return str(engine.from_calibration(flow, calibrate, reread=reread))


def as_text(flow: Flow) -> str:
    """Draw one line per operator and sink, indented by its distance from the sources, and its columns below."""
    lines = [f"flow {flow.name}"]
    depth: dict[str, int] = {}
    for node in flow.operators.values():
        depth[node.name] = 1 + max((depth[op.owner(port)] for port in node.inputs), default=0)
        indent = "  " * depth[node.name]
        source = f" <- {', '.join(node.inputs)}" if node.inputs else ""
        lines.append(f"{indent}{node.name} [{describe(node)}]{source}")
        for port, schema in node.outputs.items():
            label = "" if port == node.name else f"{port.split('.', 1)[1]}: "
            lines.append(f"{indent}    : {label}{columns_text(schema)}")
    for sink in flow.sinks.values():
        indent = "  " * (depth[op.owner(sink.port)] + 1)
        target = f"sink {sink.format} {sink.path}" if sink.path else f"sink {sink.format}"
        lines.append(f"{indent}{sink.name} [{target}] <- {sink.port}")
    lines.append("farms: " + as_farms(flow))
    return "\n".join(lines)


def describe(node: op.Operator) -> str:
    """Say in a few words what an operator is and how wide it may run.

    >>> describe(op.Map("score", ("quotes",), {}, width=op.Width(1, 8), ordered=True))
    'map, 1..8 replicas, round_robin, ordered, chunks of 1024'
    """
    words = [node.kind]
    width = getattr(node, "width", None)
    if width is not None:
        plural = "replica" if width.hi == 1 else "replicas"
        words.append(f"{width.lo}..{width.hi} {plural}" if width.elastic else f"{width.lo} {plural}")
    if isinstance(node, op.Map) and width is not None:
        words += [node.scheduling, "ordered" if node.ordered else "unordered", f"chunks of {node.chunk}"]
        if node.partition != "round_robin":
            words.append(f"partition {node.partition}" + (f" {', '.join(node.key)}" if node.key else ""))
    if isinstance(node, op.Map) and width is None:
        words.append("fused")
    if isinstance(node, (op.Map, op.Filter)) and node.on_error != "stop":
        words.append(f"on error {node.on_error}")
    if isinstance(node, (op.Stateful, op.Window)):
        words.append(f"key {', '.join(node.key) or '(none)'}")
    if isinstance(node, op.Stateful):
        words.append(f"state ({columns_text(node.state_schema)})")
    if isinstance(node, op.Window):
        on = f" on {node.time}" if node.time else " in the order of reading"
        words += [f"{PATTERN_NAMES[node.path]}, {node.spec.describe()}{on}", computed_text(node)]
    if isinstance(node, op.Late):
        words.append(f"of window {node.window}")
    if isinstance(node, op.Read):
        words.append("stream" if node.frame.isStreaming else "batch")
        words += [f"time {node.time}"] if node.time else []
    return ", ".join(words)


def as_mermaid(flow: Flow) -> str:
    """Draw the template graph as Mermaid text."""
    lines = ["graph LR"]
    for node in flow.operators.values():
        left, right = ("([", "])") if isinstance(node, op.Read) else ("[", "]")
        lines.append(f'  {_mermaid_id(node.name)}{left}"{node.name}<br/>{describe(node)}"{right}')
    for sink in flow.sinks.values():
        lines.append(f'  {_mermaid_id(sink.name)}[("{sink.name}<br/>{sink.format}")]')
    for edge in flow.graph().edges:
        side = edge.name.split(".", 1)
        label = f"|{side[1]}|" if len(side) > 1 else ""
        lines.append(f"  {_mermaid_id(edge.source)} -->{label} {_mermaid_id(edge.target)}")
    return "\n".join(lines)


def _mermaid_id(name: str) -> str:
    return f"{name}-" if name.lower() in MERMAID_WORDS else name


def as_farms(flow: Flow) -> str:
    """Write every replicated operator as `farm(A(emitter), B(worker), C(collector))` (003 F10-F12).

    A holds what runs before the replicated stage since the last exchange, C what runs after it up to the
    next; a side that is empty is left out, as in the thesis: `farm(B)`, `farm(A,B)`, `farm(A,B,C)`.
    """
    farms = []
    for node in flow.operators.values():
        if not _replicated(node):
            continue
        before, after = _run_before(flow, node), _run_after(flow, node)
        parts = [f"A({', '.join(before)})"] if before else []
        parts.append(f"B({node.name})")
        parts += [f"C({', '.join(after)})"] if after else []
        farms.append(f"farm({', '.join(parts)})")
    return " | ".join(farms) or "none"


def _replicated(node: op.Operator) -> bool:
    return getattr(node, "width", None) is not None


def _run_before(flow: Flow, node: op.Operator) -> list[str]:
    """Return what feeds an operator without an exchange between, in the order of the flow."""
    nodes = flow.operators
    found: set[str] = set()
    waiting = [op.owner(port) for port in node.inputs]
    while waiting:
        name = waiting.pop()
        if name not in found and not _replicated(nodes[name]):
            found.add(name)
            waiting += [op.owner(port) for port in nodes[name].inputs]
    return [name for name in nodes if name in found]


def _run_after(flow: Flow, node: op.Operator) -> list[str]:
    """Return what an operator feeds without an exchange between, in the order of the flow, sinks last."""
    found = {node.name}
    for other in flow.operators.values():  # each after its inputs
        if not _replicated(other) and any(op.owner(port) in found for port in other.inputs):
            found.add(other.name)
    operators = [name for name in flow.operators if name in found and name != node.name]
    return operators + [sink.name for sink in flow.sinks.values() if op.owner(sink.port) in found]
