"""Summaries of published versions: all versions of one table, or the newest version of each table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

import pyarrow as pa

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.lookup.results import ResultSet
from metastore_assets.store.manifest import Version

_THREADS = 16
"""Maximum number of parallel requests. They mostly wait for the store."""
_WAIT_SECONDS = 0.2
_SCHEMA = pa.schema(
    {
        "table": pa.string(),
        "format": pa.string(),
        "version": pa.int64(),
        "snapshot": pa.string(),
        "committed_at": pa.timestamp("us", "UTC"),
        "published_at": pa.timestamp("us", "UTC"),
        "row_count": pa.int64(),
        "bytes": pa.int64(),
        "partitions": pa.int64(),
        "fragments": pa.int64(),
    }
)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class VersionSummary:
    """The snapshot, the times and the size of one published version of a table."""

    table: str
    format: str
    version: int
    snapshot: str
    """The id of the table's snapshot that the version describes."""
    committed_at: datetime | None
    """When the snapshot was committed; None if the table's format does not record it."""
    published_at: datetime
    row_count: int
    bytes: int
    """The size of the table's data files in bytes."""
    partitions: int
    fragments: int

    @classmethod
    def of(cls, version: Version) -> VersionSummary:
        """Return the summary of a version."""
        return cls(
            table=version.table,
            format=version.format,
            version=version.number,
            snapshot=version.snapshot,
            committed_at=version.committed_at,
            published_at=version.published_at,
            row_count=version.row_count,
            bytes=version.bytes,
            partitions=len(version.partitions),
            fragments=version.fragment_count,
        )


def summarize(read: Callable[[T], Version], references: Iterable[T]) -> ResultSet[VersionSummary]:
    """Return summaries of versions, in the order of their references. Versions that do not exist are omitted.

    Args:
        read: A function that returns the version of a reference, or raises VersionNotFoundError. Several threads call
            it.
        references: The arguments of `read`, such as version numbers.
    """

    def read_summary(reference: T) -> VersionSummary | None:
        try:
            return VersionSummary.of(read(reference))
        except VersionNotFoundError:
            return None  # It expired after it was listed.

    rows = tuple(row for row in parallel_map(read_summary, references) if row is not None)
    return ResultSet(rows, None, _SCHEMA)


def parallel_map(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return `[function(item) for item in items]`, computed on several threads.

    If calls fail, the error of the first failed item is raised.
    """
    tasks = [(Future[R](), item) for item in items]
    queue: SimpleQueue[tuple[Future[R], T]] = SimpleQueue()
    for task in tasks:
        queue.put(task)

    def work() -> None:
        while True:
            try:
                future, item = queue.get_nowait()
            except Empty:
                return
            try:
                future.set_result(function(item))
            except BaseException as error:  # noqa: BLE001 (the caller raises it again; a panic of Rust is no Exception)
                future.set_exception(error)

    # Threads of a pool would keep an interrupted command alive until the store responds; daemon threads do not.
    for _ in range(min(_THREADS, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    return [_wait_for(future) for future, _ in tasks]


def _wait_for(future: Future[R]) -> R:
    # An endless wait might not notice a signal; see `install_signal_handlers`.
    while not future.done():
        wait([future], _WAIT_SECONDS)
    return future.result()
