"""A table whose configuration names a catalog.

Every operation first requests the table's entry from the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, SnapshotNotFoundError, TableFormatError, TableNotFoundError
from metastore_assets.formats.base import (
    Fragment,
    HistoryChange,
    NoDiff,
    Snapshot,
    SnapshotDiff,
    SnapshotReference,
    SnapshotStream,
    TableFormat,
)
from metastore_assets.formats.catalogs.base import CatalogEntry, RegisteredFolders
from metastore_assets.formats.catalogs.client import load_catalog_entry
from metastore_assets.storage.location_policy import catalog_location

OpenLocated = Callable[[TableConfig, RegisteredFolders | None], TableFormat]
"""A function that opens a table at a known location. For plain files it also takes the registered folders."""


class CatalogTable(TableFormat):
    """A table of any format whose location a catalog records.

    Every method first requests the table's catalog entry. If the entry has changed, the table is reopened.
    """

    def __init__(self, table: TableConfig, open_located: OpenLocated) -> None:
        """Create the table without sending a request.

        Args:
            table: the configuration of the table, with its catalog.
            open_located: opens the table at the location that the catalog records.
        """
        self._table = table
        self._open = open_located
        self._opened: tuple[CatalogEntry, TableFormat] | None = None

    def snapshot_id(self) -> str:
        with self._located() as table_format:
            return table_format.snapshot_id()

    def current(self) -> SnapshotReference:
        with self._located() as table_format:
            return table_format.current()

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        with self._located() as table_format:
            return table_format.history_change(previous, current)

    def snapshot(self) -> Snapshot:
        with self._located() as table_format:
            return table_format.snapshot()

    def stream(self) -> SnapshotStream:
        with self._located() as table_format:
            stream = table_format.stream()
        return replace(stream, fragments=self._with_uri(stream.fragments))

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        with self._located() as table_format:
            return table_format.changes(since)

    def partition_columns(self) -> tuple[str, ...]:
        with self._located() as table_format:
            return table_format.partition_columns()

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        with self._located() as table_format:
            return table_format.bounds(snapshot, column)

    @contextmanager
    def _located(self) -> Iterator[TableFormat]:
        """Yield the table, opened at the location in its current catalog entry.

        Messages of errors in the `with` block begin with the configured URI.
        """
        entry = load_catalog_entry(self._table)
        with self._errors_with_uri():
            if self._opened is None or self._opened[0] != entry:
                self._opened = entry, self._open(located_table(self._table, entry), entry.folders)
            yield self._opened[1]

    def _with_uri(self, fragments: Iterator[Fragment]) -> Iterator[Fragment]:
        with self._errors_with_uri():
            yield from fragments

    @contextmanager
    def _errors_with_uri(self) -> Iterator[None]:
        """Put the table's configured URI before the messages of errors in the `with` block."""
        uri = self._table.uri
        try:
            yield
        except (TableNotFoundError, SnapshotNotFoundError, TableFormatError) as error:
            message = str(error)
            raise type(error)(message if message.startswith(uri) else f"{uri}: {message}") from error


def located_table(table: TableConfig, entry: CatalogEntry) -> TableConfig:
    """Return a table's configuration, completed with the settings of its catalog entry.

    The entry has the location, the format, options and types. Settings of the configuration take precedence.

    Raises:
        ConfigError: the configuration names another format than the catalog. Or the table's location overlaps the root,
            which is the folder with all stored statistics.
    """
    if table.format not in (None, entry.format):
        raise ConfigError(
            f"table {table.name!r}: format = {table.format!r}, but its catalog says {entry.format!r}: leave out format"
        )
    location = catalog_location(table, entry.location, entry.storage_options)
    table.check_location(location)
    return table.model_copy(
        update={
            "uri": location.uri,
            "catalog": None,
            "identifier": None,
            "format": entry.format,
            "storage_options": dict(location.options),
            "options": {**entry.options, **table.options},
            "declared": {**entry.types, **table.declared},
        }
    )
