"""What the index has of some fragments: a table of them, and of each column a table with a row for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import UnsupportedTypeError
from metastore_assets.statistics.union import cast_to_union, merge_unions
from metastore_assets.values.truncation import truncate_lower, truncate_upper
from metastore_assets.values.types import TypeClass, class_named

LONGEST = 64
"""Bytes of a text or binary value in the index; for a longer one stands the nearest that is no longer."""

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
"""`name` is that of the fragment's profile: what was profiled anew has another row. `id` is that of the fragment."""


def column_schema(union: pa.StructType) -> pa.Schema:
    """The columns of what is known of a column. Nulls in `row_count` rows; the rest are values, NaN among them."""
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


@dataclass(frozen=True)
class IndexRows:
    """What is known of some fragments."""

    fragments: pa.Table
    """One row each: FRAGMENTS."""
    columns: Mapping[str, pa.Table]
    """By field id, one row for each fragment in that order: `column_schema`, of any union. Columns that no fragment has
    are not there; of one that a fragment does not have all its rows are null."""

    @property
    def union(self) -> pa.StructType:
        """Of all values."""
        return merge_unions(own.schema.field("minimum").type for own in self.columns.values())

    def filter(self, mask: pa.Array) -> IndexRows:
        """What is known of some of the fragments."""
        return IndexRows(self.fragments.filter(mask), {own: rows.filter(mask) for own, rows in self.columns.items()})


def gathered(fragments: pa.Table, place: pa.Array, field_id: pa.Array, bounds: pa.Table) -> IndexRows:
    """Rows of columns in any order, each with the place of its fragment, column by column."""
    ids = field_id.dictionary_encode()
    numbers, places = ids.indices.to_numpy(), place.to_numpy()
    order = np.lexsort((places, numbers))
    ends = np.searchsorted(numbers[order], np.arange(len(ids.dictionary) + 1)).tolist()
    bounds, places = bounds.take(pa.array(order)).combine_chunks(), places[order]
    columns = {}
    for number, own in enumerate(ids.dictionary.to_pylist()):
        start, end = ends[number], ends[number + 1]
        table = bounds.slice(start, end - start)
        columns[own] = table if end - start == len(fragments) else _spread(table, places[start:end], fragments)
    return IndexRows(fragments, columns)


def joined(parts: Sequence[IndexRows]) -> Iterator[tuple[str | None, pa.Table]]:
    """Parts one after the other: the fragments (None), then column by column, with the union of them all."""
    union = merge_unions(part.union for part in parts)
    yield None, pa.concat_tables([FRAGMENTS.empty_table(), *(part.fragments for part in parts)])
    for own in sorted({own for part in parts for own in part.columns}):
        yield (
            own,
            pa.concat_tables(
                [
                    in_union(part.columns[own], union) if own in part.columns else all_null(part.fragments, union)
                    for part in parts
                ]
            ),
        )


def in_union(table: pa.Table, union: pa.StructType) -> pa.Table:
    """The same rows with values of a union that has their classes."""
    schema = column_schema(union)
    if table.schema.equals(schema):
        return table
    arrays = [
        cast_to_union(table[name].combine_chunks(), union) if name in ("minimum", "maximum") else table[name]
        for name in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def all_null(fragments: pa.Table, union: pa.StructType) -> pa.Table:
    """What is known of a column that fragments do not have."""
    count = len(fragments)
    true, none = pa.repeat(pa.scalar(True), count), pa.nulls(count, union)
    zeros = pa.array(np.zeros(count, np.int64))
    arrays = [fragments["row_count"], zeros, none, none, true, true]
    return pa.Table.from_arrays(arrays, schema=column_schema(union))


def shortened(table: pa.Table) -> pa.Table:
    """The same rows with no value longer than LONGEST: where one was, it is a bound, and not exact."""
    for side, bound in (("minimum", truncate_lower), ("maximum", truncate_upper)):
        values: pa.StructArray = table[side].combine_chunks()
        exact = table[f"{side}_exact"].combine_chunks()
        for field in values.type:
            cls = class_named(field.name)
            if field.name not in ("string", "binary"):
                continue
            own = values.flatten()[values.type.get_field_index(field.name)]
            long = np.flatnonzero(pc.greater(pc.binary_length(own), LONGEST).fill_null(False).to_numpy(False))
            if len(long):
                short = {at: _short(own[at], cls, bound) for at in long.tolist()}
                values, exact = _replaced(values, exact, field.name, short)
        table = table.set_column(table.schema.get_field_index(side), side, values)
        table = table.set_column(table.schema.get_field_index(f"{side}_exact"), f"{side}_exact", exact)
    return table


def _short(value: pa.Scalar, cls: TypeClass, bound: object) -> pa.Scalar | None:
    try:
        found: pa.Scalar | None = bound(value.as_buffer().to_pybytes(), cls, LONGEST)[0]  # type: ignore[operator]
    except (UnicodeDecodeError, UnsupportedTypeError):
        return None  # bytes that are no text: not worth a bound
    return found


def _replaced(
    values: pa.StructArray, exact: pa.Array, name: str, short: Mapping[int, pa.Scalar | None]
) -> tuple[pa.StructArray, pa.Array]:
    children = dict(zip(values.type.names, values.flatten(), strict=True))
    mask = np.zeros(len(values), np.bool_)
    mask[list(short)] = True
    replacements = pa.array([short[at] for at in sorted(short)], children[name].type)
    children[name] = pc.replace_with_mask(children[name], pa.array(mask), replacements)
    missing = values.is_null().to_numpy(zero_copy_only=False).copy()
    missing[[at for at, own in short.items() if own is None]] = True
    packed = pa.StructArray.from_arrays(list(children.values()), fields=list(values.type), mask=pa.array(missing))
    return packed, pc.and_(exact, pa.array(~mask))


def _spread(table: pa.Table, places: Iterable[int], fragments: pa.Table) -> pa.Table:
    """Rows of some fragments among those that all fragments have where there is no such column."""
    union = table.schema.field("minimum").type
    whole = pa.concat_tables([all_null(fragments, union), table.cast(column_schema(union))])
    at = np.arange(len(fragments))
    at[np.asarray(places)] = len(fragments) + np.arange(len(table))
    return whole.take(pa.array(at))
