"""One life of the tortured job: `python -m penstock.bench.torture_job CHECKPOINT OUT TOTAL PER_BATCH SHAPE LIFE`.

It goes on where its checkpoint says, ends when every row is processed and every window closed, and leaves the final
state in `OUT/state.json`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from penstock.bench.torture_flow import SIZE_US, Changing, Task, build
from penstock.engine.spark.job import Job
from penstock.engine.spark.session import STATIC_CONF, local_session


def main(arguments: list[str]) -> int:
    """Run until the work is done, or someone kills us."""
    checkpoint, out = Path(arguments[0]), Path(arguments[1])
    task, life = Task(int(arguments[2]), int(arguments[3]), arguments[4]), int(arguments[5])
    # Killed sessions cannot tidy up; what they leave goes where the parent can.
    scratch = tempfile.gettempdir()
    options = f"{STATIC_CONF['spark.driver.extraJavaOptions']} -Djava.io.tmpdir={scratch}"
    spark = local_session("local[2,4]", app="penstock-torture", spark__driver__extraJavaOptions=options)
    flow = build(spark, task, out)
    job: Job = flow.start(spark, checkpoint=str(checkpoint), policy=Changing(life))
    while not complete(job, task):
        if job.await_end(0.05):
            raise RuntimeError("the job ended before its work did")
    job.stop()
    state = {row["k"]: (row["total"], row["n"]) for row in job.state("sums").to_pylist()}
    (out / "state.json").write_text(json.dumps({"state": sorted(state.items()), "faults": job.faults}))
    spark.stop()
    return 0


def complete(job: Job, task: Task) -> bool:
    """Whether all rows are processed and all windows closed, as the newest manifest has it."""
    newest = job.ledger.newest()
    manifest = job.ledger.manifest(newest) if newest is not None else None
    if manifest is None or manifest["offsets"][0]["row"] < task.total:
        time.sleep(0.05)
        return False
    watermark = manifest["windows"]["bars"]["watermark"]
    # Published too: the sinks follow the manifest.
    return watermark is not None and watermark >= task.last_us + SIZE_US and job.host.finished >= (newest or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
