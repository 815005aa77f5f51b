"""How many tasks of Spark's running jobs are done, learnt while the program waits for the jobs to end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 0.25


class RunningTasks:
    """Asks Spark in the background, several times a second, until it is closed. Spark Connect tells by itself."""

    def __init__(self, spark: SparkSession) -> None:
        from metastore_assets.spark.connect import is_remote

        self._counted = (0, 0)
        self._newest = -1
        self._forgotten = -1
        self._closed = threading.Event()
        if is_remote(spark):
            spark.registerProgressHandler(self._told)  # type: ignore[arg-type]
            return
        tracker = spark.sparkContext.statusTracker()
        threading.Thread(target=self._watch, args=(tracker,), daemon=True).start()

    def count(self) -> tuple[int, int]:
        """Finished tasks, and all, of the jobs that run now; (0, 0) where none does or nothing is known."""
        return self._counted

    def forget(self) -> None:
        """Count the jobs that have been counted so far no more: Spark may take them for running a moment longer."""
        self._forgotten = self._newest
        self._counted = (0, 0)

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _watch(self, tracker: Any) -> None:
        while not self._closed.wait(_SECONDS):
            try:
                jobs = [job for job in tracker.getActiveJobsIds() if job > self._forgotten]
                self._newest = max([self._newest, *jobs])
                self._counted = _count(tracker, jobs)
            except Exception:  # noqa: BLE001 (a session that ends answers with whatever error; nobody misses the count)
                self._counted = (0, 0)
                return

    def _told(self, stages: Iterable[Any] | None, done: bool, **_: object) -> None:
        """What a server says of the job that this process waits for."""
        known = [] if done else list(stages or ())
        self._counted = (sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known))


def _count(tracker: Any, jobs: list[int]) -> tuple[int, int]:
    known = [job for job in map(tracker.getJobInfo, jobs) if job is not None]
    stages = [stage for job in known for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
