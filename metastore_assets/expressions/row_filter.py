"""The rows of Arrow tables that match a predicate."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from metastore_assets.expressions.predicates import Predicate, referenced_columns
from metastore_assets.expressions.row_bounds import Mask
from metastore_assets.values.columns import columns_by_field, plain_array, split_columns


class RowFilter:
    """A predicate on the rows of Arrow tables that have the same schema.

    It can be pickled.
    """

    def __init__(self, predicate: Predicate, schema: pa.Schema) -> None:
        self.predicate = predicate
        self.schema = schema
        self.positions = _top_level_positions(predicate, schema)
        """Positions in the schema of the top-level columns that the predicate refers to, ascending."""

    def mask(self, columns: Mapping[int, pa.Array], row_count: int) -> Mask:
        """Return a mask of the matching rows.

        Args:
            columns: The top-level columns at `positions`, by position. Each has `row_count` rows.
            row_count: The number of rows.
        """
        field_ids = {column.field_id for column in referenced_columns(self.predicate)}
        table_columns = columns_by_field(self.schema)
        arrays: dict[str, pa.Array] = {}
        for position in self.positions:
            parts = split_columns(self.schema.field(position), columns[position])
            for column, array in zip(table_columns[position], parts, strict=True):
                if column.field_id in field_ids:
                    arrays[column.field_id] = array
        return self.predicate.mask(arrays, row_count)


def matching_rows(predicate: Predicate, table: pa.Table) -> Mask:
    """Return a mask of the rows of a table that match a predicate bound to the table's schema."""
    row_filter = RowFilter(predicate, table.schema)
    columns = {position: _combine_chunks(table.column(position)) for position in row_filter.positions}
    return row_filter.mask(columns, table.num_rows)


def _top_level_positions(predicate: Predicate, schema: pa.Schema) -> list[int]:
    field_ids = {column.field_id for column in referenced_columns(predicate)}
    return [
        position
        for position, columns in enumerate(columns_by_field(schema))
        if any(column.field_id in field_ids for column in columns)
    ]


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    chunks = [plain_array(chunk) for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)
