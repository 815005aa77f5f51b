"""Expire old documents, and files that no retained document references, safely beside readers and publishers.

Old documents are deleted first, then unreferenced files. Nothing younger than the grace period is deleted, because a
running publisher may be about to reference it. So the grace period must be longer than the longest run. A reader of a
replaced version has the same time to finish.
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
class Expired:
    """The result of an expiry."""

    versions: int
    files: int
    """Number of deleted files, without version documents."""
    bytes: int
    """Total size of these files in bytes."""


def expire(
    documents: Documents,
    first: Callable[[Sequence[int]], int],
    unnamed: Callable[[pa.Array, Sequence[int]], pa.Array],
    grace: timedelta,
    now: datetime | None = None,
) -> Expired:
    """Delete documents before the first retained one, and files that no remaining document references.

    A document stays, with all later ones, while the document after it is younger than `grace`. A file stays while it is
    younger itself.

    Args:
        documents: The documents.
        first: Returns the first document to retain, given the existing numbers (at least one).
        unnamed: Returns the paths that may be deleted, given all paths and the numbers of the remaining documents.
        grace: The grace period.
    """
    objects = documents.objects
    before = (now or datetime.now(UTC)) - grace
    listed = (
        objects.list()
    )  # list before reading the documents: a version published meanwhile only references more files
    outdated = _outdated(documents, listed, first, before)
    objects.delete([documents.path(number) for number in outdated])
    old = {info.path: info for info in listed if info.modified < before and not documents.contains(info.path)}
    left = [number for number in documents.numbers() if number not in outdated]
    removed = [old[path] for path in unnamed(pa.array(list(old), pa.string()), left).to_pylist()]
    objects.delete([info.path for info in removed])
    files = objects.remove_unfinished(before) + len(removed)
    return Expired(len(outdated), files, sum(info.size for info in removed))


def exclude(paths: pa.Array, named: pa.Array) -> pa.Array:
    """Return the paths that are not named."""
    return paths.filter(pc.invert(pc.is_in(paths, value_set=named.cast(pa.string())))) if len(paths) else paths


def _outdated(
    documents: Documents, listed: Sequence[ObjectInfo], first: Callable[[Sequence[int]], int], before: datetime
) -> set[int]:
    """Return the numbers before all that stay: there is no gap above the oldest retained document."""
    published = {number: info.modified for info in listed if (number := documents.number(info.path)) is not None}
    numbers = sorted(published)
    kept = first(numbers) if numbers else 0
    outdated: set[int] = set()
    for number, following in pairwise(numbers):
        if number >= kept or published[following] >= before:
            break
        outdated.add(number)
    return outdated
