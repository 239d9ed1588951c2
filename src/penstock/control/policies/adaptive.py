"""`Adaptive`: our policy. It needs no parameter; what is required says what it does.

- a latency bound on a continuous host: `adaptive_queue`, with the queueing model;
- a latency bound on a micro-batch host: `adaptive_batch`, with the batch-service model;
- a throughput to reach: `adaptive_search.GoalSeeker`, the least width that reaches it;
- nothing required, a width to choose: `adaptive_search.Climber`, the width of the greatest throughput.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.control.checks import above
from penstock.control.decision import Decision
from penstock.control.models.predictions import PredictionLog
from penstock.control.observation import Observation
from penstock.control.policies.adaptive_batch import BatchPlanner
from penstock.control.policies.adaptive_paths import mean_limit
from penstock.control.policies.adaptive_queue import QueuePlanner
from penstock.control.policies.adaptive_routing import Router
from penstock.control.policies.adaptive_search import Climber, GoalSeeker
from penstock.control.policies.registry import Registration


class Adaptive:
    """Keeps what is required at the least cost.

    `price` is what an interval that breaks a bound is worth, in intervals at the present width; it decides how much
    room is kept for bursts and how fast a backlog is worked off. On a micro-batch host each technique can be switched
    off: `batching` (the lifetime of batches), `scaling` (widths), `routing` (which task gets which keys), `chaining`
    (farms in a row share their tasks, without an exchange between them).

    >>> from penstock.control.observation import Bound, OperatorView
    >>> view = OperatorView("score", width=4, lo=1, hi=64, arrivals_per_s=900.0, completed_per_s=900.0,
    ...     service_s=0.004, service_cv=1.0, interarrival_s=0.00444, arrival_cv=1.0, wait_s=0.036, batch_wait_s=0.0,
    ...     queue_items=30.0, utilisation=0.9)
    >>> seen = Observation(5.0, 5.0, {"score": view}, (Bound("fast", ("score",), mean_s=0.02),),
    ...     {"fast": (0.04, 0.12, 0.18, 0.3)})
    >>> 5 <= Adaptive().decide(seen, Decision({"score": 4})).widths["score"] <= 8
    True
    """

    timed_share = 0.1  # of the items, whose service times it needs; the others are only counted

    def __init__(
        self,
        *,
        price: float = 20.0,
        batching: bool = True,
        scaling: bool = True,
        routing: bool = True,
        chaining: bool = True,
    ) -> None:
        self.price = above("policy 'adaptive'", "price", price, 0.0)
        self.batching, self.scaling, self.routing, self.chaining = batching, scaling, routing, chaining
        self.reset()

    def reset(self) -> None:
        """Forget all that was learnt."""
        self.queues = QueuePlanner(self.price, chaining=self.chaining)
        self.batches = BatchPlanner(self.price, batching=self.batching, scaling=self.scaling, chaining=self.chaining)
        self.router = Router()
        self.goals = GoalSeeker()
        self.climber = Climber()

    @property
    def predictions(self) -> PredictionLog:
        """What the queueing model promised beside what was measured; empty on micro-batch hosts."""
        return self.queues.promises.log

    def decide(self, observed: Observation | None, current: Decision) -> Decision:
        """The decision for the next interval."""
        if observed is None:
            return current
        if any(mean_limit(bound) is not None for bound in observed.bounds):
            planner = self.batches if observed.micro_batch else self.queues
            decided = planner.decide(observed, current)
            if observed.target_per_s and self.scaling:  # both must hold: the wider of the two
                goal = self.goals.decide(observed, current).widths
                decided = replace(decided, widths={n: max(w, goal.get(n, w)) for n, w in decided.widths.items()})
        elif not self.scaling:
            decided = current
        elif observed.target_per_s:
            decided = self.goals.decide(observed, current)
        else:
            decided = self.climber.decide(observed, current)
        return self._routed(observed, decided) if self.routing and observed.micro_batch else decided

    def _routed(self, observed: Observation, decided: Decision) -> Decision:
        """The same with a route for every keyed operator whose keys are uneven."""
        routes = dict(decided.routes)
        for name, view in observed.operators.items():
            if view.groups:
                found = self.router.route(view, int(decided.widths.get(name, view.width)), routes.get(name))
                if found is None:
                    routes.pop(name, None)
                else:
                    routes[name] = found
        return replace(decided, routes=routes)


_OBSERVES = (
    "width", "arrivals_per_s", "completed_per_s", "service_s", "service_cv", "arrival_cv", "wait_s", "batch_wait_s",
    "queue_items", "utilisation", "skew", "latency_s", "bounds", "latency", "target_per_s", "fixed_s", "micro_batch",
    "parallelism", "backlog_items", "groups", "pipelines",
)  # fmt: skip
REGISTRATIONS = (
    Registration(
        "adaptive",
        Adaptive,
        thesis="ours, with the models of 000 and 001",
        observes=_OBSERVES,
        decides=("widths", "lifetimes", "lifetime_s", "routes", "chains"),
    ),
)
