"""All window kinds behind one door: what a host calls without asking which kind it has.

| spec | path | `values` of advance | at the end of the stream, and from a batch DataFrame |
|---|---|---|---|
| `Time` | panes, or content | - | all windows with rows (and the empty ones between, if asked for) |
| `Time(every=n)` | content, ordered | event times | windows whose n-th tuple came; the tuples after it fire nothing |
| `Count` | content, ordered | none | full windows (and the warm-up ones, if partial); no half-full one |
| `Delta` | content, ordered | the attribute | windows whose trigger came; the tuples since fire nothing |

For the ordered kinds with an event time, the end of the stream first releases the rows that still wait for the
watermark (`order.watermark_split` with END_OF_TIME): they are the fresh rows of one last `advance`.
"""

from __future__ import annotations

import numpy as np

from penstock.windows import count, delta, every, time_content
from penstock.windows.count import Count
from penstock.windows.delta import Delta
from penstock.windows.firing import Advance, Longs, Meta, Numbers
from penstock.windows.time import Time

WindowSpec = Time | Count | Delta


def is_ordered(spec: WindowSpec) -> bool:
    """Tell whether a key's rows must be taken one after the other: a tuple, not the watermark, fires its windows.

    >>> is_ordered(Count(3)), is_ordered(Time("1 s", every=3)), is_ordered(Time("1 s"))
    (True, True, False)
    """
    return not isinstance(spec, Time) or spec.every is not None


def needs_content(spec: WindowSpec) -> bool:
    """Tell whether raw rows must be kept whatever is computed; otherwise panes may do.

    >>> needs_content(Count(3)), needs_content(Time("1 s", origin="first")), needs_content(Time("1 s"))
    (True, True, False)
    """
    return not isinstance(spec, Time) or spec.needs_content


def meta_types(spec: WindowSpec, floating: bool = False) -> dict[str, type]:
    """Return the numbers to keep per key and their types, all 0 for a new key; `floating`: of Delta's attribute.

    >>> meta_types(Count(3))
    {'count': <class 'numpy.int64'>}
    """
    if isinstance(spec, Count):
        return dict(count.META)
    if isinstance(spec, Delta):
        return delta.meta_types(floating)
    return dict(every.META) if spec.every is not None else time_content.meta_types(spec)


def new_meta(spec: WindowSpec, keys: int, floating: bool = False) -> dict[str, Numbers]:
    """Return the meta of keys that have had no tuple yet.

    >>> new_meta(Count(3), keys=2)
    {'count': array([0, 0])}
    """
    return {name: np.zeros(keys, kind) for name, kind in meta_types(spec, floating).items()}


def advance(spec: WindowSpec, edges: Longs, known: Longs, values: Numbers | None, meta: Meta) -> Advance:
    """Take the fresh rows of an ordered kind; see `windows/firing.py`.

    >>> step = advance(Count(2), np.array([0, 5]), np.array([0]), None, new_meta(Count(2), keys=1))
    >>> step.fired.start, step.fired.end, step.meta
    (array([1, 3]), array([2, 4]), {'count': array([5])})
    """
    if isinstance(spec, Count):
        return count.advance(spec, edges, known, values, meta)
    if isinstance(spec, Delta):
        return delta.advance(spec, edges, known, values, meta)
    if spec.every is None:
        raise ValueError(f"{spec.describe()} closes with the watermark: call time_content.advance")
    return every.advance(spec, edges, known, values, meta)
