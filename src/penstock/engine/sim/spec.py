"""What is simulated: operators, the streams between them, and how slowly a host changes their width."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import FlowError

SOURCE = "source"


@dataclass(frozen=True)
class Operator:
    """One task: what an item costs, how wide it may run, and the stream into it.

    `window_s` makes it a read-write operator that emits once per window and subtask (001, section 4.1); its latency is
    then the time to the next emission. `ship_s` is what a batch costs the receiver whatever its size: it is why longer
    batches make items cheaper (001, section 4.5).

    >>> Operator("score", service_s=0.01, lo=1, hi=8).inputs
    ('source',)
    """

    name: str
    service_s: float
    service_cv: float = 1.0
    width: int = 1  # to begin with
    lo: int = 1
    hi: int = 1
    inputs: tuple[str, ...] = (SOURCE,)
    selectivity: float = 1.0  # items out per item in
    window_s: float = 0.0
    arrival_cv: float = 1.0  # of the batches, at one subtask
    queue: int | None = None  # most items waiting at one subtask
    buffer_items: int | None = None  # a batch of so many items is shipped at once
    ship_s: float = 0.0
    net_s: float = 0.0  # transport, per item
    handover_s: float = 0.0  # cost per item of being handed over: gone when chained to the operator before
    lifetime_s: float = 0.0  # of the batches on its input streams, to begin with
    one_to_one: bool = False  # wired pointwise, so that it may be chained to the operator before
    coalesce: float = 1.0  # small batches reach a busy receiver at least so many items at once: the network merges them

    def __post_init__(self) -> None:
        if not 1 <= self.lo <= self.width <= self.hi:
            raise FlowError(f"operator '{self.name}'", "needs 1 <= lo <= width <= hi", "mend its widths")
        if self.service_s < 0.0 or self.selectivity < 0.0:
            raise FlowError(f"operator '{self.name}'", "times and selectivity are at least 0", "mend them")


@dataclass(frozen=True)
class Machine:
    """How the host behaves when it is told to change, and what its sources do when queues are full.

    >>> Machine(scale_up_s=8.0).pause_s
    0.0
    """

    sources: int = 1  # source subtasks
    scale_up_s: float = 0.0  # from the decision to the first item on a new subtask
    scale_down_s: float = 0.0  # per removed subtask: they go one at a time (001, section 4.6.4)
    pause_s: float = 0.0  # every subtask of the operator stands still for so long when its width changes
    workers_per_slot: float = 1.0  # subtasks per worker, for worker-hours
    rebalance: bool = (
        False  # a change of width spreads what waits over the new subtasks; else it stays where it is (001)
    )
    open_source: bool = True  # True: what the source could not send waits and counts; False: it was never made (001)
    noise: float = (
        0.0  # every subtask's speed differs by so much (cv) in every second: other tenants, garbage collection
    )
