"""Open and query catalogs. Errors name the catalog, the table and the reason, and never a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import ConfigError, MetastoreError, TableFormatError, TableNotFoundError
from metastore_assets.extras import extra
from metastore_assets.formats.catalogs.base import Catalog, CatalogEntry, ListedTable
from metastore_assets.messages import remember_secret, remove_secrets

_SQLITE = "sqlite:///"
_SECRET_KEY = re.compile(r"secret|token|password|credential|access-key|account-key", re.IGNORECASE)
_PASSWORD = re.compile(r"://[^/@:]*:([^/@]+)@")
"""A password in a URI."""
_LONGEST = 500
_CREDENTIALS = ("NoCredentials", "CredentialRetrieval", "PartialCredentials", "ProfileNotFound")
_REFUSED = ("AccessDenied", "UnrecognizedClient", "ExpiredToken", "InvalidSignature", "Unauthorized", "Forbidden")


def load_catalog_entry(table: TableConfig) -> CatalogEntry:
    """Return the catalog entry of a configured table.

    Raises TableNotFoundError if the catalog has no such table, TableFormatError if it cannot be queried or the table is
    not supported.
    """
    if not isinstance(table.catalog, CatalogConfig) or table.identifier is None:
        raise ConfigError(f"table {table.name!r}: nothing is known of the catalog {table.catalog!r}")
    database, _, name = table.identifier.rpartition(".")
    if not database or not name:
        raise ConfigError(
            f"table {table.name!r}: table = {table.identifier!r}: database and name with a dot between, `sales.orders`"
        )
    what = f"table {table.identifier!r}"
    with _explain_errors(table.catalog, what):
        return _opened(table.catalog, what).table(database, name)


def list_tables(config: CatalogConfig, database: str) -> list[ListedTable]:
    """Return the tables and views of a database, by name. Raises TableNotFoundError, TableFormatError."""
    with _explain_errors(config, f"the tables of the database {database!r}"):
        return sorted(_opened(config, f"database {database!r}").tables(database), key=lambda listed: listed.name)


def catalog_label(config: CatalogConfig) -> str:
    """Return a catalog's name for messages."""
    return f"catalog {config.name!r}"


def _opened(config: CatalogConfig, what: str) -> Catalog:
    database = config.properties.get("uri", "")
    if config.type == "sql" and database.startswith(_SQLITE):
        path = Path(database.removeprefix(_SQLITE))
        if not path.exists():
            # Opening a missing SQLite file would create an empty catalog.
            raise TableNotFoundError(f"has no {what}: there is no {path}")
    with extra("hive" if config.type == "hive" else "iceberg", catalog_label(config)):
        return _open(config.type, config.name, tuple(sorted(config.properties.items())))


@lru_cache(maxsize=32)
def _open(kind: str, name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    """Return the client of a catalog. It is cached per process, because creating one costs more than a query."""
    options = dict(properties)
    if kind == "glue":
        from metastore_assets.formats.catalogs.glue import GlueTables

        return GlueTables(name, options)
    if kind == "hive":
        from metastore_assets.formats.catalogs.hive import HiveTables

        return HiveTables(name, options)
    from metastore_assets.formats.catalogs.iceberg import IcebergTables

    return IcebergTables(name, {"type": kind, **options})


@contextmanager
def _explain_errors(config: CatalogConfig, what: str) -> Iterator[None]:
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
        # Each kind of catalog has its own client library, with its own errors.
        raise TableFormatError(f"{where} cannot return {what}: {_error_text(error)}{_advice(config, error)}") from error


def _remember_secrets(config: CatalogConfig) -> None:
    """Register a catalog's secrets for redaction, because clients quote their settings in errors."""
    for key, value in config.properties.items():
        source = f"(catalogs.{config.name}.{key})"
        if _SECRET_KEY.search(key):
            remember_secret(value, source)
        if (options := _PASSWORD.search(value)) is not None:
            remember_secret(options[1], source)
            remember_secret(unquote(options[1]), source)


def _error_text(error: Exception) -> str:
    """Return a client's error as one line without secrets."""
    message = getattr(error, "message", None)
    text = message if isinstance(message, str) and message else str(error)
    return " ".join(remove_secrets(text).split())[:_LONGEST] or type(error).__name__


def _advice(config: CatalogConfig, error: Exception) -> str:
    name = f"{type(error).__name__} {error}"
    keys = f"under catalogs.{config.name} in metastore.yaml"
    if any(sign in name for sign in _CREDENTIALS):
        return f". Give it credentials, in the environment or {keys}"
    if any(sign in name for sign in _REFUSED):
        return f". Look at the credentials that it is given, in the environment or {keys}"
    return f". Look at what is {keys}"
