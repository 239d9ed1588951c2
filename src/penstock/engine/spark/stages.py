"""Cut a flow into Spark jobs and stages: which operators share a task, where rows cross, what is kept.

Native steps (read, sql, union of such) stay DataFrames. Python steps that need no exchange share one
*stage*, a tree of calls in one task. An operator that needs an exchange (a farm, keyed state, a window)
begins a stage. A stage streams on into the next one inside the same job if only that one reads it;
otherwise, and always when it holds state, what others need of it is *tapped*: written once to
attempt-unique files, from which sinks and later jobs read. So a Python step runs in exactly one job.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import TypeGuard

from penstock.flow import operators as op
from penstock.flow.flow import Flow


@dataclass
class Stage:
    """Python operators that run in one task, beginning at `root`; `head` is set if an exchange precedes."""

    number: int
    root: str
    head: op.Map | op.Stateful | op.Window | None = None
    steps: list[op.Operator] = field(default_factory=list)
    taps: list[str] = field(default_factory=list)
    outlet: str | None = None
    feeds: Stage | None = None

    @property
    def name(self) -> str:
        """A name for reports: the operator that begins it."""
        return self.head.name if self.head is not None else f"stage{self.number}"

    @property
    def keeps_state(self) -> bool:
        """Whether its head holds keyed state, so that it must end its job."""
        return isinstance(self.head, (op.Stateful, op.Window))


@dataclass(frozen=True)
class JobPlan:
    """One Spark job: stages in a row, the last of which reports and taps."""

    stages: tuple[Stage, ...]

    @property
    def last(self) -> Stage:
        """The stage whose tasks report to the driver."""
        return self.stages[-1]


@dataclass(frozen=True)
class Plan:
    """All jobs of one batch, in order, and the ports that are native."""

    jobs: tuple[JobPlan, ...]
    native: frozenset[str]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage of every job."""
        return tuple(stage for job in self.jobs for stage in job.stages)


def owner_of(plan: Plan, port: str) -> Stage:
    """Return the stage that taps a port."""
    return next(stage for stage in plan.stages if port in stage.taps)


def waves(plan: Plan, flow: Flow) -> list[list[JobPlan]]:
    """Return the jobs of a batch in waves: those of one wave need only what earlier waves have tapped."""
    home = {port: number for number, job in enumerate(plan.jobs) for stage in job.stages for port in stage.taps}
    wave: dict[int, int] = {}

    def after(port: str) -> int:
        if port not in plan.native:
            return wave[home[port]] + 1
        return max((after(name) for name in flow.operators[op.owner(port)].inputs), default=0)

    for number, job in enumerate(plan.jobs):
        wave[number] = after(job.stages[0].root)
    return [
        [job for number, job in enumerate(plan.jobs) if wave[number] == turn]
        for turn in range(1 + max(wave.values(), default=0))
    ]


def needs_exchange(node: op.Operator) -> bool:
    """Whether an operator is its own stage behind an exchange."""
    return getattr(node, "width", None) is not None


def cut(flow: Flow, chains: Sequence[Sequence[str]] = ()) -> Plan:
    """Cut a flow into jobs. The farms of a chain share the tasks of its first one: no exchange between them."""
    return _Cutter(flow, {name for chain in chains for name in chain[1:]}).run()


def pipelines(flow: Flow, plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Return the longest runs of farms that may be chained, given the plan without chains.

    A farm can join the tasks of the farm before it if both deal chunks out by the same rule and it alone follows: the
    chunks are then the same ones, whether they are sent on or not. What is sent by key must be sent.
    """
    home = {port: stage.head for stage in plan.stages if stage.head for port in _made_by(stage)}
    after: dict[str, list[str]] = {}
    for node in flow.operators.values():
        before = home.get(node.inputs[0]) if node.inputs else None
        if _is_farm(node) and _is_farm(before) and _dealt_alike(node, before):
            after.setdefault(before.name, []).append(node.name)
    joined = {name for names in after.values() for name in names}
    runs = []
    for name in after:
        if name in joined and any(names == [name] for names in after.values()):
            continue  # not the first of its run
        run = [name]
        while len(after.get(run[-1], ())) == 1:
            run.append(after[run[-1]][0])
        runs.append(tuple(run))
    return tuple(run for run in runs if len(run) > 1)


def _made_by(stage: Stage) -> list[str]:
    return [port for node in ([stage.head] if stage.head else []) + stage.steps for port in node.outputs]


def _is_farm(node: op.Operator | None) -> TypeGuard[op.Map]:
    return isinstance(node, op.Map) and node.width is not None and node.partition == "round_robin"


def _dealt_alike(one: op.Map, other: op.Map) -> bool:
    return one.ordered == other.ordered and one.scheduling == other.scheduling


class _Cutter:
    def __init__(self, flow: Flow, chained: Set[str]) -> None:
        self.flow, self.chained = flow, chained
        self.stages: list[Stage] = []
        self.native: set[str] = set()
        self.home: dict[str, Stage] = {}  # port -> the stage that makes it
        self.root_stage: dict[str, Stage] = {}  # native port -> the stage of fused steps upon it
        self.outside: list[tuple[str, Stage | None]] = []  # (port, reader) where a port leaves its stage

    def run(self) -> Plan:
        for node in self.flow.operators.values():
            self._place(node)
        for sink in self.flow.sinks.values():
            if sink.port in self.native:
                self._fused_stage(sink.port)
                self._tap(self.root_stage[sink.port], sink.port)
            else:
                self._tap(self.home[sink.port], sink.port)
        self._join_stages()
        return Plan(tuple(self._jobs()), frozenset(self.native))

    def _place(self, node: op.Operator) -> None:
        if isinstance(node, op.Read) or (isinstance(node, (op.Sql, op.Union)) and self._all_native_or_leave(node)):
            self.native.update(node.outputs)
        elif needs_exchange(node) and node.name not in self.chained:
            self._begin_stage(node)
        else:
            port = node.inputs[0]
            stage = self._fused_stage(port) if port in self.native else self.home[port]
            stage.steps.append(node)
            self.home.update(dict.fromkeys(node.outputs, stage))

    def _all_native_or_leave(self, node: op.Operator) -> bool:
        """Sql and union are native unless a union's inputs all live in one stage; Python inputs are tapped."""
        homes = {id(self.home[port]) for port in node.inputs if port in self.home}
        if isinstance(node, op.Union) and len(homes) == 1 and all(port in self.home for port in node.inputs):
            return False
        for port in node.inputs:
            if port in self.home:
                self._tap(self.home[port], port)
        return True

    def _fused_stage(self, port: str) -> Stage:
        if port not in self.root_stage:
            stage = Stage(len(self.stages), root=port)
            self.stages.append(stage)
            self.root_stage[port] = stage
        return self.root_stage[port]

    def _begin_stage(self, node: op.Operator) -> None:
        assert isinstance(node, (op.Map, op.Stateful, op.Window))
        stage = Stage(len(self.stages), root=node.inputs[0], head=node)
        self.stages.append(stage)
        self.home.update(dict.fromkeys(node.outputs, stage))
        if node.inputs[0] in self.home:
            self.outside.append((node.inputs[0], stage))

    def _tap(self, stage: Stage, port: str) -> None:
        if port not in stage.taps:
            stage.taps.append(port)

    def _join_stages(self) -> None:
        """Stream a stage into its only reader; else tap the ports that leave it."""
        for stage in self.stages:
            leaving = [(port, reader) for port, reader in self.outside if self.home[port] is stage]
            if len(leaving) == 1 and not stage.taps and not stage.keeps_state:
                stage.outlet, stage.feeds = leaving[0]
            else:
                for port, _ in leaving:
                    self._tap(stage, port)

    def _jobs(self) -> list[JobPlan]:
        fed = {id(stage.feeds): stage for stage in self.stages if stage.feeds is not None}
        jobs = []
        for stage in self.stages:
            if stage.feeds is None:
                chain = [stage]
                while id(chain[0]) in fed:
                    chain.insert(0, fed[id(chain[0])])
                jobs.append(JobPlan(tuple(chain)))
        return jobs
