"""The picture of a run: rates and backlog, latency against its bounds, widths, lifetimes, one below the other.

Needs matplotlib (the extra `plot`). What is drawn comes from `timeline`; nothing is worked out here.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import FlowError
from penstock.observe.timeline import Curve, Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
_SMALL, _THIN = 7, 0.9
_WIDE = 8.0  # a greatest latency so many times the median is drawn on a logarithmic scale
_FROM = {"arrival": "from arrival", "cut": "from the cut", "mixed": "from arrival or the cut"}


def require_matplotlib(where: str) -> None:
    """Refuse in one line, with what to install, where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FlowError(where, "matplotlib is not installed", "pip install 'penstock[plot]'")


def check_picture(path: str | Path, where: str) -> None:
    """Refuse in one line what cannot be drawn: an ending that is not known, a missing folder or matplotlib.

    >>> check_picture("run.gif", "report --plot")
    Traceback (most recent call last):
    ...
    penstock.errors.FlowError: report --plot: a picture is a .png, .svg or .pdf file, got 'run.gif'. Remedy: ...
    """
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        rule = f"a picture is a .png, .svg or .pdf file, got '{target.name}'"
        raise FlowError(where, rule, "choose one of these endings")
    if not target.absolute().parent.is_dir():
        raise FlowError(where, f"the folder {target.absolute().parent} does not exist", "make it first")
    require_matplotlib(where)


def write_picture(shown: Timeline, path: str | Path, where: str = "picture") -> None:
    """Draw a run and write the picture; the file's ending decides its kind."""
    check_picture(path, where)
    if not shown.batches:
        raise FlowError(where, "nothing was measured, so there is nothing to draw", "let the job run first")
    figure = draw(shown)
    figure.savefig(str(path), dpi=110)


def draw(shown: Timeline) -> Figure:
    """The figure: four axes over one time."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import; no pyplot: no global state

    figure = Figure(figsize=(10.0, 9.5), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True, height_ratios=(1.0, 1.3, 1.0, 1.0))
    figure.suptitle(shown.title, fontsize=9)
    _draw_rates(axes[0], shown)
    _draw_latency(axes[1], shown)
    _draw_widths(axes[2], shown)
    _draw_lifetimes(axes[3], shown)
    for axis in axes:
        for number, at in enumerate(shown.restarts):
            label = "restart" if axis is axes[0] and not number else None
            axis.axvline(at, color="black", linestyle=":", linewidth=_THIN, label=label)
        axis.grid(alpha=0.3, linewidth=0.5)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=_SMALL, loc="lower left", bbox_to_anchor=(0.0, 0.98), ncols=8, frameon=False)
    left_out = " (time between runs is left out)" if shown.runs > 1 else ""
    axes[-1].set_xlabel(f"seconds{left_out}")
    axes[-1].set_xlim(0.0, max(shown.end_s, 1e-3))
    return figure


def _draw_rates(axis: Any, shown: Timeline) -> None:
    for curve, color in zip(shown.rates, ("tab:blue", "tab:green"), strict=False):
        _line(axis, curve, color=color, drawstyle="steps-pre")
    axis.set_ylabel("rows/s")
    axis.set_ylim(bottom=0.0)
    if shown.backlog is not None:
        twin = axis.twinx()
        twin.fill_between(shown.backlog.at_s, shown.backlog.values, step="pre", color="tab:gray", alpha=0.25)
        twin.set_ylabel("backlog, rows", color="tab:gray")
        # A few rows are no backlog: the scale goes at least up to what comes in a tenth of a second.
        most = max(
            value for curve in (shown.backlog, *shown.rates) for value in _scaled(curve) if not math.isnan(value)
        )
        twin.set_ylim(0.0, 1.05 * max(most, 1.0))


def _scaled(curve: Curve) -> tuple[float, ...]:
    return curve.values if curve.label == "backlog" else tuple(0.1 * value for value in curve.values)


def _draw_latency(axis: Any, shown: Timeline) -> None:
    for curve in shown.latency:
        _line(axis, curve)
    for curve in shown.bounds:
        style = {"color": "tab:red", "linestyle": "--" if "mean" in curve.label else "-."}
        _line(axis, curve, drawstyle="steps-post", **style)
    for number, (began, ended) in enumerate(shown.broken):
        label = None if number else "not kept"
        axis.axvspan(began, ended, color="tab:red", alpha=0.12, linewidth=0.0, label=label)
    origin = f" ({_FROM[shown.latency_from]})" if shown.latency_from in _FROM else ""
    axis.set_ylabel(f"latency, ms{origin}")
    seen = sorted(value for curve in shown.latency for value in curve.values if not math.isnan(value))
    if seen and seen[-1] > _WIDE * seen[len(seen) // 2] and seen[0] > 0.0:  # one long stall would hide all the rest
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0.0)


def _draw_widths(axis: Any, shown: Timeline) -> None:
    for number, curve in enumerate(shown.widths):  # thinner and thinner: equal widths would hide each other
        thick = _THIN * (1 + min(len(shown.widths) - 1 - number, 4))
        axis.plot(curve.at_s, curve.values, label=curve.label, linewidth=thick, drawstyle="steps-post")
    axis.set_ylabel("width")
    axis.set_ylim(bottom=0.0)
    axis.yaxis.get_major_locator().set_params(integer=True)


def _draw_lifetimes(axis: Any, shown: Timeline) -> None:
    for curve, color in zip(shown.lifetimes, ("tab:purple", "tab:gray", "tab:orange"), strict=True):
        _line(axis, curve, color=color)
    if shown.decisions:  # ticks along the lower edge
        at = [when for when, _ in shown.decisions]
        place = axis.get_xaxis_transform()
        axis.plot(at, [0.02] * len(at), "|", color="black", markersize=9, transform=place, label="decision")
    axis.set_ylabel("batch, ms")
    axis.set_ylim(bottom=0.0)


def _line(axis: Any, curve: Curve, **style: Any) -> None:
    # a dot as well: a run of one batch has no line
    axis.plot(curve.at_s, curve.values, label=curve.label, linewidth=_THIN, marker=".", markersize=2.5, **style)
