"""Removing old documents and what no kept one names. Safe beside readers and running publishers.

First old documents go, then files that nothing names. What is younger than the grace is never touched: a running
publisher may be about to name it. So the grace must be longer than the longest run, and a reader of a version that is
being replaced has as long to finish.
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
    """What was removed."""

    versions: int
    files: int
    """Files of all kinds but version documents."""
    bytes: int
    """Of those files."""


def expire(
    documents: Documents,
    first: Callable[[Sequence[int]], int],
    unnamed: Callable[[pa.Array, Sequence[int]], pa.Array],
    grace: timedelta,
    now: datetime | None = None,
) -> Expired:
    """Remove documents before the first one to be kept, and files of their store that none that is left names.

    `first` chooses that one, given the numbers there are, of which there is one at least. `unnamed` is given paths and
    the numbers of all documents that are left, and gives back the paths that may go. A document stays, and with it all
    after it, while the one that follows it is younger than `grace`; a file, while itself is.
    """
    objects = documents.objects
    before = (now or datetime.now(UTC)) - grace
    listed = objects.list()  # before the documents are read: what is published meanwhile only names more
    outdated = _outdated(documents, listed, first, before)
    objects.delete([documents.path(number) for number in outdated])
    old = {info.path: info for info in listed if info.modified < before and not documents.contains(info.path)}
    left = [number for number in documents.numbers() if number not in outdated]
    removed = [old[path] for path in unnamed(pa.array(list(old), pa.string()), left).to_pylist()]
    objects.delete([info.path for info in removed])
    files = objects.remove_unfinished(before) + len(removed)
    return Expired(len(outdated), files, sum(info.size for info in removed))


def exclude(paths: pa.Array, named: pa.Array) -> pa.Array:
    """Those of the paths that are not named."""
    return paths.filter(pc.invert(pc.is_in(paths, value_set=named.cast(pa.string())))) if len(paths) else paths


def _outdated(
    documents: Documents, listed: Sequence[ObjectInfo], first: Callable[[Sequence[int]], int], before: datetime
) -> set[int]:
    """The numbers before all that stay: above the oldest document that is kept there is to be no gap."""
    published = {number: info.modified for info in listed if (number := documents.number(info.path)) is not None}
    numbers = sorted(published)
    kept = first(numbers) if numbers else 0
    outdated: set[int] = set()
    for number, following in pairwise(numbers):
        if number >= kept or published[following] >= before:
            break
        outdated.add(number)
    return outdated
