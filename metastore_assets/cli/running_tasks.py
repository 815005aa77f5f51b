"""A count of the finished tasks of Spark's running jobs, updated while the command waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.25


class RunningTasks:
    """The numbers of finished tasks and of all tasks in a session's running jobs.

    For a classic session, a thread polls Spark until `close` is called. A Spark Connect session calls a handler of this
    object.
    """

    def __init__(self, spark: SparkSession) -> None:
        from metastore_assets.spark.connect import is_remote

        self._counts = (0, 0)
        self._newest_job = -1
        self._newest_ignored_job = -1
        self._closed = threading.Event()
        if is_remote(spark):
            spark.registerProgressHandler(self._on_connect_progress)  # type: ignore[arg-type]
            return
        tracker = spark.sparkContext.statusTracker()
        threading.Thread(target=self._watch, args=(tracker,), daemon=True).start()

    def count(self) -> tuple[int, int]:
        """Return (finished tasks, all tasks) of the running jobs; (0, 0) if there are none."""
        return self._counts

    def forget(self) -> None:
        """Set both numbers to 0, for work that starts now.

        In a classic session, jobs that were counted before this call are ignored after it, even while they are running.
        """
        self._newest_ignored_job = self._newest_job
        self._counts = (0, 0)

    def close(self) -> None:
        """Stop the thread that polls a classic session.

        A Spark Connect session continues to call this object.
        """
        self._closed.set()

    def _watch(self, tracker: Any) -> None:
        """Count the tasks of running jobs again and again, until the object is closed."""
        while not self._closed.wait(_POLL_SECONDS):
            try:
                jobs = [job for job in tracker.getActiveJobsIds() if job > self._newest_ignored_job]
                self._newest_job = max([self._newest_job, *jobs])
                self._counts = _count_tasks(tracker, jobs)
            except Exception:  # noqa: BLE001 (a session that ends raises errors of many classes, and the count is only for display)
                self._counts = (0, 0)
                return

    def _on_connect_progress(self, stages: Iterable[Any] | None, done: bool, **_: object) -> None:
        """Record the task counts that a Spark Connect server reports."""
        running_stages = [] if done else list(stages or ())
        self._counts = (
            sum(stage.num_completed_tasks for stage in running_stages),
            sum(stage.num_tasks for stage in running_stages),
        )


def _count_tasks(tracker: Any, jobs: list[int]) -> tuple[int, int]:
    """Return (number of completed tasks, number of tasks) of some Spark jobs."""
    infos = [job for job in map(tracker.getJobInfo, jobs) if job is not None]
    stages = [stage for job in infos for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
