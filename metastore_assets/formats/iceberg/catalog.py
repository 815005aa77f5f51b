"""Iceberg catalogs, by way of pyiceberg: they say where a table's newest metadata file is, and how to reach it."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import Properties

from metastore_assets.config import CatalogConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.messages import without_secrets

_SQLITE = "sqlite:///"
_STORAGE_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_key",
}
"""Object-store settings by pyiceberg's names, and by those that tables have."""


class _Located(Exception):
    """Raised by LocatingFileIO."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class LocatingFileIO(FileIO):
    """Opens nothing: it stops pyiceberg as soon as it knows which file to open.

    That file is read as those of tables without a catalog are, wherever it may have been moved to.
    """

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)

    def new_input(self, location: str) -> InputFile:
        raise _Located(location)

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"{location}: tables are only read")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"{location}: tables are only read")


def locate_table(config: CatalogConfig, identifier: str) -> tuple[str, dict[str, str]]:
    """The recorded location of a table's newest metadata file, and storage options to read it with.

    Raises TableNotFoundError when the catalog has no such table, TableFormatError when it cannot be asked.
    """
    where = f"catalog {config.name!r}"
    properties = {"type": config.type, **config.properties}
    database = Path(properties.get("uri", "").removeprefix(_SQLITE))
    if properties.get("uri", "").startswith(_SQLITE) and not database.exists():
        # Asking would make an empty one.
        raise TableNotFoundError(f"{where} has no table {identifier!r}: there is no {database}")
    implementation = f"{LocatingFileIO.__module__}.{LocatingFileIO.__qualname__}"
    try:
        with load_catalog(config.name, **properties, **{"py-io-impl": implementation}) as catalog:
            table = catalog.load_table(identifier)
    except _Located as found:
        return found.location, _storage_options(properties)
    except (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError) as error:
        raise TableNotFoundError(f"{where} has no table {identifier!r}: {_told(error)}") from error
    except Exception as error:
        # Each kind of catalog has a client library of its own, with errors of its own.
        raise TableFormatError(f"{where} cannot be asked for {identifier!r}: {_told(error)}") from error
    if not table.metadata_location:
        raise TableFormatError(f"{where} does not say where the metadata file of {identifier!r} is")
    # A REST catalog answers with the metadata themselves, and with credentials for this table.
    return table.metadata_location, _storage_options(properties | dict(table.io.properties))


def _storage_options(properties: Properties) -> dict[str, str]:
    options = {ours: str(properties[theirs]) for theirs, ours in _STORAGE_OPTIONS.items() if properties.get(theirs)}
    if options.get("aws_endpoint", "").startswith("http://"):
        options["aws_allow_http"] = "true"
    return options


def _told(error: Exception) -> str:
    return " ".join(without_secrets(str(error)).split())[:500] or type(error).__name__
