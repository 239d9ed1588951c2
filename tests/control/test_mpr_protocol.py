"""Thesis 004's runtime as a model: jobs, data plane, add and ban. Numbers: the digest's acceptance list."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.protocol import jobs
from penstock.control.protocol.framing import HEADER, Record
from penstock.control.protocol.invariants import (
    all_ready,
    drained_before_leaving,
    once_each,
    quiet_until_barrier,
    two_phases,
)
from penstock.control.protocol.kernel import ProtocolError
from penstock.control.protocol.ordering import OrderHeap
from penstock.control.protocol.pipeline import Pipeline, Run
from penstock.control.protocol.stage_statistics import StageStatistics
from penstock.control.protocol.world import Action, Event, Settings
from penstock.errors import PolicyError

Cost = Callable[[int, int, float], float]


def compute_only(seconds: Callable[[int], float]) -> Cost:
    return lambda stage, item, now: seconds(item) if stage == 2 else 0.0


def plan(*changes: tuple[float, Sequence[int]]) -> Callable[[float], Sequence[int]]:
    """The desired sizes as they change with time."""
    return lambda now: [sizes for since, sizes in changes if now >= since][-1]


def run(**settings: object) -> Run:
    return Pipeline(Settings(**settings)).run()  # type: ignore[arg-type]


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_a01_job_assignment_of_the_example() -> None:
    table = jobs.assign([1, 3, 1])
    assert [job.rank for job in table] == list(range(9)) and jobs.spawned([1, 3, 1]) == 8
    assert [job.rank for job in table if job.is_manager] == [0, 1, 2, 3]
    assert jobs.members([1, 3, 1]) == {1: (4,), 2: (6, 7, 8), 3: (5,)}
    assert jobs.spawn_messages([1, 3, 1])[0] == (1, 6, 7) and jobs.spawn_messages([1, 3, 1])[-1] == (8, 6, 0)


@given(st.lists(st.integers(1, 10), min_size=2, max_size=6))
def test_a02_every_rank_has_one_job(sizes: list[int]) -> None:
    table = jobs.assign(sizes)
    assert [job.rank for job in table] == list(range(1 + len(sizes) + sum(sizes)))
    for stage, size in enumerate(sizes, 1):
        processes = [job for job in table if job.stage == stage and not job.is_manager]
        assert [job.local_rank for job in processes] == list(range(size))
        assert {job.job_id for job in processes} == {len(sizes) + stage}


@pytest.mark.parametrize("sizes", [[], [1], [1, 0, 1], [1, -2]])
def test_sizes_below_one_are_refused(sizes: list[int]) -> None:
    with pytest.raises(PolicyError, match="at least 1"):
        jobs.assign(sizes)


# --- data plane -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_a04_every_id_arrives_once(processes: int) -> None:
    done = run(
        sizes=(1, processes, 1), items=10_000, cost=compute_only(lambda i: 1e-3 * (1 + i % 3)), check_s=5.0, buffer=2
    )
    assert sorted(done.delivered) == list(range(10_000))


def test_a05_a06_order_is_kept_only_if_asked_for() -> None:
    delays = random.Random(5)
    uneven = [delays.random() * 0.01 for _ in range(500)]
    settings = {"sizes": (1, 4, 1), "items": 500, "cost": compute_only(lambda i: uneven[i])}
    assert run(**settings, ordered=True).delivered == tuple(range(500))
    unordered = run(**settings).delivered
    assert sorted(unordered) == list(range(500)) and unordered != tuple(range(500))


def test_the_order_heap_finds_lost_and_repeated_ids() -> None:
    heap: OrderHeap[str] = OrderHeap()
    heap.put(0, "a")
    heap.put(2, "c")
    with pytest.raises(ProtocolError, match="item 1 never came"):
        heap.end()
    for repeated in (0, 2):
        with pytest.raises(ProtocolError, match="came twice"):
            heap.put(repeated, "again")


@given(st.permutations(range(12)))
def test_the_order_heap_gives_ids_in_order(ids: list[int]) -> None:
    heap: OrderHeap[int] = OrderHeap()
    assert [i for one in ids for i, _ in heap.put(one, one)] == list(range(12))
    assert len(heap) == 0


@pytest.mark.parametrize("buffer", [1, 3])
def test_a07_a_paused_sink_stops_the_source(buffer: int) -> None:
    def cost(stage: int, item: int, now: float) -> float:
        return 100.0 if stage == 3 and item == 20 else 0.001

    pipeline = Pipeline(Settings(sizes=(1, 4, 1), items=5000, cost=cost, buffer=buffer, check_s=0.5))
    past = []
    for until in (5.0, 20.0, 90.0):
        pipeline.advance(until)
        past.append(pipeline.past_source())
    in_compute, at_sink, in_hand = 4 * buffer, 4 * buffer, 4 + 1
    assert past[0] == past[1] == past[2] <= in_compute + at_sink + in_hand


def test_a08_a09_requests_and_data_never_wait_together() -> None:
    """Rule 8 is checked by every process whenever it rests (a ProtocolError otherwise); rule 9 over the trace."""
    done = run(sizes=(1, 3, 1), items=300, cost=compute_only(lambda i: 0.001 * (i % 5)), buffer=3)
    immediate = {event.detail for event in done.of("immediate")}
    buffered = {event.detail for event in done.of("buffered")}
    assert immediate and not immediate & buffered and immediate | buffered == set(range(300))
    waiting: dict[int, int] = {}  # a Compute process that owes an item must use the next one at once
    for event in done.trace:
        if event.kind == "request" and event.rank == 5:
            waiting[event.detail[0]] = waiting.get(event.detail[0], 0) + 1
        elif event.kind == "header" and event.rank >= 6:
            waiting[event.rank] -= 1
            assert waiting[event.rank] >= 0  # computed only because someone had asked


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a10_one_header_and_its_parts(parts: int) -> None:
    done = run(sizes=(1, 2, 1), items=50, parts=parts)
    for rank in (4, 6, 7):
        headers = [e.detail[1] for e in done.trace if e.kind == "header" and e.rank == rank]
        assert {announced for _, announced in headers} <= {parts}
        assert sum(e.kind == "data" and e.rank == rank for e in done.trace) == parts * len(headers)
    source = done.samples[1].values()
    assert sum(sample["Source0"]["ItemsProduced"] for sample in source) == 50  # once per item, not per part


RECORDS = {
    "LineToRender": (Record("ii", 1), (3, 40), (b"\x00\x7f\xff",)),
    "MatStruct": (Record("iii", 1), (2, 3, 16), (bytes(range(18)),)),
    "bzip2Block": (Record("i", 1), (900_000,), (b"BZh9" * 10,)),
    "prime in": (Record("i"), (97,), ()),
    "prime out": (Record("?"), (True,), ()),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a10_records_come_back_byte_by_byte(name: str) -> None:
    record, values, parts = RECORDS[name]
    frames = record.publish(7, values, *parts)
    assert len(frames[0]) == 12 and HEADER.unpack(frames[0]) == (7, 1 + len(parts)) and len(frames) == 2 + len(parts)
    assert record.receive(frames) == (7, values, parts)


@given(st.lists(st.binary(max_size=20), max_size=4), st.integers(0, 2**40))
def test_parts_find_their_slot(parts: list[bytes], item: int) -> None:
    record = Record("qd", len(parts))
    frames = record.publish(item, (5, 0.5), *parts)
    assert record.receive(frames) == (item, (5, 0.5), tuple(parts))
    with pytest.raises(ProtocolError, match="announces"):
        record.receive([*frames, b"one too many"])
    with pytest.raises(PolicyError, match="dynamic members"):
        record.publish(item, (5, 0.5), *parts, b"one too many")


def mandelbrot_costs(lines: int, columns: int = 60, iterations: int = 60) -> list[float]:
    """Seconds per line: the steps of the usual kernel, cheap at both ends and dear in the middle."""
    costs = []
    for line in range(lines):
        steps = 0
        for column in range(columns):
            c = complex(-2.125 + 3.0 * column / columns, -1.5 + 3.0 * line / lines)
            z = c
            for _ in range(iterations):
                if abs(z) > 2.0:
                    break
                z = z * z + c
                steps += 1
        costs.append(1e-5 * steps)
    return costs


LINES = mandelbrot_costs(480)


def test_a11_on_demand_beats_round_robin() -> None:
    seconds = {
        scheduling: run(
            sizes=(1, 4, 1), items=480, cost=compute_only(LINES.__getitem__), scheduling=scheduling, check_s=1.0
        ).seconds
        for scheduling in ("on_demand", "round_robin")
    }
    assert seconds["on_demand"] < seconds["round_robin"]


def test_a12_a_large_buffer_worsens_the_balance() -> None:
    rate = {
        buffer: 480
        / run(sizes=(1, 4, 1), items=480, cost=compute_only(LINES.__getitem__), buffer=buffer, check_s=1.0).seconds
        for buffer in (1, 10, 100)
    }
    assert rate[100] < 0.97 * rate[1]
    assert rate[10] == pytest.approx(rate[1], rel=0.06)


# --- reconfiguration --------------------------------------------------------------------------------------------------


def random_settings(seed: int) -> Settings:
    """A small pipeline whose sizes are changed at random moments, with random costs, delays and buffers."""
    choose = random.Random(seed)
    middle = choose.choice([1, 1, 2])

    def sizes() -> tuple[int, ...]:
        return (1, *(choose.randint(1, 4) for _ in range(middle)), 1)

    start = sizes()
    changes = [(0.0, start), *sorted((choose.uniform(0.0, 0.2), sizes()) for _ in range(3))]
    costs = [[choose.random() * 0.01 for _ in range(20)] for _ in range(middle + 3)]
    return Settings(
        sizes=start,
        items=20,
        cost=lambda stage, item, now: costs[stage][item],
        desired=plan(*changes),
        ordered=choose.random() < 0.5,
        buffer=choose.choice([1, 2, 6]),
        check_s=0.02,
        read_s=0.02,
        statistics_s=0.05,
        spawn_s=0.002,
        latency_s=choose.choice([1e-5, 1e-3, 5e-3]),
        seed=seed,
    )


def test_a13_a14_a17_no_item_is_lost_or_doubled_in_a_thousand_schedules() -> None:
    """Every run checks all invariants over its trace and raises if one fails."""
    adds = bans = 0
    for seed in range(1000):
        done = Pipeline(random_settings(seed)).run()
        assert sorted(done.delivered) == list(range(20))
        for event in done.of("wanted"):
            adds += event.detail[0] is Action.ADD
            bans += event.detail[0] is Action.BAN
    assert adds > 500 and bans > 300


def test_a14_a_ban_with_full_buffers_drains_them() -> None:
    done = run(
        sizes=(1, 6, 1),
        items=400,
        cost=compute_only(lambda i: 0.01),
        buffer=10,
        desired=plan((0.0, (1, 6, 1)), (0.5, (1, 2, 1))),
    )
    banned = done.of("banned")
    assert len(banned) == 4 and all(event.detail == 0 for event in banned)
    first_out = min(event.time for event in banned)
    entered = min(event.time for event in done.of("enter"))
    drained = [e for e in done.trace if e.kind == "header" and entered < e.time < first_out and e.rank >= 6]
    assert len(drained) > 20  # the buffers were full, and were emptied by working
    assert sorted(done.delivered) == list(range(400))


def test_a15_the_sink_waits_for_ready_from_all() -> None:
    settings = {
        "sizes": (1, 5, 1),
        "items": 300,
        "cost": compute_only(lambda i: 0.002 * (1 + i % 7)),
        "desired": plan((0.0, (1, 5, 1)), (0.2, (1, 7, 1))),
    }
    done = run(**settings)
    sink = next(event for event in done.of("flushed") if event.rank == 5)
    ready = [event for event in done.trace if event.kind == "ready" and event.detail[0] == 5]
    assert len(ready) == 5 and max(event.time for event in ready) <= sink.time
    with pytest.raises(ProtocolError):  # the listings go on after the first READY
        run(**settings, single_ready=True)


def test_a16_ready_that_comes_early_is_remembered() -> None:
    """The Source checks in at once; a Compute in the middle of a long item learns of the action much later."""

    def cost(stage: int, item: int, now: float) -> float:
        return {1: 0.001, 2: 0.5 if item % 2 else 0.01, 3: 0.0}[stage]

    done = run(
        sizes=(1, 2, 1),
        items=40,
        cost=cost,
        desired=plan((0.0, (1, 2, 1)), (0.3, (1, 3, 1))),
        check_s=0.01,
        read_s=0.05,
    )
    ready = {e.detail[0]: e.time for e in done.trace if e.kind == "ready" and e.rank == 4}
    entered = {e.rank: e.time for e in done.of("enter")}
    assert any(ready[rank] < entered[rank] for rank in (6, 7))
    assert done.sizes[-1] == (1, 3, 1) and sorted(done.delivered) == list(range(40))


def test_a17_managers_enter_last_and_nothing_moves_before_the_barrier() -> None:
    done = run(
        sizes=(1, 3, 1), items=300, cost=compute_only(lambda i: 0.005), desired=plan((0.0, (1, 3, 1)), (0.3, (1, 5, 1)))
    )
    enter = {event.rank: event.time for event in done.of("enter")}
    handed = [event for event in done.of("handed") if event.detail[1] is Action.ADD]
    for manager in (0, 1, 2, 3):
        told = [event.time for event in handed if event.rank == manager]
        assert len(told) == (3 if manager in (0, 2) else 1) and max(told) <= enter[manager]
    barrier = min(event.time for event in done.of("resumed"))
    assert max(event.time for event in done.of("rebuilt")) <= barrier
    for rank, since in enter.items():
        assert not [e for e in done.trace if e.kind == "header" and e.rank == rank and since < e.time < barrier]


def test_a18_survivors_keep_stage_and_counters() -> None:
    pipeline = Pipeline(
        Settings(
            sizes=(1, 4, 1),
            items=1000,
            cost=compute_only(lambda i: 0.005),
            desired=plan((0.0, (1, 4, 1)), (0.3, (1, 0, 1))),  # 0 counts as 1
        )
    )
    pipeline.advance(0.29)
    before = {rank: (process.stage, process.total_consumed) for rank, process in pipeline.processes.items()}
    done = pipeline.run()
    assert done.sizes == ((1, 4, 1), (1, 1, 1))
    assert {event.rank for event in done.of("banned")} == {7, 8, 9}  # the highest local ranks; never local rank 0
    for rank, process in pipeline.processes.items():
        stage, consumed = before[rank]
        assert process.stage == stage and process.total_consumed >= consumed
        assert consumed > 0 or rank == 4  # the Source consumes nothing
    assert pipeline.processes[6].total_consumed > max(pipeline.processes[rank].total_consumed for rank in (7, 8, 9))


def test_a19_one_stage_at_a_time() -> None:
    done = run(
        sizes=(1, 2, 2, 1),
        items=300,
        cost=lambda stage, item, now: 0.004 if stage in (2, 3) else 0.0,
        desired=plan((0.0, (1, 2, 2, 1)), (0.2, (1, 4, 1, 1))),
        check_s=0.02,
        read_s=0.05,
    )
    assert done.sizes == ((1, 2, 2, 1), (1, 4, 2, 1), (1, 4, 1, 1))


def test_source_and_ordered_sink_are_never_replicated() -> None:
    done = run(items=100, ordered=True, cost=compute_only(lambda i: 0.01), desired=lambda now: (3, 2, 4))
    assert done.sizes == ((1, 1, 1), (1, 2, 1))
    with pytest.raises(PolicyError, match="one Source"):
        Settings(sizes=(2, 1, 1))


def test_a_change_wanted_after_the_end_is_not_begun() -> None:
    done = run(
        items=50,
        buffer=60,  # the Source can send all it has at once
        cost=lambda stage, item, now: 0.1 if stage == 3 else 0.0,
        desired=plan((0.0, (1, 1, 1)), (2.0, (1, 3, 1))),
    )
    assert done.seconds > 4.0 and done.sizes == ((1, 1, 1),)


def test_a22_time_shares_add_up() -> None:
    done = run(
        sizes=(1, 1, 1),
        items=400,
        cost=compute_only(lambda i: 0.01),
        desired=plan((0.0, (1, 1, 1)), (0.5, (1, 4, 1)), (1.2, (1, 2, 1))),
    )
    assert sum(done.shares.values()) == pytest.approx(1.0)
    assert set(done.shares) == {"init", "compute", "add", "ban"} and all(share > 0 for share in done.shares.values())
    assert done.shares["compute"] > 0.5


# --- statistics -------------------------------------------------------------------------------------------------------


def test_a23_samples_count_every_item_once() -> None:
    done = run(
        sizes=(1, 2, 1),
        items=1000,
        cost=compute_only(lambda i: 0.01),
        desired=plan((0.0, (1, 2, 1)), (0.5, (1, 5, 1)), (1.2, (1, 3, 1))),
    )
    for stage in (1, 2, 3):
        samples = list(done.samples[stage].values())
        for sample in samples:
            assert all(set(c) == {"ItemsConsumed", "ItemsProduced", "averageItemsProduced"} for c in sample.values())
        assert sum(c["ItemsProduced"] for sample in samples for c in sample.values()) == 1000
    names = [set(sample) for sample in done.samples[2].values()]
    assert names[0] == {"Compute0", "Compute1"} and {f"Compute{i}" for i in range(5)} in names
    assert names[-1] == {"Compute0", "Compute1", "Compute2"}
    stamps = list(done.samples[2])
    assert stamps == sorted(set(stamps))


def test_a23_averages_leave_the_pause_out() -> None:
    done = run(
        sizes=(1, 1, 1),
        items=300,
        cost=compute_only(lambda i: 0.01),
        desired=plan((0.0, (1, 1, 1)), (0.5, (1, 2, 1))),
        spawn_s=2.0,
    )
    averages = [c["averageItemsProduced"] for sample in done.samples[2].values() for c in sample.values()]
    assert all(average == pytest.approx(100.0, rel=0.25) for average in averages[:-4])
    stamps = list(done.samples[2])
    assert max(later - earlier for earlier, later in pairwise(stamps)) > 2000


def test_a24_no_sample_until_everybody_was_heard() -> None:
    stage = StageStatistics(least_s=0.3)
    stage.report("Compute0", consumed=1, produced=1, seconds=0.1)
    assert stage.sample(1.0, live=["Compute0", "Compute1"]) is None
    stage.report("Compute1", consumed=2, produced=1, seconds=0.1)
    stage.report("Compute0", consumed=3, produced=3, seconds=0.1)
    sample = stage.sample(1.0, live=["Compute0", "Compute1"])
    assert sample is not None and sample["Compute0"]["ItemsProduced"] == 4 and sample["Compute1"]["ItemsConsumed"] == 2
    stage.report("Compute0", consumed=1, produced=1, seconds=0.0)
    assert stage.sample(1.1, live=["Compute0"]) is None  # too early
    late = stage.sample(1.1, live=["Compute0"], final=True)
    assert late is not None and late["Compute0"]["averageItemsProduced"] == 0.0  # no time passed: no infinity


# --- the invariants can fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "trace"),
    [
        (lambda t: once_each(t, 2), [Event(0, 5, "delivered", 0)]),
        (lambda t: once_each(t, 1), [Event(0, 5, "delivered", 0)] * 2),
        (all_ready, [Event(0, 5, "flushed", ((6,), (6, 7)))]),
        (lambda t: two_phases(t, 3), [Event(0, 0, "handed", (1, Action.ADD)), Event(1, 0, "enter", (Action.ADD, 1))]),
        (
            lambda t: two_phases(t, 3),
            [
                Event(0, 2, "handed", (6, Action.ADD)),
                Event(0, 7, "spawned", 2),
                Event(1, 2, "enter", (Action.ADD, 1)),
            ],
        ),
        (quiet_until_barrier, [Event(0, 6, "enter", (Action.ADD, 1)), Event(1, 6, "header", (5, (0, 1), 1))]),
        (quiet_until_barrier, [Event(1, 6, "header", (5, (0, 1), 2))]),
        (quiet_until_barrier, [Event(0, 0, "resumed", 2), Event(1, 6, "rebuilt", 2)]),
        (drained_before_leaving, [Event(0, 8, "banned", 3)]),
    ],
)
def test_every_invariant_catches_its_violation(check: Callable[[list[Event]], None], trace: list[Event]) -> None:
    with pytest.raises(ProtocolError):
        check(trace)


def test_runs_are_deterministic_by_seed() -> None:
    assert Pipeline(random_settings(3)).run() == Pipeline(random_settings(3)).run()
