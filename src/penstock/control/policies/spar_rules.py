"""From an annotated program and a flag to an adaptive farm (thesis 003, chapter 5).

::

    R1  ToStream{f1; Stage, Replicate(N){f2}}               farm(A(f1), B(f2))
    R2  ToStream{f1; Stage, Replicate(N){f2}; Stage{f3}}    farm(A(f1), B(f2), C(f3))
    A1  farm(A(f1), B(f2)) + any adaptive flag              farm(A(f1).RegulatorQ(), B(f2))
    A2  farm(A, B, C) + spar_adaptive-throughput            farm(A(f1).RegulatorT(), B(f2), C(f3).MonitorT())
    A3  farm(A, B, C) + spar_adaptive-latency               farm(A(f1).RegulatorL(), B(f2), C(f3).MonitorL())

The user's functions are left as they are. Without a collector nobody sees completed items, so a two-stage farm falls
back to queues and no goal can be honoured (section 5.2). A flag without a number chooses the strategy that needs
none. The compiler that would apply these rules was not built in the thesis; here they rewrite a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.control.checks import above, at_least
from penstock.control.decision import Policy, Static
from penstock.control.policies.registry import make
from penstock.errors import PolicyError

WIDTH_VARIABLE = "SPAR_NUM_WORKERS"  # the thesis does not name its environment variable
_FLAGS = {"spar_adaptive-throughput": "throughput", "spar_adaptive-latency": "latency"}

Function = Callable[..., Any]


@dataclass(frozen=True)
class Adaptive:
    """An adaptive flag: which metric, the goal (items per second, or seconds), the scaling factor.

    >>> Adaptive("latency", goal=0.24).scaling_factor
    2
    """

    metric: str
    goal: float | None = None
    scaling_factor: int = 2

    def __post_init__(self) -> None:
        if self.metric not in _FLAGS.values():
            raise PolicyError("adaptive flag", f"no metric {self.metric!r}", "use 'throughput' or 'latency'")
        if self.goal is not None:
            above("adaptive flag", "the goal", self.goal, 0.0)
        at_least("adaptive flag", "the scaling factor", self.scaling_factor, 1)


def parse_flag(words: Sequence[str]) -> Adaptive:
    """Read ``spar_adaptive-throughput [target] [scaling_factor]`` or ``spar_adaptive-latency [constraint ms] [...]``.

    >>> parse_flag(["spar_adaptive-throughput", "60", "1"])
    Adaptive(metric='throughput', goal=60.0, scaling_factor=1)
    >>> parse_flag(["--spar_adaptive-latency", "240"]).goal
    0.24
    """
    name = words[0].lstrip("-") if words else ""
    if name not in _FLAGS or len(words) > 3:
        raise PolicyError("adaptive flag", f"cannot read {' '.join(words)!r}", "give " + " or ".join(_FLAGS))
    try:
        goal = float(words[1]) if len(words) > 1 else None
        scaling_factor = int(words[2]) if len(words) > 2 else 2
    except ValueError as error:
        raise PolicyError("adaptive flag", f"{error}", "give a goal and a whole scaling factor") from error
    metric = _FLAGS[name]
    return Adaptive(metric, goal / 1000 if goal is not None and metric == "latency" else goal, scaling_factor)


@dataclass(frozen=True)
class Program:
    """An annotated stream loop: what emits, what is replicated, what collects (if anything), and Replicate's number.

    >>> Program(emit=input, work=len, replicate=4).collect is None
    True
    """

    emit: Function
    work: Function
    collect: Function | None = None
    replicate: int | None = None


@dataclass(frozen=True)
class Farm:
    """The farm that a program becomes: how it is written down, its strategy, its first width."""

    program: Program
    strategy: str  # "static", "throughput", "wudp", "latency", "latency-auto", "queue"
    width: int | None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def plan(self) -> str:
        """Return the farm in the thesis' functional notation.

        >>> def read(): ...
        >>> def score(item): ...
        >>> build(Program(read, score, replicate=4)).plan()
        'farm(A(read), B(score))'
        """
        letter = {"static": "", "queue": "Q", "latency": "L", "latency-auto": "L"}.get(self.strategy, "T")
        regulator = f".Regulator{letter}()" if letter else ""
        parts = [f"A({self.program.emit.__name__}){regulator}", f"B({self.program.work.__name__})"]
        if self.program.collect is not None:
            parts.append(f"C({self.program.collect.__name__})" + (f".Monitor{letter}()" if letter else ""))
        return f"farm({', '.join(parts)})"

    def policy(self) -> Policy:
        """Return the policy that regulates the farm.

        >>> def read(): ...
        >>> type(build(Program(read, print, print), Adaptive("throughput")).policy()).__name__
        'Wudp'
        """
        if self.strategy == "static":
            return Static()
        return make("spar-" + self.strategy.removesuffix("-auto"), **self.parameters)


def build(program: Program, flag: Adaptive | None = None, environ: Mapping[str, str] | None = None) -> Farm:
    """Apply the rules. Without a flag the width is Replicate's, or the environment's (``SPAR_NUM_WORKERS``).

    >>> def read(): ...
    >>> def score(item): ...
    >>> def write(item): ...
    >>> build(Program(read, score, write), Adaptive("latency", 0.24)).plan()
    'farm(A(read).RegulatorL(), B(score), C(write).MonitorL())'
    >>> build(Program(read, score), Adaptive("latency", 0.24)).strategy
    'queue'
    """
    if flag is None:
        return Farm(program, "static", _static_width(program, environ or {}))
    scaling = {"scaling_factor": flag.scaling_factor}
    if program.collect is None:
        return Farm(program, "queue", program.replicate, scaling)
    if flag.metric == "throughput":
        if flag.goal is None:
            return Farm(program, "wudp", program.replicate, scaling)
        return Farm(program, "throughput", program.replicate, {"target_per_s": flag.goal, **scaling})
    if flag.goal is None:
        return Farm(program, "latency-auto", program.replicate, {"automatic": True, **scaling})
    return Farm(program, "latency", program.replicate, {"constraint_s": flag.goal, **scaling})


def _static_width(program: Program, environ: Mapping[str, str]) -> int:
    given = program.replicate if program.replicate is not None else environ.get(WIDTH_VARIABLE)
    remedy = f"write Replicate(n), or set {WIDTH_VARIABLE}"
    if given is None:
        raise PolicyError("farm", "a static farm needs a number of replicas", remedy)
    if not str(given).isascii() or not str(given).isdecimal() or int(given) < 1:
        raise PolicyError("farm", f"the number of replicas must be a whole number of at least 1, got {given!r}", remedy)
    return int(given)
