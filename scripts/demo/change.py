"""The changes of one refresh, computed from the versions before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from metastore_assets.value_counts import ValueCountChanges, count_changes
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore


@dataclass(frozen=True)
class Change:
    """The difference between two published versions of one table."""

    version: int
    row_count: int
    rows_more: int
    """By how much the number of rows increased; negative if it decreased."""
    added: int
    """Fragments (data files) that the table did not have before."""
    read: int
    """Added fragments whose rows were read. The other ones still had profiles from an earlier version."""
    removed: int
    kept: int
    recomputed: frozenset[str]
    """Keys of the partitions whose profile was computed for this version."""
    dropped: frozenset[str]
    """Keys of the removed partitions."""
    partitions: int
    """Number of partitions after the change."""
    lists: ValueCountChanges | None
    """Changes of the value counts. None means they were rebuilt, so that the changes are unknown."""


def change_between(store: ObjectStore, before: Version | None, after: Version) -> Change:
    """Return the difference between two versions of a table.

    Args:
        store: The folder of the table.
        before: The earlier version, or None if `after` is the first one.
        after: The later version.
    """
    old = {fragment.id for fragment in before.fragments} if before else set()
    known = old | ({retired.fragment.id for retired in before.retired} if before else set())
    new = {fragment.id for fragment in after.fragments}
    keys = {partition.key for partition in after.partitions}
    return Change(
        version=after.number,
        row_count=after.row_count,
        rows_more=after.row_count - (before.row_count if before else 0),
        added=len(new - old),
        read=len(new - known),
        removed=len(old - new),
        kept=len(new & old),
        recomputed=frozenset(p.key for p in after.partitions if p.version == after.number),
        dropped=frozenset({p.key for p in before.partitions} - keys if before else ()),
        partitions=len(keys),
        lists=count_changes(store, before.value_counts if before else None, after.value_counts),
    )
