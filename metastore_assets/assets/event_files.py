"""Many events in a row, into Dagster's SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from dagster import DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME


@contextmanager
def held_open(instance: DagsterInstance, run_id: str) -> Iterator[None]:
    """Keep the files open that the run's events go to, where these are SQLite's.

    Dagster opens and closes both for each event, and who closes a file of SQLite as the last moves everything from its
    log into the file, and removes the log: that takes longer than the event. So there is somebody else until the end.
    """
    storage = instance.event_log_storage
    with ExitStack() as stack:
        if isinstance(storage, SqliteEventLogStorage):
            for shard in (INDEX_SHARD_NAME, run_id):
                file = stack.enter_context(closing(sqlite3.connect(storage.path_for_shard(shard))))
                file.execute("SELECT count(*) FROM sqlite_master").fetchall()  # Opens it.
        yield
