"""Who does what: global ranks to pipeline jobs, and the membership of the stages (thesis 004, 5.4.7, listings 5.4-5.6).

::

    extra = S + sum of n_k      what the launcher spawns: S stage managers and all stage processes
    total = 1 + extra           the launcher itself becomes the pipeline manager
    rank 0        pipeline manager          job 0
    rank 1..S     stage manager of stage k  job k
    rank S+1      Source (stage 1)          job S + 1
    rank S+2      Sink (stage S)            job S + S
    rank S+3..    Compute stages 2..S-1     job S + stage

The prose calls the 9 processes of its example "spawned"; the code spawns 8, the launcher is the ninth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import PolicyError

PIPELINE_MANAGER = 0


@dataclass(frozen=True)
class Job:
    """What one process does: its job id, its stage (0 for the pipeline manager), its place within the stage.

    >>> assign([1, 3, 1])[7]
    Job(rank=7, job_id=5, stage=2, local_rank=1, is_manager=False)
    """

    rank: int
    job_id: int
    stage: int
    local_rank: int
    is_manager: bool


def check_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the stage sizes as a tuple, or refuse them.

    >>> check_sizes([1, 3, 1])
    (1, 3, 1)
    """
    if len(sizes) < 2 or any(size < 1 for size in sizes):
        raise PolicyError(
            "pipeline", f"stage sizes must be 2 or more numbers of at least 1, got {list(sizes)}", "give 1 or more"
        )
    return tuple(sizes)


def spawned(sizes: Sequence[int]) -> int:
    """Return how many processes the launcher spawns.

    >>> spawned([1, 3, 1])
    8
    """
    return len(check_sizes(sizes)) + sum(sizes)


def spawn_messages(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the bootstrap's messages ``(rank, 6, spawns it still has to help with)``, in order (listing 5.4).

    >>> spawn_messages([1, 1])
    [(1, 6, 3), (2, 6, 2), (3, 6, 1), (4, 6, 0)]
    """
    extra = spawned(sizes)
    return [(rank, 6, extra - rank) for rank in range(1, extra + 1)]


def members(sizes: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the global ranks of every stage; the place in the tuple is the local rank.

    >>> members([1, 3, 1])
    {1: (4,), 2: (6, 7, 8), 3: (5,)}
    """
    count = len(check_sizes(sizes))
    out: dict[int, tuple[int, ...]] = {}
    rank = count + 1
    for stage in (1, count, *range(2, count)):  # the Sink directly after the Source, as in the static baselines
        out[stage] = tuple(range(rank, rank + sizes[stage - 1]))
        rank += sizes[stage - 1]
    return dict(sorted(out.items()))


def assign(sizes: Sequence[int]) -> list[Job]:
    """Return the job of every rank, in the order of ranks (SetJobs, listing 5.6).

    >>> [(job.rank, job.job_id) for job in assign([1, 3, 1])]
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 5), (7, 5), (8, 5)]
    """
    count = len(sizes)
    jobs = [Job(PIPELINE_MANAGER, 0, 0, 0, is_manager=True)]
    jobs += [Job(stage, stage, stage, 0, is_manager=True) for stage in range(1, count + 1)]
    for stage, ranks in members(sizes).items():
        jobs += [Job(rank, count + stage, stage, local, is_manager=False) for local, rank in enumerate(ranks)]
    return sorted(jobs, key=lambda job: job.rank)


def removals(ranks: Mapping[int, tuple[int, ...]], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks to remove to come to the sizes: the highest local ranks, never local rank 0 (our reading).

    >>> removals({1: (4,), 2: (6, 7, 8), 3: (5,)}, [1, 2, 1])
    (8,)
    """
    check_sizes(sizes)
    return tuple(rank for stage, held in ranks.items() for rank in held[sizes[stage - 1] :])


def next_change(actual: Sequence[int], desired: Sequence[int]) -> tuple[int, ...] | None:
    """Return the sizes after the next reconfiguration, or None if nothing differs.

    One stage changes at a time (5.5.2); which first is not said: the lowest stage id (our reading). Sizes below 1
    count as 1.

    >>> next_change([1, 3, 2, 1], [1, 5, 1, 1])
    (1, 5, 2, 1)
    """
    for at, (have, want) in enumerate(zip(actual, desired, strict=True)):
        if max(1, want) != have:
            return (*actual[:at], max(1, want), *actual[at + 1 :])
    return None
