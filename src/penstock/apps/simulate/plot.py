"""Rate, width and latency against the bound over time, as a picture. Needs matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.engine.sim.loop import Trace
from penstock.engine.sim.measures import Row
from penstock.observe.picture import require_matplotlib

WHERE = "simulate --plot"


def plot(results: Sequence[tuple[Row, Trace]], path: str | Path) -> None:
    """Draw the runs of a scenario side by side and write the picture; the file's ending decides its kind."""
    require_matplotlib(WHERE)
    import matplotlib  # noqa: PLC0415 - optional, and slow to import

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    shown = [(row, trace) for row, trace in results if trace.intervals][:6]
    count = max(len(shown), 1)
    rows = 3 if any(trace.bounds for _, trace in shown) else 2  # without a bound there is no latency to show
    figure, axes = pyplot.subplots(rows, count, figsize=(5.0 * count, 2.5 * rows), squeeze=False, sharex="col")
    for column, (row, trace) in enumerate(shown):
        time = [interval.end_s for interval in trace.intervals]
        top, middle = axes[0][column], axes[1][column]
        bound = "" if row.bound_ms is None else f", bound {row.bound_ms:g} ms"
        top.set_title(f"{row.scenario}, {row.policy}{bound} (simulated)", fontsize=9)
        top.plot(time, [interval.rate for interval in trace.intervals], color="tab:blue")
        top.set_ylabel("items/s")
        for name in trace.intervals[-1].widths:
            middle.step(time, [i.widths.get(name, 0) for i in trace.intervals], where="pre", label=name)
        middle.set_ylabel("width")
        middle.legend(fontsize=7)
        if rows == 3:
            _latency(axes[2][column], row, trace, time)
        axes[-1][column].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(str(path), dpi=110)
    pyplot.close(figure)


def _latency(axis: object, row: Row, trace: Trace, time: Sequence[float]) -> None:
    """Mean and 95th percentile of the row's bound, on a logarithmic scale, and the bound itself."""
    names = [b.name for b in trace.bounds if row.bound_ms in (None, *(1000.0 * x for x in (b.mean_s, b.p95_s) if x))]
    for name in names[:1]:
        for at, label in ((0, "mean"), (1, "95 %")):
            values = [1000.0 * i.latency[name][at] if name in i.latency else float("nan") for i in trace.intervals]
            axis.plot(time, values, label=label, linewidth=0.9)  # type: ignore[attr-defined]
    if row.bound_ms is not None:
        axis.axhline(row.bound_ms, color="tab:red", linestyle="--", linewidth=0.9, label="bound")  # type: ignore[attr-defined]
    axis.set_ylabel("latency, ms")  # type: ignore[attr-defined]
    if names:
        axis.set_yscale("log")  # type: ignore[attr-defined]
        axis.legend(fontsize=7)  # type: ignore[attr-defined]
