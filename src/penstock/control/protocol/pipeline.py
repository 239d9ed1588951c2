"""The model of one MPR pipeline from start to end of stream, and what its run tells (thesis 004, chapters 5, 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from penstock.control.protocol import jobs
from penstock.control.protocol.invariants import check_trace
from penstock.control.protocol.kernel import Body, Kernel
from penstock.control.protocol.managers import PipelineManager, StageManager, everyone
from penstock.control.protocol.stage_process import StageProcess
from penstock.control.protocol.stage_statistics import Sample
from penstock.control.protocol.world import Action, Event, Settings, World


@dataclass(frozen=True)
class Run:
    """What one run showed.

    >>> [event.detail for event in Pipeline(Settings(items=2)).run().of("delivered")]
    [0, 1]
    """

    delivered: tuple[int, ...]  # item ids, in the order the Sinks' user code saw them
    seconds: float
    trace: tuple[Event, ...]
    samples: dict[int, dict[int, Sample]]  # stats_stage<k>.json: stage -> epoch milliseconds -> process -> counters
    sizes: tuple[tuple[int, ...], ...]  # the stage sizes, one entry per reconfiguration
    shares: dict[str, float] = field(default_factory=dict)  # init, compute, add, ban; sum 1

    def of(self, kind: str) -> list[Event]:
        """Return the trace's lines of one kind."""
        return [event for event in self.trace if event.kind == kind]


class Pipeline:
    """One pipeline in virtual time.

    >>> grow = lambda now: (1, 3, 1) if now < 1.0 else (1, 2, 1)
    >>> cost = lambda stage, item, now: 0.01 if stage == 2 else 0.0
    >>> run = Pipeline(Settings(items=300, cost=cost, desired=grow)).run()
    >>> sorted(run.delivered) == list(range(300)), run.sizes
    (True, ((1, 1, 1), (1, 3, 1), (1, 2, 1)))
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        kernel = Kernel(seed=settings.seed, latency_s=settings.latency_s, jitter=settings.jitter)
        self.world = World(settings, kernel)
        kernel.lost = self.world.discard
        self.processes: dict[int, StageProcess] = {}
        members = jobs.members(settings.sizes)
        self._bootstrap_s = jobs.spawned(settings.sizes) * settings.spawn_s
        self.world.ranks_used = everyone(members)
        self.world.launch = self._newcomer
        kernel.now = self._bootstrap_s  # the launcher has spawned everybody, one at a time
        kernel.start(jobs.PIPELINE_MANAGER, PipelineManager(self.world, members).body())
        for job in jobs.assign(settings.sizes)[1:]:
            if job.is_manager:
                kernel.start(job.rank, StageManager(self.world, job.stage, members).body())
            else:
                self.processes[job.rank] = StageProcess(self.world, job.rank, job.stage, members, 1)
                kernel.start(job.rank, self.processes[job.rank].body())

    def _newcomer(self, rank: int, world: World) -> Body:
        process = StageProcess(world, rank, 2, jobs.members(world.settings.sizes), 1)
        self.processes[rank] = process
        return process.body(newcomer=True)

    def advance(self, until: float) -> None:
        """Run to an instant of virtual time."""
        self.world.kernel.run(until=until)

    def past_source(self) -> int:
        """Return how many items have left the Source and not been delivered."""
        return self.processes[self.source_rank].next_item - len(self.world.delivered)

    @property
    def source_rank(self) -> int:
        """The rank of the Source: the first after the managers."""
        return len(self.settings.sizes) + 1

    def run(self) -> Run:
        """Run to the end of stream, check every invariant over the trace, and return what happened."""
        self.world.kernel.run(until=inf)
        run = self._result()
        check_trace(run.trace, len(self.settings.sizes), self.settings.items)
        return run

    def _result(self) -> Run:
        trace, end = tuple(self.world.trace), self.world.kernel.now
        sizes = [tuple(self.settings.sizes), *(event.detail for event in trace if event.kind == "sizes")]
        return Run(tuple(self.world.delivered), end, trace, self.world.samples, tuple(sizes), self._shares(trace, end))

    def _shares(self, trace: tuple[Event, ...], end: float) -> dict[str, float]:
        """Share of the run spent starting, adding and banning; the rest is compute (004, figure 7.5).

        A reconfiguration lasts from the first process that enters it to the closing barrier.
        """
        spent = {"init": self._bootstrap_s, "add": 0.0, "ban": 0.0}
        since: dict[int, tuple[float, str]] = {}
        for event in trace:
            if event.kind == "enter":
                action, epoch = event.detail
                since.setdefault(epoch, (event.time, "add" if action is Action.ADD else "ban"))
            elif event.kind == "resumed" and event.rank == jobs.PIPELINE_MANAGER:
                begin, kind = since[event.detail - 1]
                spent[kind] += event.time - begin
        spent["compute"] = end - sum(spent.values())
        return {kind: seconds / end for kind, seconds in spent.items()} if end > 0 else {}
