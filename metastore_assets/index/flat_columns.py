"""Flat columns: bounds and counts of a table's columns, as plain columns of fragment index files.

The index has a row for each fragment, which is a data file with its deletes. Its other columns are those of the schema
`FRAGMENTS`: partition key, path, row count, size and id. A type class is a group of types with one canonical type: int8
and int64 have the class `int64`.

A table column has one flat column per count, and one per bound and type class. The table column with field id 3 has the
flat columns `column 3.null_count`, `column 3.nan_count`, `column 3.minimum.int64` and `column 3.maximum.int64`, and
more bounds if it has values of other type classes. An index file leaves out flat columns without any value. A bound
that is left out is unknown. If an index file leaves out all flat columns of a table column, the table column is null in
all rows of its fragments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from metastore_assets.index.fragment_index import FRAGMENTS, IndexRows
from metastore_assets.statistics.typed_union import select_class
from metastore_assets.values.physical import one_chunk
from metastore_assets.values.types import TypeClass, class_named

_PREFIX, _NULL_COUNT = "column ", ".null_count"
SIDES = ("minimum", "maximum")


def count_column(field_id: str, count: str) -> str:
    """Return the name of a flat column with counts: `column 3.null_count` for the count `null_count`."""
    return f"{_PREFIX}{field_id}.{count}"


def bound_column(field_id: str, side: str, cls: TypeClass) -> str:
    """Return the name of a flat column with bounds: `column 3.minimum.int64` for the side `minimum`."""
    return f"{_PREFIX}{field_id}.{side}.{cls.name}"


def flat_columns(field_id: str, cls: TypeClass | None) -> list[str]:
    """Return the names of the flat columns of a table column: two counts, then two bounds.

    The bounds are those of the type class `cls`. Without a type class (None), only the names of the counts are
    returned.
    """
    names = [count_column(field_id, "null_count"), count_column(field_id, "nan_count")]
    return names if cls is None else [*names, *(bound_column(field_id, side, cls) for side in SIDES)]


def field_ids_of(names: Iterable[str]) -> set[str]:
    """Return the field ids in the names of flat columns: `column 3.null_count` gives `3`.

    Other names are ignored.

    Only null counts are parsed, because each file has the null counts of all of its columns.
    """
    return {
        name[len(_PREFIX) : -len(_NULL_COUNT)]
        for name in names
        if name.startswith(_PREFIX) and name.endswith(_NULL_COUNT)
    }


def class_of_bound(name: str) -> TypeClass:
    """Return the type class in the name of a flat column with bounds: int64 for `column 3.minimum.int64`."""
    return class_named(name.rpartition(".")[2])


def is_bound(name: str) -> bool:
    """Return whether a name is that of a flat column with bounds, such as `column 3.minimum.int64`."""
    return name.startswith(_PREFIX) and not name.endswith("_count")


def flatten_rows(rows: IndexRows) -> pa.Table:
    """Return index rows as one table: the columns of FRAGMENTS, then the flat columns."""
    columns = {name: rows.fragments[name] for name in FRAGMENTS.names}
    for field_id, table in rows.columns.items():
        columns[count_column(field_id, "null_count")] = table["null_count"]
        union = table.schema.field("minimum").type
        if union.get_field_index("float64") >= 0:
            columns[count_column(field_id, "nan_count")] = table["nan_count"]
        for side in SIDES:
            values = one_chunk(table[side])
            for field in union:
                array = select_class(values, class_named(field.name))
                if array.null_count < len(array):
                    columns[bound_column(field_id, side, class_named(field.name))] = array
    return pa.table(columns)


def merge_flat_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema with the columns of FRAGMENTS, then all flat columns of the given schemas.

    The flat columns are sorted by name.
    """
    fields = {field.name: field for schema in schemas for field in schema if field.name.startswith(_PREFIX)}
    return pa.schema([*FRAGMENTS, *(fields[name].remove_metadata() for name in sorted(fields))])


def complete_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return index rows with all columns of a flat schema.

    Added columns are filled with nulls, which mean unknown, with one exception. If the index rows have no flat column
    of a field id, all values of the table column are known to be null. Then the added null counts equal the row
    counts, and the added NaN counts are 0.

    Args:
        table: The index rows: columns of FRAGMENTS, then flat columns.
        schema: The flat schema, which has all columns of `table`.
    """
    missing = field_ids_of(schema.names) - field_ids_of(table.column_names)
    all_null = {count_column(field_id, "null_count") for field_id in missing}
    no_nan = {count_column(field_id, "nan_count") for field_id in missing}
    zeros = pa.array(np.zeros(len(table), np.int64))
    arrays = []
    for field in schema:
        if field.name in table.column_names:
            arrays.append(table[field.name])
        elif field.name in all_null:
            arrays.append(table["row_count"])
        else:
            arrays.append(zeros if field.name in no_nan else pa.nulls(len(table), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def flat_encodings(names: Sequence[str]) -> dict[str, str]:
    """Return {name: Parquet encoding} of integer and float columns.

    Other columns are omitted. Integers have DELTA_BINARY_PACKED, floats have BYTE_STREAM_SPLIT.
    """
    encodings = {}
    for name in names:
        if name in ("row_count", "bytes", "fragments") or name.endswith("_count"):
            encodings[name] = "DELTA_BINARY_PACKED"
        elif is_bound(name):
            cls = class_of_bound(name)
            if cls.kind == "integer" and not pa.types.is_decimal(cls.arrow):
                encodings[name] = "DELTA_BINARY_PACKED"
            elif cls.kind == "float":
                encodings[name] = "BYTE_STREAM_SPLIT"
    return encodings
