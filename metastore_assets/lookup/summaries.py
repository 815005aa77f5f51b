"""Summaries of published versions: all versions of one table, or the newest version of each table.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import pyarrow as pa

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.lookup.results import ResultSet
from metastore_assets.storage.parallel import interruptible_map
from metastore_assets.store.version import Version

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
    """Return summaries of versions, in the order of their references.

    Versions that do not exist are omitted.

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

    rows = tuple(row for row in interruptible_map(read_summary, references) if row is not None)
    return ResultSet(rows, None, _SCHEMA)
