"""Processor time of a job: this process and all below it (driver, JVM, Python workers)."""

from __future__ import annotations

import psutil


def cpu_seconds() -> float:
    """CPU seconds so far of this process and all below it, those that ended included.

    >>> before = cpu_seconds()
    >>> cpu_seconds() >= before
    True
    """
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
