"""Storage of many materializations in Dagster's event log.

This module imports private parts of Dagster, and is the only one that does. The public method `context.log_event` takes
2.5 times as long on SQLite (`make bench ARGS=events`). It is used only if the installed Dagster lacks the private
parts.
"""

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager

from dagster import AssetExecutionContext, AssetMaterialization, DagsterEvent, DagsterEventType, EventLogEntry

from metastore_assets.batching import batched

try:
    from dagster._core.events import StepMaterializationData
    from dagster._core.storage.event_log import SqliteEventLogStorage
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
except ImportError:
    HAS_EVENT_LOG = False
else:
    HAS_EVENT_LOG = True
"""Whether this version of Dagster has the private parts that this module uses."""

_BATCH = 100
"""The number of events that are stored in one transaction. A run that is killed loses at most these."""


def store_materializations(context: AssetExecutionContext, materializations: Iterable[AssetMaterialization]) -> None:
    """Store materializations as events of the run, in batches if the event log is on a database server."""
    if not HAS_EVENT_LOG:
        for materialization in materializations:
            context.log_event(materialization)
        return
    instance = context.instance
    storage = instance.event_log_storage
    # Dagster's SQLite storage stores events one by one in any case. Database servers store a batch in one
    # transaction, and single events with three connections each.
    size = 1 if isinstance(storage, SqliteEventLogStorage) else _BATCH
    events = (_event(context, materialization) for materialization in materializations)
    for batch in batched(events, size):
        if len(batch) == 1:
            instance.handle_new_event(batch[0])
        else:
            storage.store_event_batch(batch)


def _event(context: AssetExecutionContext, materialization: AssetMaterialization) -> EventLogEntry:
    """Create the event log's entry for a materialization, without the names of step and op."""
    event = DagsterEvent(
        DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=context.run.job_name,
        event_specific_data=StepMaterializationData(materialization),
    )
    return EventLogEntry(  # type: ignore[no-untyped-call]
        error_info=None,
        level=logging.DEBUG,
        user_message="",
        run_id=context.run.run_id,
        timestamp=time.time(),
        job_name=context.run.job_name,
        dagster_event=event,
    )


@contextmanager
def hold_sqlite_open(context: AssetExecutionContext) -> Iterator[None]:
    """Keep the SQLite files of the run's events open inside the block.

    If they were closed after each event, SQLite would merge its write-ahead log each time, which takes longer than
    storing the event. Does nothing for an event log without SQLite.
    """
    with ExitStack() as stack:
        storage = context.instance.event_log_storage
        # Dagster opens and closes the files for each event. After the last connection closes, SQLite merges its
        # write-ahead log, which takes longer than storing the event.
        if HAS_EVENT_LOG and isinstance(storage, SqliteEventLogStorage):
            for shard in (INDEX_SHARD_NAME, context.run.run_id):
                file = stack.enter_context(closing(sqlite3.connect(storage.path_for_shard(shard))))
                file.execute("SELECT count(*) FROM sqlite_master").fetchall()  # The first query opens the file.
        yield
