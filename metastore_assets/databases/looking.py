"""Asking catalogs which tables databases have. What cannot be asked has the tables that it had before."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metastore_assets.config import CatalogConfig, DatabaseConfig, MetastoreConfig
from metastore_assets.databases.record import read_record, write_record
from metastore_assets.errors import ConfigError, MetastoreError, StoreError, TableNotFoundError
from metastore_assets.formats.catalogs.asking import list_tables, where_of
from metastore_assets.formats.catalogs.base import Format, Listed
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore


@dataclass(frozen=True)
class Members:
    """The tables of one database that are meant, by their names in it."""

    key: str
    """Of the entry in the configuration: `<catalog>.<database>`."""
    tables: Mapping[str, Format | None] = field(default_factory=dict)
    """With their formats; None where the database could not be asked."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Tables that it had and something is kept of, and why they are no more."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What it has that is no table to be described, and why."""
    failure: str = ""
    """Why it could not be asked: its tables are those of the last time then. Empty when it was."""


def look(config: MetastoreConfig, patience: float | None = None) -> tuple[Members, ...]:
    """The members of each database of a resolved configuration, in its order.

    Databases are asked at the same time, each for `patience` seconds at most. What they have is recorded in the root,
    for the time when one cannot be asked. Raises nothing but ConfigError.
    """
    found: dict[int, Members | ConfigError] = {}

    def ask(place: int, database: DatabaseConfig) -> None:
        try:
            found[place] = _members(config, database)
        except ConfigError as error:
            found[place] = error

    threads = [
        threading.Thread(target=ask, args=(place, database), daemon=True)
        for place, database in enumerate(config.databases)
    ]
    end = None if patience is None else time.monotonic() + patience
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(None if end is None else max(0.0, end - time.monotonic()))
    members = []
    for place, database in enumerate(config.databases):
        within = "" if patience is None else f" within {patience:g} seconds"
        one = found.get(place) or _remembered(config, database, f"{_where(database)} did not answer{within}")
        if isinstance(one, ConfigError):
            raise one
        members.append(one)
    return tuple(members)


def remember(config: MetastoreConfig) -> tuple[Members, ...]:
    """The members as they were recorded last; no catalog is asked."""
    return tuple(_remembered(config, database, "it was not asked") for database in config.databases)


def _members(config: MetastoreConfig, database: DatabaseConfig) -> Members:
    if not isinstance(database.catalog, CatalogConfig):
        raise ConfigError(f"database {database.database!r}: nothing is known of the catalog {database.catalog!r}")
    try:
        listed = list_tables(database.catalog, database.database)
    except TableNotFoundError as error:
        # A database that is dropped has no tables any more; one that never was is a mistake of who wrote it.
        if not _recorded(config, database):
            return Members(database.key, failure=str(error))
        return _compared(config, database, [], str(error))
    except ConfigError:
        raise
    except MetastoreError as error:
        return _remembered(config, database, str(error))
    return _compared(config, database, listed, "")


def _compared(config: MetastoreConfig, database: DatabaseConfig, listed: Sequence[Listed], dropped: str) -> Members:
    """The members by a listing, and what was recorded and is not in it."""
    there = {one.name: one for one in listed}
    meant = [one for one in listed if database.includes(one.name)]
    tables = {one.name: one.format for one in meant if one.format is not None}
    left_out = {one.name: one.reason for one in meant if one.format is None}
    recorded = _recorded(config, database)
    gone = {}
    for name in sorted(recorded - tables.keys()):
        if database.includes(name) and _is_kept(config, database, name):
            reason = dropped or f"{_where(database)} has no table {f'{database.database}.{name}'!r} any more"
            gone[name] = there[name].reason if name in there else reason
    others = {name for name in recorded if not database.includes(name)}
    _record(config, database, recorded, {*tables, *gone, *others})
    return Members(database.key, tables, gone, {name: why for name, why in left_out.items() if name not in gone})


def _remembered(config: MetastoreConfig, database: DatabaseConfig, failure: str) -> Members:
    names = sorted(filter(database.includes, _recorded(config, database)))
    return Members(database.key, dict.fromkeys(names), failure=failure)


def _is_kept(config: MetastoreConfig, database: DatabaseConfig, name: str) -> bool:
    """Whether something is published of a table that is gone: of others nobody has to hear."""
    try:
        own = database.table(name).name
        return VersionStore(_root(config), own).latest() is not None
    except ConfigError:
        return False
    except StoreError:
        return True


def _recorded(config: MetastoreConfig, database: DatabaseConfig) -> frozenset[str]:
    try:
        return read_record(_root(config), database.key)
    except StoreError:
        return frozenset()  # Whoever reads or writes what is kept will say what is wrong with the root.


def _record(config: MetastoreConfig, database: DatabaseConfig, before: frozenset[str], names: set[str]) -> None:
    if names != before:
        try:
            write_record(_root(config), database.key, names)
        except StoreError:
            return  # Who may only read the root looks at what others recorded.


def _root(config: MetastoreConfig) -> ObjectStore:
    return ObjectStore(config.root, config.storage_options)


def _where(database: DatabaseConfig) -> str:
    assert isinstance(database.catalog, CatalogConfig)
    return where_of(database.catalog)
