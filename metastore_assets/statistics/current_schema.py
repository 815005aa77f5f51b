"""Statistics under the name, place and type that a column has now, whatever it had when they were computed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.startup import pc
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.declaration import ARROW_TYPES
from metastore_assets.values.leaf_columns import LeafColumn, plain_type
from metastore_assets.values.types import type_class, type_text


def apply_schema(row: ColumnStatistics, position: int, leaf: LeafColumn) -> ColumnStatistics:
    """`row` as the statistics of a leaf column that may have been renamed, moved or widened since."""
    told = {"position": position, "column": leaf.path, "field_id": leaf.field_id, "type": type_text(leaf.type)}
    if row.total_bytes is not None and (width := value_width(leaf.type)):
        # A profile made before the column was widened counted narrower values.
        told["total_bytes"] = row.value_count * width
    if all(getattr(row, name) == own for name, own in told.items()):
        return row
    return replace(row, **told)  # type: ignore[arg-type]


SCHEMA_COLUMNS = tuple(name for name, own in STATISTICS.items() if own.merge == "schema")
"""The statistics that follow from the schema that the table has now."""


def apply_schema_to_table(table: pa.Table, position: int, leaf: LeafColumn) -> pa.Table:
    """Rows of `statistics` that are all of one leaf column, as `apply_schema` has them; columns may be missing."""
    named = {"position": position, "column": leaf.path, "field_id": leaf.field_id, "type": type_text(leaf.type)}
    arrays = {
        name: pa.repeat(pa.scalar(told, ARROW_TYPES[STATISTICS[name].kind]), len(table)) for name, told in named.items()
    }
    arrays |= {name: table[name] for name in table.column_names if name not in named}
    known = table["total_bytes"]
    if known.null_count < len(known) and (width := value_width(leaf.type)):
        # A profile made before the column was widened counted narrower values.
        arrays["total_bytes"] = pc.if_else(known.is_valid(), pc.multiply(table["value_count"], width), None)
    return pa.table(arrays)


def value_width(type: pa.DataType) -> int:
    """Bytes of one value of a type of fixed width, 0 for others; a boolean counts as one."""
    plain = plain_type(type)
    if t.is_null(plain) or (type_class(type).kind == "bytes" and plain != pa.uuid()):
        return 0
    return 16 if plain == pa.uuid() else max(1, plain.bit_width // 8)
