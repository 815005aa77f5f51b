"""The partition index: the statistics of each column in all partitions, stored column by column.

    index/<unique>.partitions.parquet    segments (see `store.segments`): `rows` has the partitions, `column <field id>`
                                         the statistics of a column, a row for each partition that has the column

A small commit writes no segment. The version's document lists the partitions that differ from the index as *unindexed*,
and their statistics are read from their profiles. When more than 8 partitions differ, one segment is written with the
statistics of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.index.fragments import FOLDER, column_section
from metastore_assets.statistics.union import cast_to_union, merge_unions
from metastore_assets.store.manifest import PartitionIndex, UnindexedPartition
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import (
    EMPTY,
    ROWS,
    TOMBSTONES,
    KeyChanges,
    Segment,
    SegmentFiles,
    SegmentKind,
    SegmentOutput,
    SegmentReader,
    SegmentUpdate,
)
from metastore_assets.values.physical import one_chunk

PARTITIONS = pa.schema([("_key", pa.string()), ("_row_count", pa.int64())])
POSITION = pa.field("_partition", pa.int32())
"""The first column of statistics rows: the position of the row's partition among the partitions of its segment."""
UNION_COLUMNS = ("minimum", "maximum", "percentiles")
"""The statistics that are values of the column, stored in a union type."""
_KIND = SegmentKind(
    "partitions",
    FOLDER,
    PARTITIONS,
    max_deltas=3,  # Limited, because each delta costs a request when all partitions are looked up.
    large_section_rows=1 << 10,  # Smaller columns share a row group: else the footer would be larger than their rows.
)
_MAX_UNINDEXED = 8
"""Maximum number of unindexed and removed partitions in the version's document."""
_SORT_AT_ONCE = 1 << 16
"""Maximum number of rows that are sorted in memory at once. More rows are sorted column by column."""


@dataclass(frozen=True)
class PartitionRows:
    """The statistics of all columns in some partitions."""

    partitions: pa.Table
    """One row per partition, with the columns of PARTITIONS."""
    rows: pa.Table
    """One row per partition and column: the partition's position (POSITION), then the statistics."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.rows.schema

    @property
    def row_count(self) -> int:
        """Number of rows of statistics."""
        return len(self.rows)

    @lock_free_cached_property
    def columns(self) -> list[str]:
        """The field ids of the columns that have statistics in a partition."""
        return list(self._slices)

    def count(self, field_id: str) -> int:
        """Return the number of partitions that have statistics of a column."""
        return self._slices[field_id][1]

    def column(self, field_id: str) -> pa.Table:
        """Return the rows of statistics of one column."""
        return self.by_column.slice(*self._slices[field_id])

    @lock_free_cached_property
    def by_column(self) -> pa.Table:
        """The rows, sorted by column."""
        numbers = self._ids.indices.to_numpy()
        if bool((numbers[1:] >= numbers[:-1]).all()):
            return self.rows
        return self.rows.take(pa.array(np.argsort(numbers, kind="stable")))

    @lock_free_cached_property
    def _ids(self) -> pa.DictionaryArray:
        ids = self.rows["field_id"].combine_chunks() if len(self.rows) else pa.array([], pa.string())
        return ids.dictionary_encode()

    @lock_free_cached_property
    def _slices(self) -> dict[str, tuple[int, int]]:
        """For each column, by field id: (first row in `by_column`, number of rows)."""
        field_ids = self._ids.dictionary.to_pylist()
        counts = np.bincount(self._ids.indices.to_numpy(), minlength=len(field_ids))
        firsts = np.cumsum(counts) - counts
        return dict(zip(field_ids, zip(firsts.tolist(), counts.tolist(), strict=True), strict=True))


class PartitionReader:
    """A reader of the partition index of one version.

    The reader opens each file once, on first use. Threads can share the reader. Corrupt files raise CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self._reader = SegmentReader(store, _KIND, files)

    @lock_free_cached_property
    def partitions(self) -> pa.Table:
        """The keys and row counts of the partitions, sorted by key, with the columns of PARTITIONS."""
        return self._partitions.take(pa.array(self._order))

    def column(self, field_id: str, without: Collection[str] = ()) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """Yield the statistics of a column in all partitions, segment by segment.

        Partitions whose profile does not have the column have no row.

        Args:
            field_id: Field id of the column.
            without: Names of statistics that are not read.

        Yields:
            (positions, rows). Each row has the statistics of one partition. Its position is that of the partition in
            the property `partitions`.
        """
        positions = np.empty(len(self._order), np.int64)
        positions[self._order] = np.arange(len(self._order))
        first = 0
        for part in map(_StoredPartitions, self._reader.segments):
            rows = part.column(field_id, without)
            if len(rows):
                yield positions[first + rows[POSITION.name].to_numpy()], rows.drop_columns([POSITION.name])
            first += len(part.partitions)

    @lock_free_cached_property
    def _partitions(self) -> pa.Table:
        return self._reader.read_rows()

    @lock_free_cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        return np.argsort(np.array(self._partitions["_key"].to_pylist(), object), kind="stable")


def update_partitions(
    store: ObjectStore,
    base: PartitionIndex | None,
    changed: Mapping[str, UnindexedPartition],
    changes: KeyChanges,
    read: Callable[[Sequence[UnindexedPartition]], Iterable[PartitionRows]],
) -> PartitionIndex:
    """Return the partition index of the next version.

    A segment is written only if many partitions differ from `base`.

    Args:
        store: The table's folder.
        base: The index of the version before; None without one.
        changed: The partitions that were added or changed, by key.
        changes: The keys of these partitions and of removed partitions.
        read: Reads the statistics of partitions in batches. It is called only if a segment is written.

    Raises:
        CorruptionError: A stored file is corrupt.
    """
    base = base or PartitionIndex(EMPTY)
    unindexed = {partition.key: partition for partition in base.unindexed if partition.key not in changes.removed}
    unindexed.update(changed)
    removed = {*base.removed, *changes.removed} - changed.keys()
    if len(unindexed) + len(removed) <= _MAX_UNINDEXED:
        return PartitionIndex(base.files, tuple(unindexed.values()), tuple(sorted(removed)))
    changes = KeyChanges(unindexed.keys(), removed, changes.row_count)
    batches = read(list(unindexed.values()))
    return PartitionIndex(SegmentUpdate(store, _KIND, base.files, changes).write(batches, _write_segment))


def _write_segment(output: SegmentOutput, segments: Sequence[Segment], batch: PartitionRows | None) -> None:
    """Write one segment with the statistics of older segments and of a batch.

    Partitions that were removed or replaced are left out.

    Args:
        output: The segment to write.
        segments: The older segments, which the new one replaces.
        batch: The statistics of added and changed partitions; None without any.
    """
    parts: list[_StoredPartitions | PartitionRows] = [*map(_StoredPartitions, segments)]
    parts = [part for part in [*parts, *([] if batch is None else [batch])] if len(part.partitions)]
    schema = statistics_schema(part.schema for part in parts)
    partitions = pa.concat_tables([PARTITIONS.empty_table(), *(part.partitions for part in parts)])
    with output.open(partitions, schema, {}):
        if sum(part.row_count for part in parts) <= _SORT_AT_ONCE:
            rows = concat_partitions(parts)
            counts = {column_section(field_id): rows.count(field_id) for field_id in rows.columns}
            output.write_sections(counts, rows.by_column)
            return
        firsts = np.cumsum([0, *(len(part.partitions) for part in parts)]).tolist()
        for field_id in dict.fromkeys(field_id for part in parts for field_id in part.columns):
            tables = [
                cast_statistics(_shift_positions(part.column(field_id), first), schema)
                for part, first in zip(parts, firsts, strict=False)
                if field_id in part.columns
            ]
            output.write_section(column_section(field_id), pa.concat_tables(tables))


class _StoredPartitions:
    """The statistics stored in one segment, without those of removed partitions."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    @lock_free_cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field in self._segment.sections.schema if field.name not in PARTITIONS.names])

    @lock_free_cached_property
    def columns(self) -> list[str]:
        names = self._segment.sections.sections
        return [name.partition(" ")[2] for name in names if name not in (ROWS, TOMBSTONES)]

    @lock_free_cached_property
    def partitions(self) -> pa.Table:
        return self._segment.read_rows()

    @property
    def row_count(self) -> int:
        """An upper bound of the number of rows of statistics: the number of rows of all sections of the segment."""
        return sum(section.row_count for section in self._segment.sections.sections.values())

    @property
    def rows(self) -> pa.Table:
        """The statistics of all columns, one column after the other."""
        names = [column_section(field_id) for field_id in self.columns]
        sections = self._segment.sections.read_sections(names)
        tables = [sections[name].select(self.schema.names) for name in names]
        return self._filter_live(pa.concat_tables([empty_statistics(self.schema), *tables]))

    def column(self, field_id: str, without: Collection[str] = ()) -> pa.Table:
        name = column_section(field_id)
        if name not in self._segment.sections.sections:
            return empty_statistics(self.schema)
        columns = [column for column in self.schema.names if column not in without]
        return self._filter_live(self._segment.read_section(name, columns))

    def _filter_live(self, rows: pa.Table) -> pa.Table:
        """Return the rows of partitions that were not removed. Positions become those among these partitions."""
        live = self._segment.live_mask
        if live is None:
            return rows
        positions = rows[POSITION.name].to_numpy()
        is_live = live[positions]
        return _set_positions(rows.filter(pa.array(is_live)), (np.cumsum(live) - 1)[positions[is_live]])


def stack_partitions(partitions: Sequence[tuple[str, int]], tables: Sequence[pa.Table]) -> PartitionRows:
    """Combine the statistics of several partitions into one table.

    Args:
        partitions: (key, row count) of each partition.
        tables: The statistics of each partition, in the same order.
    """
    keys, counts = zip(*partitions, strict=True) if partitions else ((), ())
    schema = statistics_schema(table.schema for table in tables)
    parts = [
        cast_statistics(table.add_column(0, POSITION, pa.array(np.full(len(table), position, np.int32))), schema)
        for position, table in enumerate(tables)
    ]
    return PartitionRows(
        pa.table([pa.array(keys, pa.string()), pa.array(counts, pa.int64())], schema=PARTITIONS),
        # The columns of a small table take 40 kB of memory besides their values, so they are copied to one chunk.
        pa.concat_tables(parts).combine_chunks() if parts else empty_statistics(schema),
    )


class PartitionPart(Protocol):
    """Statistics of some partitions, in memory or in a segment."""

    @property
    def partitions(self) -> pa.Table: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> pa.Table: ...


def concat_partitions(parts: Sequence[PartitionPart]) -> PartitionRows:
    """Concatenate parts into one. Positions become those among the partitions of all parts."""
    if len(parts) == 1 and isinstance(parts[0], PartitionRows):
        return parts[0]
    schema = statistics_schema(part.schema for part in parts)
    tables, first = [empty_statistics(schema)], 0
    for part in parts:
        tables.append(cast_statistics(_shift_positions(part.rows, first), schema))
        first += len(part.partitions)
    partitions = pa.concat_tables([PARTITIONS.empty_table(), *(part.partitions for part in parts)])
    return PartitionRows(partitions, pa.concat_tables(tables))


def statistics_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema of statistics with the columns of all given schemas.

    The columns UNION_COLUMNS have a union type with the type classes of all schemas.
    """
    schemas = list(schemas)
    union = merge_unions(schema.field("minimum").type for schema in schemas if "minimum" in schema.names)
    fields = {POSITION.name: POSITION}
    fields |= {field.name: pa.field(field.name, field.type) for schema in schemas for field in schema}
    for name in set(UNION_COLUMNS) & set(fields):
        type_ = union
        if name == "percentiles":
            type_ = pa.list_(pa.struct([("fraction", pa.float64()), ("value", union)]))
        fields[name] = pa.field(name, type_)
    return pa.schema(fields.values())


def cast_statistics(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows of statistics to a schema that has all of their columns. Missing columns become null.

    Args:
        rows: The rows.
        schema: The schema, a result of `statistics_schema`.

    Raises:
        ArrowInvalid: A column cannot be cast.
    """
    if rows.schema.equals(schema):
        return rows
    union = merge_unions([schema.field("minimum").type]) if "minimum" in schema.names else None
    arrays = []
    for field in schema:
        if field.name not in rows.column_names:
            arrays.append(pa.nulls(len(rows), field.type))
        elif field.name in UNION_COLUMNS:
            arrays.append(cast_to_union(one_chunk(rows[field.name]), union))
        else:
            column = rows[field.name]
            arrays.append(column if column.type == field.type else _cast(column, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def empty_statistics(schema: pa.Schema) -> pa.Table:
    """Return statistics without rows.

    Unlike `Schema.empty_table`, this works if a column contains an extension type.
    """
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _shift_positions(rows: pa.Table, first: int) -> pa.Table:
    return _set_positions(rows, rows[POSITION.name].to_numpy() + first) if first else rows


def _set_positions(rows: pa.Table, positions: npt.NDArray[np.integer]) -> pa.Table:
    return rows.set_column(0, POSITION, pa.array(positions.astype(np.int32, copy=False)))


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to another type.

    A column of nulls is never cast: a change of a user-defined statistic may make the cast impossible.
    """
    if column.null_count == len(column):
        return pa.nulls(len(column), type_)
    return pc.cast(column, type_)
