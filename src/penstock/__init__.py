"""Penstock: streams on Apache Spark that keep a stated latency at the lowest cost.

```python
import penstock as ps

flow = ps.Flow("trading")
quotes = flow.read(df, time="ts")
bars = quotes.window(ps.Time("10 s", slide="1 s"), key="symbol").aggregate(total=ps.sum("price"), n=ps.count())
bars.write("parquet", path="out/bars")
job = flow.start(spark, checkpoint="ckpt")
```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import sources
    from penstock.control.decision import Decision, Policy, Static
    from penstock.control.policies.adaptive import Adaptive
    from penstock.engine.spark.session import local_session
    from penstock.errors import (
        CheckpointError,
        FlowError,
        JobFailed,
        PenstockError,
        PolicyError,
        UserFunctionError,
    )
    from penstock.flow.context import Replica, replica
    from penstock.flow.flow import Flow
    from penstock.flow.keyed_state import KeyedState
    from penstock.flow.requirements import Cost, Latency, Throughput
    from penstock.flow.stream import Stream, elastic
    from penstock.windows.aggregates import (
        Aggregate,
        arg_max,
        arg_min,
        count,
        covariance,
        distinct,
        first,
        histogram,
        last,
        max,
        mean,
        min,
        quantile,
        regression,
        std,
        sum,
        topk,
        var,
    )
    from penstock.windows.content import Window
    from penstock.windows.count import Count
    from penstock.windows.delta import Delta
    from penstock.windows.time import Time

__version__ = "0.1.0"

# Public names and where they live. Loaded at first use, so that the pure layers import without PySpark.
_HOMES = {
    "penstock.control.decision": ("Decision", "Policy", "Static"),
    "penstock.control.policies.adaptive": ("Adaptive",),
    "penstock.engine.spark.session": ("local_session",),
    "penstock.errors": (
        "CheckpointError",
        "FlowError",
        "JobFailed",
        "PenstockError",
        "PolicyError",
        "UserFunctionError",
    ),
    "penstock.flow.context": ("Replica", "replica"),
    "penstock.flow.flow": ("Flow",),
    "penstock.flow.keyed_state": ("KeyedState",),
    "penstock.flow.requirements": ("Cost", "Latency", "Throughput"),
    "penstock.flow.stream": ("Stream", "elastic"),
    "penstock.windows.aggregates": (
        "Aggregate",
        "arg_max",
        "arg_min",
        "count",
        "covariance",
        "distinct",
        "first",
        "histogram",
        "last",
        "max",
        "mean",
        "min",
        "quantile",
        "regression",
        "std",
        "sum",
        "topk",
        "var",
    ),
    "penstock.windows.content": ("Window",),
    "penstock.windows.count": ("Count",),
    "penstock.windows.delta": ("Delta",),
    "penstock.windows.time": ("Time",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "sources":
        return importlib.import_module("penstock.sources")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Adaptive",
    "Aggregate",
    "CheckpointError",
    "Cost",
    "Count",
    "Decision",
    "Delta",
    "Flow",
    "FlowError",
    "JobFailed",
    "KeyedState",
    "Latency",
    "PenstockError",
    "Policy",
    "PolicyError",
    "Replica",
    "Static",
    "Stream",
    "Throughput",
    "Time",
    "UserFunctionError",
    "Window",
    "arg_max",
    "arg_min",
    "count",
    "covariance",
    "distinct",
    "elastic",
    "first",
    "histogram",
    "last",
    "local_session",
    "max",
    "mean",
    "min",
    "quantile",
    "regression",
    "replica",
    "sources",
    "std",
    "sum",
    "topk",
    "var",
]
