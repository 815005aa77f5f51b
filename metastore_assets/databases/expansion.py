"""Expansion of a configuration: the tables of its databases become tables of their own, under unique names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.databases.listing import DatabaseListing, list_databases
from metastore_assets.errors import ConfigError


@dataclass(frozen=True)
class SkippedTable:
    """A table of a database without statistics, or a database whose catalog did not answer."""

    name: str
    """`<catalog>.<database>.<table>`, or `<catalog>.<database>`."""
    reason: str
    is_database: bool = False
    """Whether this is a database. It then has the tables of its last listing."""

    def __str__(self) -> str:
        if self.is_database:
            return f"{self.name} has the tables that it had when it was listed last: {self.reason}"
        return f"{self.name} is left out: {self.reason}"


def expand_databases(
    config: MetastoreConfig, listings: Sequence[DatabaseListing]
) -> tuple[MetastoreConfig, list[SkippedTable]]:
    """Return the configuration with the tables of its databases, including dropped ones, and what was skipped.

    A table with an entry of its own keeps that. If two tables would have the same name, both are skipped: otherwise
    the statistics of one might be continued with those of the other.

    Args:
        config: The configuration.
        listings: The listings of its databases.
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
    unique, clashes = _without_clashes(config, list(tables.values()))
    return config.model_copy(update={"tables": [*config.tables, *unique]}), [*skipped, *clashes]


def find_table(config: MetastoreConfig, name: str) -> TableConfig:
    """Return the table of that name. Databases are listed only if no table has an entry with that name.

    Args:
        config: A resolved configuration.
        name: Name of the table in the Metastore.

    Raises:
        ConfigError: There is no such table.
    """
    if not config.databases or any(table.name == name for table in config.tables):
        return config.table(name)
    return expand_databases(config, list_databases(config))[0].table(name)


def _merge_listings(listings: Sequence[DatabaseListing]) -> dict[str, DatabaseListing]:
    """Return the listings by key. Several entries of the same database are merged."""
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


def _without_clashes(
    config: MetastoreConfig, tables: list[TableConfig]
) -> tuple[list[TableConfig], list[SkippedTable]]:
    """Return the tables whose names are unique in the configuration, and the others."""
    counts = Counter(_folded(table.name) for table in (*config.tables, *tables))
    unique, clashes = [], []
    for table in tables:
        if counts[_folded(table.name)] == 1:
            unique.append(table)
            continue
        other = next(
            other
            for other in (*config.tables, *tables)
            if _folded(other.name) == _folded(table.name) and other is not table
        )
        clashes.append(
            SkippedTable(
                f"{table.database}.{str(table.identifier).rpartition('.')[2]}",
                f"it would be called {table.name!r} here, as would {other.uri} (case and -/_ do not count): give the "
                "database another `name`, such as '{database}_{table}', or the table an entry of its own",
            )
        )
    return unique, clashes


def _source(table: TableConfig) -> tuple[str, str]:
    """Return the catalog and the identifier of a table, or its URI."""
    return str(getattr(table.catalog, "name", table.catalog)), str(table.identifier or table.uri)


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
