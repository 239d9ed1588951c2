"""What `Adaptive` expects of a bound's mean latency in the next interval, beside what then was measured.

All that the decision does not touch stays as it was measured; what changes are the waits before the operators, and the
delay in output batches, which is in proportion to their lifetime:

    latency = last latency + sum of (expected wait - last wait) + sum of last delay x (new lifetime / old lifetime - 1)
    wait    = fit x Kingman(next rate, width) + a backlog that drains + what a change of width adds

The rate is the forecast for one interval ahead. A backlog of B subtask-seconds (what waits beyond what Little's law
explains, as work) drains in D = B / (width - load); until then those who arrive wait B / width at first and nothing at
the end, so the mean over an interval T is

    B / width x (D / 2 T)  if D <= T,   else   B / width x (1 - T / 2 D)

An overload has no finite mean; it is counted apart. A promise is judged only if the widths are those it was made for:
who ordered more subtasks does not know which interval they will begin in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from penstock.control.decision import Decision
from penstock.control.models.predictions import PredictionLog
from penstock.control.observation import Observation, OperatorView
from penstock.control.policies.adaptive_learner import Learner
from penstock.control.policies.adaptive_paths import Path

MODEL = "queues"


class Promises:
    """The predicted mean latency of each bound, held against the one that was measured.

    >>> from penstock.control.observation import Bound
    >>> learner, bound = Learner(20.0), Bound("fast", ("v",), mean_s=0.2)
    >>> view = OperatorView("v", 4, 1, 8, arrivals_per_s=40.0, completed_per_s=40.0, service_s=0.05, service_cv=1.0,
    ...     interarrival_s=0.1, arrival_cv=1.0, wait_s=0.06, batch_wait_s=0.0, queue_items=2.0, utilisation=0.5)
    >>> seen = Observation(5.0, 5.0, {"v": view}, (bound,), {"fast": (0.11, 0.3, 0.4, 0.5)})
    >>> promises, path = Promises(), Path(bound, 0.2, [view], 0.1, 0.1, 0.0)
    >>> _ = learner.add(view, 5.0, 5.0)
    >>> promises.make([path], Decision({"v": 4}), Decision({"v": 4}), {"v": learner}, seen)
    >>> promises.judge(Observation(10.0, 5.0, {"v": view}, (bound,), {"fast": (0.12, 0.3, 0.4, 0.5)}))
    >>> one = promises.log.settled[0]
    >>> round(one.predicted, 3), one.measured
    (0.1, 0.12)
    """

    def __init__(self) -> None:
        self.log = PredictionLog()
        self._widths: dict[str, dict[str, int]] = {}  # per bound: the widths its promise holds for

    def make(
        self,
        paths: Iterable[Path],
        decided: Decision,
        current: Decision,
        learners: Mapping[str, Learner],
        observed: Observation,
    ) -> None:
        """Promise the latencies of the next interval under what was decided; none where operators are fused anew."""
        self._widths = {}
        for path in paths:
            measured = observed.latency.get(path.bound.name)
            if measured is None or decided.chains != current.chains:
                self.log.forget(path.bound.name)
                continue
            held = {view.name: int(decided.widths.get(view.name, view.width)) for view in path.views}
            latency = measured[0]
            for view in path.views:
                latency += expected_wait(view, held[view.name], learners[view.name], observed.interval_s) - view.wait_s
            for stream in path.bound.streams(observed.operators):
                before, after = float(current.lifetimes.get(stream, 0.0)), float(decided.lifetimes.get(stream, 0.0))
                receiver = observed.operators.get(stream.split("->")[1])
                if before > 0.0 and receiver is not None:
                    latency += receiver.batch_wait_s * (after / before - 1.0)
            self._widths[path.bound.name] = held
            self.log.predict(MODEL, path.bound.name, at_s=observed.now_s, value=max(latency, 0.0))

    def judge(self, observed: Observation) -> None:
        """Hold the last promises against this interval; those whose widths did not come to be are dropped."""
        for bound, held in self._widths.items():
            views = [observed.operators.get(name) for name in held]
            measured = observed.latency.get(bound)
            if measured is not None and all(view is not None and view.width == held[view.name] for view in views):
                self.log.settle(bound, at_s=observed.now_s, measured=measured[0])
            else:
                self.log.forget(bound)


def expected_wait(view: OperatorView, width: int, learner: Learner, interval_s: float) -> float:
    """The mean wait of the next interval at a width; infinite if it is overloaded.

    >>> learner = Learner(20.0)
    >>> view = OperatorView("v", 1, 1, 8, arrivals_per_s=10.0, completed_per_s=10.0, service_s=0.05, service_cv=1.0,
    ...     interarrival_s=0.1, arrival_cv=1.0, wait_s=0.05, batch_wait_s=0.0, queue_items=0.5, utilisation=0.5)
    >>> _ = learner.add(view, 5.0, 5.0)
    >>> round(expected_wait(view, 1, learner, 5.0), 3)
    0.05
    """
    if view.lo == view.hi:
        return view.wait_s  # nothing is decided here, so the last wait is as good as a model
    service, rate = learner.service_s, max(learner.trend.ahead(1), 0.0)
    load = rate * service
    steady = learner.mean_wait(width, rate, view)
    if math.isinf(steady) or load >= width:
        return math.inf
    backlog = max(view.queue_items - view.arrivals_per_s * steady, 0.0) * service
    drains = backlog / (width - load)
    waiting = backlog / width
    share = 0.5 * drains / interval_s if drains <= interval_s else 1.0 - 0.5 * interval_s / drains
    stop = learner.stop_at(width, rate) if width != view.width else 0.0
    return steady + waiting * share + stop
