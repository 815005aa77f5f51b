"""The views, as Arrow: each of some tables below a root, read when a query asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metastore_assets.errors import NotStoredError, VersionNotFoundError
from metastore_assets.history import read_history
from metastore_assets.history.version_rows import SCHEMA, VERSION_COLUMNS, column_record, version_record
from metastore_assets.lookup import Table
from metastore_assets.sql.columns import BINS, LISTED, bins_of_column, listed_values
from metastore_assets.values.leaf_columns import schema_leaves

if TYPE_CHECKING:
    from metastore_assets.metastore import Metastore

_PORTION = 5_000
"""Records that become Arrow at a time."""
_STATISTICS = [field for field in SCHEMA if field.name not in VERSION_COLUMNS.names or field.name == "version"]


@dataclass(frozen=True)
class View:
    """One view."""

    schema: pa.Schema
    """Without its first column, `table_name`."""
    batches: Callable[[Table], Iterable[pa.RecordBatch]]
    """The rows of one table."""


def view_batches(name: str, metastore: Metastore, tables: Sequence[str]) -> pa.RecordBatchReader:
    """The rows of a view of some tables, one after the other, read while they are taken."""
    view = VIEWS[name]
    schema = pa.schema([("table_name", pa.string()), *view.schema])

    def rows() -> Iterator[pa.RecordBatch]:
        for table in tables:
            try:
                lookup = metastore.table(table)
            except VersionNotFoundError:
                continue  # there were versions when tables were listed
            for batch in view.batches(lookup):
                yield pa.RecordBatch.from_arrays([pa.repeat(table, batch.num_rows), *batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _versions(table: Table) -> Iterator[pa.RecordBatch]:
    def records() -> Iterator[dict[str, Any]]:
        for number in table.versions.numbers():
            try:
                yield version_record(table.versions.read(number))
            except VersionNotFoundError:
                continue  # expired since it was listed

    return _portions(records(), VERSION_COLUMNS)


def _history(table: Table) -> Iterator[pa.RecordBatch]:
    return iter(_named(read_history(table.versions, table.version.number)).to_batches())


def _statistics(table: Table) -> Iterator[pa.RecordBatch]:
    number = table.version.number
    return _portions(({"version": number, **column_record(row)} for row in table.statistics()), pa.schema(_STATISTICS))


def _partition_statistics(table: Table) -> Iterator[pa.RecordBatch]:
    def records() -> Iterator[dict[str, Any]]:
        # Column by column, as they are kept.
        for leaf in (leaf.path for leaves in schema_leaves(table.version.schema) for leaf in leaves):
            found = table.statistics([leaf], partitions="all")
            for partition, row in zip(found.partitions or (), found, strict=True):
                yield {"partition": partition, "version": table.version.number, **column_record(row)}

    return _portions(records(), pa.schema([("partition", pa.string()), *_STATISTICS]))


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
    entries = (
        {
            "partition": own.key,
            "row_count": own.row_count,
            "bytes": own.bytes,
            "fragments": own.fragments,
            "version": own.version,
        }
        for own in table.partitions()
    )
    return _portions(entries, _PARTITIONS)


def _fragments(table: Table) -> Iterator[pa.RecordBatch]:
    entries = (
        {"partition": own.partition_key, "path": own.path, "row_count": own.row_count, "bytes": own.bytes}
        for own in table.version.fragments
        if own.retired is None
    )
    return _portions(entries, _FRAGMENTS)


def _frequencies(table: Table) -> Iterator[pa.RecordBatch]:
    for row in table.statistics():
        if row.frequencies == "enumerated":
            yield from listed_values(table, row)


def _histograms(table: Table) -> Iterator[pa.RecordBatch]:
    for row in table.statistics():
        try:
            histogram = table.dyadic_histogram(row.column)
        except NotStoredError:
            continue
        if histogram is not None:
            yield bins_of_column(row.column, histogram)


def _portions(records: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held: list[Mapping[str, Any]] = []
    for one in records:
        held.append(one)
        if len(held) == _PORTION:
            yield from _named(pa.Table.from_pylist(held, schema)).to_batches()
            held = []
    if held:
        yield from _named(pa.Table.from_pylist(held, schema)).to_batches()


def _named(rows: pa.Table) -> pa.Table:
    """`column` is a word of SQL."""
    return rows.rename_columns(["column_name" if name == "column" else name for name in rows.column_names])


def _schema(schema: pa.Schema | Sequence[pa.Field]) -> pa.Schema:
    return _named(pa.schema(schema).empty_table()).schema


VIEWS: Mapping[str, View] = {
    "versions": View(VERSION_COLUMNS, _versions),
    "statistics": View(_schema(_STATISTICS), _statistics),
    "partition_statistics": View(_schema([pa.field("partition", pa.string()), *_STATISTICS]), _partition_statistics),
    "history": View(_schema(SCHEMA), _history),
    "partitions": View(_PARTITIONS, _partitions),
    "fragments": View(_FRAGMENTS, _fragments),
    "frequencies": View(LISTED, _frequencies),
    "histograms": View(BINS, _histograms),
}
"""By name. `versions` and `history` are of all versions, the others of the newest."""
