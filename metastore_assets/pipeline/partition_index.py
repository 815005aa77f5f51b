"""The statistics of a table's partitions by column, from the published version to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from metastore_assets.index import (
    PartitionReader,
    PartitionRows,
    concat_partitions,
    stack_partitions,
    update_partitions,
)
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profiles.states_reader import corruption_guard
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.tables import parse_statistics_rows
from metastore_assets.store.manifest import PartitionEntry, PartitionIndex, UnindexedPartition, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges
from metastore_assets.values.leaf_columns import schema_leaves

_FILES_PER_TASK = 64
_CHEAPER = 10
"""Times that it takes less to read statistics than to merge states."""
_LOT = 500_000
"""Rows that are held at once."""


def table_partition_files(
    engine: Engine, store: ObjectStore, columns: int, base: Version | None, partitions: Sequence[PartitionEntry]
) -> PartitionIndex:
    """What tells of the columns of a version with those partitions, of about so many columns each. Most commits write
    nothing for it.

    Raises CorruptionError when stored statistics are damaged.
    """
    known = base.partition_index if base is not None else None
    before = {own.key: _own(own) for own in base.partitions} if base is not None and known is not None else {}
    now = {own.key: _own(own) for own in partitions}
    changes = KeyChanges.between(before, now)
    changed = {key: partition for key, partition in now.items() if key in changes.added}
    return update_partitions(store, known, changed, changes, partial(_read, engine, store, max(1, columns)))


def _own(entry: PartitionEntry) -> UnindexedPartition:
    return UnindexedPartition(entry.key, entry.files.statistics, entry.row_count)


def _read(
    engine: Engine, store: ObjectStore, columns: int, partitions: Sequence[UnindexedPartition]
) -> Iterator[PartitionRows]:
    """What the profiles of partitions say, in lots. Many are read by Spark's tasks."""
    size = max(_FILES_PER_TASK, _LOT // columns)
    for start in range(0, len(partitions), size):
        lot = partitions[start : start + size]
        tasks = [lot[at : at + _FILES_PER_TASK] for at in range(0, len(lot), _FILES_PER_TASK)]
        work = [len(task) * columns // _CHEAPER for task in tasks]
        yield concat_partitions(engine.merge(partial(_read_files, store), tasks, work))


def _read_files(store: ObjectStore, partitions: Sequence[UnindexedPartition]) -> PartitionRows:
    tables = []
    for own in partitions:
        with corruption_guard(store, own.path):
            tables.append(store.read_parquet(own.path).replace_schema_metadata())
    return stack_partitions([(own.key, own.row_count) for own in partitions], tables)


def wrong_rows(store: ObjectStore, version: Version, keys: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """(Key, column, what is wrong) where the statistics by column are not those of the partitions' own files.

    Raises CorruptionError.
    """
    own = version.partition_index
    apart = set() if own is None else {one.key for one in own.unindexed} | set(own.removed)
    wanted = {entry.key: entry for entry in version.partitions if entry.key in keys and entry.key not in apart}
    if own is None or not wanted:
        return
    reader = PartitionReader(store, own.files)
    places = {key: at for at, key in enumerate(reader.partitions["_key"].to_pylist())}
    fields = {leaf.field_id for leaves in schema_leaves(version.schema) for leaf in leaves}
    held = {(key, row.field_id): row for key, row in _held_rows(reader, version, list(places))}
    for key, entry in wanted.items():
        if key not in places:
            yield key, "", "no rows"
            continue
        with corruption_guard(store, entry.files.statistics):
            rows = parse_statistics_rows(store.read_parquet(entry.files.statistics))
        for row in rows:
            other = held.get((key, row.field_id))
            # Of columns that the table has no more nobody asks.
            if row.field_id in fields and (other is None or _told(other) != _told(row)):
                yield key, row.column, "no row" if other is None else "another row"


def _told(row: ColumnStatistics) -> dict[str, object]:
    """What a row tells, such that equal rows are equal: floats as texts, for the mean of infinities may be NaN."""
    own = {name: (repr(each.value.as_py()), each.guarantee, each.reason) for name, each in row.user_defined.items()}
    plain = {name: repr(value) if isinstance(value, float) else value for name, value in vars(row).items()}
    return {**plain, "user_defined": own}


def _held_rows(
    reader: PartitionReader, version: Version, keys: Sequence[str]
) -> Iterator[tuple[str, ColumnStatistics]]:
    for leaves in schema_leaves(version.schema):
        for leaf in leaves:
            for places, table in reader.column(leaf.field_id):
                yield from zip((keys[at] for at in places.tolist()), parse_statistics_rows(table), strict=True)
