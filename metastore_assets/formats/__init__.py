"""What a table holds now. One package per table format behind the protocols of `base`, and one registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_keys import UNPARTITIONED, decode_partition_key, encode_partition_key
from metastore_assets.extras import extra
from metastore_assets.formats import delta, hudi, iceberg
from metastore_assets.formats.base import (
    Fragment,
    FragmentReader,
    FragmentSource,
    HistoryChange,
    Snapshot,
    SnapshotReference,
    TableFormat,
)
from metastore_assets.formats.hidden import HidingFormat
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, table_location
from metastore_assets.tasks.runner import TaskRunner

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.catalogs.base import Folders
    from metastore_assets.formats.files.registered import RegisteredFolders

__all__ = [
    "UNPARTITIONED",
    "Fragment",
    "FragmentReader",
    "FragmentSource",
    "HistoryChange",
    "MetadataCache",
    "Snapshot",
    "SnapshotReference",
    "TableFormat",
    "decode_partition_key",
    "encode_partition_key",
    "open_table_format",
]


def open_table_format(
    table: TableConfig, cache: MetadataCache | None = None, runner: TaskRunner | None = None
) -> TableFormat:
    """The table at `table.uri` in its format, detected from what lies there when `table.format` is None; or the one
    that its catalog has under its name, wherever and in whichever format that says it is.

    What `cache` knows of its files is not read again, and what is learnt is added. Whole files that nothing is known
    of, which may take long, are read by `runner`, or else by a child process. Nothing but detection is read yet.
    Raises TableFormatError for a format that is not built.
    """
    cache = MetadataCache() if cache is None else cache
    if table.catalog is None:
        return _open_located(table, cache, runner, None)
    from metastore_assets.formats.catalogs.table import CatalogTable

    return CatalogTable(table, lambda located, folders: _open_located(located, cache, runner, folders))


def _open_located(
    table: TableConfig, cache: MetadataCache, runner: TaskRunner | None, registered: Folders | None
) -> TableFormat:
    """The table at its location; `registered` are its folders where a catalog knows them."""
    found = _open_plain(table, cache, runner, registered)
    return HidingFormat(found, table.uri) if table.hides_values else found


def _open_plain(
    table: TableConfig, cache: MetadataCache, runner: TaskRunner | None, registered: Folders | None
) -> TableFormat:
    name = table.format or _detect(table_location(table))
    if table.declared and name != "files":
        raise ConfigError(
            f"table {table.name!r}: schema is for plain files; this is a table of the format {name}, which has one"
        )
    if name == "files":
        from metastore_assets.formats.files.foreign import FOREIGN
        from metastore_assets.formats.files.streaming_sink import SINK
        from metastore_assets.formats.files.table import FilesFormat

        marks = {registration.title: registration.marks for registration in _LOGGED.values()}
        marks |= {**FOREIGN, "Spark streaming": SINK}
        folders = None if registered is None else _registered(table, registered)
        return FilesFormat(table, marks, cache, runner, folders)
    with extra(name, f"{_LOGGED[name].title} table {table.name!r}"):
        return _LOGGED[name].open(table, cache)


def _registered(table: TableConfig, folders: Folders) -> RegisteredFolders:
    from metastore_assets.formats.files.registered import RegisteredFolders

    own = table_location(table)
    location_policy = LocationPolicy.of(table, own)
    partitions = []
    for partition in folders.partitions:
        location, path = location_policy.resolve(partition.location)
        if location != own:
            values = "/".join(map(str, partition.values))
            raise TableFormatError(
                f"its partition {values} lies at {partition.location}, outside of the table's folder {own.uri}: tables "
                "with partitions elsewhere are not read, for their rows would be missing"
            )
        partitions.append((path, partition.values))
    return RegisteredFolders.of(own.uri, folders.columns, partitions)


def _detect(location: Location) -> str:
    try:
        return next((name for name, registration in _LOGGED.items() if registration.detect(location)), "files")
    except FileNotFoundError as error:
        raise TableNotFoundError(f"{location.uri} holds no table: {error}") from error
    except OSError as error:
        raise TableFormatError(f"{location.uri} cannot be read: {error}") from error


_LOGGED = {registration.name: registration for registration in (delta.FORMAT, iceberg.FORMAT, hudi.FORMAT)}
"""Formats with metadata of their own, in the order in which they are looked for.

Delta first: a Delta table may carry metadata of the others for their readers (UniForm, XTable).
"""
