"""Conversion of older statistics to the positions, paths and types of columns in the current schema.

A *type class* is a group of column types, such as all signed integers, whose values are converted to one Arrow type.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.startup import pc
from metastore_assets.statistics.column import STATISTICS, ColumnStatistics
from metastore_assets.statistics.declaration import ARROW_TYPES
from metastore_assets.values.columns import Column, plain_type
from metastore_assets.values.types import type_class, type_text


def apply_schema(row: ColumnStatistics, position: int, column: Column) -> ColumnStatistics:
    """Return a row with the position, path, field id and type that its column has in the current schema.

    The column may have been renamed, moved or widened since it was profiled. `total_bytes` is adjusted to the width of
    the current type.

    Args:
        row: The statistics of the column.
        position: The column's current position.
        column: The column in the current schema.
    """
    current = {"position": position, "column": column.path, "field_id": column.field_id, "type": type_text(column.type)}
    if row.total_bytes is not None and (width := value_width(column.type)):
        # Before the column was widened, its values had fewer bytes.
        current["total_bytes"] = row.value_count * width
    if all(getattr(row, name) == value for name, value in current.items()):
        return row
    return replace(row, **current)  # type: ignore[arg-type]


SCHEMA_COLUMNS = tuple(name for name, statistic in STATISTICS.items() if statistic.merge == "schema")
"""The columns of the file `statistics` that the current schema determines: position, path and type."""


def apply_schema_to_table(table: pa.Table, position: int, column: Column) -> pa.Table:
    """Return rows with the position, path, field id and type that their column has in the current schema.

    This does for each row what `apply_schema` does for one.

    Args:
        table: Rows of files `statistics`, all of one column. The table may lack the columns `position`,
            `column` and `type`.
        position: The column's current position.
        column: The column in the current schema.
    """
    current = {"position": position, "column": column.path, "field_id": column.field_id, "type": type_text(column.type)}
    arrays = {
        name: pa.repeat(pa.scalar(value, ARROW_TYPES[STATISTICS[name].kind]), len(table))
        for name, value in current.items()
    }
    arrays |= {name: table[name] for name in table.column_names if name not in current}
    total_bytes = table["total_bytes"]
    if total_bytes.null_count < len(total_bytes) and (width := value_width(column.type)):
        # Before the column was widened, its values had fewer bytes.
        arrays["total_bytes"] = pc.if_else(total_bytes.is_valid(), pc.multiply(table["value_count"], width), None)
    return pa.table(arrays)


def value_width(type: pa.DataType) -> int:
    """Return the size in bytes of a value of a number, boolean, date, time or UUID type, else 0.

    A boolean counts as one byte. Raises UnsupportedTypeError for a type without a type class, such as a struct.
    """
    plain = plain_type(type)
    if t.is_null(plain) or (type_class(type).kind == "bytes" and plain != pa.uuid()):
        return 0
    return 16 if plain == pa.uuid() else max(1, plain.bit_width // 8)
