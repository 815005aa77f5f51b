"""Count the finished tasks of Spark's running jobs while the program waits for these jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 0.25


class RunningTasks:
    """Polls Spark in the background several times a second until it is closed. Spark Connect reports by itself."""

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
        """Return the numbers of finished and of all tasks of the running jobs; (0, 0) if there are none."""
        return self._counted

    def forget(self) -> None:
        """Ignore the jobs that were counted so far: Spark may report them as running a moment longer."""
        self._forgotten = self._newest
        self._counted = (0, 0)

    def close(self) -> None:
        """Stop polling."""
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
        """Record what a Spark Connect server reports about the job that this process waits for."""
        known = [] if done else list(stages or ())
        self._counted = (sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known))


def _count(tracker: Any, jobs: list[int]) -> tuple[int, int]:
    known = [job for job in map(tracker.getJobInfo, jobs) if job is not None]
    stages = [stage for job in known for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
