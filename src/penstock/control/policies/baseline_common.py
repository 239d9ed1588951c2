"""What the baselines share: which operators they may widen, and how a decision is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.control.decision import Decision
from penstock.control.observation import Observation, OperatorView


def elastic_views(observed: Observation) -> list[OperatorView]:
    """The operators whose width is free, in the host's order.

    >>> elastic_views(Observation(5.0, 5.0))
    []
    """
    return [view for view in observed.operators.values() if view.lo < view.hi]


def clamped(view: OperatorView, width: float) -> int:
    """A wanted width as a whole number within the operator's bounds.

    >>> view = OperatorView("a", 2, 1, 8, 1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5)
    >>> clamped(view, 3.2), clamped(view, 100)
    (3, 8)
    """
    return min(max(int(width), view.lo), view.hi)


def with_widths(current: Decision, widths: Mapping[str, int]) -> Decision:
    """The decision with some widths changed.

    >>> with_widths(Decision({"a": 1, "b": 2}), {"a": 4}).widths
    {'a': 4, 'b': 2}
    """
    return replace(current, widths={**current.widths, **widths})
