"""What one refresh did, told from the two versions before and after it."""

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
    """Rows more than before; negative when they became fewer."""
    added: int
    """Fragments of the table that it did not have before."""
    read: int
    """Those of them whose rows had to be read; the others' profiles were still there from an earlier version."""
    removed: int
    kept: int
    recomputed: frozenset[str]
    """Keys of the partitions whose profile was computed for this version."""
    dropped: frozenset[str]
    """Keys of the partitions that are gone."""
    partitions: int
    """Number of partitions after the change."""
    lists: ValueCountChanges | None
    """Values that are listed otherwise."""


def change_between(store: ObjectStore, before: Version | None, after: Version) -> Change:
    """What it took to get from one version (None: from nothing) to the next."""
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
