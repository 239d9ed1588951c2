"""`penstock simulate replay CHECKPOINT --policy P`: a run's load under another policy, beside the run itself.

The run is *measured*, its replay is *simulated*; both are judged by the same code from the same kind of records. How
far a replay can be trusted shows where the run's own policy is replayed: that is the default.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.apps.simulate.plot import WHERE
from penstock.control.decision import Policy
from penstock.control.histogram import LogHistogram
from penstock.control.observation import Bound
from penstock.control.policies import registry
from penstock.engine.sim.loop import within
from penstock.engine.sim.measures import Row
from penstock.engine.sim.recorded import Recorded, recorded
from penstock.engine.sim.replayed import interval_of, replayed
from penstock.errors import FlowError
from penstock.observe.picture import require_matplotlib
from penstock.observe.record import BatchRecord
from penstock.observe.telemetry import read, telemetry_dir

SEEDS = 5

Bounds = Sequence[tuple[Bound, tuple[str, ...]]]


@dataclass(frozen=True)
class Judged:
    """A run in numbers, measured or simulated."""

    label: str  # "measured" or "simulated"
    policy: str
    seed: int
    fulfilled: float | None  # share of spans in which every bound held
    spans: int
    mean_s: float | None  # over all rows
    p95_s: float | None
    width_s: float  # sum of width x time
    reconfigurations: int  # batches that ran with other widths than the one before
    batches: int

    def to_json(self, bound_ms: float | None) -> dict[str, Any]:
        """The row of `penstock simulate`, and what it is."""
        row = Row(
            "replay",
            self.policy,
            self.seed,
            bound_ms=bound_ms,
            fulfilled=self.fulfilled,
            p95_ms=None if self.p95_s is None else 1e3 * self.p95_s,
            mean_ms=None if self.mean_s is None else 1e3 * self.mean_s,
            subtask_hours=self.width_s / 3600.0,
            reconfigurations=self.reconfigurations,
            violations=None if self.fulfilled is None else round((1.0 - self.fulfilled) * self.spans),
        )
        return {"label": self.label, **row.to_json(), "width_seconds": round(self.width_s, 3), "batches": self.batches}


def main(
    checkpoint: str | Path,
    *,
    policy: str | None = None,
    bound_ms: float | None = None,
    over_s: float | None = None,
    skip_s: float = 0.0,
    seed: int = 1,
    seeds: int | None = None,
    json_path: str | None = None,
    plot_path: str | None = None,
) -> int:
    """Replay the last run of a checkpoint, print it beside the run, and write rows and picture where asked.

    `policy` names one policy, or several with commas; left out, the run's own. `bound_ms` is a bound on the mean in
    place of what the run required, `over_s` the span over which a bound is judged; the first `skip_s` seconds of the
    run, in which it starts, are not judged.
    """
    where = f"checkpoint {checkpoint}"
    if plot_path is not None:
        require_matplotlib(WHERE)
    model = recorded(records_of(checkpoint), bound_ms=bound_ms, over_s=over_s, where=where)
    names = [own_policy(model, where)] if policy is None else [name.strip() for name in policy.split(",")]
    policies = [(name, registry.make(name)) for name in names]  # a wrong name is refused before anything is run
    since = model.records[0].started + skip_s
    own = _name_of(model.policy) or model.policy or "no policy"
    live = judged(model.records, model.bounds, label="measured", policy=own, since=since)
    if live.fulfilled is None:
        rule = f"nothing became visible after the first {skip_s:g} s"
        raise FlowError(where, rule, "pass a smaller --skip, or let the job run longer")
    runs = []
    for name, _ in policies:
        for one in range(seed, seed + (SEEDS if seeds is None else seeds)):
            records = replayed(model, registry.make(name), seed=one, interval_s=interval_of(name, model))
            found = judged(records, model.bounds, label="simulated", policy=name, seed=one, since=since)
            runs.append((found, records))
    print(text(model, live, [found for found, _ in runs], where))
    if json_path is not None:
        limit = _limit_ms(model.bounds)
        rows = [live.to_json(limit), *(found.to_json(limit) for found, _ in runs)]
        Path(json_path).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if plot_path is not None:
        plot(model, [(found.policy, records) for found, records in runs if found.seed == seed], plot_path)
    return 0


def records_of(checkpoint: str | Path) -> list[BatchRecord]:
    """The telemetry of a checkpoint; one without any is refused."""
    where, folder = f"checkpoint {checkpoint}", telemetry_dir(checkpoint)
    if not folder.is_dir():
        missing = "it does not exist" if not Path(checkpoint).is_dir() else "it has no telemetry"
        raise FlowError(where, missing, "name the checkpoint of a job that ran with telemetry")
    found = list(read(folder))
    if not found:
        raise FlowError(where, "its telemetry is empty", "let the job run first")
    return found


def own_policy(model: Recorded, where: str = "run") -> str:
    """The registry's name of the policy that a run had; one that never changed anything is `static`."""
    name = _name_of(model.policy) or ("static" if model.static else None)
    if name is None:
        rule = f"its policy, {model.policy or 'none'}, is none of the library's"
        raise FlowError(where, rule, "pass --policy; known are " + ", ".join(registry.names()))
    return name


def _name_of(kind: str) -> str | None:
    if kind == "Static":
        return "static"
    made = {getattr(registry.entry_of(name).factory, "__name__", ""): name for name in registry.names()}
    return made.get(kind)


# -- judging -------------------------------------------------------------------------------------------------------


def judged(
    records: Sequence[BatchRecord],
    bounds: Bounds,
    *,
    label: str,
    policy: str,
    seed: int = 0,
    since: float | None = None,
) -> Judged:
    """A run's numbers from its records: the same for one that was measured and one that was simulated.

    Batches whose results were visible before `since` are left out, and spans begin there.

    >>> batches = [BatchRecord(i, started=float(i), visible=i + 0.5, latency={"out": LogHistogram.of([0.2 + 0.1 * i])},
    ...     decision={"widths": {"score": 1 + i // 2}}) for i in range(4)]
    >>> found = judged(batches, [(Bound("b", ("score",), mean_s=0.35, over_s=2.0), ("out",))], label="measured",
    ...     policy="static")
    >>> found.fulfilled, found.spans, found.reconfigurations
    (0.5, 2, 1)
    """
    since = records[0].started if since is None and records else since or 0.0
    records = [record for record in records if record.visible >= since]
    found = _verdicts(records, bounds, since)
    sinks = tuple(dict.fromkeys(sink for _, names in bounds for sink in names))
    whole = LogHistogram.total(_at(record, sinks) for record in records)
    width_s = 0.0
    for record, following in zip(records, [*records[1:], None], strict=True):
        lasts = record.cycle_s if following is None else max(following.started - record.started, 0.0)
        width_s += sum(record.decision.get("widths", {}).values()) * lasts
    widths = [record.decision.get("widths", {}) for record in records]
    return Judged(
        label,
        policy,
        seed,
        sum(map(all, found)) / len(found) if found else None,
        len(found),
        whole.mean,
        whole.quantile(0.95),
        width_s,
        sum(a != b for a, b in pairwise(widths)),
        len(records),
    )


def _verdicts(records: Sequence[BatchRecord], bounds: Bounds, first: float) -> list[list[bool]]:
    """Per span of the shortest `over`, whether each bound held in it.

    A span in which nothing became visible is judged by the first batch after it: if rows were waiting, it is late.
    """
    sinks = {sink for _, names in bounds for sink in names}
    shown = [record for record in records if any(record.latency[s].counts for s in sinks & record.latency.keys())]
    if not shown:
        return []
    span = min(bound.over_s for bound, _ in bounds)
    spans: dict[int, list[BatchRecord]] = {}
    last = -1
    for record in shown:
        at = int((record.visible - first) / span)
        for empty in range(last + 1, at):
            spans[empty] = [record]
        spans.setdefault(at, []).append(record)
        last = at
    return [_held(members, bounds) for members in spans.values()]


def _held(records: Sequence[BatchRecord], bounds: Bounds) -> list[bool]:
    """Whether each bound that has results held over some batches."""
    verdicts = []
    for bound, sinks in bounds:
        whole = LogHistogram.total(_at(record, sinks) for record in records)
        if whole.mean is not None and whole.max is not None:
            quantiles = (whole.quantile(0.95) or 0.0, whole.quantile(0.99) or 0.0)
            verdicts.append(within(bound, (whole.mean, *quantiles, whole.max)))
    return verdicts


def _at(record: BatchRecord, sinks: tuple[str, ...]) -> LogHistogram:
    return LogHistogram.total(record.latency[sink] for sink in sinks if sink in record.latency)


def _limit_ms(bounds: Bounds) -> float | None:
    limits = [x for b, _ in bounds for x in (b.mean_s, b.p95_s, b.p99_s) if x is not None]
    return 1e3 * min(limits) if limits else None


# -- saying --------------------------------------------------------------------------------------------------------


def text(model: Recorded, live: Judged, runs: Sequence[Judged], where: str = "run") -> str:
    """The run and its replays as a table; a replay is the mean over its seeds."""
    stated = "; ".join(_stated(bound) for bound, _ in model.bounds)
    seconds = model.records[-1].started - model.records[0].started
    lines = [f"replay of {where}: {live.batches} batches in {seconds:.0f} s, {stated}"]
    titles = ("fulfilled", "mean ms", "p95 ms", "width x s", "changes", "batches")
    lines.append("  " + f"{'policy':<36}" + "".join(f"{title:>12}" for title in titles))
    lines.append(_line(f"{live.policy} (measured)", [live]))
    for policy in dict.fromkeys(run.policy for run in runs):
        mine = [run for run in runs if run.policy == policy]
        lines.append(_line(f"{policy} (simulated, {len(mine)} seeds)", mine))
        rates = [run.fulfilled for run in mine if run.fulfilled is not None]
        if rates and live.fulfilled is not None:
            gap = 100.0 * (float(np.mean(rates)) - live.fulfilled)
            spread = f"from {100.0 * min(rates):.1f}% to {100.0 * max(rates):.1f}%"
            lines.append(f"    {gap:+.1f} points against the run; {spread} over the seeds")
    errors = ", ".join(f"{name} {1e3 * sink.error_s:.0f} ms" for name, sink in model.sinks.items())
    lines.append(f"  the run rebuilt: a batch's mean latency is off by (median) {errors}")
    lines.append("  load, costs and noise are the run's; routing and chaining stay as they were in it")
    return "\n".join([*lines, *(f"  note: {note}" for note in model.notes)])


def _line(name: str, runs: Sequence[Judged]) -> str:
    def mean(values: list[float | None], form: str) -> str:
        known = [value for value in values if value is not None]
        return form.format(float(np.mean(known))) if known else "-"

    cells = (
        mean([r.fulfilled for r in runs], "{:.1%}"),
        mean([r.mean_s and 1e3 * r.mean_s for r in runs], "{:.0f}"),
        mean([r.p95_s and 1e3 * r.p95_s for r in runs], "{:.0f}"),
        mean([r.width_s for r in runs], "{:.1f}"),
        mean([float(r.reconfigurations) for r in runs], "{:.0f}"),
        mean([float(r.batches) for r in runs], "{:.0f}"),
    )
    return "  " + f"{name:<36}" + "".join(f"{cell:>12}" for cell in cells)


def _stated(bound: Bound) -> str:
    limits = (("mean", bound.mean_s), ("p95", bound.p95_s), ("p99", bound.p99_s))
    return ", ".join(f"{kind} {1e3 * s:.0f} ms" for kind, s in limits if s is not None) + f" over {bound.over_s:g} s"


def plot(model: Recorded, runs: Sequence[tuple[str, Sequence[BatchRecord]]], path: str | Path) -> None:
    """Rate, widths and latency over time: the run (measured) and its replays (simulated) in one picture."""
    require_matplotlib(WHERE)
    import matplotlib  # noqa: PLC0415 - optional, and slow to import

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (top, middle, bottom) = pyplot.subplots(3, 1, figsize=(9.0, 7.5), sharex=True)
    grid = np.arange(0.0, model.duration_s, max(1.0, model.duration_s / 400.0))
    top.plot(grid[1:], np.diff(np.interp(grid, model.at_s, model.came)) / np.diff(grid), color="tab:gray")
    top.set_ylabel("rows/s (measured)")
    curves = [("run (measured)", list(model.records)), *((f"{p} (simulated)", list(r)) for p, r in runs)]
    sinks = tuple(dict.fromkeys(sink for _, names in model.bounds for sink in names))
    for label, records in curves:
        shown = [r for r in records if (r.latency and _at(r, sinks).mean is not None)]
        time = [r.visible - model.began for r in shown]
        middle.step(time, [sum(r.decision.get("widths", {}).values()) for r in shown], where="post", label=label)
        bottom.plot(time, [1e3 * (_at(r, sinks).mean or 0.0) for r in shown], label=label, linewidth=0.9)
    middle.set_ylabel("width, all operators")
    limit = _limit_ms(model.bounds)
    if limit is not None:
        bottom.axhline(limit, color="tab:red", linestyle="--", linewidth=0.9, label="bound")
    bottom.set_ylabel("mean latency of a batch, ms")
    bottom.set_yscale("log")
    bottom.set_xlabel("seconds")
    middle.legend(fontsize=8)
    bottom.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(str(path), dpi=110)
    pyplot.close(figure)


def replay(checkpoint: str | Path, policy: Policy, *, bound_ms: float | None = None, seed: int = 1) -> Judged:
    """A checkpoint's last run under a policy object, for programs; it decides after every batch."""
    model = recorded(records_of(checkpoint), bound_ms=bound_ms, where=f"checkpoint {checkpoint}")
    records = replayed(model, policy, seed=seed)
    return judged(records, model.bounds, label="simulated", policy=type(policy).__name__, seed=seed)
