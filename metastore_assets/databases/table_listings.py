"""Listings of the tables in databases.

The root, the folder with all stored state, has a record of the last listing of each database. If a catalog does not
answer, the tables in the record are used. A record is a cache, which may be deleted. A version is the published
statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from metastore_assets.config import CatalogConfig, DatabaseConfig, MetastoreConfig
from metastore_assets.errors import (
    ConfigError,
    MetastoreError,
    ObjectNotFoundError,
    StoreError,
    TableNotFoundError,
)
from metastore_assets.formats.catalogs.base import Format, ListedTable
from metastore_assets.formats.catalogs.client import catalog_label, list_tables
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

_RECORD_FOLDER = "_databases"
"""The folder of the records in the root. No table has this folder, because no table name begins with `_`."""
_RECORD_FORMAT = 1
_record_locks: dict[tuple[str, str], threading.Lock] = {}
"""A lock for each record that this process changes, by root and key."""


@dataclass(frozen=True)
class DatabaseListing:
    """The tables that one database entry includes, and those that were dropped or cannot be read."""

    key: str
    """The catalog and the database of the entry as `<catalog>.<database>`."""
    tables: Mapping[str, Format | None] = field(default_factory=dict)
    """The format of each table, by the table's name. The formats are None if the catalog did not answer."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Tables with a published version that the catalog no longer lists, each with the reason."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Entries of the catalog that cannot be read as tables, such as views, each with the reason."""
    failure: str = ""
    """The reason why the catalog did not answer; empty if it did. After a failure, `tables` come from the record."""


def list_databases(config: MetastoreConfig, timeout: float | None = None) -> tuple[DatabaseListing, ...]:
    """List the tables in all databases of a configuration, by requests to their catalogs in parallel.

    The listings are recorded in the root.

    Args:
        config: A resolved configuration.
        timeout: Seconds to wait for the catalogs; None for no limit. After it, records replace missing answers.

    Returns:
        A listing for each database entry, in the order of the configuration.

    Raises:
        ConfigError: A catalog is configured wrongly.
    """
    within = "" if timeout is None else f" within {timeout:g} seconds"
    return tuple(
        _recorded_listing(config, database, f"{_catalog_label(database)} did not answer{within}")
        if listing is None
        else listing
        for database, listing in _in_parallel(config, timeout, _list_database)
    )


def load_listings(
    config: MetastoreConfig, timeout: float, state: Mapping[str, Collection[str]]
) -> tuple[DatabaseListing, ...]:
    """Return the last known listing of each database entry: from the root, otherwise from `state`.

    If neither has the database, its catalog gets a request.

    Args:
        config: A resolved configuration.
        timeout: Seconds to wait for the root and the catalogs together.
        state: Table names by `DatabaseConfig.key`, which are used for databases without a record in the root.

    Returns:
        A listing for each database entry, in the order of the configuration. If root and catalog do not answer in time,
        the listing has the tables in `state`, and a `failure`.

    Raises:
        ConfigError: A catalog without a known listing is configured wrongly.
    """

    def load_listing(config: MetastoreConfig, database: DatabaseConfig) -> DatabaseListing:
        recorded_tables = _try_read_record(config, database)
        names = state.get(database.key) if recorded_tables is None else recorded_tables
        if names is None:
            return _list_database(config, database)
        return DatabaseListing(database.key, dict.fromkeys(sorted(filter(database.includes, names))))

    failure = f"neither the root nor the catalog answered within {timeout:g} seconds"
    return tuple(
        DatabaseListing(
            database.key, dict.fromkeys(sorted(filter(database.includes, state.get(database.key, ())))), failure=failure
        )
        if listing is None
        else listing
        for database, listing in _in_parallel(config, timeout, load_listing)
    )


def _in_parallel(
    config: MetastoreConfig,
    timeout: float | None,
    list_one: Callable[[MetastoreConfig, DatabaseConfig], DatabaseListing],
) -> list[tuple[DatabaseConfig, DatabaseListing | None]]:
    """Call `list_one` for each database entry in parallel.

    Returns:
        (entry, listing) in the order of the configuration. The listing is None if it did not arrive within `timeout`
        seconds.

    Raises:
        ConfigError: A call raised it.
    """
    results: dict[int, DatabaseListing | ConfigError] = {}

    def request(index: int, database: DatabaseConfig) -> None:
        try:
            results[index] = list_one(config, database)
        except ConfigError as error:
            results[index] = error

    threads = [
        threading.Thread(target=request, args=(index, database), daemon=True)
        for index, database in enumerate(config.databases)
    ]
    end = None if timeout is None else time.monotonic() + timeout
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(None if end is None else max(0.0, end - time.monotonic()))
    listings = []
    for index, database in enumerate(config.databases):
        result = results.get(index)
        if isinstance(result, ConfigError):
            raise result
        listings.append((database, result))
    return listings


def recorded_listings(config: MetastoreConfig) -> tuple[DatabaseListing, ...]:
    """Return the recorded listing of each entry of `databases`, without requests to catalogs.

    An entry without a valid record gets a listing without tables. Every listing has a `failure`, which says that the
    catalog was not queried.
    """
    return tuple(_recorded_listing(config, database, "it was not queried") for database in config.databases)


def read_record(root: ObjectStore, key: str) -> frozenset[str] | None:
    """Read the table names in the record of a database; None if there is no valid record.

    Args:
        root: The root of the Metastore.
        key: The catalog and the database as `<catalog>.<database>`.

    Raises:
        StoreError: The root cannot be read.
    """
    try:
        document = parse_json(root.read(_record_path(key)))
        if document["format"] == _RECORD_FORMAT:
            return frozenset(name for name in document["tables"] if isinstance(name, str))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        pass
    return None


def write_record(root: ObjectStore, key: str, names: Iterable[str]) -> None:
    """Replace the table names in the record of a database.

    Raises StoreError if the root cannot be written.

    Args:
        root: The root of the Metastore.
        key: The catalog and the database as `<catalog>.<database>`.
        names: The table names.
    """
    document = {"format": _RECORD_FORMAT, "tables": sorted(names)}
    root.write(_record_path(key), json.dumps(document, ensure_ascii=False).encode())


def _list_database(config: MetastoreConfig, database: DatabaseConfig) -> DatabaseListing:
    """Request the tables in a database from its catalog, and update the record of its listing.

    If the request fails, return the tables in the record, with the failure. If the catalog does not have the database,
    the tables in the record that have a published version count as dropped. If the record has no tables, or is missing,
    a missing database is a failure, too.

    Raises ConfigError if the catalog is configured wrongly.
    """
    if not isinstance(database.catalog, CatalogConfig):
        raise ConfigError(f"{database.label}: the catalog {database.catalog!r} has no settings")
    try:
        listed_tables = list_tables(database.catalog, database.database)
    except TableNotFoundError as error:
        # With a record, the database was dropped. Without one, its name is probably misspelt.
        if not _try_read_record(config, database):
            return DatabaseListing(database.key, failure=str(error))
        return _compare_with_record(config, database, [], str(error))
    except ConfigError:
        raise
    except MetastoreError as error:
        return _recorded_listing(config, database, str(error))
    return _compare_with_record(config, database, listed_tables, "")


def _compare_with_record(
    config: MetastoreConfig, database: DatabaseConfig, listed_tables: Sequence[ListedTable], database_dropped: str
) -> DatabaseListing:
    """Create the listing of a database from the answer of its catalog, and update the record.

    Args:
        config: The configuration.
        database: The database entry.
        listed_tables: The tables and other objects that the catalog lists.
        database_dropped: The message that the database no longer exists; empty if it exists.
    """
    by_name = {entry.name: entry for entry in listed_tables}
    included_entries = [entry for entry in listed_tables if database.includes(entry.name)]
    tables = {entry.name: entry.format for entry in included_entries if entry.format is not None}
    skipped_reasons = {entry.name: entry.reason for entry in included_entries if entry.format is None}
    dropped_reasons = {}
    # Entries of the same database are listed in parallel. Each adds its tables to those of the others.
    with _record_locks.setdefault((config.root, database.key), threading.Lock()):
        record = _try_read_record(config, database)
        recorded_tables = record or frozenset()
        # A table in the record is dropped if it has a version and the catalog no longer lists it as a readable table.
        for name in sorted(recorded_tables - tables.keys()):
            if database.includes(name) and _has_version(config, database, name):
                identifier = f"{database.database}.{name}"
                reason = database_dropped or f"{_catalog_label(database)} no longer has a table {identifier!r}"
                dropped_reasons[name] = by_name[name].reason if name in by_name else reason
        # The record also has excluded tables: this entry may include them after a change of its patterns.
        excluded_names = {entry.name for entry in listed_tables if entry.format is not None}
        # Another entry of the same database decides which of its tables were dropped.
        others = [other for other in config.databases if other.key == database.key and other is not database]
        excluded_names |= {name for name in recorded_tables if any(other.includes(name) for other in others)}
        _try_write_record(config, database, record, frozenset((*tables, *dropped_reasons, *excluded_names)))
    skipped_reasons = {name: reason for name, reason in skipped_reasons.items() if name not in dropped_reasons}
    return DatabaseListing(database.key, tables, dropped_reasons, skipped_reasons)


def _recorded_listing(config: MetastoreConfig, database: DatabaseConfig, failure: str) -> DatabaseListing:
    names = sorted(filter(database.includes, _try_read_record(config, database) or ()))
    return DatabaseListing(database.key, dict.fromkeys(names), failure=failure)


def _has_version(config: MetastoreConfig, database: DatabaseConfig, name: str) -> bool:
    """Return whether a table of a database has a published version.

    True if the root cannot be read.
    """
    try:
        table_name = database.table(name).name
        return VersionStore(_root(config), table_name).latest() is not None
    except ConfigError:
        return False
    except StoreError:
        return True


def _try_read_record(config: MetastoreConfig, database: DatabaseConfig) -> frozenset[str] | None:
    try:
        return read_record(_root(config), database.key)
    except StoreError:
        return None  # The caller will access the root itself and report the error.


def _try_write_record(
    config: MetastoreConfig, database: DatabaseConfig, before: frozenset[str] | None, names: frozenset[str]
) -> None:
    """Write the record of a database if the names of its tables have changed.

    Ignore a root that cannot be written.

    Args:
        config: The configuration, which has the root.
        database: The database.
        before: The names in the stored record; None if there is none, or if it could not be read.
        names: The names to record.
    """
    if names != before:
        try:
            write_record(_root(config), database.key, names)
        except StoreError:
            return  # A process without write access to the root depends on the records of others.


def _record_path(key: str) -> str:
    return f"{_RECORD_FOLDER}/{quote(key, safe='')}.json"


def _root(config: MetastoreConfig) -> ObjectStore:
    return ObjectStore(config.root, config.storage_options)


def _catalog_label(database: DatabaseConfig) -> str:
    assert isinstance(database.catalog, CatalogConfig)
    return catalog_label(database.catalog)
