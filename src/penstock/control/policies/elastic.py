"""Elastic scaling: the least parallelisms for which the queueing model promises the bounds. Thesis 001, section 4.6.

Per interval, if the statistics are fresh and no pause runs: Algorithm 8 (`elastic_rebalance.py`) over the bounds in
their order. The rules around it (4.6.4):

- never plan above 90 % utilisation: lo_eff = max(lo, ceil(S p / (0.9 A)));
- after a scale-up is *completed*, do nothing for 3 intervals: backlog is worked off, statistics settle. A decision that
  raises any width counts as a scale-up; after scale-downs there is no pause;
- a bound with an operator that showed nothing is stale: nothing is decided for it, and what it shares with others is
  not lowered.

The wait that the model promised is kept beside what was then measured (`predictions`), and what each rule did in
`trace`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.control.checks import above, at_least, between
from penstock.control.decision import Decision
from penstock.control.models.constraints import mean_bounds
from penstock.control.models.kingman import QueueModel
from penstock.control.models.predictions import PredictionLog
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.control.policies.elastic_rebalance import ElasticTask, Scaling, Sequence001, scale_reactively
from penstock.control.policies.registry import Registration

_PATIENCE = 12  # intervals to wait for a scale-up that the host never completes


class ElasticScaling:
    """The ES manager of thesis 001. All parameters have the thesis' (or its prototype's) values.

    A subtask with 4 ms service at rho = 0.8 waits 14 ms; the bound leaves (1 - 0.8) (64 - 4) = 12 ms, so one more is
    needed (W(9) = 8.6 ms):

    >>> view = OperatorView("score", width=8, lo=1, hi=64, arrivals_per_s=1600.0, completed_per_s=1600.0,
    ...     service_s=0.004, service_cv=0.5, interarrival_s=0.005, arrival_cv=1.0, wait_s=0.014, batch_wait_s=0.0,
    ...     queue_items=22.4, utilisation=0.8)
    >>> seen = Observation(5.0, 5.0, {"score": view}, (Bound("fast", ("score",), mean_s=0.064),))
    >>> policy = ElasticScaling()
    >>> policy.decide(seen, Decision({"score": 8})).widths
    {'score': 9}
    >>> policy.trace[-1].rule, round(policy.trace[-1].expected, 4)
    ('rebalance', 0.0086)
    """

    def __init__(
        self,
        *,
        batching_share: float = 0.8,  # w_ob
        saturation: float = 0.99,  # rho_max: "close to 1"
        most_utilisation: float = 0.9,
        pause_intervals: int = 3,
        klb: bool = False,
        fit_band: float | None = None,
    ) -> None:
        where = "policy 'elastic'"
        self.batching_share = between(where, "batching_share", batching_share, 0.0, 1.0)
        self.saturation = above(where, "saturation", saturation, 0.0)
        self.most_utilisation = above(where, "most_utilisation", between(where, "it", most_utilisation, 0.0, 1.0), 0.0)
        self.pause_intervals = int(at_least(where, "pause_intervals", pause_intervals, 0))
        self.klb = klb
        self.fit_band = None if fit_band is None else at_least(where, "fit_band", fit_band, 0.0)
        self.reset()

    def reset(self) -> None:
        """Forget pauses, predictions and the trace."""
        self.predictions = PredictionLog()
        self.trace: deque[Scaling] = deque(maxlen=1000)
        self._known: set[str] = set()  # operators that ever showed something
        self._rising: dict[str, int] = {}  # widths of a scale-up that is not completed yet
        self._waited = 0
        self._pause = 0
        self._planned: dict[str, dict[str, int]] = {}  # per bound: the widths its prediction holds for

    def accept(self, bounds: Sequence[Bound], operators: Collection[str]) -> None:
        """Refuse bounds that thesis 001 cannot work on: percentiles alone, streams that several share."""
        mean_bounds(bounds, set(operators))

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The widths of Algorithm 8, or the current ones during a pause and on stale statistics."""
        if observed is None:
            return current
        self._known |= set(observed.operators)
        bounds = mean_bounds(observed.bounds, set(observed.operators))
        self._settle(bounds, observed)
        if self._paused(observed, current):
            return current
        sequences = {bound: self._sequence(bound, observed) for bound in bounds}
        fresh = [sequence for sequence in sequences.values() if sequence is not None]
        stale = {name for bound, sequence in sequences.items() if sequence is None for name in bound.operators}
        if not fresh:
            return current
        widths, done = scale_reactively(
            fresh,
            batching_share=self.batching_share,
            saturation=self.saturation,
            most_utilisation=self.most_utilisation,
            held={name: view.width for name, view in observed.operators.items() if name in stale},
        )
        self.trace.extend(done)
        self._predict(done, widths, observed)
        self._rising = {name: width for name, width in widths.items() if width > observed.operators[name].width}
        self._waited = 0
        return replace(current, widths={**current.widths, **widths})

    def _sequence(self, bound: Bound, observed: Observation) -> Sequence001 | None:
        """The bound's tasks as the model sees them; None if one of them is stale."""
        assert bound.mean_s is not None
        views = observed.path(bound, self._known)
        if views is None:
            return None
        tasks = []
        for view in views:
            task = elastic_task(view, klb=self.klb, fit_band=self.fit_band)
            if task is None:
                return None
            tasks.append(task)
        return Sequence001(bound.name, tuple(tasks), bound.mean_s)

    def _paused(self, observed: Observation, current: Decision) -> bool:
        """Whether a scale-up is under way or was completed less than `pause_intervals` ago."""
        if self._rising:
            self._waited += 1
            if self._waited < _PATIENCE and not self._risen(observed, current):
                return True
            self._rising, self._pause = {}, self.pause_intervals
        if self._pause > 0:
            self._pause -= 1
            return True
        return False

    def _risen(self, observed: Observation, current: Decision) -> bool:
        """Whether every rising operator has its width, or as much of it as the host let through."""
        for name, width in self._rising.items():
            view = observed.operators.get(name)
            allowed = min(width, current.widths.get(name, width))
            if view is None or view.width < allowed:
                return False
        return True

    def _predict(self, done: tuple[Scaling, ...], widths: dict[str, int], observed: Observation) -> None:
        for scaling in done:
            if scaling.expected is None:
                continue
            self._planned[scaling.name] = {name: widths[name] for name in scaling.widths}
            self.predictions.predict(self._model, scaling.name, at_s=observed.now_s, value=scaling.expected)

    def _settle(self, bounds: tuple[Bound, ...], observed: Observation) -> None:
        """Hold the last promise against this interval's waits, if the widths are those it was made for."""
        for bound in bounds:
            planned = self._planned.pop(bound.name, None)
            if planned is None:
                continue
            views = [observed.operators.get(name) for name in planned]
            if all(view is not None and view.width == planned[view.name] for view in views):
                waits = sum(view.wait_s for view in views if view is not None)
                self.predictions.settle(bound.name, at_s=observed.now_s, measured=waits)
            else:
                self.predictions.forget(bound.name)

    @property
    def _model(self) -> str:
        return "klb" if self.klb else "kingman"


def elastic_task(view: OperatorView, *, klb: bool = False, fit_band: float | None = None) -> ElasticTask | None:
    """An operator's view as a task of the model; None if it is elastic and too little is known of it.

    >>> view = OperatorView("sink", 1, 1, 1, arrivals_per_s=10.0, completed_per_s=10.0, service_s=0.0, service_cv=0.0,
    ...     interarrival_s=0.1, arrival_cv=1.0, wait_s=0.001, batch_wait_s=0.0, queue_items=0.0, utilisation=0.0)
    >>> elastic_task(view).wait_at(1)
    0.001
    """
    interarrival = view.interarrival_s
    if interarrival == 0.0 and view.arrivals_per_s > 0.0:
        interarrival = view.width / view.arrivals_per_s
    if view.service_s == 0.0 or interarrival == 0.0:
        if view.lo < view.hi:
            return None
        return ElasticTask(view.name, None, view.task_latency_s, view.lo, view.hi, view.wait_s)
    queue = QueueModel(
        view.service_s,
        interarrival,
        view.arrival_cv,
        view.service_cv,
        width=view.width,
        wait=view.wait_s,
        klb=klb,
        fit_band=fit_band,
    )
    return ElasticTask(view.name, queue, view.task_latency_s, view.lo, view.hi)


REGISTRATIONS = (
    Registration(
        "elastic",
        ElasticScaling,
        thesis="001, section 4.6",
        observes=("width", "service_s", "service_cv", "interarrival_s", "arrival_cv", "wait_s", "latency_s", "bounds"),
        decides=("widths",),
        needs=("a bound with mean_s",),
    ),
)
