"""Very many events of a run, stored for what they are worth."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from dagster import AssetMaterialization, DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster._core.events import StepMaterializationData
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME


def store_materialization(instance: DagsterInstance, run: DagsterRun, materialization: AssetMaterialization) -> None:
    """Store that a run materialized something, as an event of the run.

    Yielded by an op it would be an event of the step: that names step, op and job four times over, which takes as much
    as all that is said, and each is a line in the run's log besides.
    """
    event = DagsterEvent(
        DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=run.job_name,
        event_specific_data=StepMaterializationData(materialization),
    )
    instance.report_dagster_event(event, run.run_id, logging.DEBUG)


@contextmanager
def held_open(instance: DagsterInstance, run: DagsterRun) -> Iterator[None]:
    """Keep the files open that the run's events go to, where these are SQLite's.

    Dagster opens and closes both for each event, and who closes a file of SQLite as the last moves everything from its
    log into the file, and removes the log: that takes longer than the event. So there is somebody else until the end.
    """
    storage = instance.event_log_storage
    with ExitStack() as stack:
        if isinstance(storage, SqliteEventLogStorage):
            for shard in (INDEX_SHARD_NAME, run.run_id):
                file = stack.enter_context(closing(sqlite3.connect(storage.path_for_shard(shard))))
                file.execute("SELECT count(*) FROM sqlite_master").fetchall()  # Opens it.
        yield
