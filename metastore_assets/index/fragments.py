"""The fragment index: bounds and null counts of each column in each fragment, stored column by column.

    index/<unique>.index.parquet    segments (see `store.segments`): `rows` has the fragments, `column <field id>` the
                                    bounds and counts of a column

A section is a group of rows that is read by name. In a file, the section `rows` and the sections of columns have the
same fragments in the same order, so columns need no keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.union import cast_to_union, merge_unions, select_class
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.segments import (
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
from metastore_assets.values.truncation import truncate_lower, truncate_upper
from metastore_assets.values.types import TypeClass, class_named

FOLDER = "index"
LONGEST = 64
"""Maximum size in bytes of a text or binary bound. A longer bound is replaced by the closest bound of this size."""

FRAGMENTS = pa.schema(
    [
        ("name", pa.string()),
        ("id", pa.string()),
        ("path", pa.string()),
        ("partition_key", pa.string()),
        ("bytes", pa.int64()),
        ("row_count", pa.int64()),
    ]
)
"""Columns of the section `rows`. `id` identifies the fragment, and `name` its profile: if a fragment is profiled again,
it has another name."""


def column_schema(union: pa.StructType) -> pa.Schema:
    """Return the schema of a column's section, with bounds of a union type.

    `null_count` and `nan_count` are numbers of rows. The bounds do not cover NaN.
    """
    return pa.schema(
        [
            ("null_count", pa.int64()),
            ("nan_count", pa.int64()),
            ("minimum", union),
            ("maximum", union),
            ("minimum_exact", pa.bool_()),
            ("maximum_exact", pa.bool_()),
        ]
    )


_KIND = SegmentKind("index", FOLDER, FRAGMENTS)


@dataclass(frozen=True)
class IndexColumn:
    """The bounds and counts of one column in each fragment, in the order of `IndexReader.fragments`."""

    null_count: pa.ChunkedArray
    """Number of rows that are null; null if it is unknown."""
    nan_count: pa.ChunkedArray
    minimum: pa.ChunkedArray
    """A lower bound of all values except NaN; null if there is no such value, or if the bound is unknown."""
    maximum: pa.ChunkedArray


@dataclass(frozen=True)
class IndexRows:
    """The bounds and counts of all columns in some fragments."""

    fragments: pa.Table
    """One row per fragment, with the columns of FRAGMENTS."""
    columns: Mapping[str, pa.Table]
    """The bounds and counts of each column, by field id: a row per fragment, in the same order, as in `column_schema`.
    If only some fragments have the column, all rows of the other fragments count as null. Columns that no fragment
    has are missing."""

    @property
    def union(self) -> pa.StructType:
        """The union of the types of all bounds."""
        return merge_unions(table.schema.field("minimum").type for table in self.columns.values())


class IndexReader:
    """A reader of the fragment index of one version.

    The reader opens each file once, on first use. Threads can share the reader. Corrupt files raise CorruptionError.
    """

    def __init__(self, store: ObjectStore, files: SegmentFiles) -> None:
        self._reader = SegmentReader(store, _KIND, files)
        self._fragments: dict[tuple[str, ...], pa.Table] = {}

    def fragments(self, columns: Sequence[str] = ("bytes", "row_count")) -> pa.Table:
        """Return some of the columns of FRAGMENTS, with a row for each fragment of the version."""
        key = tuple(columns)
        rows = self._fragments.get(key)
        if rows is None:
            rows = self._fragments.setdefault(key, self._reader.read_rows(key))
        return rows

    def names(self) -> set[str]:
        """Return the names of the profiles of all fragments of the version."""
        return set(self.fragments(("name",))["name"].to_pylist())

    def column(self, field_id: str, cls: TypeClass | None) -> IndexColumn:
        """Return the bounds and counts of a column in each fragment, in the order of `fragments`.

        Args:
            field_id: Field id of the column.
            cls: The current type class of the column's values; None if the column has no values.
        """
        segments = self._reader.segments
        return _index_column([segment.filter_live(_read_column(segment, field_id, cls)) for segment in segments], cls)

    def select(self, names: Collection[str]) -> IndexSelection:
        """Return the rows of the fragments whose profiles have some names. Other rows are not kept in memory."""
        remaining = set(names)
        ids: list[str] = []
        rows: list[tuple[Segment, pa.Array]] = []
        for segment in reversed(self._reader.segments):
            start = 0
            positions: list[int] = []
            found: set[str] = set()
            selected = pa.array(sorted(remaining), pa.string())
            for part in segment.stream_section(ROWS, ["name", "id"]):
                at = np.flatnonzero(pc.is_in(part["name"], value_set=selected).to_numpy())
                positions += (at + start).tolist()
                found.update(part["name"].take(pa.array(at)).to_pylist())
                ids += part["id"].take(pa.array(at)).to_pylist()
                start += len(part)
            if positions:
                rows.append((segment, pa.array(positions, pa.int64())))
            removed = {name for part in segment.stream_section(TOMBSTONES, ["name"]) for name in part[0].to_pylist()}
            remaining -= found | removed
        return IndexSelection(tuple(ids), tuple(rows))


@dataclass(frozen=True)
class IndexSelection:
    """The rows of some fragments in the index of one version. It reads a few megabytes of a file at a time."""

    ids: tuple[str, ...]
    """Ids of the fragments that the index has."""
    rows: tuple[tuple[Segment, pa.Array], ...]
    """The segments with these fragments, in their order, and the positions of their rows in each."""

    def column(self, field_id: str, cls: TypeClass | None) -> IndexColumn:
        """Return the bounds and counts of a column in each of the fragments.

        Args:
            field_id: Field id of the column.
            cls: The current type class of the column's values; None if the column has no values.
        """
        tables = [_read_column(segment, field_id, cls, positions) for segment, positions in self.rows]
        return _index_column(tables, cls)


def _select(segment: Segment, section: str, columns: Sequence[str], positions: pa.Array | None) -> pa.Table:
    """Return the rows of a section at ascending positions; all rows for None."""
    if positions is None:
        return segment.read_section(section, columns)
    tables, start = [], 0
    at = positions.to_numpy()
    for part in segment.sections.stream_section(section, columns):
        here = at[(at >= start) & (at < start + len(part))] - start
        tables.append(part.take(pa.array(here)))
        start += len(part)
    return pa.concat_tables(tables)


def _index_column(tables: Sequence[pa.Table], cls: TypeClass | None) -> IndexColumn:
    if tables:
        return IndexColumn(*pa.concat_tables(tables).columns)
    no_counts = pa.chunked_array([], pa.int64())
    no_values = pa.chunked_array([], pa.null() if cls is None else cls.arrow)
    return IndexColumn(no_counts, no_counts, no_values, no_values)


def _read_column(segment: Segment, field_id: str, cls: TypeClass | None, positions: pa.Array | None = None) -> pa.Table:
    """Read the bounds and counts of a column for fragments of a segment, including removed ones.

    Args:
        segment: The segment.
        field_id: Field id of the column.
        cls: The type class of the column's values; None if the column has no values.
        positions: Ascending positions of the fragments in the segment; None for all.
    """
    type_ = pa.null() if cls is None else cls.arrow
    names = ["null_count", "nan_count", "minimum", "maximum"]
    if column_section(field_id) not in segment.sections.sections:
        # The column is null in fragments that were written without it.
        row_counts = _select(segment, ROWS, ["row_count"], positions)["row_count"]
        zeros, no_values = pa.array(np.zeros(len(row_counts), np.int64)), pa.nulls(len(row_counts), type_)
        return pa.table([row_counts, zeros, no_values, no_values], names=names)
    value_columns = [] if cls is None else [f"minimum.{cls.name}", f"maximum.{cls.name}"]
    names_in_file = ["null_count", "nan_count", *value_columns]
    table = _select(segment, column_section(field_id), names_in_file, positions)
    bounds = [_bounds_of_class(table, side, cls) for side in ("minimum", "maximum")]
    return pa.table([table["null_count"], table["nan_count"], *bounds], names=names)


def _bounds_of_class(table: pa.Table, side: str, cls: TypeClass | None) -> pa.Array:
    if cls is None or side not in table.column_names:
        # No fragment of the file has values of the class.
        return pa.nulls(table.num_rows, pa.null() if cls is None else cls.arrow)
    return select_class(one_chunk(table[side]), cls)


def update_index(store: ObjectStore, base: SegmentFiles | None, rows: IndexRows, changes: KeyChanges) -> SegmentFiles:
    """Write the fragment index of the next version; return its files. No existing file is changed.

    Args:
        store: The table's folder.
        base: The index of the version before; None without one.
        rows: The index rows of the added and replaced fragments.
        changes: The profile names of these fragments, and of removed fragments.

    Raises:
        CorruptionError: A file of `base` is damaged.
    """
    return SegmentUpdate(store, _KIND, base, changes).write([rows], _write_segment)


def _write_segment(output: SegmentOutput, segments: Sequence[Segment], batch: IndexRows | None) -> None:
    """Write one segment with the rows of older segments and of a batch.

    Fragments that were removed or replaced are left out. If a fragment lacks a column, all of its rows are counted as
    null in that column.

    Args:
        output: The segment to write.
        segments: The older segments, which the new one replaces.
        batch: The rows of added and replaced fragments; None without any.
    """
    parts = [_read_live_rows(segment) for segment in segments] + ([] if batch is None else [batch])
    parts = [part for part in parts if len(part.fragments)]
    union = merge_unions(part.union for part in parts)
    fragments = pa.concat_tables([FRAGMENTS.empty_table(), *(part.fragments for part in parts)])
    with output.open(fragments, column_schema(union), _encodings(union)):
        for field_id in sorted({field_id for part in parts for field_id in part.columns}):
            tables = [
                cast_bounds(part.columns[field_id], union)
                if field_id in part.columns
                else _null_rows(part.fragments, union)
                for part in parts
            ]
            output.write_section(column_section(field_id), pa.concat_tables(tables))


def _read_live_rows(segment: Segment) -> IndexRows:
    """Read the rows of a segment, except those of fragments that newer segments remove or replace."""
    tables = segment.sections.read_sections(list(segment.sections.sections))
    with parquet_errors(segment.uri):
        names = column_schema(tables[ROWS].schema.field("minimum").type).names
        columns = {
            section.partition(" ")[2]: segment.filter_live(table.select(names))
            for section, table in tables.items()
            if section not in (ROWS, TOMBSTONES)
        }
        return IndexRows(segment.filter_live(tables[ROWS].select(FRAGMENTS.names)), columns)


def column_section(field_id: str) -> str:
    """Return the name of the section that stores a column."""
    return f"column {field_id}"


def group_by_column(fragments: pa.Table, positions: pa.Array, field_ids: pa.Array, bounds: pa.Table) -> IndexRows:
    """Return the bounds and counts of fragments, grouped by column.

    Args:
        fragments: The fragments, with the columns FRAGMENTS.
        positions: For each row of `bounds`, the position of its fragment.
        field_ids: For each row of `bounds`, the field id of its column.
        bounds: Bounds and counts, in any order.
    """
    ids = field_ids.dictionary_encode()
    numbers, rows = ids.indices.to_numpy(), positions.to_numpy()
    order = np.lexsort((rows, numbers))
    ends = np.searchsorted(numbers[order], np.arange(len(ids.dictionary) + 1)).tolist()
    bounds, rows = bounds.take(pa.array(order)).combine_chunks(), rows[order]
    columns = {}
    for number, field_id in enumerate(ids.dictionary.to_pylist()):
        start, end = ends[number], ends[number + 1]
        table = bounds.slice(start, end - start)
        columns[field_id] = table if end - start == len(fragments) else _spread(table, rows[start:end], fragments)
    return IndexRows(fragments, columns)


def cast_bounds(table: pa.Table, union: pa.StructType) -> pa.Table:
    """Cast the bounds in a table of bounds and counts to another union type.

    Args:
        table: The table, as `column_schema` describes it.
        union: The type, which must have all type classes of the bounds.
    """
    schema = column_schema(union)
    if table.schema.equals(schema):
        return table
    arrays = [
        cast_to_union(table[name].combine_chunks(), union) if name in ("minimum", "maximum") else table[name]
        for name in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _null_rows(fragments: pa.Table, union: pa.StructType) -> pa.Table:
    """Return bounds and counts for fragments without the column: all of their rows are null."""
    count = len(fragments)
    true, none = pa.repeat(pa.scalar(True), count), pa.nulls(count, union)
    zeros = pa.array(np.zeros(count, np.int64))
    arrays = [fragments["row_count"], zeros, none, none, true, true]
    return pa.Table.from_arrays(arrays, schema=column_schema(union))


def shorten_bounds(table: pa.Table) -> pa.Table:
    """Shorten text and binary bounds that are longer than LONGEST.

    A shortened bound is still a bound, but not exact. If there is no valid shorter bound, the bound becomes null.
    """
    for side, bound in (("minimum", truncate_lower), ("maximum", truncate_upper)):
        values: pa.StructArray = table[side].combine_chunks()
        exact = table[f"{side}_exact"].combine_chunks()
        for field in values.type:
            cls = class_named(field.name)
            if field.name not in ("string", "binary"):
                continue
            texts = values.flatten()[values.type.get_field_index(field.name)]
            long = np.flatnonzero(pc.greater(pc.binary_length(texts), LONGEST).fill_null(False).to_numpy(False))
            if len(long):
                short = {at: _shorten(texts[at], cls, bound) for at in long.tolist()}
                values, exact = _replace_bounds(values, exact, field.name, short)
        table = table.set_column(table.schema.get_field_index(side), side, values)
        table = table.set_column(table.schema.get_field_index(f"{side}_exact"), f"{side}_exact", exact)
    return table


def _shorten(value: pa.Scalar, cls: TypeClass, bound: object) -> pa.Scalar | None:
    try:
        shorter: pa.Scalar | None = bound(value.as_buffer().to_pybytes(), cls, LONGEST)[0]  # type: ignore[operator]
    except (UnicodeDecodeError, UnsupportedTypeError):
        return None  # The bytes are no text, so there is no valid shorter bound.
    return shorter


def _replace_bounds(
    values: pa.StructArray, exact: pa.Array, name: str, short: Mapping[int, pa.Scalar | None]
) -> tuple[pa.StructArray, pa.Array]:
    """Replace some bounds of one type class; return all bounds, and which of them are exact.

    Replaced bounds are not exact.

    Args:
        values: The bounds of all rows, in a union type.
        exact: Whether the bound of each row is exact.
        name: Name of the type class.
        short: The new bounds, by position of the row. None makes the bound null.
    """
    children = dict(zip(values.type.names, values.flatten(), strict=True))
    mask = np.zeros(len(values), np.bool_)
    mask[list(short)] = True
    replacements = pa.array([short[at] for at in sorted(short)], children[name].type)
    children[name] = pc.replace_with_mask(children[name], pa.array(mask), replacements)
    missing = values.is_null().to_numpy(zero_copy_only=False).copy()
    missing[[at for at, bound in short.items() if bound is None]] = True
    packed = pa.StructArray.from_arrays(list(children.values()), fields=list(values.type), mask=pa.array(missing))
    return packed, pc.and_(exact, pa.array(~mask))


def _spread(table: pa.Table, positions: Iterable[int], fragments: pa.Table) -> pa.Table:
    """Add rows for missing fragments to bounds and counts, so that the result has one row per fragment.

    An added row counts all rows of the fragment as null.

    Args:
        table: Bounds and counts of a column in some of the fragments.
        positions: The positions of these fragments among all fragments.
        fragments: All fragments.
    """
    union = table.schema.field("minimum").type
    candidates = pa.concat_tables([_null_rows(fragments, union), table.cast(column_schema(union))])
    at = np.arange(len(fragments))
    at[np.asarray(positions)] = len(fragments) + np.arange(len(table))
    return candidates.take(pa.array(at))


def _encodings(union: pa.StructType) -> dict[str, str]:
    """Return the Parquet encodings of the columns.

    Counts, and bounds of clustered columns, differ little from row to row.
    """
    encodings = dict.fromkeys(("bytes", "row_count", "null_count", "nan_count"), "DELTA_BINARY_PACKED")
    for field in union:
        cls = class_named(field.name)
        if cls.kind == "integer" and not pa.types.is_decimal(cls.arrow):
            encodings |= {f"{side}.{field.name}": "DELTA_BINARY_PACKED" for side in ("minimum", "maximum")}
        elif cls.kind == "float":
            encodings |= {f"{side}.{field.name}": "BYTE_STREAM_SPLIT" for side in ("minimum", "maximum")}
    return encodings
