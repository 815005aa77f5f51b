"""What commands open: the configuration, the root, a published table, and what its arguments name in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore_assets.cli.failures import Invocation, note
from metastore_assets.errors import VersionNotFoundError

if TYPE_CHECKING:
    from metastore_assets.cli.output import Answer
    from metastore_assets.config import MetastoreConfig, TableConfig
    from metastore_assets.lookup import FilteredView, Table
    from metastore_assets.metastore import Metastore


def configured(invocation: Invocation) -> MetastoreConfig:
    """The configuration of an invocation. Raises ConfigError."""
    from metastore_assets.checks.entries import load_checked_config

    return load_checked_config(invocation.config)


def metastore_of(config: MetastoreConfig) -> Metastore:
    """The root of a configuration."""
    from metastore_assets.metastore import Metastore

    return Metastore(config.root, config.storage_options, config.named_statistics)


def with_databases(config: MetastoreConfig) -> tuple[MetastoreConfig, bool]:
    """The configuration with the tables of its databases, which are asked for them; and whether all of them answered.

    What is left out is told on stderr. Raises ConfigError.
    """
    if not config.databases:
        return config, True
    from metastore_assets.databases import expand_databases, list_databases

    members = list_databases(config)
    found, left_out = expand_databases(config, members)
    for one in left_out:
        note(str(one))
    for table in found.tables:
        if table.dropped_reason is not None:
            note(f"table {table.name!r} is gone, and what was kept of it can still be read: {table.dropped_reason}")
    return found, not any(one.failure for one in members)


def table_of(config: MetastoreConfig, name: str) -> TableConfig:
    """The table of that name, of the configuration or of one of its databases. Raises ConfigError."""
    if not config.databases:
        return config.table(name)
    from metastore_assets.databases import find_table

    return find_table(config, name)


def kept_name(config: MetastoreConfig, name: str) -> str:
    """The name, if it is that of a table: databases are only asked when nothing is kept under it. Raises ConfigError.

    So what is kept of a table can be read when its catalog cannot be asked, or does not have it any more.
    """
    if config.databases and all(table.name != name for table in config.tables):
        try:
            return metastore_of(config).table(name).version.table
        except VersionNotFoundError:
            pass
    return table_of(config, name).name


def newest(invocation: Invocation, name: str) -> Table:
    """A configured table as of its newest version. Raises VersionNotFoundError, ConfigError."""
    return published(configured(invocation), name)


def version_choice(text: str | None) -> int | str | None:
    """What an option says of a version: its number, `snapshot:ID`, or a time; a snapshot's id where it is neither."""
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() else text.removeprefix("snapshot:")


def published(config: MetastoreConfig, name: str, version: int | str | None = None) -> Table:
    """A configured table as of a version, as `open_table` takes it. Raises VersionNotFoundError, ConfigError."""
    name = kept_name(config, name)
    try:
        return metastore_of(config).table(name, version)
    except VersionNotFoundError:
        if version is not None:
            raise
        # What else is published is of no interest: the name is not misspelt.
        message = f"table {name!r} has no published version below {config.root}; run `metastore refresh {name}`"
        raise VersionNotFoundError(message) from None


def partition_of(table: Table, text: str | None) -> str | None:
    """The key of the one partition that is meant; None for the whole table. Raises PartitionNotFoundError."""
    if text is None or table.find_partition(text) is not None:
        return text
    from metastore_assets.expressions.partition_patterns import resolve_partition

    return resolve_partition(table.version.table, text, [entry.key for entry in table.partitions()])


def column_answer(table: Table | FilteredView, column: str, partition: str | None) -> Answer:
    """The statistics of a column, as `show` has them. Raises ColumnNotFoundError."""
    from metastore_assets.lookup.json import column_to_json

    return column_to_json(table.statistics([column], partition)[0])
