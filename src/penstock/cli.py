"""The command line: `penstock report | state | demo | simulate | bench | torture | version`.

Spark is imported only by the commands that run it, so that a report is there at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.errors import PenstockError

app = typer.Typer(
    help="Latency-bound, self-adaptive streaming on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Benchmarks; every figure they print is measured here and now.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@app.command()
def report(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint directory of a job, running or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of text.")] = False,
    last: Annotated[float | None, typer.Option(help="Only the last so many seconds.")] = None,
    plot_path: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw rates, latency, widths and lifetimes to this .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Where the time of a job goes, from the telemetry in its checkpoint."""
    from rich.console import Console

    from penstock.observe.picture import check_picture, write_picture
    from penstock.observe.report import Report
    from penstock.observe.telemetry import read, telemetry_dir
    from penstock.observe.timeline import Timeline

    if last is not None and last <= 0.0:
        _refuse("--last must be more than 0 seconds")
    directory = telemetry_dir(checkpoint)
    if not directory.parent.is_dir():
        what = "is not a Penstock checkpoint" if checkpoint.is_dir() else "does not exist"
        _refuse(f"checkpoint {checkpoint} {what}")
    if plot_path is not None:
        check_picture(plot_path, "report --plot")  # before the work
    records = list(read(directory))
    found = Report.of(records, last=last)
    if plot_path is not None:
        write_picture(Timeline.of(records, last), plot_path, "report --plot")
        typer.echo(f"picture: {plot_path}", err=True)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    elif sys.stdout.isatty():
        Console().print(found)
    else:
        typer.echo(found.text())


@app.command()
def state(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint directory of a job, running or not.")],
    operator: Annotated[str | None, typer.Argument(help="Show the rows of this operator's state.")] = None,
    version: Annotated[int | None, typer.Option(help="The state after this batch; left out: the newest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    back_to: Annotated[int | None, typer.Option(help="Go back to the state after this batch, for good.")] = None,
    rows: Annotated[int, typer.Option(help="How many rows of an operator are shown.", min=1)] = 20,
) -> None:
    """What state a checkpoint holds: operators, versions, groups, keys, bytes; damaged files are named."""
    from penstock.engine.spark.state_reader import describe, go_back, read

    if not checkpoint.is_dir():
        _refuse(f"checkpoint {checkpoint} does not exist")
    if back_to is not None:
        gone = go_back(str(checkpoint), back_to)
        typer.echo(f"the checkpoint is as after batch {back_to}; forgotten: {len(gone)} later batches")
        return
    if operator is not None:
        table = read(str(checkpoint), operator, version)
        shown = table.slice(0, rows).to_pylist()
        typer.echo(json.dumps(shown, indent=2, default=str) if as_json else "\n".join(str(row) for row in shown))
        typer.echo(f"{min(rows, table.num_rows)} of {table.num_rows} rows", err=True)
        return
    view = describe(str(checkpoint), version)
    typer.echo(json.dumps(view.to_json(), indent=2) if as_json else view.text())
    raise typer.Exit(1 if view.damage else 0)


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="How long it runs.")] = 21.0,
    out: Annotated[str | None, typer.Option(help="Directory for its results; left out: a temporary one.")] = None,
) -> None:
    """A stream, a latency it must keep, and a load that changes."""
    from penstock.apps.demo import main as run

    raise typer.Exit(run(seconds=seconds, out=out))


@app.command()
def simulate(
    scenario: Annotated[str, typer.Argument(help="Which scenario; 'list' names them all.")],
    checkpoint: Annotated[Path | None, typer.Argument(help="For 'replay': the checkpoint of a job's run.")] = None,
    policy: Annotated[str | None, typer.Option(help="Run this policy (several by commas), not the usual ones.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run; 'compare' takes it as the first of its seeds.")] = 1,
    json_path: Annotated[str | None, typer.Option("--json", help="Write the rows to this file.")] = None,
    plot_path: Annotated[str | None, typer.Option("--plot", help="Draw rate, width and latency to this file.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds 'compare' (10 if left out) and 'replay' (5) run.", min=1)
    ] = None,
    processes: Annotated[int, typer.Option(help="Processes that 'compare' uses.", min=1)] = 1,
    bound: Annotated[
        float | None, typer.Option(help="For 'replay': a bound on the mean, in ms, in place of the run's own.")
    ] = None,
    over: Annotated[float | None, typer.Option(help="For 'replay': the seconds over which a bound is judged.")] = None,
    skip: Annotated[float, typer.Option(help="For 'replay': the first so many seconds are not judged.", min=0.0)] = 0.0,
) -> None:
    """Run the theses' evaluations, all policies over all load shapes, or a job's run once more, in virtual time."""
    if scenario == "replay":
        from penstock.apps.simulate.replay import main as replay

        if checkpoint is None:
            _refuse("simulate replay needs the checkpoint of a run")
        if (bound is not None and bound <= 0.0) or (over is not None and over <= 0.0):
            _refuse("--bound and --over must be more than 0")
        code = replay(
            checkpoint, policy=policy, bound_ms=bound, over_s=over, skip_s=skip, seed=seed, seeds=seeds,
            json_path=json_path, plot_path=plot_path,
        )  # fmt: skip
        raise typer.Exit(code)
    if checkpoint is not None or bound is not None or over is not None or skip:
        _refuse("a checkpoint, --bound, --over and --skip are for 'simulate replay'")
    from penstock.apps.simulate.main import main as run

    code = run(
        scenario, policy=policy, seed=seed, json_path=json_path, plot_path=plot_path, seeds=seeds, processes=processes
    )
    raise typer.Exit(code)


@bench.command()
def engine(
    json_path: Annotated[str | None, typer.Option("--json", help="Write the results to this file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter runs: a check, not a figure.")] = False,
) -> None:
    """What Penstock costs per batch and row against plain Spark."""
    from penstock.bench.engine import main as run

    raise typer.Exit(run(json_path=json_path, quick=quick))


@bench.command()
def windows(
    json_path: Annotated[str | None, typer.Option("--json", help="Results file; a cut run goes on from it.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small inputs: a check, not a figure.")] = False,
    only: Annotated[
        str | None, typer.Option(help="sweep, dense, python, count, batch, reference, state; by commas.")
    ] = None,
    against: Annotated[str, typer.Option(help="Which peers are measured, by commas.")] = "spark,flink,duckdb",
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the results file has.")] = False,
) -> None:
    """Windows against Spark's own, Flink SQL and DuckDB, results compared row by row."""
    from penstock.bench.windows.suite import main as run

    raise typer.Exit(run(json_path=json_path, quick=quick, only=only, against=against, fresh=fresh))


@bench.command()
def adaptive(
    json_path: Annotated[str | None, typer.Option("--json", help="Results file; a cut run goes on from it.")] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="staircase, trading, burst, hotkey, low-load, service, frames, mandelbrot, tweets, livestream; commas"
        ),
    ] = None,
    policies: Annotated[
        str | None, typer.Option(help="adaptive, static, at-once, elastic, spar-latency, fused, split; by commas.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs of each policy, pooled; left out: each scenario's own.", min=1)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the results file has.")] = False,
    keep: Annotated[str | None, typer.Option(help="A folder for the telemetry of every run.")] = None,
) -> None:
    """Live runs under changing load: the stated latency, kept or not, and what it costs."""
    from penstock.bench.adaptive.suite import main as run

    raise typer.Exit(run(json_path=json_path, only=only, policies=policies, runs=runs, fresh=fresh, keep=keep))


@bench.command()
def rate(
    flow: Annotated[str, typer.Argument(help="map, keyed, window, or module:function(spark, rate).")] = "window",
    start: Annotated[float, typer.Option(help="Rows per second to begin with.")] = 20_000.0,
    resolution: Annotated[float, typer.Option(help="How close the bounds come, as a share.")] = 0.05,
    seconds: Annotated[float, typer.Option(help="How long each rate is held.")] = 10.0,
    json_path: Annotated[str | None, typer.Option("--json", help="Write the result to this file.")] = None,
) -> None:
    """The highest rate that a flow sustains, by the growth of its backlog (thesis 000)."""
    from penstock.bench.rate_live import main as run

    raise typer.Exit(run(flow=flow, start=start, resolution=resolution, seconds=seconds, json_path=json_path))


@app.command()
def torture(
    kills: Annotated[int, typer.Option(help="How often the job is killed.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Which moments are chosen.")] = 0,
) -> None:
    """Kill a job again and again and check that its results are exactly-once."""
    from penstock.bench.torture import main as run

    raise typer.Exit(run(kills=kills, seed=seed))


@app.command()
def version() -> None:
    """Which Penstock this is."""
    typer.echo(installed_version("penstock"))


def _refuse(message: str) -> NoReturn:
    """End with a line about what is wrong with the command, exit code 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code; an expected error is one line, not a traceback.

    >>> try:
    ...     main(["version"])
    ... except SystemExit as left:
    ...     print("exit code", left.code)  # doctest: +ELLIPSIS
    0...
    exit code 0
    """
    try:
        app(args=None if args is None else list(args), prog_name="penstock")
    except PenstockError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
