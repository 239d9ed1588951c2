"""Run the Spark jobs of a batch: those that need nothing of each other side by side.

A batch of two jobs (state kept and a window on the same rows, say) spends most of its time in planning and in starting
tasks, not in rows. Side by side, one job is planned while the other one's tasks run. On two cores that is little (the
batch of `bench engine` with a sum and a window: 254 ms one after the other, 250 ms side by side), for both want them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.util import inheritable_thread_target

from penstock.engine.spark.files import Folder
from penstock.engine.spark.kept_plan import Planned
from penstock.engine.spark.program import BATCH_PROPERTY
from penstock.engine.spark.reports import unpacked
from penstock.engine.spark.stages import JobPlan

Reports = dict[str, list[dict[str, Any]]]


class Runner:
    """Runs jobs and reads what their tasks report, by stage."""

    def __init__(self, spark: SparkSession, folder: Folder, most: int) -> None:
        self.spark, self.folder = spark, folder
        # Threads are started as needed: a flow of one job has none.
        at_once = max(1, min(most, spark.sparkContext.defaultParallelism))
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="penstock-job")

    def begin(
        self, jobs: list[JobPlan], frame_of: Callable[[JobPlan], DataFrame | Planned], document: dict[str, Any]
    ) -> Callable[[], Reports]:
        """Begin jobs that need nothing of each other; the result waits for them and gives their reports by stage.

        While one runs the next is planned. Nothing is raised before all have ended: a batch that is tried again must
        not meet tasks of the attempt before.
        """
        text = json.dumps(document)
        if len(jobs) == 1:
            frame = frame_of(jobs[0])
            return lambda: self._run(jobs[0], frame, text, document)
        begun: list[Future[Reports]] = []
        try:
            for job in jobs:
                frame = frame_of(job)
                # Each thread gets the job group and the like (stop() cancels by it), and a copy of its own to change.
                inherit = inheritable_thread_target(self.spark)
                begun.append(self._threads.submit(inherit(self._run_tagged), job, frame, text, document))
        except BaseException:
            self._cancel(begun, document)
            raise

        def reports() -> Reports:
            ended, going_on = wait(begun, return_when=FIRST_EXCEPTION)
            failed = [future for future in begun if future in ended and future.exception() is not None]
            if going_on:  # one has failed: the others would be computed in vain
                self._cancel(begun, document)
            for future in failed:
                future.result()
            return {stage: found for future in begun for stage, found in future.result().items()}

        return reports

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False)

    def _cancel(self, begun: list[Future[Reports]], document: dict[str, Any]) -> None:
        """Let no job begin any more, end those at work, and wait until none is left."""
        for future in begun:
            future.cancel()
        self.spark.sparkContext.cancelJobsWithTag(_tag(document))
        wait(begun)

    def _run_tagged(self, job: JobPlan, frame: DataFrame | Planned, text: str, document: dict[str, Any]) -> Reports:
        """The same in a thread of its own, so that it can be cancelled; the tag goes with the thread's next job."""
        self.spark.sparkContext.addJobTag(_tag(document))
        return self._run(job, frame, text, document)

    def _run(self, job: JobPlan, frame: DataFrame | Planned, text: str, document: dict[str, Any]) -> Reports:
        context = self.spark.sparkContext
        context.setLocalProperty(BATCH_PROPERTY, text)
        try:
            found = list(unpacked(frame.texts() if isinstance(frame, Planned) else _texts(frame)))
        finally:
            context.setLocalProperty(BATCH_PROPERTY, None)  # type: ignore[arg-type]
        reports = {job.last.name: sorted(found, key=lambda report: report["partition"])}
        return reports if len(job.stages) == 1 else reports | self._side_reports(job, document)

    def _side_reports(self, job: JobPlan, document: dict[str, Any]) -> Reports:
        """Read the reports of stages that streamed on; of several attempts of a task the last one counts."""
        folder, prefix = document["dir"], f"report-{document['execution']}-"
        best: dict[tuple[str, int], dict[str, Any]] = {}
        names = {stage.name for stage in job.stages[:-1]}
        for name in self.folder.names(folder):
            stage = name.removeprefix(prefix).rsplit("-", 3)[0]  # then partition, attempt and what makes it unique
            if not name.startswith(prefix) or stage not in names:  # of others, one may be half written
                continue
            with self.folder.system.open_input_stream(self.folder.at(folder, name)) as stream:
                text = stream.read()
            try:
                report = json.loads(text)
            except ValueError:  # half a file, of an attempt that failed; the one that counts left a whole one
                continue
            key = (stage, report["partition"])
            if key not in best or best[key]["attempt"] <= report["attempt"]:
                best[key] = report
        found: Reports = {name: [] for name in names}
        for (stage, _), report in sorted(best.items()):
            found[stage].append(report)
        return found


def _texts(frame: DataFrame) -> list[str]:
    """The texts in the one column of a DataFrame."""
    rows = frame._jdf.collectAsList()
    return [rows.get(i).getString(0) for i in range(rows.size())]


def _tag(document: dict[str, Any]) -> str:
    """The tag of the jobs of one attempt at a batch."""
    return f"penstock-{document['execution']}"
