"""The SQL views of statistics: their schemas, and functions that read their rows as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.errors import NotStoredError, VersionNotFoundError
from metastore_assets.history import read_history
from metastore_assets.history.version_rows import SCHEMA, VERSION_COLUMNS, column_record, version_record
from metastore_assets.lookup import Table
from metastore_assets.sql.view_columns import BINS, VALUE_COUNTS, histogram_batch, value_count_batches
from metastore_assets.values.columns import schema_columns

if TYPE_CHECKING:
    from metastore_assets.metastore import Metastore

_BATCH_RECORDS = 5_000
"""Records per batch."""
_STATISTICS = [field for field in SCHEMA if field.name not in VERSION_COLUMNS.names or field.name == "version"]


@dataclass(frozen=True)
class SqlView:
    """A view: its columns and the function that reads its rows."""

    schema: pa.Schema
    """The columns of the view, without the first one, `table_name`."""
    batches: Callable[[Table], Iterable[pa.RecordBatch]]
    """A function that returns the rows of one table."""


def read_view(name: str, metastore: Metastore, tables: Sequence[str]) -> pa.RecordBatchReader:
    """Return a reader of the rows that a view has for some tables, one table after the other.

    Args:
        name: The name of the view, a key of `VIEWS`.
        metastore: The Metastore with the tables.
        tables: Names of published tables.
    """
    view = VIEWS[name]
    schema = pa.schema([("table_name", pa.string()), *view.schema])

    def rows() -> Iterator[pa.RecordBatch]:
        for table in tables:
            try:
                lookup = metastore.table(table)
            except VersionNotFoundError:
                continue  # its versions were removed after tables were listed
            for batch in view.batches(lookup):
                yield pa.RecordBatch.from_arrays([pa.repeat(table, batch.num_rows), *batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _versions(table: Table) -> Iterator[pa.RecordBatch]:
    def records() -> Iterator[dict[str, Any]]:
        for number in table.versions.numbers():
            try:
                yield version_record(table.versions.read(number))
            except VersionNotFoundError:
                continue  # it expired after it was listed

    return _batches(records(), VERSION_COLUMNS)


def _history(table: Table) -> Iterator[pa.RecordBatch]:
    return iter(_for_sql(read_history(table.versions, table.version.number)).to_batches())


def _statistics(table: Table) -> Iterator[pa.RecordBatch]:
    number = table.version.number
    return _batches(({"version": number, **column_record(row)} for row in table.statistics()), pa.schema(_STATISTICS))


def _partition_statistics(table: Table) -> Iterator[pa.RecordBatch]:
    def records() -> Iterator[dict[str, Any]]:
        # Column by column, as they are stored.
        for column in schema_columns(table.version.schema):
            statistics = table.statistics([column.path], partition="*")
            for row in statistics:
                yield {"partition": row.partition, "version": table.version.number, **column_record(row)}

    return _batches(records(), pa.schema([("partition", pa.string()), *_STATISTICS]))


_PARTITIONS = pa.schema(
    [
        ("partition", pa.string()),
        ("row_count", pa.int64()),
        ("bytes", pa.int64()),
        ("fragments", pa.int64()),
        ("version", pa.int64()),
    ]
)
_FRAGMENTS = pa.schema(
    [("partition", pa.string()), ("path", pa.string()), ("row_count", pa.int64()), ("bytes", pa.int64())]
)


def _partitions(table: Table) -> Iterator[pa.RecordBatch]:
    records = (
        {
            "partition": entry.key,
            "row_count": entry.row_count,
            "bytes": entry.bytes,
            "fragments": entry.fragments,
            "version": entry.version,
        }
        for entry in table.partitions()
    )
    return _batches(records, _PARTITIONS)


def _fragments(table: Table) -> Iterator[pa.RecordBatch]:
    records = (
        {"partition": entry.partition_key, "path": entry.path, "row_count": entry.row_count, "bytes": entry.bytes}
        for entry in table.version.fragments
    )
    return _batches(records, _FRAGMENTS)


def _frequencies(table: Table) -> Iterator[pa.RecordBatch]:
    for row in table.statistics():
        if row.frequencies == "enumerated":
            yield from value_count_batches(table, row)


def _histograms(table: Table) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each column that has a histogram."""
    for row in table.statistics():
        try:
            histogram = table.dyadic_histogram(row.column)
        except NotStoredError:
            continue
        if histogram is not None:
            yield histogram_batch(row.column, histogram)


def _batches(records: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert records to Arrow batches, with the field `column` renamed `column_name` for SQL."""
    pending: list[Mapping[str, Any]] = []
    for record in records:
        pending.append(record)
        if len(pending) == _BATCH_RECORDS:
            yield from _for_sql(pa.Table.from_pylist(pending, schema)).to_batches()
            pending = []
    if pending:
        yield from _for_sql(pa.Table.from_pylist(pending, schema)).to_batches()


def _for_sql(rows: pa.Table) -> pa.Table:
    """Rename the column `column`, which is a reserved word of SQL, to `column_name`."""
    return rows.rename_columns(["column_name" if name == "column" else name for name in rows.column_names])


def _schema(schema: pa.Schema | Sequence[pa.Field]) -> pa.Schema:
    return _for_sql(pa.schema(schema).empty_table()).schema


VIEWS: Mapping[str, SqlView] = {
    "versions": SqlView(VERSION_COLUMNS, _versions),
    "statistics": SqlView(_schema(_STATISTICS), _statistics),
    "partition_statistics": SqlView(_schema([pa.field("partition", pa.string()), *_STATISTICS]), _partition_statistics),
    "history": SqlView(_schema(SCHEMA), _history),
    "partitions": SqlView(_PARTITIONS, _partitions),
    "fragments": SqlView(_FRAGMENTS, _fragments),
    "frequencies": SqlView(VALUE_COUNTS, _frequencies),
    "histograms": SqlView(BINS, _histograms),
}
"""The views by name. `versions` describes all versions that still exist, and `history` also expired ones. The other
views describe the newest version."""
