"""A writer of the partition index: segments, which are sorted files with statistics of partitions.

The version's document has up to 8 partitions that were changed or removed since the last segment. With more than 8, a
commit writes a segment with all of them, and may also merge segments. Tombstones are the keys of removed partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np
import pyarrow as pa

from metastore_assets.index.fragment_index import FOLDER, column_section
from metastore_assets.index.partition_index import (
    KIND,
    PARTITIONS,
    POSITION,
    PartitionRows,
    cast_statistics,
    read_stored,
    set_positions,
    stack_partitions,
    statistics_schema,
    stored_columns,
)
from metastore_assets.store.keys import SegmentKeyRange
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import ROW_GROUP_ROWS
from metastore_assets.store.sections import SectionOptions, SectionWriter
from metastore_assets.store.segment_levels import SegmentMerge, SegmentUpdate
from metastore_assets.store.segment_merge import MergeSource, with_bounds
from metastore_assets.store.segments import (
    EMPTY,
    ROWS,
    TOMBSTONES,
    KeyChanges,
    Segment,
    SegmentFile,
    SegmentFiles,
    SegmentReader,
)
from metastore_assets.store.version import PartitionIndex, UnindexedPartition
from metastore_assets.values.physical import empty_table, pad_columns

_MERGED = pa.schema([*PARTITIONS, ("source", pa.int32()), ("row", pa.int64())])
"""Columns of a merge: a partition, the number of the file with its statistics, and its position in that file."""
_MAX_UNINDEXED = 8
"""Maximum number of unindexed and removed partitions in the version's document."""
_FILE_STATISTICS = 1 << 16
"""A file ends when it has this many rows of statistics (partitions times columns), unless it has few partitions."""
_LARGE_SECTION_ROWS = 1 << 10
"""Columns with fewer rows share a row group: otherwise the footer would be larger than their rows."""
_OPEN_FILES = 4
"""Maximum number of files whose statistics a merge has in memory."""


def update_partitions(
    store: ObjectStore,
    base: PartitionIndex | None,
    changed_partitions: Mapping[str, UnindexedPartition],
    changes: KeyChanges,
    read: Callable[[Sequence[UnindexedPartition]], Iterable[PartitionRows]],
) -> PartitionIndex:
    """Return the partition index of the next version.

    A segment is written only if more than 8 partitions differ from those in the files of `base`.

    Args:
        store: The table's folder.
        base: The index of the previous version; None if there is none.
        changed_partitions: The partitions that were added or changed, by key.
        changes: The keys of these partitions and of removed partitions.
        read: Reads the statistics of partitions in batches. It is called only if a segment is written.

    Raises:
        CorruptionError: A stored file is corrupt.
    """
    base = base or PartitionIndex(EMPTY)
    unindexed_partitions, removed_keys = _differing_partitions(base, changed_partitions, changes)
    if len(unindexed_partitions) + len(removed_keys) <= _MAX_UNINDEXED:
        return PartitionIndex(base.files, tuple(unindexed_partitions.values()), tuple(sorted(removed_keys)))
    batches = iter(read(list(unindexed_partitions.values())))
    first = next(batches, None)
    columns = _count_columns(store, base.files) if first is None else len(first.columns)
    kind = replace(KIND, file_rows=max(KIND.file_rows, _FILE_STATISTICS // max(1, columns)))
    update = SegmentUpdate(
        store, kind, base.files, replace(changes, added_keys=unindexed_partitions.keys(), removed_keys=removed_keys)
    )
    return PartitionIndex(
        update.write(
            batches if first is None else chain([first], batches), lambda merge: _PartitionMerge(store, merge).write()
        )
    )


def count_written_partitions(
    base: PartitionIndex | None, changed_partitions: Mapping[str, UnindexedPartition], changes: KeyChanges
) -> int:
    """Return how many partitions the segment has that `update_partitions` writes; 0 if it writes none.

    Removed partitions count, too. The arguments are those of `update_partitions`.
    """
    count = sum(map(len, _differing_partitions(base or PartitionIndex(EMPTY), changed_partitions, changes)))
    return count if count > _MAX_UNINDEXED else 0


def _differing_partitions(
    base: PartitionIndex, changed_partitions: Mapping[str, UnindexedPartition], changes: KeyChanges
) -> tuple[dict[str, UnindexedPartition], set[str]]:
    """Return the partitions of the next version that differ from those in the files of `base`.

    Returns:
        (partitions that the files lack or have with older statistics, by key; keys of removed partitions, which the
        files may still have).
    """
    unindexed_partitions = {
        partition.key: partition for partition in base.unindexed if partition.key not in changes.removed_keys
    }
    unindexed_partitions.update(changed_partitions)
    return unindexed_partitions, {*base.removed, *changes.removed_keys} - changed_partitions.keys()


def _count_columns(store: ObjectStore, files: SegmentFiles) -> int:
    """Return how many table columns have statistics in the first file of an index.

    The number is 0 if the index has no files.
    """
    return len(stored_columns(SegmentReader(store, KIND, files).segments[0])) if files.files else 0


class _PartitionMerge:
    """A merge of the statistics in stored files with a newer batch of statistics, by partition key.

    The stored files are numbered from 0, and the batch has the next number. Each row to merge has the number of its
    file or of the batch.
    """

    def __init__(self, store: ObjectStore, merge: SegmentMerge[PartitionRows]) -> None:
        self._store = store
        self._merge = merge
        self._batch = stack_partitions([], []) if merge.batch is None else merge.batch
        files = tuple(file for part in merge.parts for file in part.files)
        self._files = SegmentReader(store, KIND, SegmentFiles(0, files)).segments
        self._read_rows = lru_cache(_OPEN_FILES)(self._read_source)
        self._sources = [self._stored_source(numbers, keys) for numbers, keys in merge.numbered_parts()]
        tombstones = pa.array(sorted(merge.removed_keys), pa.string())
        batch = _numbered(self._batch.partitions, len(files)).sort_by(PARTITIONS.names[0])
        self._sources.append(MergeSource.of_table(batch, tombstones))

    def write(self) -> list[SegmentFile]:
        """Write the merged statistics to new files, sorted by partition key.

        Return these files.
        """
        return self._merge.write_files(self._sources, _MERGED, self._write_file)

    def _stored_source(self, numbers: Iterable[int], keys: SegmentKeyRange | None) -> MergeSource:
        """Return the rows and tombstones of stored files as a source of the merge.

        `numbers` are the numbers of the files. If `keys` are given, rows and tombstones outside this range are left
        out.
        """

        def rows() -> Iterator[pa.Table]:
            for number in numbers:
                table = _numbered(self._files[number].read_section(ROWS, PARTITIONS.names), number)
                table = self._files[number].omit_absorbed(table)
                yield table if keys is None else keys.filter(table)

        def tombstones() -> Iterator[pa.Table]:
            for number in numbers:
                table = self._files[number].read_section(TOMBSTONES, PARTITIONS.names[:1])
                table = self._files[number].omit_absorbed(table)
                yield table if keys is None else keys.filter(table)

        return MergeSource(rows(), tombstones())

    def _read_source(self, number: int) -> pa.Table:
        if number == len(self._files):
            return self._batch.rows
        file: Segment = self._files[number]
        return read_stored(file, stored_columns(file))

    def _write_file(self, rows: pa.Table, tombstones: pa.Array) -> SegmentFile:
        """Write the statistics and tombstones of a range of partitions as one file."""
        numbers, positions = rows["source"].to_numpy(), rows["row"].to_numpy()
        tables = []
        for number in np.unique(numbers).tolist():
            table, is_source = self._read_rows(number), numbers == number
            stored_positions = table[POSITION.name].to_numpy()
            count = max(stored_positions.max(initial=-1), positions[is_source].max()) + 1
            target = np.full(count, -1, np.int64)
            target[positions[is_source]] = np.flatnonzero(is_source)
            new_positions = target[stored_positions]
            is_taken = new_positions >= 0
            tables.append(set_positions(table.filter(pa.array(is_taken)), new_positions[is_taken]))
        schema = statistics_schema(table.schema for table in tables)
        statistics = pa.concat_tables([empty_table(schema), *(cast_statistics(table, schema) for table in tables)])
        merged_rows = PartitionRows(rows.select(PARTITIONS.names), statistics)
        path = f"{FOLDER}/{uuid.uuid4().hex}.{KIND.name}.parquet"
        file_schema = pa.schema([*PARTITIONS, *schema])
        options = SectionOptions({}, (), _LARGE_SECTION_ROWS, ROW_GROUP_ROWS)
        with SectionWriter(self._store, path, file_schema, options) as writer:
            writer.write_section(TOMBSTONES, pad_columns(pa.table({PARTITIONS.names[0]: tombstones}), file_schema))
            writer.write_section(ROWS, pad_columns(merged_rows.partitions, file_schema))
            counts = {column_section(field_id): merged_rows.count(field_id) for field_id in merged_rows.columns}
            writer.write_sections(counts, pad_columns(merged_rows.by_column, file_schema))
        file = SegmentFile(path, len(rows) + len(tombstones), footer_bytes=writer.footer_bytes)
        return with_bounds(file, rows, tombstones)


def _numbered(partitions: pa.Table, source: int) -> pa.Table:
    columns = [pa.array(np.full(len(partitions), source, np.int32)), pa.array(np.arange(len(partitions)))]
    return pa.Table.from_arrays([*partitions.columns, *columns], schema=_MERGED)
