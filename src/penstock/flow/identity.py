"""What makes a flow the owner of a checkpoint: what a checkpoint's state, offsets and files depend on, no more.

In: the flow's name (it is in the names of sink files), the sources in their order (Spark's offsets go by position) with
their columns and time column, and every operator's name, kind, inputs, columns, key, state and windows. Column types
count, whether they may be null does not.

Out, because a restart may change them: widths, scheduling, partitioning and chunks, `on_error` and its dead letters,
`setup`, arrival columns, streams of late rows, and the sinks. A job that stopped on a bad row can so be started again
with `on_error="dead_letter"`, one more sink, and more replicas. The functions themselves cannot be compared.

Operators are sorted by name: the order of independent statements in a program does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.flow import operators as op
from penstock.flow.schema import columns_text
from penstock.flow.text import computed_text

if TYPE_CHECKING:
    from penstock.flow.flow import Flow


def identity(flow: Flow) -> list[str]:
    """Return what must not change between two starts on one checkpoint, one line each."""
    without = (op.Read, op.Late)
    rest = sorted((n for n in flow.operators.values() if not isinstance(n, without)), key=lambda node: node.name)
    return [f"flow {flow.name}", *(_line(node) for node in (*flow.reads, *rest))]


def _line(node: op.Operator) -> str:
    words = [f"{node.kind} {node.name}"]
    if node.inputs:
        words[0] += f" <- {' + '.join(node.inputs)}"
    if isinstance(node, op.Read) and node.time:
        words.append(f"time {node.time}")
    if isinstance(node, op.Split):
        words.append("outputs " + " ".join(port.split(".", 1)[1] for port in node.outputs))
    if isinstance(node, (op.Stateful, op.Window)):
        words.append(f"key {' '.join(node.key) or '(none)'}")
    if isinstance(node, op.Stateful):
        words.append(f"state ({columns_text(node.state_schema)})")
    if isinstance(node, op.Window):
        words += [f"time {node.time}", *([f"order {' '.join(node.order)}"] if node.order else [])]
        words += [
            node.spec.describe(),
            *([node.path] if node.path != "native" else []),
            computed_text(node, types=True),
        ]
    schema = next(schema for port, schema in node.outputs.items() if not port.endswith(".dead"))
    return f"{', '.join(words)}: {columns_text(schema)}"
