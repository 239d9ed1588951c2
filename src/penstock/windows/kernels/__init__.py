"""Kernels: how values are combined over windows.

`ranges` and `ranks` do many windows at once, `tuples` one tuple at a time; `choice` picks by algebra. The table is in
docs/kernels.md.
"""

from penstock.windows.kernels.choice import Algebra, choose
from penstock.windows.kernels.ranges import Ranges
from penstock.windows.kernels.ranks import OrderStatistics, order_codes
from penstock.windows.kernels.tuples import DabaLite, Kernel, MonotonicDeque, Recompute, SubtractOnEvict, TwoStacks

__all__ = [
    "Algebra",
    "DabaLite",
    "Kernel",
    "MonotonicDeque",
    "OrderStatistics",
    "Ranges",
    "Recompute",
    "SubtractOnEvict",
    "TwoStacks",
    "choose",
    "order_codes",
]
