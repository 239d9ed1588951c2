"""Reporters and summaries of thesis 001 against plain arithmetic over all events."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.control.models.constraints import Constraint, between
from penstock.control.models.graph import TemplateGraph, all_to_all
from penstock.control.moments import Moments
from penstock.control.policies.batching_setup import compute_setup
from penstock.control.statistics.reporter import (
    ChannelReporter,
    ChannelStatistics,
    SubtaskReporter,
    SubtaskStatistics,
)
from penstock.control.statistics.sampling import BernoulliSampler
from penstock.control.statistics.summaries import (
    MeanOf,
    Summary,
    merge_summaries,
    operator_view,
    owners,
    summarise,
)
from penstock.errors import PolicyError

# --- reporters --------------------------------------------------------------------------------------------------------


def replay(reporter: SubtaskReporter, reads: list[float], busy: list[float], writes: list[float]) -> SubtaskStatistics:
    """Play reads with their busy times and writes in the order of time."""
    events = [(at, 0, i) for i, at in enumerate(reads)] + [(at, 2, 0) for at in writes]
    events += [(at + busy[i], 1, i) for i, at in enumerate(reads)]
    for at, kind, _ in sorted(events):
        (reporter.read, reporter.finished, reporter.wrote)[kind](at)
    return reporter.close()


def test_acceptance_3_read_write_and_read_ready_of_the_same_subtask() -> None:
    reads, busy, writes = [0.0, 3.0, 7.0], [1.0, 2.5, 0.5], [10.0]
    written = replay(SubtaskReporter(probability=1.0, mode="read_write"), reads, busy, writes)
    assert (written.latency.n, written.latency.mean) == (3, pytest.approx(20 / 3))
    assert written.latency.m2 == pytest.approx(Moments.of([10.0, 7.0, 3.0]).m2)
    ready = replay(SubtaskReporter(probability=1.0, mode="read_ready"), reads, busy, writes)
    assert (ready.latency.n, ready.latency.mean) == (3, pytest.approx(np.mean(busy)))
    for closed in (written, ready):  # the service time is the busy time in both modes
        assert closed.service.mean == pytest.approx(np.mean(busy)) and closed.service.n == 3


def test_acceptance_3_read_write_against_every_pair() -> None:
    random = np.random.default_rng(3)
    for offset in (0.0, 1.7e9):  # epoch seconds must not cost digits
        reads = (offset + np.cumsum(random.exponential(1.0, 300))).tolist()
        writes = (offset + np.sort(random.uniform(0, 250, 40))).tolist()
        slow = [min(w for w in writes if w >= r) - r for r in reads if any(w >= r for w in writes)]
        closed = replay(SubtaskReporter(probability=1.0, mode="read_write"), reads, [0.0] * 300, writes)
        assert closed.latency.n == len(slow)
        assert closed.latency.mean == pytest.approx(np.mean(slow), rel=1e-6)
        assert closed.latency.variance == pytest.approx(np.var(slow, ddof=1), rel=1e-5)


def test_a_window_that_emits_every_t_has_a_mean_latency_of_half_of_it() -> None:
    reads = np.arange(0.0, 100.0, 0.01).tolist()
    closed = replay(
        SubtaskReporter(probability=1.0, mode="read_write"),
        reads,
        [0.0] * len(reads),
        np.arange(2.0, 101.0, 2.0).tolist(),
    )
    assert closed.latency.mean == pytest.approx(1.0, rel=0.01)


def test_an_open_sample_counts_in_the_interval_where_it_ends() -> None:
    reporter = SubtaskReporter(probability=1.0, mode="read_write")
    reporter.read(0.0)
    assert reporter.close().latency.n == 0
    reporter.wrote(12.0)
    assert reporter.close().latency == Moments(1, 12.0, 0.0)
    assert reporter.close().latency.n == 0


def test_inter_arrival_time_runs_to_the_very_next_arrival() -> None:
    # Sampled to the next *sampled* arrival, the mean would be about 1 / q times too long.
    random = np.random.default_rng(4)
    reporter = SubtaskReporter(probability=0.1, seed=3)
    at = 0.0
    for gap in random.exponential(2.0, 60_000):
        at += float(gap)
        reporter.arrived(at)
    closed = reporter.close()
    assert closed.interarrival.mean == pytest.approx(2.0, abs=3 * 2.0 / math.sqrt(closed.interarrival.n))
    assert closed.interarrival.cv == pytest.approx(1.0, rel=0.1)


def test_waits_and_utilisation_of_a_queue_played_through() -> None:
    random = np.random.default_rng(5)
    arrivals = np.cumsum(random.exponential(1.0, 5000))
    services = random.exponential(0.7, 5000)
    reporter = SubtaskReporter(probability=1.0)
    stamps = [reporter.arrived(float(at)) for at in arrivals]
    free, waits = 0.0, []
    for at, service, stamp in zip(arrivals, services, stamps, strict=True):
        start = max(free, float(at))
        waits.append(start - float(at))
        reporter.read(start, stamp)
        free = start + float(service)
        reporter.finished(free)
    closed = reporter.close()
    assert closed.wait.mean == pytest.approx(np.mean(waits)) and closed.wait.n == 5000
    assert closed.service.mean == pytest.approx(services.mean())
    assert closed.utilisation == pytest.approx(services.mean() / np.diff(arrivals).mean())


def test_acceptance_5_sampling_is_unbiased_binomial_and_small() -> None:
    n, q = 40_000, 0.1
    random = np.random.default_rng(6)
    counts = []
    for seed in range(30):
        reporter = SubtaskReporter(probability=q, seed=seed)
        before = set(vars(reporter))
        busy = random.gamma(2.0, 1.5, n // 10)
        for i, service in enumerate(busy.tolist()):
            reporter.read(100.0 * i)
            reporter.finished(100.0 * i + service)
        assert set(vars(reporter)) == before and not any(isinstance(v, list) for v in vars(reporter).values())
        closed = reporter.close()
        counts.append(closed.service.n)
        assert abs(closed.service.mean - 3.0) <= 4.0 * math.sqrt(4.5 / closed.service.n)
    expected, spread = n // 10 * q, math.sqrt(n // 10 * q * (1 - q))
    assert abs(np.mean(counts) - expected) <= 3 * spread / math.sqrt(30)
    assert 0.6 * spread <= np.std(counts) <= 1.5 * spread


def test_acceptance_5_mean_and_variance_within_3_standard_errors() -> None:
    chosen = BernoulliSampler(0.1, seed=11).mask(400_000)
    values = np.random.default_rng(12).gamma(2.0, 1.5, 400_000)  # mean 3, variance 4.5, fourth moment 6 above normal's
    sample = Moments.of(values[chosen])
    assert abs(sample.n - 40_000) <= 3 * math.sqrt(400_000 * 0.1 * 0.9)
    assert abs(sample.mean - 3.0) <= 3 * math.sqrt(4.5 / sample.n)
    kurtosis = 3.0 + 6.0 / 2.0
    assert sample.variance is not None
    assert abs(sample.variance - 4.5) <= 3 * 4.5 * math.sqrt((kurtosis - 1.0) / sample.n)


@pytest.mark.parametrize("q", [0.01, 0.3, 1.0])
def test_one_by_one_and_many_at_once_draw_the_same_sample(q: float) -> None:
    alone, many = BernoulliSampler(q, seed=2), BernoulliSampler(q, seed=2)
    pieces = [many.mask(k) for k in (0, 1, 7, 500, 3, 2000)]
    assert [alone.hit() for _ in range(2511)] == np.concatenate(pieces).tolist()


def test_tags_are_evaluated_by_the_receiver() -> None:
    reporter = ChannelReporter("a->b", probability=0.5, seed=1)
    delays = np.random.default_rng(7).exponential(3.0, 500)
    tags = [reporter.sent(float(i)) for i in range(500)]
    for i, tag in enumerate(tags):
        reporter.received(tag, i + float(delays[i]))
    closed = reporter.close()
    sampled = [delays[i] for i, tag in enumerate(tags) if tag is not None]
    assert 0 < len(sampled) < 500 and closed.latency.n == len(sampled)
    assert closed.latency.mean == pytest.approx(np.mean(sampled))
    tag = next(tag for tag in (reporter.sent(5.0) for _ in range(99)) if tag is not None)
    reporter.received(tag, 4.0)  # a clock that is behind
    assert reporter.skewed == 1 and reporter.close().latency == Moments(1, 0.0, 0.0)


@pytest.mark.parametrize("wrong", [0.0, -0.1, 1.1, math.nan])
def test_a_bad_probability_is_refused(wrong: float) -> None:
    with pytest.raises(PolicyError):
        SubtaskReporter(probability=wrong)


# --- summaries --------------------------------------------------------------------------------------------------------

WIRING = {("src", "v"): all_to_all, ("v", "u"): all_to_all, ("u", "snk"): all_to_all}
GRAPH = TemplateGraph({"src": 2, "v": 4, "u": 3, "snk": 1}, WIRING).runtime()
PATH = between("c", ("src", "v", "u", "snk"), 50.0)


def reported(seed: int) -> tuple[dict, dict]:  # type: ignore[type-arg]
    random = np.random.default_rng(seed)

    def some() -> Moments:
        return Moments.of(random.exponential(3.0, random.integers(2, 9)))

    subtasks = {s: SubtaskStatistics(some(), some(), some(), some()) for s in GRAPH.subtasks}
    channels = {c: ChannelStatistics(some(), some()) for c in GRAPH.channels}
    return subtasks, channels


def test_acceptance_4_the_sequence_latency_is_the_sum_of_the_parts() -> None:
    subtasks, channels = reported(1)
    summary = summarise(PATH, subtasks, channels)
    tasks = [np.mean([s.latency.mean for key, s in subtasks.items() if key[0] == t]) for t in ("v", "u")]
    streams = [np.mean([c.latency.mean for key, c in channels.items() if (key[0][0], key[1][0]) == e]) for e in WIRING]
    assert summary.sequence_latency == pytest.approx(sum(tasks) + sum(streams))
    # On a path of one subtask each, it is what one item takes: l_S(d) = l_e(d) + L(d, i + 1), one after the other.
    line = TemplateGraph(dict.fromkeys(("src", "v", "snk"), 1), {("src", "v"): all_to_all, ("v", "snk"): all_to_all})
    known = {"src->v": 4.0, "v": 2.0, "v->snk": 7.0}
    runtime, one = line.runtime(), between("c", ("src", "v", "snk"), 50.0)
    summary = summarise(
        one,
        {("v", 1): SubtaskStatistics(latency=Moments.of([known["v"]]))},
        {c: ChannelStatistics(latency=Moments.of([known[f"{c[0][0]}->{c[1][0]}"]])) for c in runtime.channels},
    )
    assert summary.sequence_latency == sum(known.values())


def test_the_mean_is_over_channels_not_over_items() -> None:
    edges = GRAPH.channels_of(("src", "v"))[:2]
    few = {edges[0]: ChannelStatistics(Moments.of([1.0] * 99)), edges[1]: ChannelStatistics(Moments.of([3.0]))}
    assert summarise(PATH, {}, few).streams["src", "v"].latency == MeanOf(2, 2.0)


def test_acceptance_6_overlapping_aggregators_merge_to_the_whole() -> None:
    random = np.random.default_rng(6)
    for seed in range(20):
        subtasks, channels = reported(seed)
        schedule = {subtask: f"w{random.integers(0, 3)}" for subtask in GRAPH.subtasks}
        setup = compute_setup(GRAPH, [PATH], schedule)
        watched = {worker: part.subtasks | part.channels for worker, part in setup.items()}
        if len(watched) > 1:
            assert sum(map(len, watched.values())) > len(frozenset().union(*watched.values()))  # they do overlap
        partial = [
            summarise(
                PATH,
                {s: subtasks[s] for s in setup[worker].subtasks},
                {c: channels[c] for c in setup[worker].channels},
                owned=owned,
            )
            for worker, owned in owners(watched).items()
        ]
        merged, whole = merge_summaries(partial)["c"], summarise(PATH, subtasks, channels)
        assert merged.sequence_latency == pytest.approx(whole.sequence_latency)
        for name in ("v", "u"):
            one, other = merged.tasks[name], whole.tasks[name]
            inner = [s for key, s in subtasks.items() if key[0] == name]
            assert one.service.mean == pytest.approx(np.mean([s.service.mean for s in inner]))
            assert one.service_cv.mean == pytest.approx(np.mean([s.service.cv for s in inner]))
            assert one.wait.count == other.wait.count == len(inner)
            assert one.busiest == other.busiest == max(s.utilisation for s in inner)
            assert one.utilisation == pytest.approx(other.utilisation)
        for stream, summary in merged.streams.items():
            parts = [c for key, c in channels.items() if (key[0][0], key[1][0]) == stream]
            assert summary.batching == MeanOf(len(parts), pytest.approx(np.mean([c.batching.mean for c in parts])))
            assert summary.latency.count == len(parts)


def test_acceptance_7_an_element_without_samples_makes_the_summary_stale() -> None:
    subtasks, channels = reported(7)
    assert summarise(PATH, subtasks, channels).fresh
    silent = dict.fromkeys([s for s in subtasks if s[0] == "u"], SubtaskStatistics())
    stale = summarise(PATH, {**subtasks, **silent}, channels)
    assert not stale.fresh and stale.sequence_latency is None
    assert not summarise(PATH, subtasks, {c: s for c, s in channels.items() if c[0][0] != "src"}).fresh
    # One silent subtask of several is left out, and does not count as 0.
    one = summarise(PATH, {**subtasks, ("v", 1): SubtaskStatistics()}, channels)
    assert one.fresh and one.tasks["v"].latency.count == 3
    assert one.tasks["v"].latency.mean == pytest.approx(np.mean([subtasks["v", i].latency.mean for i in (2, 3, 4)]))


def test_a_summary_becomes_a_view() -> None:
    subtasks, channels = reported(8)
    whole = summarise(PATH, subtasks, channels)
    view = operator_view("u", whole.tasks["u"], whole.streams["v", "u"], width=3, lo=1, hi=9)
    assert view.batch_wait_s == whole.streams["v", "u"].batching.mean
    assert view.task_latency_s == whole.tasks["u"].latency.mean != view.service_s
    assert view.busiest == pytest.approx(whole.tasks["u"].busiest)
    assert view.queue_items == pytest.approx(view.arrivals_per_s * view.wait_s)


def test_summaries_of_different_constraints_do_not_mix() -> None:
    with pytest.raises(PolicyError, match="cannot be merged with one of 'd'"):
        Summary("c").merge(Summary("d"))
    both = merge_summaries([Summary("c"), Summary("d")])
    assert set(both) == {"c", "d"}
    assert summarise(Constraint("only", ("v",), None), {}, {}).streams == {}
