"""The micro-batch host in virtual time: cut, work, wait out the lifetime, cut again.

With F the fixed cost of a batch, c the cost of a row, s the skew and p the width of an operator, n rows take

    w = F + n sum over operators of c s / p             (design, section 6: stages of a batch run one after another)

and the next cut comes max(L, w) after this one. A row waits from its arrival to the cut and then for the whole batch.
F and the costs per row are for the caller to give: what a job's report shows as fixed and per-row time of its batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.control.decision import Decision
from penstock.control.observation import Bound, Observation, OperatorView
from penstock.engine.sim.checks import conserved, little
from penstock.engine.sim.loads import Load
from penstock.engine.sim.spec import Operator

_GRID_S = 0.02  # rows arrive evenly within so much time


class BatchHost:
    """One query under a load; `advance` runs one micro-batch.

    >>> load = Load("flat", 10.0, lambda t: np.full_like(t, 1000.0))
    >>> host = BatchHost([Operator("score", service_s=0.0005, width=1, hi=4)], load, fixed_s=0.1, seed=1, noise=0.0)
    >>> first = host.advance(Decision({"score": 1}, lifetime_s=0.5))     # nothing had arrived yet
    >>> second = host.advance(Decision({"score": 1}, lifetime_s=0.5))    # 500 rows: 0.1 s + 0.25 s
    >>> round(second.operators["score"].service_s, 4), round(host.now, 2)
    (0.0005, 1.0)
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        load: Load,
        *,
        fixed_s: float,
        seed: int,
        bounds: tuple[Bound, ...] = (),
        noise: float = 0.05,
        parallelism: int = 0,
    ) -> None:
        self.operators = {o.name: o for o in operators}
        self.load, self.fixed_s, self.bounds, self.noise = load, fixed_s, bounds, noise
        self.parallelism = parallelism
        self.rng = np.random.default_rng(seed)
        self.now = 0.0  # the coming cut
        self.cut_before = 0.0
        self.waiting = np.zeros((0, 2))  # (arrival, rows) not yet in a batch
        self.came = self.left = 0.0
        self.area = self.spent = 0.0  # number inside over time, and times inside of those that left
        self._widths = {o.name: o.width for o in operators}
        self._paid: dict[str, float] = {}

    @property
    def finished(self) -> bool:
        """Whether the load is over."""
        return self.now >= self.load.duration_s - 1e-9

    def start(self) -> Decision:
        """The widths it starts with, and no lifetime."""
        return Decision({name: o.width for name, o in self.operators.items()})

    def widths(self) -> dict[str, int]:
        """Widths of the last batch."""
        return dict(self._widths)

    def paid(self) -> dict[str, float]:
        """Subtask-seconds of the last cycle: slots are held for the whole cycle, whether they work or wait."""
        return dict(self._paid)

    def check(self) -> None:
        """Rows in are rows out and rows waiting; the number inside integrates to the times inside (Little)."""
        conserved("micro-batches", self.came, self.left, float(self.waiting[:, 1].sum()))
        still = float((self.waiting[:, 1] * (self.now - self.waiting[:, 0])).sum())
        little("micro-batches", self.area, self.spent + still)

    def advance(self, decision: Decision) -> Observation:
        """Cut and run one batch; what it showed."""
        for name, spec in self.operators.items():
            self._widths[name] = min(max(int(decision.widths.get(name, self._widths[name])), spec.lo), spec.hi)
        rows, arrivals = self._cut(decision.row_cap)
        count = float(rows.sum())
        cost = float(self.load.cost(np.array([self.now]))[0])
        hot = float(self.load.hot(np.array([self.now]))[0])
        busy: dict[str, float] = {}
        for name, spec in self.operators.items():
            skew = 1.0 + hot * (self._widths[name] - 1)
            busy[name] = count * spec.service_s * cost * skew / self._widths[name]
        factor = max(1.0 + self.noise * float(self.rng.standard_normal()), 0.3)
        work = (self.fixed_s + sum(busy.values())) * factor
        done = self.now + work
        following = max(done, self.now + max(decision.lifetime_s, 0.0))
        cycle = following - self.now
        self.area += (self.came - self.left) * cycle - count * (following - done)
        self.spent += float((rows * (done - arrivals)).sum())
        offered = self.came
        self._arrive(following)
        offered = (self.came - offered) / cycle
        self._paid = {name: width * cycle for name, width in self._widths.items()}
        latency = {b.name: _measured(rows, done - arrivals) for b in self.bounds if count > 0.0}
        views = {
            name: self._view(spec, count, busy[name] * factor, cycle, offered, arrivals, rows, hot)
            for name, spec in self.operators.items()
            if count > 0.0
        }
        self.cut_before, self.now = self.now, following
        self.left += count
        return Observation(
            now_s=following,
            interval_s=cycle,
            operators=views,
            bounds=self.bounds,
            latency=latency,
            backlog_items=float(self.waiting[:, 1].sum()),
            fixed_s=self.fixed_s * factor,
            micro_batch=True,
            parallelism=self.parallelism,
        )

    def _arrive(self, until: float) -> None:
        """Rows that arrive from the coming cut's time on, grouped by grid step."""
        length = until - self.now
        steps = max(int(np.ceil(length / _GRID_S)), 1)
        at = self.now + (np.arange(steps) + 0.5) * length / steps
        rows = self.rng.poisson(np.maximum(self.load.rate(at), 0.0) * length / steps).astype(float)
        self.came += float(rows.sum())
        self.area += float((rows * (until - at)).sum())
        self.waiting = np.concatenate([self.waiting, np.column_stack([at, rows])])

    def _cut(self, cap: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Take what has arrived, at most `cap` rows, oldest first."""
        rows, at = self.waiting[:, 1].copy(), self.waiting[:, 0]
        if cap is None or rows.sum() <= cap:
            self.waiting = np.zeros((0, 2))
            return rows, at
        taken = np.clip(cap - (np.cumsum(rows) - rows), 0.0, rows)
        left = rows - taken
        self.waiting = np.column_stack([at, left])[left > 0.0]
        return taken, at

    def _view(
        self,
        spec: Operator,
        count: float,
        busy: float,
        cycle: float,
        offered: float,
        arrivals: np.ndarray,
        rows: np.ndarray,
        hot: float,
    ) -> OperatorView:
        width = self._widths[spec.name]
        return OperatorView(
            name=spec.name,
            width=width,
            lo=spec.lo,
            hi=spec.hi,
            arrivals_per_s=offered,
            completed_per_s=count / cycle,
            service_s=busy * width / count / (1.0 + hot * (width - 1)),
            service_cv=spec.service_cv,
            interarrival_s=width / offered if offered > 0.0 else 0.0,
            arrival_cv=1.0,
            wait_s=float((rows * (self.now - arrivals)).sum()) / count,
            batch_wait_s=0.0,
            queue_items=0.0,
            utilisation=busy / cycle,
            skew=1.0 + hot * (width - 1),
        )


def _measured(rows: np.ndarray, latency: np.ndarray) -> tuple[float, float, float, float]:
    """Mean, p95, p99 and maximum of latencies that occur `rows` times each."""
    order = np.argsort(latency)
    weight = np.cumsum(rows[order])
    total = float(weight[-1])
    at = [int(np.searchsorted(weight, q * total)) for q in (0.95, 0.99)]
    some = latency[rows > 0.0]
    mean = float((rows * latency).sum()) / total
    return mean, float(latency[order][at[0]]), float(latency[order][at[1]]), float(some.max())
