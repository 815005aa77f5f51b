"""Deletion of old documents and unreferenced files, safe beside readers and publishers.

Old documents are deleted first, then unreferenced files. Nothing younger than the grace period is deleted, because a
running publisher may be about to reference it. So the grace period must be longer than the longest run. Readers of a
replaced version have the same time to finish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.store.backend import ObjectInfo
from metastore_assets.store.documents import Documents


@dataclass(frozen=True)
class ExpiryCounts:
    """The numbers of versions and files that an expiry deleted."""

    versions: int
    files: int
    """Number of deleted files, without version documents."""
    bytes: int
    """Total size of these files in bytes."""


def expire(
    documents: Documents,
    first: Callable[[Sequence[int]], int],
    unreferenced: Callable[[pa.Array, Sequence[int]], pa.Array],
    grace: timedelta,
    now: datetime | None = None,
) -> ExpiryCounts:
    """Delete old documents, then the files that no remaining document references.

    Args:
        documents: The documents.
        first: Returns the number of the first document to retain, given all numbers in ascending order (at least one).
        unreferenced: Returns the paths that may be deleted, given all paths and the numbers of the remaining documents.
        grace: A file younger than this stays. A document stays, with all later ones, while the next one is younger.
        now: The current time; None for the clock of this machine.
    """
    objects = documents.objects
    deadline = (now or datetime.now(UTC)) - grace
    # Listed before the documents are read: a version that is published meanwhile only references more files.
    infos = objects.list()
    outdated = _outdated(documents, infos, first, deadline)
    objects.delete([documents.path(number) for number in outdated])
    candidates = {info.path: info for info in infos if info.modified < deadline and not documents.contains(info.path)}
    remaining = [number for number in documents.numbers() if number not in outdated]
    removed = [
        candidates[path] for path in unreferenced(pa.array(list(candidates), pa.string()), remaining).to_pylist()
    ]
    objects.delete([info.path for info in removed])
    files = objects.remove_unfinished(deadline) + len(removed)
    return ExpiryCounts(len(outdated), files, sum(info.size for info in removed))


def exclude(paths: pa.Array, excluded: pa.Array) -> pa.Array:
    """Return the paths that are not among the excluded ones."""
    return paths.filter(pc.invert(pc.is_in(paths, value_set=excluded.cast(pa.string())))) if len(paths) else paths


def _outdated(
    documents: Documents, infos: Sequence[ObjectInfo], first: Callable[[Sequence[int]], int], deadline: datetime
) -> set[int]:
    """Return the numbers of the documents to delete.

    They come before the first document to retain, and were replaced before the deadline.
    """
    published = {number: info.modified for info in infos if (number := documents.number(info.path)) is not None}
    numbers = sorted(published)
    oldest_retained = first(numbers) if numbers else 0
    outdated: set[int] = set()
    for number, following in pairwise(numbers):
        if number >= oldest_retained or published[following] >= deadline:
            break
        outdated.add(number)
    return outdated
