"""The choice of the one segment set whose segments a commit of many keys merges.

A version has an entry for each fragment (a data file with its deletes), each partition and so on. The entries of each
kind, and each index, are a segment set: they are stored in segments, which are sorted files. A commit adds a segment to
each set that it changes. It merges older segments of one set only, to write little more than its own changes (see
`store.segment_levels`).

Indexes are written before the version is published, and entries when it is published. So a set is first chosen before
the indexes are written, among the indexes and the entries whose changes are already known. If the choice is not an
index, a set is chosen again at the publication, among all kinds of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from metastore_assets.store.entries import METADATA_CACHE
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.segment_levels import changes_many
from metastore_assets.store.segments import EMPTY, SegmentFiles, key_count
from metastore_assets.store.version import Version
from metastore_assets.store.version_document import stored_entries

INDEX, PARTITION_INDEX, VALUE_FILTERS = "index", "partition_index", "value_filters"
"""Names of the segment sets of indexes. The sets of entries have the names of their kinds."""
INDEXES = (INDEX, PARTITION_INDEX, VALUE_FILTERS)

Files = TypeVar("Files")


@dataclass(frozen=True)
class PlannedUpdate(Generic[Files]):
    """The changes of an index from one version to the next, before they are written."""

    key_count: int
    """Number of keys that `write` adds, replaces or removes in the files of the index."""
    write: Callable[[bool], Files]
    """Writes the changes, and returns the files of the next index. The argument says whether stored segments may be
    merged, if many keys change."""


def count_changed_keys(changes: Iterable[EntryChanges[Any]]) -> dict[str, int]:
    """Return {name of a kind of entries: number of changed keys}.

    Kinds of which the commit changes only few keys are omitted.

    Args:
        changes: The changes of the entries, one item for each kind.
    """
    counts = {each.kind: len(each.put_entries.keys() | each.dropped_entries.keys()) for each in changes}
    return {kind.name: count for kind, count in counts.items() if changes_many(kind.segments, count)}


def set_to_merge(base: Version | None, changed_counts: Mapping[str, int]) -> str:
    """Return the name of the segment set whose segments a commit of many keys merges.

    It is the set with the most segments. Among sets with equally many segments, it is the one with the most keys
    outside its oldest segment. Only sets that the commit changes are candidates, because it writes to no
    other set. The metadata cache, whose entries are metadata of the table, is never chosen.

    Args:
        base: The version before the commit, as read from a store; None if there is none.
        changed_counts: Number of keys that the commit changes in each set, by name. Sets that are missing are not
            changed.

    Returns:
        The name of the set; empty if `base` is None, or if no set is changed.
    """
    if base is None:
        return ""
    sets = {
        kind_entries.kind.name: kind_entries.files
        for kind_entries in stored_entries(base)
        if kind_entries.kind is not METADATA_CACHE
    }
    sets |= {INDEX: base.index or EMPTY, PARTITION_INDEX: base.partition_index.files if base.partition_index else EMPTY}
    sets[VALUE_FILTERS] = base.value_filters.files if base.value_filters else EMPTY

    def size(name: str) -> tuple[int, int]:
        files: SegmentFiles = sets[name]
        return len(files.segments), sum(map(key_count, files.segments[1:]))

    return max((name for name in sets if changed_counts.get(name)), key=size, default="")
