"""Views and tasks that several of the control tests need."""

from __future__ import annotations

from typing import Any

from penstock.control.models.kingman import QueueModel
from penstock.control.observation import OperatorView
from penstock.control.policies.elastic_rebalance import ElasticTask


def view(name: str = "v", **given: Any) -> OperatorView:
    """A view of one operator in milliseconds' worth of seconds: S = 4, A = 5, p = 8, w = 14 unless told."""
    values: dict[str, Any] = {
        "width": 8,
        "lo": 1,
        "hi": 64,
        "arrivals_per_s": 1600.0,
        "completed_per_s": 1600.0,
        "service_s": 0.004,
        "service_cv": 0.5,
        "interarrival_s": 0.005,
        "arrival_cv": 1.0,
        "wait_s": 0.014,
        "batch_wait_s": 0.0,
        "queue_items": 22.4,
        "utilisation": 0.8,
    }
    return OperatorView(name, **{**values, **given})


def task(
    name: str, s: float, a: float, ca: float, cs: float, w: float, p: int, latency: float, lo: int = 1, hi: int = 64
) -> ElasticTask:
    """A row of the digest's worked instance (section 4.7): S, A, cA, cS, w, p, l."""
    return ElasticTask(name, QueueModel(s, a, ca, cs, width=p, wait=w), latency, lo, hi)
