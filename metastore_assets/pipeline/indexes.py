"""The next indexes of a table: the fragment index, the partition index, and the value filters.

A fragment is a data file with its deletes, and its profile is its statistics. A version has an entry for each fragment
and each partition. A value filter is a set of hash prefixes that shows which values of a column a fragment lacks. Each
index, and the entries of each kind, are stored in segments: sorted files that a commit adds and sometimes merges. A
version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragment_index import plan_fragment_index
from metastore_assets.pipeline.partition_index import plan_partition_index
from metastore_assets.pipeline.value_filters import plan_value_filters
from metastore_assets.store.entries import FRAGMENTS, PARTITIONS
from metastore_assets.store.entry_changes import EntryChanges
from metastore_assets.store.merged_set import (
    INDEX,
    INDEXES,
    PARTITION_INDEX,
    VALUE_FILTERS,
    count_changed_keys,
    set_to_merge,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version import PartitionIndex, ValueFilterFiles, Version


@dataclass(frozen=True)
class IndexedColumns:
    """The number of columns of a table, and the columns that have value filters."""

    count: int
    """Number of columns of the table, to estimate the work."""
    filtered_ids: tuple[str, ...]
    """Field ids of the columns with value filters."""


@dataclass(frozen=True)
class Indexes:
    """The files of the indexes of a version."""

    fragments: SegmentFiles
    partitions: PartitionIndex
    value_filters: ValueFilterFiles | None
    """None if no column has value filters."""
    is_merged: bool
    """Whether segments of an index may have been merged. Then the commit must not merge segments of entries."""


def update_indexes(
    engine: Engine,
    store: ObjectStore,
    columns: IndexedColumns,
    base: Version | None,
    changes: Mapping[str, EntryChanges[Any]],
) -> Indexes:
    """Write the changes from the published indexes to the indexes of the next version.

    Return the files of the next indexes.

    If many keys of a large index change, its segments are merged only if `set_to_merge` chooses this index.

    Args:
        engine: The engine that reads profiles.
        store: The table's folder.
        columns: The columns of the next version.
        base: The version with the published indexes; None if there is none.
        changes: The changes of the entries of the next version, by name of the kind of entry. Fragments and partitions
            are required; other kinds are included if their changes are known.

    Raises:
        CorruptionError: A stored profile, or a published index, is damaged.
    """
    fragments, partitions = changes[FRAGMENTS.name], changes[PARTITIONS.name]
    index, partition_index, filters = (
        (None, None, None) if base is None else (base.index, base.partition_index, base.value_filters)
    )
    fragment_update = plan_fragment_index(engine, store, columns.count, index, fragments)
    partition_update = plan_partition_index(engine, store, columns.count, partition_index, partitions)
    filter_update = plan_value_filters(engine, store, columns.filtered_ids, filters, fragments)
    changed_counts = count_changed_keys(changes.values()) | {
        INDEX: fragment_update.key_count,
        PARTITION_INDEX: partition_update.key_count,
        VALUE_FILTERS: filter_update.key_count,
    }
    merged_set = set_to_merge(base, changed_counts)
    return Indexes(
        fragment_update.write(merged_set == INDEX),
        partition_update.write(merged_set == PARTITION_INDEX),
        filter_update.write(merged_set == VALUE_FILTERS),
        merged_set in INDEXES,
    )
