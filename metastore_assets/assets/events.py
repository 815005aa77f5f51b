"""Very many events of a run, stored for what they are worth."""

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice

from dagster import AssetMaterialization, DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun, EventLogEntry
from dagster._core.events import StepMaterializationData
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME

_BATCH = 100
"""Events that are stored at a time, where a storage takes several: a run that is killed loses no more."""


def store_materializations(
    instance: DagsterInstance, run: DagsterRun, materializations: Iterable[AssetMaterialization]
) -> None:
    """Store that a run materialized something, as events of the run.

    Yielded by an op they would be events of the step: that names step, op and job four times over, which takes as much
    as all that is said, and each is a line in the run's log besides.
    """
    storage = instance.event_log_storage
    # Dagster's SQLite stores one after the other whatever it is given. Servers take many in one transaction, where
    # each would be three connections.
    size = 1 if isinstance(storage, SqliteEventLogStorage) else _BATCH
    events = (_event(run, materialization) for materialization in materializations)
    while batch := list(islice(events, size)):
        if len(batch) == 1:
            instance.handle_new_event(batch[0])
        else:
            storage.store_event_batch(batch)


def _event(run: DagsterRun, materialization: AssetMaterialization) -> EventLogEntry:
    event = DagsterEvent(
        DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=run.job_name,
        event_specific_data=StepMaterializationData(materialization),
    )
    return EventLogEntry(  # type: ignore[no-untyped-call]
        error_info=None,
        level=logging.DEBUG,
        user_message="",
        run_id=run.run_id,
        timestamp=time.time(),
        job_name=run.job_name,
        dagster_event=event,
    )


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
