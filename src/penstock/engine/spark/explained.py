"""What `flow.explain(checkpoint=...)` and `flow.explain(calibrate=...)` say beyond the drawing."""

from __future__ import annotations

import os

from penstock.durations import Duration, microseconds
from penstock.engine.spark.calibration import calibrate as run_calibration
from penstock.engine.spark.files import Folder
from penstock.engine.spark.job import absolute, local_folder
from penstock.engine.spark.ledger import Ledger
from penstock.engine.spark.state import GROUPS
from penstock.engine.spark.verdict import Verdict, check_requires, verdict
from penstock.errors import FlowError
from penstock.flow.flow import Flow
from penstock.observe.telemetry import read, telemetry_dir

COLD = 4  # batches of a calibration


def from_checkpoint(flow: Flow, checkpoint: str | os.PathLike[str]) -> Verdict:
    """Judge what a flow requires by the telemetry of an earlier run of it."""
    check_requires(flow)
    place = absolute(str(checkpoint))
    if Folder(f"{place}/penstock").get("flow.json") is None:
        raise FlowError("explain", f"{checkpoint} is not the checkpoint of a job", "pass that of an earlier run")
    Ledger(place).claim(flow.identity(), GROUPS)  # of another flow: refused, with the difference
    return verdict(flow, read(telemetry_dir(local_folder(place))), slots(flow), f"an earlier run ({checkpoint})")


def from_calibration(flow: Flow, calibrate: Duration, *, reread: bool = False) -> Verdict:
    """Judge what a flow requires by a short run that leaves no trace."""
    check_requires(flow)
    seconds = microseconds(calibrate, name="calibrate", where="explain") / 1e6
    records = run_calibration(flow, seconds, reread=reread)
    # It begins with workers that start and rows that wait for them: nothing that a job lives through twice.
    return verdict(flow, records, slots(flow), f"a calibration of {seconds:g} s, its sinks not written", cold=COLD)


def slots(flow: Flow) -> int:
    """The slots of the session that a flow was built with."""
    return int(flow.reads[0].frame.sparkSession.sparkContext.defaultParallelism)
