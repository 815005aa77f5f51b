"""Deletion of the documents of old versions, then of the files that no remaining document references.

A document is the JSON file of a version, which names the files that the version references. Other processes may read
and publish versions at the same time. Nothing younger than the grace period is deleted, because a running publisher may
still reference it. Therefore the grace period must be longer than any publisher runs. The grace period also lets
readers of a replaced version finish.

The paths of all files and those of the referenced files are sorted, and then compared in bounded memory (see
`store.sorted_runs`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa

from metastore_assets.batching import batched
from metastore_assets.store.backend import ObjectInfo
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sorted_runs import SortedRuns, subtract

FILES = pa.schema([("path", pa.string()), ("size", pa.int64())])
"""The columns of listed files."""
PATHS = pa.schema([("path", pa.string())])
_METASTORE_FILE = re.compile(
    r"(backfills|entries|fragments|index|nodes|partitions|pending|purge|staged|table|value_counts|verify)/[0-9a-f]{32}.*"
    r"|staged/([0-9]+\.json|newest|oldest)",
    re.DOTALL,
)
_LISTED_AT_ONCE = 10_000
"""Number of listed files that are objects in memory at a time."""


@dataclass(frozen=True)
class ExpiryCounts:
    """The numbers of versions and files that an expiry deleted."""

    versions: int
    files: int
    """Number of deleted files, without version documents."""
    bytes: int
    """Total size in bytes of the deleted files, without version documents, unfinished files and cleared pending
    files."""


@dataclass(frozen=True)
class Retention:
    """A rule for the documents and files that an expiry retains."""

    choose_first: Callable[[Sequence[int]], int]
    """Returns the number of the oldest document to retain, given all numbers in ascending order."""
    read_references: Callable[[Iterator[Sequence[int]]], Iterable[pa.Array]]
    """Yields the paths of the files that documents reference. Paths may repeat. The argument yields lists of numbers of
    documents. The documents of one list must be read before the next list is requested (see `Documents.batches`)."""
    may_delete: Callable[[str], bool]
    """Returns whether a file without reference may be deleted, given its path."""


def is_metastore_file(path: str) -> bool:
    """Return whether a path has the form of a file that the Metastore stores for a table.

    Published documents and files of the history (a Delta table that outlives versions) do not count. Besides published
    documents, an expiry deletes only such files: others may be data of a table at the same location.

    Args:
        path: The path of the file, relative to the table's folder.
    """
    return _METASTORE_FILE.fullmatch(path) is not None


def expire(
    documents: Documents,
    retention: Retention,
    grace: timedelta,
    now: datetime | None = None,
    deleted_paths: SortedRuns | None = None,
) -> ExpiryCounts:
    """Delete old documents, then the files that no remaining document references.

    Files that an interrupted process has left unfinished are deleted, too.

    Args:
        documents: The documents.
        retention: The rule for documents and files to retain.
        grace: Minimum age of a deleted file. A document is deleted only if the next document is older than this.
        now: The current time; None for the clock of this machine.
        deleted_paths: Gets the paths of the deleted files, as rows with the columns `PATHS`; None if they are not
            needed.
    """
    objects = documents.objects
    deadline = (now or datetime.now(UTC)) - grace
    publication_times: dict[int, datetime] = {}

    def candidates() -> Iterator[ObjectInfo]:
        """Yield the old files that may be deleted if no document references them.

        Documents are not yielded. Instead, the time at which each document was published is recorded.
        """
        for info in objects.scan():
            number = documents.number(info.path)
            if number is not None:
                publication_times[number] = info.modified
            elif info.modified < deadline and not documents.contains(info.path) and retention.may_delete(info.path):
                yield info

    with SortedRuns(FILES) as files, SortedRuns(PATHS) as referenced_paths:
        # Listed before the documents are read: a version that is published meanwhile only references more files.
        add_files(files, candidates())
        outdated_numbers = _outdated(publication_times, retention.choose_first, deadline)
        objects.delete([documents.path(number) for number in sorted(outdated_numbers)])
        # All references are read before the first file is deleted.
        remaining = (
            [number for number in numbers if number not in outdated_numbers] for numbers in documents.batches()
        )
        for paths in retention.read_references(filter(None, remaining)):
            referenced_paths.add_keys(paths)
        unreferenced_files = subtract(files, referenced_paths)
        if deleted_paths is not None:
            unreferenced_files = _record_paths(unreferenced_files, deleted_paths)
        count, size = delete_files(objects, unreferenced_files)
    return ExpiryCounts(len(outdated_numbers), count + objects.remove_unfinished(deadline), size)


def add_files(files: SortedRuns, infos: Iterable[ObjectInfo]) -> None:
    """Add a row with the columns `FILES` for each object."""
    for chunk in batched(infos, _LISTED_AT_ONCE):
        files.add(pa.table([[info.path for info in chunk], [info.size for info in chunk]], schema=FILES))


def _record_paths(files: Iterable[pa.Table], paths: SortedRuns) -> Iterator[pa.Table]:
    """Yield the tables of `files` unchanged, and add the path of each file to `paths`."""
    for rows in files:
        paths.add(rows.select(PATHS.names))
        yield rows


def delete_files(objects: ObjectStore, files: Iterable[pa.Table]) -> tuple[int, int]:
    """Delete files, given in tables with the columns `FILES`.

    Return (number of files, their total size in bytes).
    """
    count = size = 0
    for rows in files:
        objects.delete(rows["path"].to_pylist())
        count += len(rows)
        size += sum(rows["size"].to_pylist())
    return count, size


def _outdated(
    publication_times: Mapping[int, datetime], first: Callable[[Sequence[int]], int], deadline: datetime
) -> set[int]:
    """Return the numbers of the documents to delete: those before the first one to retain.

    The newest document is always retained. Another one is retained if `first`, `deadline` or both demand it.

    Args:
        publication_times: The time at which each document was published, by number.
        first: Returns the number of the oldest document to retain, given all numbers.
        deadline: A document is retained if the next document was published at this time or later.
    """
    numbers = sorted(publication_times)
    oldest_retained = first(numbers) if numbers else 0
    outdated_numbers: set[int] = set()
    for number, following in pairwise(numbers):
        if number >= oldest_retained or publication_times[following] >= deadline:
            break
        outdated_numbers.add(number)
    return outdated_numbers
