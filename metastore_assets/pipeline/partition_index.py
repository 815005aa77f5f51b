"""The next partition index of a table: the statistics of all partitions, stored column by column.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from metastore_assets.batching import batched
from metastore_assets.index import (
    PartitionReader,
    PartitionRows,
    concat_partitions,
    count_written_partitions,
    stack_partitions,
    update_partitions,
)
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import corruption_guard
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.profile_tables import parse_statistics_rows
from metastore_assets.store.entry_changes import EntryChanges, changed_entries
from metastore_assets.store.merged_set import PlannedUpdate
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges
from metastore_assets.store.version import PartitionEntry, PartitionIndex, UnindexedPartition, Version
from metastore_assets.values.columns import columns_by_field, schema_columns

_FILES_PER_TASK = 64
_READS_PER_MERGE = 10
"""Number of statistics files that can be read in the time of merging one profile."""
_BATCH_ROWS = 500_000
"""Number of rows of statistics that are in memory at once."""


def plan_partition_index(
    engine: Engine,
    store: ObjectStore,
    columns: int,
    base: PartitionIndex | None,
    partitions: EntryChanges[PartitionEntry],
) -> PlannedUpdate[PartitionIndex]:
    """Return the update that makes the next partition index from the published one.

    While few partitions differ from the files of the index, no file is written. The index then lists these partitions
    as unindexed, and readers use their statistics files.

    `write` of the update raises CorruptionError if stored statistics are damaged.

    Args:
        engine: The engine that reads statistics.
        store: The table's folder.
        columns: Number of columns of the table, to estimate the work.
        base: The published index; None if there is none.
        partitions: The partitions of the next version, as changes of the published ones.
    """
    before, after = (
        {entry.key: _unindexed(entry) for entry in entries}
        for entries in changed_entries(partitions, is_rebuilt=base is None)
    )
    changes = KeyChanges.between(before, after, len(partitions))
    changed_partitions = {key: partition for key, partition in after.items() if key in changes.added_keys}
    read = partial(_read_batches, engine, store, max(1, columns))

    def write(may_merge: bool) -> PartitionIndex:
        return update_partitions(store, base, changed_partitions, replace(changes, may_merge=may_merge), read)

    return PlannedUpdate(count_written_partitions(base, changed_partitions, changes), write)


def _unindexed(entry: PartitionEntry) -> UnindexedPartition:
    return UnindexedPartition(entry.key, entry.files.statistics, entry.row_count)


def _read_batches(
    engine: Engine, store: ObjectStore, columns: int, partitions: Sequence[UnindexedPartition]
) -> Iterator[PartitionRows]:
    """Read the statistics of partitions in batches, with Spark if there are many files."""
    size = max(_FILES_PER_TASK, _BATCH_ROWS // columns)
    for batch in batched(partitions, size):
        tasks = list(batched(batch, _FILES_PER_TASK))
        weights = [len(task) * columns // _READS_PER_MERGE for task in tasks]
        yield concat_partitions(engine.merge(partial(_read_files, store), tasks, weights))


def _read_files(store: ObjectStore, partitions: Sequence[UnindexedPartition]) -> PartitionRows:
    tables = []
    for partition in partitions:
        with corruption_guard(store, partition.path):
            tables.append(store.read_parquet(partition.path).replace_schema_metadata())
    return stack_partitions([(partition.key, partition.row_count) for partition in partitions], tables)


def find_wrong_rows(store: ObjectStore, version: Version, keys: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (partition key, column, difference) where the index differs from a partition's statistics.

    Example: ("day=2024-01-01", "price", "another row") if the index has other statistics of the column than the
    partition's statistics file. The difference is "no row" if the index lacks the column. If it lacks the partition,
    the column is "" and the difference "no rows".

    Partitions that the version lists as unindexed are not compared, because they differ from the index. Columns that
    the table no longer has are not compared, either.

    Args:
        store: The table's folder.
        version: The version with the index.
        keys: Keys of the partitions to compare.

    Raises:
        CorruptionError: A file is damaged.
    """
    index = version.partition_index
    if index is None:
        return
    unindexed_keys = {partition.key for partition in index.unindexed} | set(index.removed)
    compared_entries = {
        entry.key: entry for entry in version.partitions if entry.key in keys and entry.key not in unindexed_keys
    }
    if not compared_entries:
        return
    reader = PartitionReader(store, index.files)
    indexed_keys = reader.partitions["_key"].to_pylist()
    fields = {column.field_id for column in schema_columns(version.schema)}
    indexed_rows = {(key, row.field_id): row for key, row in _indexed_rows(reader, version, indexed_keys)}
    all_indexed_keys = set(indexed_keys)
    for key, entry in compared_entries.items():
        if key not in all_indexed_keys:
            yield key, "", "no rows"
            continue
        with corruption_guard(store, entry.files.statistics):
            rows = parse_statistics_rows(store.read_parquet(entry.files.statistics))
        for row in rows:
            other = indexed_rows.get((key, row.field_id))
            # No query reads columns that the table no longer has.
            if row.field_id in fields and (other is None or _comparable(other) != _comparable(row)):
                yield key, row.column, "no row" if other is None else "another row"


def _comparable(row: ColumnStatistics) -> dict[str, object]:
    """Return the fields of a row by name.

    Floats become text, because NaN is not equal to itself.
    """
    results = {
        name: (repr(result.value.as_py()), result.guarantee, result.reason) for name, result in row.user_defined.items()
    }
    fields = {name: repr(value) if isinstance(value, float) else value for name, value in vars(row).items()}
    return {**fields, "user_defined": results}


def _indexed_rows(
    reader: PartitionReader, version: Version, keys: Sequence[str]
) -> Iterator[tuple[str, ColumnStatistics]]:
    """Yield (partition key, column statistics) for each indexed partition and column of the schema.

    Args:
        reader: Reads the index.
        version: The version with the index.
        keys: The keys of all indexed partitions, in the order of the index.
    """
    for columns in columns_by_field(version.schema):
        for column in columns:
            for positions, table in reader.column(column.field_id):
                yield from zip((keys[at] for at in positions.tolist()), parse_statistics_rows(table), strict=True)
