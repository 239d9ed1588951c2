"""A live run once more in virtual time, under its own policy, judged like the run itself: can replays be trusted?

`penstock simulate replay` predicts other policies on a run's load; here its own is replayed, so that the run says what
should have come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.bench.adaptive.judging import Spans
from penstock.control.policies import registry
from penstock.engine.sim.batch_costs import LEAST_BATCHES
from penstock.engine.sim.recorded import recorded
from penstock.engine.sim.replayed import interval_of, replayed
from penstock.errors import FlowError
from penstock.observe.record import BatchRecord

SEEDS = range(1, 6)


def replayed_share(
    records: Sequence[BatchRecord], policy: str | None, judge: Callable[[Sequence[BatchRecord]], Spans]
) -> float | None:
    """The share of spans that keep the bounds in a run's replays, over all seeds; None if it cannot be replayed.

    `policy` names a policy of the library, as the run was given it; None is `Adaptive`.
    """
    if sum(record.rows_in > 0 for record in records) < LEAST_BATCHES:
        return None
    try:
        model, name = recorded(records), policy or "adaptive"
    except FlowError:  # its records do not say what was required: a policy that always failed has written no notes
        return None
    verdicts: list[bool] = []
    for seed in SEEDS:
        again = replayed(model, registry.make(name), seed=seed, interval_s=interval_of(name, model))
        verdicts += judge(again).fulfilled
    return sum(verdicts) / len(verdicts) if verdicts else None
