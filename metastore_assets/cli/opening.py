"""Functions that open the configuration, the Metastore, versions and filtered views for commands.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metastore_assets.cli.failures import Invocation, print_note
from metastore_assets.cli.progress import show_progress
from metastore_assets.cli.spark import LazySpark
from metastore_assets.errors import VersionNotFoundError

if TYPE_CHECKING:
    from metastore_assets.cli.output import Answer
    from metastore_assets.config import MetastoreConfig, TableConfig
    from metastore_assets.lookup import FilteredView, Table
    from metastore_assets.lookup.version_references import VersionReference
    from metastore_assets.metastore import Metastore


def load_config(invocation: Invocation) -> MetastoreConfig:
    """Return the configuration from the file that the command line names, or from the default file.

    The checks and exports of its tables are validated, too. Raises ConfigError.
    """
    from metastore_assets.checks.configured_checks import load_checked_config

    return load_checked_config(invocation.config)


def open_metastore(config: MetastoreConfig) -> Metastore:
    """Open the Metastore below the root of a configuration."""
    from metastore_assets.metastore import Metastore

    return Metastore(config.root, storage_options=config.storage_options, statistic_classes=config.named_statistics)


def add_database_tables(config: MetastoreConfig) -> tuple[MetastoreConfig, bool]:
    """Return a configuration whose tables include those of its databases.

    Raises ConfigError if a catalog is invalid.

    Prints notes to stderr: on tables that are left out or were dropped, and on databases whose catalog did not answer.

    Returns:
        The configuration, and whether every catalog answered.
    """
    if not config.databases:
        return config, True
    from metastore_assets.databases import expand_databases, list_databases

    listings = list_databases(config)
    expanded_config, omissions = expand_databases(config, listings)
    for omission in omissions:
        print_note(str(omission))
    for table in expanded_config.tables:
        if table.dropped_reason is not None:
            print_note(
                f"table {table.name!r} was dropped from its catalog; its published versions can still be read: "
                f"{table.dropped_reason}"
            )
    return expanded_config, not any(listing.failure for listing in listings)


def find_table_config(config: MetastoreConfig, name: str) -> TableConfig:
    """Return the table with a name, from the configuration or one of its databases.

    Raises ConfigError if there is no such table.
    """
    if not config.databases:
        return config.table(name)
    from metastore_assets.databases import find_table

    return find_table(config, name)


def resolve_table_name(config: MetastoreConfig, name: str) -> str:
    """Return the name of a configured table unchanged.

    Raises ConfigError for any other name.

    If the configuration has databases, each table with a published version counts as configured.
    """
    # Published versions can be read even if the catalog does not answer or no longer has the table.
    if config.databases and all(table.name != name for table in config.tables):
        try:
            return open_metastore(config).table(name).version.table
        except VersionNotFoundError:
            pass
    return find_table_config(config, name).name


def open_version(config: MetastoreConfig, name: str, version: VersionReference | None = None) -> Table:
    """Open a version of a configured table.

    Args:
        config: The configuration.
        name: The name of a table in the configuration or in one of its databases.
        version: A number, a snapshot id or a time; None for the newest version.

    Raises:
        VersionNotFoundError: The table has no such version.
        ConfigError: No table has that name.
    """
    name = resolve_table_name(config, name)
    try:
        return open_metastore(config).table(name, version=version)
    except VersionNotFoundError:
        if version is not None:
            raise
        # The name is configured, so suggesting other published names would mislead.
        message = f"table {name!r} has no published version below {config.root}; run `metastore refresh {name}`"
        raise VersionNotFoundError(message) from None


@contextmanager
def open_relation(
    config: MetastoreConfig, name: str, where: str | None, partition: str | None, version: VersionReference | None
) -> Iterator[tuple[Table | FilteredView, str | None]]:
    """Open a version of a table or, with a predicate, a view of its matching rows.

    If the view had to read files of the table, a note on stderr says how many.

    Args:
        config: The configuration.
        name: The table's name.
        where: A predicate in SQL; None for all rows.
        partition: A partition's key or pattern; None for the whole table.
        version: A number, a snapshot id or a time; None for the newest version.

    Yields:
        The table or view, and the key of the partition; None for the whole table.

    Raises:
        VersionNotFoundError: The table has no such version.
        ConfigError: No table has that name.
        PartitionNotFoundError: `partition` selects no partition or several.
        PredicateError: The predicate does not parse or is not supported.
        ColumnNotFoundError: The predicate names an unknown column.
        LiteralError: A literal in the predicate does not fit the type of its column.
    """
    table = open_version(config, name, version)
    key = None if partition is None else table.resolve_partition(partition)
    if where is None:
        yield table, key
        return
    predicate = table.predicate(where)

    from metastore_assets.report import text
    from metastore_assets.scan import filter_table

    with show_progress() as watcher, LazySpark(config.spark, watcher) as spark:
        view = filter_table(table, predicate)
        # Finding the table's location may query a catalog, so it happens only when files must be read.
        if view.match.partial_fragments:
            watcher.working(name, "reading files")
            view = filter_table(table, predicate, find_table_config(config, name), spark)
        yield view, key
        watcher.hide()
    cost = view.cost
    if cost.fragments_read:
        files = f"{cost.fragments_read:,} of {text.format_count(cost.fragments_total, 'file')}"
        print_note(f"read {files}, {text.format_size(cost.bytes_read)}: only some of their rows match the predicate")


def column_to_answer(table: Table | FilteredView, column: str, partition: str | None) -> Answer:
    """Return the statistics of a column as `show --json` prints them.

    Raises ColumnNotFoundError.

    Args:
        table: The table or filtered view.
        column: The dotted path of the column.
        partition: The key of a partition; None for the whole table.
    """
    from metastore_assets.lookup.json import column_to_json

    return column_to_json(table.statistics([column], partition=partition)[0])
