"""Expansion of a configuration: the tables of its databases are added to its tables, with unique names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.databases.listing import DatabaseListing, list_databases
from metastore_assets.errors import ConfigError


@dataclass(frozen=True)
class SkippedTable:
    """A table of a database that the expansion skipped, or a database whose catalog did not answer."""

    name: str
    """`<catalog>.<database>.<table>`, or `<catalog>.<database>`."""
    reason: str
    is_database: bool = False
    """Whether this is a database whose catalog did not answer. Its tables are those of the last listing."""

    def __str__(self) -> str:
        if self.is_database:
            return f"{self.name} has the tables of its last listing: {self.reason}"
        return f"{self.name} is left out: {self.reason}"


def expand_databases(
    config: MetastoreConfig, listings: Sequence[DatabaseListing]
) -> tuple[MetastoreConfig, list[SkippedTable]]:
    """Return the configuration with the tables of its databases.

    A table with a separate entry in the configuration is not replaced. If two tables would have the same name, those
    of databases are skipped, because one could otherwise continue the versions of the other.

    Args:
        config: The configuration.
        listings: The listings of its databases.

    Returns:
        The configuration with the tables of its databases, including dropped ones, and the objects that were skipped.
    """
    listing_by_key = _merge_listings(listings)
    configured = {_source(table) for table in config.tables}
    tables: dict[tuple[str, str], TableConfig] = {}
    skipped: list[SkippedTable] = []
    for database in config.databases:
        listing = listing_by_key.get(database.key, DatabaseListing(database.key))
        if listing.failure and not any(item.name == listing.key for item in skipped):
            skipped.append(SkippedTable(listing.key, listing.failure, is_database=True))
        skipped += [
            SkippedTable(f"{listing.key}.{name}", reason)
            for name, reason in sorted(listing.skipped.items())
            if database.includes(name)
        ]
        for name in sorted({*listing.tables, *listing.dropped}):
            if not database.includes(name):
                continue
            try:
                table = database.table(name)
            except ConfigError as error:
                skipped.append(SkippedTable(f"{listing.key}.{name}", str(error)))
                continue
            if _source(table) not in configured:
                table = table.with_listing(listing.tables.get(name), listing.dropped.get(name))
                tables.setdefault(_source(table), table)
    unique, clashes = _split_by_unique_name(config, list(tables.values()))
    return config.model_copy(update={"tables": [*config.tables, *unique]}), [*skipped, *clashes]


def find_table(config: MetastoreConfig, name: str) -> TableConfig:
    """Return the table with this name, from the configuration or one of its databases.

    The databases are listed only if the configuration has no entry with the name.

    Args:
        config: A resolved configuration.
        name: The name of the table in the Metastore.

    Raises:
        ConfigError: There is no such table.
    """
    if not config.databases or any(table.name == name for table in config.tables):
        return config.table(name)
    return expand_databases(config, list_databases(config))[0].table(name)


def _merge_listings(listings: Sequence[DatabaseListing]) -> dict[str, DatabaseListing]:
    """Return the listings by key, after merging the listings of several entries of the same database."""
    merged: dict[str, DatabaseListing] = {}
    for listing in listings:
        before = merged.get(listing.key, DatabaseListing(listing.key))
        merged[listing.key] = DatabaseListing(
            listing.key,
            {**before.tables, **listing.tables},
            {**before.dropped, **listing.dropped},
            {**before.skipped, **listing.skipped},
            before.failure or listing.failure,
        )
    return merged


def _split_by_unique_name(
    config: MetastoreConfig, tables: list[TableConfig]
) -> tuple[list[TableConfig], list[SkippedTable]]:
    """Return the tables with unique names, and all other tables as skipped tables.

    Names of tables with an entry in the configuration are compared, too. Names that differ only in case, or in `-`
    and
    `_`, are equal.
    """
    counts = Counter(_fold_name(table.name) for table in (*config.tables, *tables))
    unique, clashes = [], []
    for table in tables:
        if counts[_fold_name(table.name)] == 1:
            unique.append(table)
            continue
        other = next(
            other
            for other in (*config.tables, *tables)
            if _fold_name(other.name) == _fold_name(table.name) and other is not table
        )
        clashes.append(
            SkippedTable(
                f"{table.database}.{str(table.identifier).rpartition('.')[2]}",
                f"its name would be {table.name!r}, like that of {other.uri} (case and -/_ make no difference): "
                "give the database another `name`, such as '{database}_{table}', or add an entry for it",
            )
        )
    return unique, clashes


def _source(table: TableConfig) -> tuple[str, str]:
    """Return a value that identifies a table's source: its catalog, and its identifier there or its URI."""
    return str(getattr(table.catalog, "name", table.catalog)), str(table.identifier or table.uri)


def _fold_name(name: str) -> str:
    return name.lower().replace("-", "_")
