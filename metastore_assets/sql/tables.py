"""Tables as datasets that DuckDB scans.

The columns and filters of a query determine which files are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from metastore_assets.errors import ColumnNotFoundError, LiteralError, PredicateError
from metastore_assets.lookup.table import RowSource
from metastore_assets.values.columns import is_list, map_child_types


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """The rows of a table that are not deleted, as a dataset of pyarrow.

    The dataset has a schema, and scans of columns with a filter.

    Each scan applies the complete filter, because DuckDB does not evaluate it again. Types that DuckDB lacks are
    converted: half floats to floats, and decimals of more than 38 digits to text.
    """

    def __init__(self, rows: RowSource, columns: Sequence[str]) -> None:
        """Create a dataset with some columns of a table.

        Args:
            rows: The rows of the table.
            columns: Names of the columns of the dataset. Other columns cannot be scanned.
        """
        self._rows = rows
        fields = [rows.schema.field(name) for name in columns]
        self._schema = pa.schema([field.with_type(_duckdb_type(field.type)) for field in fields])

    @property
    def schema(self) -> pa.Schema:
        """The columns of the dataset."""
        return self._schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **options: Any
    ) -> ds.Scanner:
        """Return a scan of the rows for which a filter is true.

        Args:
            columns: Names of the columns to return; None for all.
            filter: An expression of pyarrow; None for all rows.
            options: Other options of pyarrow's scanners, which are ignored.
        """
        names = self._schema.names if columns is None else list(columns)
        if filter is None:
            return ds.Scanner.from_batches(self._read(names))
        try:
            return ds.Scanner.from_batches(self._read(names, filter))
        except (ColumnNotFoundError, LiteralError, PredicateError):
            # Arrow evaluates a filter that cannot be parsed. DuckDB does not request the filter's columns.
            return ds.Scanner.from_batches(self._read(self._schema.names), columns=names, filter=filter)

    def _read(self, names: Sequence[str], where: pc.Expression | None = None) -> pa.RecordBatchReader:
        rows = self._rows.read(names, where)
        schema = pa.schema([self._schema.field(name) for name in names])
        return rows if rows.schema == schema else rows.cast(schema)


def _duckdb_type(type: pa.DataType) -> pa.DataType:
    """Return the type to which values are converted for DuckDB.

    Most types are returned unchanged.
    """
    if pa.types.is_float16(type):
        return pa.float32()
    if pa.types.is_decimal256(type):
        return pa.string() if type.precision > 38 else pa.decimal128(type.precision, type.scale)
    if is_list(type):
        element = type.value_field
        return pa.list_(element.with_type(_duckdb_type(element.type))) if _is_converted(element.type) else type
    return map_child_types(type, _duckdb_type)


def _is_converted(type: pa.DataType) -> bool:
    return _duckdb_type(type) != type
