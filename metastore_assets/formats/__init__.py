"""Table formats: packages that open tables, list their fragments and read rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_keys import UNPARTITIONED, decode_partition_key, encode_partition_key
from metastore_assets.extras import extra
from metastore_assets.formats.base import (
    Fragment,
    FragmentReader,
    FragmentSource,
    HistoryChange,
    NoDiff,
    Snapshot,
    SnapshotDiff,
    SnapshotMetadata,
    SnapshotReference,
    TableFormat,
)
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.formats.redaction import RedactedFormat
from metastore_assets.formats.registration import (
    FormatDetector,
    FormatRegistration,
    OpenContext,
    check_option_names,
    detect_format,
    load_format,
)
from metastore_assets.storage.location_policy import table_location
from metastore_assets.tasks.runner import TaskRunner

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig

__all__ = [
    "UNPARTITIONED",
    "FormatDetector",
    "FormatRegistration",
    "Fragment",
    "FragmentReader",
    "FragmentSource",
    "HistoryChange",
    "MetadataCache",
    "NoDiff",
    "OpenContext",
    "Snapshot",
    "SnapshotDiff",
    "SnapshotMetadata",
    "SnapshotReference",
    "TableFormat",
    "check_option_names",
    "decode_partition_key",
    "encode_partition_key",
    "open_table_format",
]


def open_table_format(
    table: TableConfig, cache: MetadataCache | None = None, runner: TaskRunner | None = None
) -> TableFormat:
    """Open a table at its configured location, or at the location that its catalog records.

    Opening reads files only to detect the format. A table in a catalog is opened when the result is first used. The
    errors below and those of the catalog are then raised by that use.

    Args:
        table: the configuration of the table. Without `format`, the format is detected.
        cache: cached values of the table's files; new values are added. By default it is empty.
        runner: runs the tasks that read whole data files; by default a child process.

    Raises:
        ConfigError: the format does not exist, or does not have an option of the configuration. Or the configuration
            declares a schema although the tables of the format have schemas, as those of Delta do.
        MissingPackageError: a package that the format needs is not installed.
        TableNotFoundError: the format has to be detected, and there is nothing at the location.
        TableFormatError: the format has to be detected, and the location cannot be read.
    """
    context = OpenContext(MetadataCache() if cache is None else cache, runner)
    if table.catalog is None:
        return _open_located(table, context)
    from metastore_assets.formats.catalogs.table import CatalogTable

    return CatalogTable(
        table, lambda located_table, partitions: _open_located(located_table, replace(context, partitions=partitions))
    )


def _open_located(table: TableConfig, context: OpenContext) -> TableFormat:
    """Open a table at its configured location, in its configured or detected format.

    If the configuration hides values, the result is a `RedactedFormat`, whose errors quote no values.

    Raises ConfigError if the configuration declares a schema for a format whose tables have one, such as Delta. Also
    raises the errors that `open_table_format` names.
    """
    registration = load_format(table.format or _detected_format(table))
    if table.declared and registration.has_schema:
        raise ConfigError(
            f"table {table.name!r}: schema is for plain files; the table's format is {registration.name}, whose tables "
            "have a schema; remove the key `schema`"
        )
    table_format = _open(registration, table, context)
    return RedactedFormat(table_format, table.uri) if table.hides_values else table_format


def _open(registration: FormatRegistration, table: TableConfig, context: OpenContext) -> TableFormat:
    if registration.extra is None:
        return registration.open(table, context)
    with extra(registration.extra, f"{registration.title} table {table.name!r}"):
        return registration.open(table, context)


def _detected_format(table: TableConfig) -> str:
    """Return the name of the format at the table's location.

    Raises TableNotFoundError if there is nothing, and TableFormatError if the location cannot be read.
    """
    location = table_location(table)
    try:
        return detect_format(location)
    except FileNotFoundError as error:
        raise TableNotFoundError(f"{location.uri} holds no table: {error}") from error
    except OSError as error:
        raise TableFormatError(f"{location.uri} cannot be read: {error}") from error
