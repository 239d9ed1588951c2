"""What a window computes, in words."""

from __future__ import annotations

from penstock.flow import operators as op

PATTERN_NAMES = {"native": "pane farming", "panes": "pane farming in Python", "content": "key partitioning"}


def computed_text(node: op.Window, types: bool = False) -> str:
    """Return what a window computes: its aggregates, or that it calls functions (which cannot be compared)."""
    if node.aggregates:
        return ", ".join(output.text(types) for output in node.aggregates)
    return "a function of its content" if node.fn is not None else "pane and combine functions"
