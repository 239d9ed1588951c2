"""Draw a flow: as text, as a Mermaid graph, and in the farm notation of thesis 003 (section 5.1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import FlowError
from penstock.flow import operators as op

if TYPE_CHECKING:
    from penstock.flow.flow import Flow


def explain(flow: Flow, format: str) -> str:
    """Return the drawing in the format asked for."""
    drawings = {"text": as_text, "mermaid": as_mermaid, "farm": as_farms}
    if format not in drawings:
        raise FlowError("explain", f"format={format!r} is not one of {', '.join(drawings)}", "choose one of them")
    return drawings[format](flow)


def as_text(flow: Flow) -> str:
    """Draw one line per operator and sink, indented by its distance from the sources."""
    lines, depth = [f"flow {flow.name}"], {}
    for node in flow.operators.values():
        depth[node.name] = 1 + max((depth[port.split(".")[0]] for port in node.inputs), default=0)
        source = f" <- {', '.join(node.inputs)}" if node.inputs else ""
        lines.append(f"{'  ' * depth[node.name]}{node.name} [{describe(node)}]{source}")
        for port, schema in node.outputs.items():
            label = "" if port == node.name else f"{port.split('.', 1)[1]}: "
            lines.append(f"{'  ' * depth[node.name]}    : {label}{schema.simpleString()[7:-1]}")
    for sink in flow.sinks.values():
        level = depth[sink.port.split(".")[0]] + 1
        lines.append(f"{'  ' * level}{sink.name} [sink {sink.format}{' ' + sink.path if sink.path else ''}] <- {sink.port}")
    lines.append("farms: " + as_farms(flow))
    return "\n".join(lines)


def describe(node: op.Operator) -> str:
    """Say in a few words what an operator is and how wide it may run."""
    words = [node.kind]
    width = getattr(node, "width", None)
    if width is not None:
        words.append(f"{width.lo}..{width.hi} replicas" if width.elastic else f"{width.lo} replicas")
    if isinstance(node, op.Map) and node.width is not None:
        words += [node.scheduling, "ordered" if node.ordered else "unordered", f"chunks of {node.chunk}"]
        if node.partition != "round_robin":
            words.append(f"partition {node.partition}")
    if isinstance(node, op.Map) and node.width is None:
        words.append("fused")
    if isinstance(node, (op.Stateful, op.Window)):
        words.append(f"key {', '.join(node.key) or '(none)'}")
    if isinstance(node, op.Window):
        words.append(f"pane farming, {node.spec}")
    if isinstance(node, op.Read):
        words.append("stream" if node.frame.isStreaming else "batch")
    return ", ".join(words)


def as_mermaid(flow: Flow) -> str:
    """Draw the template graph as Mermaid text."""
    lines = ["graph LR"]
    for node in flow.operators.values():
        left, right = ("([", "])") if isinstance(node, op.Read) else ("[", "]")
        lines.append(f'  {node.name}{left}"{node.name}<br/>{describe(node)}"{right}')
    for sink in flow.sinks.values():
        lines.append(f'  {sink.name}[("{sink.name}<br/>{sink.format}")]')
    for edge in flow.graph().edges:
        side = edge.name.split(".", 1)
        label = f"|{side[1]}|" if len(side) > 1 else ""
        lines.append(f"  {edge.source} -->{label} {edge.target}")
    return "\n".join(lines)


def as_farms(flow: Flow) -> str:
    """Write every replicated operator as `farm(A(emitter), B(worker), C(collector))` (003 F10-F12).

    A holds what runs before the replicated stage since the last exchange, C what runs after it up to the
    next; a side that is empty is left out, as in the thesis: `farm(B)`, `farm(A,B)`, `farm(A,B,C)`.
    """
    nodes, farms = flow.operators, []
    for node in nodes.values():
        if getattr(node, "width", None) is None:
            continue
        before, after = _run_before(flow, node), _run_after(flow, node)
        parts = [f"A({', '.join(before)})"] if before else []
        parts.append(f"B({node.name})")
        parts += [f"C({', '.join(after)})"] if after else []
        farms.append(f"farm({', '.join(parts)})")
    return " | ".join(farms) or "none"


def _run_before(flow: Flow, node: op.Operator) -> list[str]:
    names: list[str] = []
    current = node
    while len(current.inputs) == 1:
        current = flow.operators[current.inputs[0].split(".")[0]]
        if getattr(current, "width", None) is not None:
            break
        names.insert(0, current.name)
    return names


def _run_after(flow: Flow, node: op.Operator) -> list[str]:
    names: list[str] = []
    current = node.name
    while True:
        readers = [n for n in flow.operators.values() if current in (port.split(".")[0] for port in n.inputs)]
        sinks = [s.name for s in flow.sinks.values() if s.port.split(".")[0] == current]
        if len(readers) != 1 or getattr(readers[0], "width", None) is not None:
            return names + sinks
        names += sinks + [readers[0].name]
        current = readers[0].name
