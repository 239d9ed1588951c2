"""The two files between an MPR runtime and any controller, as text (thesis 004, section 5.5; listings 5.11 and 5.12).

``stats_stage<k>.json``: stage name -> sample's epoch milliseconds -> process name -> counters of that interval.
``parameters.json``: stage name -> desired number of processes.

This module reads and writes the text; opening files, and replacing them atomically, is the host's. Text that cannot
be read (half written, for example) gives None, never an error: a controller tries again, a runtime keeps its sizes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Sample = Mapping[str, Mapping[str, float]]  # process name -> ItemsConsumed, ItemsProduced, averageItemsProduced


def write_statistics(stage: int, samples: Mapping[int, Sample]) -> str:
    """Return the text of a stage's statistics file.

    >>> counters = {"ItemsConsumed": 9, "ItemsProduced": 9, "averageItemsProduced": 18.0}
    >>> text = write_statistics(2, {1675563904635: {"Compute0": counters}})
    >>> read_statistics(text)[1675563904635]["Compute0"]["ItemsProduced"]
    9
    """
    body = {str(stamp): {name: dict(counts) for name, counts in sample.items()} for stamp, sample in samples.items()}
    return json.dumps({f"stage{stage}": body})


def read_statistics(text: str) -> dict[int, dict[str, dict[str, float]]] | None:
    """Return the samples by epoch milliseconds in order of time, or None if the text is not a statistics file.

    >>> read_statistics('{"stage2": {"16755') is None
    True
    """
    try:
        (body,) = json.loads(text).values()
        return {int(stamp): body[stamp] for stamp in sorted(body, key=int) if _counts(body[stamp])}
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def write_parameters(sizes: Sequence[int]) -> str:
    """Return the text of the parameters file.

    >>> write_parameters([1, 64, 1])
    '{"stage1": 1, "stage2": 64, "stage3": 1}'
    """
    return json.dumps({f"stage{stage}": size for stage, size in enumerate(sizes, 1)})


def read_parameters(text: str, current: Sequence[int]) -> tuple[int, ...] | None:
    """Return the desired sizes, or None if the text does not give every stage a whole number; below 1 counts as 1.

    >>> read_parameters('{"stage1": 1, "stage2": 0, "stage3": 1}', (1, 4, 1))
    (1, 1, 1)
    >>> read_parameters('{"stage1": 1, "stage2": "many"}', (1, 4, 1)) is None
    True
    """
    try:
        body = json.loads(text)
        sizes = [body[f"stage{stage}"] for stage in range(1, len(current) + 1)]
    except (ValueError, TypeError, KeyError):
        return None
    if any(not isinstance(size, int) or isinstance(size, bool) for size in sizes):
        return None
    return tuple(max(1, size) for size in sizes)


def _counts(sample: Any) -> bool:
    """Whether every process of a sample has its counter; a KeyError or TypeError says that it is no sample at all."""
    return all(counters["ItemsProduced"] >= 0 for counters in sample.values())
