"""Expansion of a configuration: tables of its databases become entries of `tables` with unique names.

The root is the folder with all stored state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from metastore_assets.config import CatalogConfig, MetastoreConfig, TableConfig
from metastore_assets.config.models import fold_name
from metastore_assets.databases.table_listings import DatabaseListing, list_databases
from metastore_assets.errors import ConfigError
from metastore_assets.storage.location_policy import table_location

_IGNORING_CASE = ("glue", "hive")
"""The types of catalogs in which `Sales.Orders` and `sales.orders` are one table."""


@dataclass(frozen=True)
class SkippedTable:
    """A table that is left out of the expanded configuration, or a database whose catalog did not answer."""

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
    """Return a configuration whose `tables` also has the tables of its databases.

    A table that already has an entry keeps it. Tables of databases are left out if their name is invalid or not unique,
    or if the folder of their statistics has data of a configured table.

    Args:
        config: The configuration.
        listings: The listings of its databases.

    Returns:
        (configuration, skipped tables). The configuration also has the `dropped` tables of the listings: published
        tables that the catalog no longer lists. The skipped tables are those that were left out, and the databases
        whose catalog did not answer.
    """
    listing_by_key = _merge_listings(listings)
    configured_sources = {_source(table) for table in config.tables}
    tables: dict[tuple[str, str], TableConfig] = {}
    skipped_tables: list[SkippedTable] = []
    for database in config.databases:
        listing = listing_by_key.get(database.key, DatabaseListing(database.key))
        if listing.failure and not any(item.name == listing.key for item in skipped_tables):
            skipped_tables.append(SkippedTable(listing.key, listing.failure, is_database=True))
        skipped_tables += [
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
                skipped_tables.append(SkippedTable(f"{listing.key}.{name}", str(error)))
                continue
            if _source(table) not in configured_sources:
                table = table.with_listing(listing.tables.get(name), listing.dropped.get(name))
                tables.setdefault(_source(table), table)
    # Two tables of one name could continue each other's versions.
    unique, clashes = _split_by_unique_name(config, list(tables.values()))
    separate, overlaps = _split_by_free_folder(config, unique)
    all_tables = [*config.tables, *separate]
    folders = config.root_folders(table.name for table in all_tables)
    expanded_config = config.model_copy(update={"tables": [table.with_root_folders(folders) for table in all_tables]})
    return expanded_config, [*skipped_tables, *clashes, *overlaps]


def find_table(config: MetastoreConfig, name: str) -> TableConfig:
    """Return the table with a name, from `tables` or from one of the databases.

    The databases are listed only if `tables` has no entry with the name.

    Args:
        config: A resolved configuration.
        name: The name of the table in the Metastore.

    Raises:
        ConfigError: There is no such table, or the catalog of a database is configured wrongly.
    """
    if not config.databases or any(table.name == name for table in config.tables):
        return config.table(name)
    return expand_databases(config, list_databases(config))[0].table(name)


def _merge_listings(listings: Sequence[DatabaseListing]) -> dict[str, DatabaseListing]:
    """Return one listing per database, by `DatabaseListing.key`.

    Several database entries of a configuration can name the same database. Their listings are united.
    """
    merged_listings: dict[str, DatabaseListing] = {}
    for listing in listings:
        before = merged_listings.get(listing.key, DatabaseListing(listing.key))
        merged_listings[listing.key] = DatabaseListing(
            listing.key,
            {**before.tables, **listing.tables},
            {**before.dropped, **listing.dropped},
            {**before.skipped, **listing.skipped},
            before.failure or listing.failure,
        )
    return merged_listings


def _split_by_unique_name(
    config: MetastoreConfig, tables: list[TableConfig]
) -> tuple[list[TableConfig], list[SkippedTable]]:
    """Return (tables with unique names, all other tables as skipped tables).

    A name is unique if no other table in `tables` or in the configuration has it. Names that differ only in case, or in
    `-` and `_`, count as equal.
    """
    counts = Counter(fold_name(table.name) for table in (*config.tables, *tables))
    unique, clashes = [], []
    for table in tables:
        if counts[fold_name(table.name)] == 1:
            unique.append(table)
            continue
        other = next(
            other
            for other in (*config.tables, *tables)
            if fold_name(other.name) == fold_name(table.name) and other is not table
        )
        clashes.append(
            SkippedTable(
                f"{table.database}.{str(table.identifier).rpartition('.')[2]}",
                f"its name would be {table.name!r}, like that of {other.uri} (case and -/_ make no difference): "
                "give the database another `name`, such as '{database}_{table}', or add an entry for it",
            )
        )
    return unique, clashes


def _split_by_free_folder(
    config: MetastoreConfig, tables: list[TableConfig]
) -> tuple[list[TableConfig], list[SkippedTable]]:
    """Return (tables that may store statistics in the root, all others as skipped tables).

    A table is skipped if the folder in the root for its statistics already has the data of a configured table.
    """
    folders = config.root_folders(table.name for table in tables)
    occupied_folders = {
        folders.folder_of(table_location(table)): table for table in config.tables if table.catalog is None
    }
    skipped_tables = [
        SkippedTable(
            f"{table.database}.{str(table.identifier).rpartition('.')[2]}",
            f"its name would be {table.name!r}, and table {occupied_folders[table.name].name!r} is in the folder "
            f"{config.root}/{table.name}, which is for statistics: choose a `root` in which there are no tables",
        )
        for table in tables
        if table.name in occupied_folders
    ]
    return [table for table in tables if table.name not in occupied_folders], skipped_tables


def _source(table: TableConfig) -> tuple[str, str]:
    """Return (name of the catalog, identifier of the table in it).

    Entries of the same table have equal results. In catalogs that ignore case, the identifier is in lower case. For a
    table without a catalog, return ("None", URI).
    """
    identifier = str(table.identifier or table.uri)
    if isinstance(table.catalog, CatalogConfig) and table.catalog.type in _IGNORING_CASE:
        identifier = identifier.lower()
    return str(getattr(table.catalog, "name", table.catalog)), identifier
