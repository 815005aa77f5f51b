"""The fragment index: bounds and null counts of each column in each fragment.

It consists of segments.

    index/<unique>.index.parquet              a small segment (see `store.segments`)
    index/<unique>.fragments.index.parquet    a key range of a large segment: its fragments and tombstones
    index/<unique>.columns.index.parquet      the same range: row counts, sizes, and bounds of columns, by fragment
    index/<unique>.directory.index.parquet    up to 64 ranges: their zones, and the footers of their files

A fragment is a data file with its deletes. The fragments of a segment are sorted by key: partition key, then path. A
small segment is one file, with the sections `tombstones`, `rows` (the fragments) and `column <field id>` (bounds and
counts of a column). A large segment has two files for each range of up to about 16,384 keys. So a commit may merge one
range with newer rows, and leave the others as they are.

A zone is a run of rows: one partition, several small partitions, or a part of a large one. A lookup first evaluates its
predicate on the zones, which are in the directory. It then reads only the row groups of zones that may match. The
directory also has the footers of the files. So a lookup reads several files like one, without requests for footers.

A tombstone is the key of a fragment that a version removes or replaces. A row is not *live* if a newer segment has a
tombstone with the row's key. It is not live either if it was already copied to an older segment, in a merge that has
not ended (see `store.segment_levels`). All other rows are live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.typed_union import cast_to_union, merge_unions
from metastore_assets.store.version import fragment_key
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.truncation import truncate_lower, truncate_upper
from metastore_assets.values.types import TypeClass, class_named

FOLDER = "index"
LONGEST = 64
"""Maximum size in bytes of a text or binary bound. A longer bound is replaced by a bound that fits."""

Truncate: TypeAlias = Callable[[bytes, TypeClass, int], tuple[pa.Scalar | None, bool]]
"""A function that returns a bound of at most the given number of bytes, and whether it equals the given value."""

FRAGMENTS = pa.schema(
    [
        ("partition_key", pa.string()),
        ("path", pa.large_string()),
        ("row_count", pa.int64()),
        ("bytes", pa.int64()),
        ("id", pa.large_string()),
    ]
)
"""Columns that describe a fragment. Partition key and path are its key, by which the rows of a segment are sorted."""
KEY = ("partition_key", "path")
NO_KEYS = pa.array([], pa.large_string())


def join_keys(table: pa.Table) -> pa.Array:
    """Return the key of each fragment in a table with the columns `partition_key` and `path`."""
    keys, paths = (one_chunk(table[name]).cast(pa.large_string()) for name in KEY)
    return pc.binary_join_element_wise(keys, paths, pa.scalar("\0", pa.large_string()))


def join_sorted(parts: Sequence[pa.Array]) -> pa.Array:
    """Join arrays of sorted, distinct keys.

    Return the distinct keys of all of them, sorted.
    """
    nonempty_parts = [part for part in parts if len(part)]
    return sorted_keys(nonempty_parts) if len(nonempty_parts) > 1 else (nonempty_parts or [NO_KEYS])[0]


def sorted_keys(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the distinct keys of several arrays, sorted."""
    keys = pc.unique(pa.concat_arrays([NO_KEYS, *parts]))
    return keys.take(pc.sort_indices(keys))


def find_position(keys: pa.Array, key: str, side: Literal["left", "right"]) -> int:
    """Return the position of a key among sorted keys, as `pc.search_sorted` does."""
    return int(pc.search_sorted(keys, pa.scalar(key, keys.type), side=side).as_py())


def column_section(field_id: str) -> str:
    """Return the name of the section that stores a column."""
    return f"column {field_id}"


def column_schema(union: pa.StructType) -> pa.Schema:
    """Return the schema of a column's bounds and counts.

    `null_count` and `nan_count` are numbers of rows. The bounds have the type `union` (see `statistics.typed_union`).
    The bounds do not cover NaN.
    """
    return pa.schema(
        [
            ("null_count", pa.int64()),
            ("nan_count", pa.int64()),
            ("minimum", union),
            ("maximum", union),
        ]
    )


@dataclass(frozen=True)
class IndexRows:
    """The bounds and counts of all columns in several fragments."""

    fragments: pa.Table
    """One row per fragment, with the columns of FRAGMENTS."""
    columns: Mapping[str, pa.Table]
    """The bounds and counts of each column, by field id: a table with the schema `column_schema`, and a row per row of
    `fragments`. In a fragment without the column, all rows count as null. Columns that no fragment has are missing.
    """

    @property
    def union(self) -> pa.StructType:
        """The type that can store the bounds of every column: a union of the types in `columns`."""
        return merge_unions(table.schema.field("minimum").type for table in self.columns.values())

    def keys(self) -> list[str]:
        """Return the key of each fragment."""
        pairs = zip(*(self.fragments[name].to_pylist() for name in KEY), strict=True)
        return [fragment_key(partition_key, path) for partition_key, path in pairs]


def group_by_column(fragments: pa.Table, positions: pa.Array, field_ids: pa.Array, bounds: pa.Table) -> IndexRows:
    """Return the bounds and counts of fragments, grouped by column.

    Args:
        fragments: The fragments, with the columns FRAGMENTS.
        positions: For each row of `bounds`, the position of its fragment in `fragments`.
        field_ids: For each row of `bounds`, the field id of its column.
        bounds: Bounds and counts, in any order: for each fragment, one row per column that the fragment has.
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
        columns[field_id] = (
            table if end - start == len(fragments) else _fill_missing_fragments(table, rows[start:end], fragments)
        )
    return IndexRows(fragments, columns)


def cast_bounds(table: pa.Table, union: pa.StructType) -> pa.Table:
    """Cast the bounds of a column to another union type.

    A union type is a struct with one field per type class, such as `int64`.

    Args:
        table: Bounds and counts of the column, with the schema `column_schema`.
        union: The new type.

    Raises:
        ValueError: `union` has no field for the type class of a bound.
    """
    schema = column_schema(union)
    if table.schema.equals(schema):
        return table
    arrays = [
        cast_to_union(table[name].combine_chunks(), union) if name in ("minimum", "maximum") else table[name]
        for name in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def shorten_bounds(table: pa.Table) -> pa.Table:
    """Return the table with its text and binary bounds shortened to at most 64 bytes (`LONGEST`).

    A longer bound for which there is no valid shorter one becomes null, which means unknown.
    """
    sides: tuple[tuple[str, Truncate], ...] = (("minimum", truncate_lower), ("maximum", truncate_upper))
    for side, truncate in sides:
        values: pa.StructArray = table[side].combine_chunks()
        for field in values.type:
            cls = class_named(field.name)
            if field.name not in ("string", "binary"):
                continue
            texts = values.flatten()[values.type.get_field_index(field.name)]
            long = np.flatnonzero(pc.greater(pc.binary_length(texts), LONGEST).fill_null(False).to_numpy(False))
            if len(long):
                short = {at: _shorten(texts[at], cls, truncate) for at in long.tolist()}
                values = _replace_bounds(values, field.name, short)
        table = table.set_column(table.schema.get_field_index(side), side, values)
    return table


def _shorten(value: pa.Scalar, cls: TypeClass, truncate: Truncate) -> pa.Scalar | None:
    """Return the closest valid bound of at most LONGEST bytes; None if there is none.

    `truncate` is `truncate_lower` for a minimum, `truncate_upper` for a maximum.
    """
    try:
        return truncate(value.as_buffer().to_pybytes(), cls, LONGEST)[0]
    except (UnicodeDecodeError, UnsupportedTypeError):
        return None  # The first bytes of the value are not valid UTF-8, so no text can be made from them.


def _replace_bounds(values: pa.StructArray, name: str, short: Mapping[int, pa.Scalar | None]) -> pa.StructArray:
    """Replace some bounds of one type class; return the bounds of all rows.

    Args:
        values: The bounds of all rows, in a union type.
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
    return pa.StructArray.from_arrays(list(children.values()), fields=list(values.type), mask=pa.array(missing))


def null_rows(fragments: pa.Table, union: pa.StructType) -> pa.Table:
    """Return bounds and counts of a column that none of the fragments has: all of its values are null.

    Args:
        fragments: The fragments, with their `row_count`.
        union: The type of the bounds.

    Returns:
        A table of `column_schema(union)` with a row for each fragment.
    """
    count = len(fragments)
    none, zeros = pa.nulls(count, union), pa.array(np.zeros(count, np.int64))
    arrays = [fragments["row_count"], zeros, none, none]
    return pa.Table.from_arrays(arrays, schema=column_schema(union))


def _fill_missing_fragments(table: pa.Table, positions: Iterable[int], fragments: pa.Table) -> pa.Table:
    """Return bounds and counts with one row for each fragment, in the order of `fragments`.

    In a fragment without a row in `table`, all rows count as null.

    Args:
        table: Bounds and counts of a column in some of the fragments.
        positions: The positions of these fragments among all fragments.
        fragments: All fragments.
    """
    union = table.schema.field("minimum").type
    candidates = pa.concat_tables([null_rows(fragments, union), table.cast(column_schema(union))])
    at = np.arange(len(fragments))
    at[np.asarray(positions)] = len(fragments) + np.arange(len(table))
    return candidates.take(pa.array(at))
