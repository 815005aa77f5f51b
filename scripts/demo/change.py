"""The effect of one refresh: the difference between the versions before and after it.

A version is the published statistics of a table at one snapshot. A fragment is a data file with its deletes. A profile
is the statistics of a fragment or a partition.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.value_counts import ValueCountChanges, count_changes


@dataclass(frozen=True)
class Change:
    """The difference between two published versions of one table."""

    version: int
    row_count: int
    row_difference: int
    """Rows after minus rows before."""
    added: int
    """Number of fragments that only the version after has."""
    read: int
    """Number of added fragments whose rows were read. The others had a stored profile from an earlier version."""
    removed: int
    """Number of fragments that only the previous version has."""
    unchanged: int
    """Number of fragments that both versions have."""
    recomputed: frozenset[str]
    """Keys of the partitions whose profile was computed for this version."""
    dropped: frozenset[str]
    """Keys of the partitions that only the previous version has."""
    partitions: int
    """Number of partitions after the refresh."""
    value_counts: ValueCountChanges | None
    """Numbers of values that were added, removed, or changed their frequency; None if they are not known."""


def change_between(store: ObjectStore, before: Version | None, after: Version) -> Change:
    """Return the difference between two consecutive versions.

    `before` is None for the first version.
    """
    old = {fragment.id for fragment in before.fragments} if before else set()
    profiled_ids = old | ({retired_fragment.fragment.id for retired_fragment in before.retired} if before else set())
    new = {fragment.id for fragment in after.fragments}
    keys = {partition.key for partition in after.partitions}
    return Change(
        version=after.number,
        row_count=after.row_count,
        row_difference=after.row_count - (before.row_count if before else 0),
        added=len(new - old),
        read=len(new - profiled_ids),
        removed=len(old - new),
        unchanged=len(new & old),
        recomputed=frozenset(p.key for p in after.partitions if p.version == after.number),
        dropped=frozenset({p.key for p in before.partitions} - keys if before else ()),
        partitions=len(keys),
        value_counts=count_changes(store, before.value_counts if before else None, after.value_counts),
    )
