"""What a simulated scenario prints: thesis, its policy here, ours, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.apps.simulate.compare import CAUSAL, OURS, WEIGHTS, dominated, scores, totals
from penstock.apps.simulate.frozen import THESIS
from penstock.apps.simulate.frozen_farm import THESIS_FARM
from penstock.engine.sim.measures import Row

_COLUMNS = (
    ("bound_ms", "bound ms", "{:.0f}"),
    ("fulfilled", "fulfilled", "{:.1%}"),
    ("mean_ms", "mean ms", "{:.1f}"),
    ("p95_ms", "p95 ms", "{:.0f}"),
    ("subtask_hours", "subtask h", ""),
    ("worker_hours", "worker h", ""),
    ("throughput_per_s", "items/s", ""),
    ("loss_vs_best_static", "loss %", "{:.2f}"),
    ("deciding_loss", "deciding %", "{:.2f}"),
    ("adding_percent", "adding %", "{:.2f}"),
    ("removing_percent", "removing %", "{:.2f}"),
    ("settle_s", "settle s", "{:.1f}"),
    ("reconfigurations", "changes", "{:.0f}"),
    ("violations", "violations", "{:.0f}"),
)

_LEGEND = {
    "loss_vs_best_static": "loss %: below the best static width of a program that neither measures nor regulates",
    "deciding_loss": "deciding %: below the best static width of a program that measures as well",
    "adding_percent": "adding %, removing %: share of the run for which changes of width stopped it",
}


def thesis_row(row: Row) -> Mapping[str, Any] | None:
    """What the thesis reports for the set-up and the policy of a row, under the row's field names; None if nothing.

    >>> thesis_row(Row("primetest", "nephele", 1, bound_ms=20.0))["subtask_hours"]
    50.8
    """
    if row.scenario in THESIS_FARM:
        return THESIS_FARM[row.scenario].get(row.policy)
    known = THESIS.get(row.scenario)
    if known is None:
        return None
    if row.scenario == "primetest":
        return known.get(row.bound_ms) if row.policy == "nephele" else None
    if row.scenario == "twitter":
        return known["topics" if row.bound_ms == 215.0 else "sentiment"] if row.policy == "nephele" else None
    return known.get(row.policy)


def text(rows: Sequence[Row]) -> str:
    """A table of the rows, each followed by what its thesis reports and the difference.

    >>> print(text([Row("primetest", "nephele", 1, bound_ms=20.0, fulfilled=0.93, subtask_hours=50.0)]))
    primetest (simulated, seed 1)
      policy                         bound ms   fulfilled   subtask h
      nephele                              20       93.0%        50.0
        thesis                                      92.6%        50.8
        difference                              +0.4 points       -1.6%
    """
    if not rows:
        return "nothing was run"
    used = [c for c in _COLUMNS if any(getattr(r, c[0]) is not None for r in rows)]
    lines = [f"{rows[0].scenario} (simulated, seed {rows[0].seed})"]
    lines.append("  " + f"{'policy':<28}" + "".join(f"{title:>12}" for _, title, _ in used))
    for row in rows:
        lines.append("  " + f"{row.policy:<28}" + "".join(f"{_cell(row, c):>12}" for c in used))
        known = thesis_row(row)
        if known is None:
            lines += _against(row, rows, used)
            continue
        cells = [_written(known[c[0]], c[2]) if known.get(c[0]) is not None else "" for c in used]
        lines.append("    " + f"{'thesis':<26}" + "".join(f"{cell:>12}" for cell in cells))
        gaps = [_difference(getattr(row, c[0]), known.get(c[0]), c[0]) for c in used]
        lines.append("    " + f"{'difference':<26}" + "".join(f"{gap:>12}" for gap in gaps))
    lines += [f"  {_LEGEND[name]}" for name, _, _ in used if name in _LEGEND]
    return "\n".join(line.rstrip() for line in lines)


def _against(row: Row, rows: Sequence[Row], used: Sequence[tuple[str, str, str]]) -> list[str]:
    """For ours: what differs from the thesis' own policy under the same bound."""
    first = next((r for r in rows if r.bound_ms == row.bound_ms and r.policy == rows[0].policy), None)
    if row.policy != OURS or first is None or first is row:
        return []
    gaps = [_difference(getattr(row, c[0]), getattr(first, c[0]), c[0]) for c in used if c[0] != "bound_ms"]
    blank = [""] if used[0][0] == "bound_ms" else []
    return ["    " + f"{'against ' + first.policy:<26}" + "".join(f"{gap:>12}" for gap in blank + gaps)]


def _cell(row: Row, column: tuple[str, str, str]) -> str:
    value = getattr(row, column[0])
    return "-" if value is None else _written(value, column[2])


def _written(value: float, form: str) -> str:
    """A value in a column's form; without one, with three digits that count."""
    if form:
        return form.format(value)
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0}f}"


def _difference(here: float | None, there: float | None, name: str) -> str:
    if here is None or there is None:
        return ""
    if name == "fulfilled":
        return f"{100.0 * (here - there):+.1f} points"
    if name in ("loss_vs_best_static", "deciding_loss", "adding_percent", "removing_percent"):
        return f"{here - there:+.1f} points"
    return f"{100.0 * (here / there - 1.0):+.1f}%" if there else ""


def compare_text(rows: Sequence[Row]) -> str:
    """The comparison of all policies: violations and worker-hours per shape, the scores, and where ours loses.

    >>> rows = [Row("step2", p, 0, violations=v, worker_hours=h) for p, v, h in (("adaptive", 1, 2.0), ("ds2", 9, 1.0))]
    >>> print(compare_text(rows))
    violated intervals / worker-hours, mean over the seeds (simulated)
                    adaptive           ds2
      step2           1/2.00        9/1.00
    score over all shapes: violations + k x worker-hours, the least first
      k = 0.1: adaptive 1.2, ds2 9.1
      k = 1: adaptive 3.0, ds2 10.0
      k = 10: ds2 19.0, adaptive 21.0
    no causal policy has both fewer violations and fewer worker-hours on any shape
    ours is not best for k = 10 (ds2)
    """
    means = totals(rows)
    shapes = list(dict.fromkeys(shape for shape, _ in means))
    policies = list(dict.fromkeys(policy for _, policy in means))
    lines = ["violated intervals / worker-hours, mean over the seeds (simulated)"]
    lines.append("  " + f"{'':<8}" + "".join(f"{policy:>14}" for policy in policies))
    for shape in shapes:
        cells = ["{:.4g}/{:.2f}".format(*means[(shape, p)]) if (shape, p) in means else "-" for p in policies]
        lines.append("  " + f"{shape:<8}" + "".join(f"{cell:>14}" for cell in cells))
    lines.append("score over all shapes: violations + k x worker-hours, the least first")
    beaten = []
    for k in WEIGHTS:
        ranked = sorted(scores(rows, k).items(), key=lambda item: item[1])
        lines.append(f"  k = {k:g}: " + ", ".join(f"{policy} {score:.1f}" for policy, score in ranked))
        causal = [policy for policy, _ in ranked if policy in (*CAUSAL, OURS)]
        if causal and causal[0] != OURS:
            beaten.append(f"k = {k:g} ({causal[0]})")
    losses = dominated(rows)
    if losses:
        lines.append("ours is worse in both on: " + ", ".join(f"{shape} ({policy})" for shape, policy in losses))
    else:
        lines.append("no causal policy has both fewer violations and fewer worker-hours on any shape")
    if beaten:
        lines.append("ours is not best for " + ", ".join(beaten))
    lines += _loses(means, shapes)
    return "\n".join(lines)


def _loses(means: Mapping[tuple[str, str], tuple[float, float]], shapes: Sequence[str]) -> list[str]:
    """Where a causal policy has clearly fewer violations than ours (at whatever cost): one line each."""
    lines = []
    for shape in shapes:
        ours = means.get((shape, OURS))
        better = [(p, v) for (s, p), v in means.items() if s == shape and p in CAUSAL]
        if ours is None:
            continue
        for policy, (violations, hours) in better:
            if violations < ours[0] - 0.5:
                lines.append(
                    f"  on {shape} {policy} breaks the bound less often: {violations:.1f} against {ours[0]:.1f} "
                    f"intervals, for {100.0 * (hours / ours[1] - 1.0):+.0f} % worker-hours"
                )
    return lines
