"""What an idle Python worker keeps of the memory that its last task used.

Workers keep memory from task to task (`session.KEPT_MEMORY`). Spark's pool of them grows now and then, when a task
begins before the worker of the last one is back, and takes them in turn: what a large task used, each would keep.
"""

from __future__ import annotations

import ctypes
import os

import pyarrow as pa

MOST_BYTES = 320 << 20  # resident, of which half is libraries that all workers share
GROWTH_BYTES = 160 << 20  # more than what could not be given back, which may be a user's model: it is not tried in vain
_PAGE = os.sysconf("SC_PAGE_SIZE")
_needed = 0  # what was resident after memory was given back


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not say.

    Read from the system itself: a new worker would have to import psutil for this alone.

    >>> resident_bytes() >= 0
    True
    """
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(128).split()[1]) * _PAGE
    except OSError:
        return 0


def give_back(most: int = MOST_BYTES) -> bool:
    """Give unused memory back to the system if this process has more than `most` bytes; whether it did."""
    global _needed  # noqa: PLW0603 - one process, one memory
    if resident_bytes() <= max(most, _needed + GROWTH_BYTES):
        return False
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    _needed = resident_bytes()
    return True
