"""Queries to the catalogs of the configuration.

Errors name the catalog, the table and the reason, and contain no secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import ConfigError, MetastoreError, TableFormatError, TableNotFoundError
from metastore_assets.extras import extra
from metastore_assets.formats.catalogs.base import Catalog, CatalogEntry, ListedTable, catalog_properties
from metastore_assets.messages import redact_to_line, remember_secret

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(?:file:)?([^?]+)")
"""Matches the URI of a SQLite file. Its group is the path."""
_SECRET_KEY = re.compile(r"secret|token|password|credential|access-key|account-key", re.IGNORECASE)
_PASSWORD = re.compile(r"://[^/@:]*:([^/@]+)@")
"""Matches a URI with a password. Its group is the password."""
_MISSING_CREDENTIALS = ("NoCredentials", "CredentialRetrieval", "PartialCredentials", "ProfileNotFound")
_REFUSED_CREDENTIALS = (
    "AccessDenied",
    "UnrecognizedClient",
    "ExpiredToken",
    "InvalidSignature",
    "Unauthorized",
    "Forbidden",
)


def load_catalog_entry(table: TableConfig) -> CatalogEntry:
    """Return the catalog entry of a table whose configuration names a catalog.

    Raises:
        ConfigError: the configuration has no such catalog, or the table's name is invalid.
        MissingPackageError: the client library of the catalog is not installed.
        TableNotFoundError: the catalog does not have the table.
        TableFormatError: the catalog cannot be queried, or the table cannot be read.
    """
    database, name = table_identifier(table)
    assert isinstance(table.catalog, CatalogConfig)
    what = f"table {table.identifier!r}"
    with _catalog_errors(table.catalog, f"return {what}"):
        return _checked_client(table.catalog, what).load_entry(database, name)


def table_identifier(table: TableConfig) -> tuple[str, str]:
    """Return the database and the name of a table whose configuration names a catalog.

    Raises ConfigError if the configuration has no such catalog, or the table's name is invalid.
    """
    if not isinstance(table.catalog, CatalogConfig) or table.identifier is None:
        raise ConfigError(f"table {table.name!r}: `catalogs` has no catalog {table.catalog!r}")
    database, _, name = table.identifier.rpartition(".")
    if not database or not name:
        raise ConfigError(
            f"table {table.name!r}: table = {table.identifier!r}: give database and name with a dot between, like "
            "`sales.orders`"
        )
    return database, name


@contextmanager
def open_catalog(config: CatalogConfig, action: str) -> Iterator[Catalog]:
    """Yield the client of a catalog, for requests beyond the interface `Catalog`, such as updates.

    Args:
        config: the configuration of the catalog.
        action: what the requests do, for messages: `update table 'sales.orders'`.

    Raises:
        MissingPackageError: the client library of the catalog is not installed.
        TableNotFoundError: the `with` block looked up a table that the catalog does not have.
        TableFormatError: the client cannot be created, or a request of the `with` block failed.
    """
    with _catalog_errors(config, action):
        yield _checked_client(config, action)


@contextmanager
def open_pyiceberg_table(table: TableConfig) -> Iterator[Table]:
    """Yield pyiceberg's object of an Iceberg table in a catalog, to write files and metadata.

    Path mappings of the configuration do not apply. Errors in the `with` block become errors that name the catalog.

    Raises:
        ConfigError: the configuration has no such catalog.
        TableNotFoundError, TableFormatError, MissingPackageError: as `load_catalog_entry`.
    """
    if not isinstance(table.catalog, CatalogConfig) or table.identifier is None:
        raise ConfigError(f"table {table.name!r}: `catalogs` has no catalog {table.catalog!r}")
    what = f"table {table.identifier!r}"
    with _catalog_errors(table.catalog, f"read or write {what}"):
        _checked_client(table.catalog, what)  # checks that packages and SQLite files exist
        from metastore_assets.formats.catalogs.iceberg import MISSING_TABLE, open_catalog

        properties = {
            "type": table.catalog.type,
            **catalog_properties(table.storage_options),
            **table.catalog.properties,
        }
        with open_catalog(table.catalog.name, properties) as catalog:
            try:
                loaded_table = catalog.load_table(tuple(table.identifier.split(".")))
            except MISSING_TABLE as error:
                raise TableNotFoundError(f"has no {what}") from error
            yield loaded_table


def list_tables(config: CatalogConfig, database: str) -> list[ListedTable]:
    """Return the tables and views of a database, sorted by name.

    Args:
        config: the configuration of the catalog.
        database: name of the database; in Iceberg catalogs a namespace, such as `lake.sales`.

    Raises:
        MissingPackageError: the client library of the catalog is not installed.
        TableNotFoundError: the catalog does not have the database.
        TableFormatError: the catalog cannot be queried.
    """
    with _catalog_errors(config, f"return the tables of the database {database!r}"):
        return sorted(
            _checked_client(config, f"database {database!r}").list_tables(database),
            key=lambda listed_table: listed_table.name,
        )


def catalog_label(config: CatalogConfig) -> str:
    """Return the text by which messages refer to a catalog: `catalog 'prod'`."""
    return f"catalog {config.name!r}"


def _checked_client(config: CatalogConfig, what: str) -> Catalog:
    """Return the client of a catalog.

    Raises TableNotFoundError if the catalog is a SQLite file that does not exist, and MissingPackageError if a package
    for this type of catalog is not installed. `what` is the requested object, for the message.
    """
    database = _SQLITE.match(config.properties.get("uri", "")) if config.type == "sql" else None
    if database is not None and not os.path.exists(database[1]):
        # Opening a missing SQLite file would create an empty catalog.
        raise TableNotFoundError(f"has no {what}: there is no {database[1]}")
    with extra("hive" if config.type == "hive" else "iceberg", catalog_label(config)):
        return _client(config.type, config.name, tuple(sorted(config.properties.items())))


@lru_cache(maxsize=32)
def _client(kind: str, name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    """Return the client of a catalog.

    It is cached in the process, because creating it takes longer than a query.
    """
    settings = dict(properties)
    if kind == "glue":
        from metastore_assets.formats.catalogs.glue import GlueCatalogClient

        return GlueCatalogClient(name, settings)
    if kind == "hive":
        from metastore_assets.formats.catalogs.hive import HiveCatalogClient

        return HiveCatalogClient(name, settings)
    from metastore_assets.formats.catalogs.iceberg import IcebergCatalogClient

    return IcebergCatalogClient(name, {"type": kind, **settings})


@contextmanager
def _catalog_errors(config: CatalogConfig, action: str) -> Iterator[None]:
    """Put the name of the catalog into errors of the `with` block.

    Errors of the catalog's client library become TableFormatError, without the secrets of the configuration. The
    message says that the catalog cannot do `action`, such as `return table 'sales.orders'`. ConfigError and
    MissingPackageError are not changed.
    """
    where = catalog_label(config)
    _remember_secrets(config)
    try:
        yield
    except TableNotFoundError as error:
        raise TableNotFoundError(f"{where} {error}") from error.__cause__
    except TableFormatError as error:
        raise TableFormatError(f"{where}: {error}") from error.__cause__
    except MetastoreError:
        raise
    except Exception as error:
        # Each kind of catalog has its own client library with its own errors.
        raise TableFormatError(f"{where} cannot {action}: {_error_text(error)}{_advice(config, error)}") from error


def _remember_secrets(config: CatalogConfig) -> None:
    """Register the secrets in a catalog's properties, so that they are removed from messages.

    Client libraries quote properties in their errors.
    """
    for key, value in config.properties.items():
        source = f"(catalogs.{config.name}.{key})"
        if _SECRET_KEY.search(key):
            remember_secret(value, source)
        if (password := _PASSWORD.search(value)) is not None:
            remember_secret(password[1], source)
            remember_secret(unquote(password[1]), source)


def _error_text(error: Exception) -> str:
    """Return the text of a client's error as one line of bounded length, without secrets."""
    message = getattr(error, "message", None)
    text = message if isinstance(message, str) and message else str(error)
    return redact_to_line(text) or type(error).__name__


def _advice(config: CatalogConfig, error: Exception) -> str:
    """Return advice to append to a catalog's error message, such as "Check its credentials".

    It begins with a period, and ends without one.
    """
    name = f"{type(error).__name__} {error}"
    keys = f"under catalogs.{config.name} in metastore.yaml"
    if any(sign in name for sign in _MISSING_CREDENTIALS):
        return f". Give it credentials, in the environment or {keys}"
    if any(sign in name for sign in _REFUSED_CREDENTIALS):
        return f". Check its credentials, in the environment or {keys}"
    return f". Check its properties {keys}"
