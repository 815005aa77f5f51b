"""Statistics under the name, place and type that a column has now, whatever it had when they were computed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyarrow import types as t

from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.leaves import LeafColumn, plain_type
from metastore_assets.statistics.tables import statistics_rows
from metastore_assets.statistics.types import type_class, type_text


def as_named(row: ColumnStatistics, position: int, leaf: LeafColumn) -> ColumnStatistics:
    """`row` as the statistics of a leaf column that may have been renamed, moved or widened since."""
    if row.total_bytes is not None and (width := value_width(leaf.type)):
        # A profile made before the column was widened counted narrower values.
        row = replace(row, total_bytes=row.value_count * width)
    return replace(row, position=position, column=leaf.path, field_id=leaf.field_id, type=type_text(leaf.type))


def named_rows(table: pa.Table, position: int, leaf: LeafColumn) -> list[ColumnStatistics]:
    """Rows of `statistics` that are all of one leaf column, as `as_named` has them."""
    told = {"position": position, "column": leaf.path, "field_id": leaf.field_id, "type": type_text(leaf.type)}
    rows = statistics_rows(table, told)
    width = value_width(leaf.type) if any(row.total_bytes is not None for row in rows) else 0
    if not width or all(row.total_bytes in (None, row.value_count * width) for row in rows):
        return rows
    return [as_named(row, position, leaf) for row in rows]


def value_width(type: pa.DataType) -> int:
    """Bytes of one value of a type of fixed width, 0 for others; a boolean counts as one."""
    plain = plain_type(type)
    if t.is_null(plain) or (type_class(type).kind == "bytes" and plain != pa.uuid()):
        return 0
    return 16 if plain == pa.uuid() else max(1, plain.bit_width // 8)
