"""The partition index: the statistics of each column in all partitions, stored column by column.

    index/<unique>.partitions.parquet    segments (see `store.segments`)
        section rows                     the partitions, sorted by key
        section column <field id>        the statistics of a column: one row for each partition that has the column

A small commit writes no segment. The version's document lists the partitions that differ from the index as *unindexed*,
and their statistics are read from their profiles: the files that have the statistics of one partition each. When more
than 8 partitions differ, one segment is written with the statistics of all of them (see `index.partition_writer`). A
large segment has several files, each with a range of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.caching import lock_free_cached_property
from metastore_assets.index.fragment_index import FOLDER, column_section
from metastore_assets.statistics.typed_union import cast_to_union, merge_unions
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import ROWS, TOMBSTONES, Segment, SegmentFiles, SegmentKind, SegmentReader
from metastore_assets.values.physical import empty_table, one_chunk

PARTITIONS = pa.schema([("_key", pa.string()), ("_row_count", pa.int64())])
POSITION = pa.field("_partition", pa.int32())
"""The first column of statistics rows: the position of the row's partition among the partitions of its segment."""
UNION_COLUMNS = ("minimum", "maximum", "percentiles")
"""The statistics that are values of the column, stored in a union type."""
KIND = SegmentKind(
    "partitions",
    FOLDER,
    PARTITIONS,
    max_deltas=4,  # Limited, because each delta costs requests when all partitions are looked up.
    file_rows=512,  # `partition_writer` raises it for tables with few columns.
)


@dataclass(frozen=True)
class PartitionRows:
    """The statistics of all columns in several partitions."""

    partitions: pa.Table
    """One row per partition, with the columns of PARTITIONS."""
    rows: pa.Table
    """One row per partition and column: the partition's position (POSITION), then the statistics."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.rows.schema

    @lock_free_cached_property
    def columns(self) -> list[str]:
        """The field ids of the columns that have statistics in at least one of the partitions."""
        return list(self._slices)

    def count(self, field_id: str) -> int:
        """Return the number of partitions that have statistics of a column."""
        return self._slices[field_id][1]

    def column(self, field_id: str) -> pa.Table:
        """Return the rows of statistics of one column."""
        return self.by_column.slice(*self._slices[field_id])

    @lock_free_cached_property
    def by_column(self) -> pa.Table:
        """The rows, sorted by column, then partition."""
        order = np.lexsort((self.rows[POSITION.name].to_numpy(), self._ids.indices.to_numpy()))
        return self.rows if bool((order[1:] > order[:-1]).all()) else self.rows.take(pa.array(order))

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
        self._reader = SegmentReader(store, KIND, files)

    @lock_free_cached_property
    def partitions(self) -> pa.Table:
        """The keys and row counts of the partitions, sorted by key, with the columns of PARTITIONS."""
        return self._partitions.take(pa.array(self._order))

    def column(self, field_id: str, without: Collection[str] = ()) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """Yield the statistics of a column in all partitions, file by file.

        Remote files are read in parallel.

        Partitions whose profile does not have the column have no row.

        Args:
            field_id: Field id of the column.
            without: Names of statistics that are not read.

        Yields:
            (positions, rows). Each row has the statistics of one partition. Its position is that of the partition in
            the property `partitions`.
        """
        ranks = np.empty(len(self._order), np.int64)
        ranks[self._order] = np.arange(len(self._order))
        first = 0

        def read(file: Segment) -> pa.Table:
            return read_stored(file, [field_id], without)

        files = self._reader.segments
        for file, rows in zip(
            files, parallel_map(read, files, is_parallel=self._reader.objects.is_remote), strict=True
        ):
            count, live = file.sections.sections[ROWS].row_count, file.live_mask
            target = np.arange(first, first + count)
            if live is not None:
                count = int(live.sum())
                target = np.where(live, first + np.cumsum(live) - 1, -1)
            positions = target[rows[POSITION.name].to_numpy()]
            first += count
            if not (positions >= 0).all():
                rows, positions = rows.filter(pa.array(positions >= 0)), positions[positions >= 0]
            if len(rows):
                yield ranks[positions], rows.drop_columns([POSITION.name])

    @lock_free_cached_property
    def _partitions(self) -> pa.Table:
        return self._reader.read_rows()

    @lock_free_cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        return np.argsort(np.array(self._partitions["_key"].to_pylist(), object), kind="stable")


def stored_columns(file: Segment) -> list[str]:
    """Return the field ids of the columns in a file."""
    return [name.partition(" ")[2] for name in file.sections.sections if name not in (ROWS, TOMBSTONES)]


def read_stored(file: Segment, field_ids: Sequence[str], without: Collection[str] = ()) -> pa.Table:
    """Return the stored statistics of columns: all rows of the first column, then those of the next one.

    A column has one row for each partition that has it, and none if the file lacks the column.

    Args:
        file: The file. Rows of removed partitions are returned, too.
        field_ids: Field ids of the columns.
        without: Names of statistics that are not read.
    """
    names = [name for name in map(column_section, field_ids) if name in file.sections.sections]
    schema = pa.schema([field for field in file.sections.schema if field.name not in (*PARTITIONS.names, *without)])
    sections = file.sections.read_sections(names, schema.names) if names else {}
    return pa.concat_tables([empty_table(schema), *(sections[name].select(schema.names) for name in names)])


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
        pa.concat_tables(parts).combine_chunks() if parts else empty_table(schema),
    )


def concat_partitions(parts: Sequence[PartitionRows]) -> PartitionRows:
    """Return the partitions and statistics of all parts, in the order of the parts.

    The column POSITION of the statistics says to which partition a row belongs. It is renumbered: in the result, it is
    the position of the partition among those of all parts.
    """
    if len(parts) == 1:
        return parts[0]
    schema = statistics_schema(part.schema for part in parts)
    tables, first = [empty_table(schema)], 0
    for part in parts:
        positions = part.rows[POSITION.name].to_numpy() + first
        tables.append(cast_statistics(set_positions(part.rows, positions), schema))
        first += len(part.partitions)
    partitions = pa.concat_tables([PARTITIONS.empty_table(), *(part.partitions for part in parts)])
    return PartitionRows(partitions, pa.concat_tables(tables))


def statistics_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return one schema of statistics with all columns of the given schemas.

    The first column is POSITION, which says to which partition a row belongs. The types of `minimum`, `maximum` and
    `percentiles` may differ between the given schemas. In the result, each of their values is a struct. It has a field
    for each type class (physical type, such as `int64`) in any of the given schemas.
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
    """Cast rows of statistics to a schema that has all of their columns.

    Missing columns become null.

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


def set_positions(rows: pa.Table, positions: npt.NDArray[np.integer]) -> pa.Table:
    """Return rows of statistics with new values in POSITION.

    POSITION is the column that says to which partition a row belongs.

    Args:
        rows: The rows. Their first column is POSITION.
        positions: For each row, the new position of its partition in the list of partitions.
    """
    return rows.set_column(0, POSITION, pa.array(positions.astype(np.int32, copy=False)))


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.null_count == len(column):
        return pa.nulls(len(column), type_)
    return pc.cast(column, type_)
