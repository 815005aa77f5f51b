"""Tables as datasets that DuckDB scans. The columns and filters of a query determine which files are opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from metastore_assets.errors import ColumnNotFoundError, LiteralError, PredicateError
from metastore_assets.lookup.table import RowSource


class TableDataset(ds.Dataset):  # type: ignore[misc]
    """The live rows of a table as a dataset of pyarrow: a schema, and scans of columns with a filter.

    Each scan applies the complete filter, because DuckDB does not evaluate it again.
    """

    def __init__(self, rows: RowSource, columns: Sequence[str]) -> None:
        """Create a dataset with some columns of a table.

        Args:
            rows: The rows of the table.
            columns: Names of the columns of the dataset. Other columns cannot be scanned.
        """
        self._rows = rows
        self._schema = pa.schema([rows.schema.field(name) for name in columns])

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
            return ds.Scanner.from_batches(self._rows.read(names))
        try:
            return ds.Scanner.from_batches(self._rows.read(names, filter))
        except (ColumnNotFoundError, LiteralError, PredicateError):
            # Arrow evaluates a filter that cannot be parsed. DuckDB does not request the filter's columns.
            return ds.Scanner.from_batches(self._rows.read(self._schema.names), columns=names, filter=filter)
