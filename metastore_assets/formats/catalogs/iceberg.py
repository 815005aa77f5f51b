"""A client of SQL and REST catalogs of Iceberg tables, which uses pyiceberg."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import Properties
from pyiceberg.utils.config import PYICEBERG_HOME, PYICEBERG_YML

from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.formats.catalogs.base import CatalogEntry, ListedTable, storage_options
from metastore_assets.messages import close_names

MISSING_TABLE = (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError)
"""Errors of pyiceberg for a table or namespace that does not exist."""


class _Located(Exception):
    """Raised with the location of a file, instead of opening the file."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class LocatingFileIO(FileIO):
    """A FileIO that raises `_Located` when pyiceberg opens a table's metadata file.

    Only the location is needed, because the format `iceberg` reads the file.
    """

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)

    def new_input(self, location: str) -> InputFile:
        raise _Located(location)

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"{location}: tables are only read")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"{location}: tables are only read")


class IcebergCatalogClient:
    """A client of a SQL or REST catalog.

    A database is a namespace, such as `lake.sales`.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the client without sending a request.

        Args:
            name: the name of the catalog in the configuration.
            properties: pyiceberg's properties of the catalog, including its `type`.
        """
        self._name = name
        self._properties = dict(properties)

    def list_tables(self, database: str) -> Sequence[ListedTable]:
        """Return the tables of a namespace.

        Raises TableNotFoundError if it does not exist.
        """
        with self._catalog() as catalog:
            try:
                identifiers = catalog.list_tables(tuple(database.split(".")))
            except NoSuchNamespaceError as error:
                namespaces = [".".join(namespace) for namespace in catalog.list_namespaces()]
                raise TableNotFoundError(
                    f"has no database {database!r}" + close_names(database, namespaces, "; there are: {}")
                ) from error
        return [ListedTable(identifier[-1], "iceberg") for identifier in identifiers]

    def load_entry(self, database: str, name: str) -> CatalogEntry:
        """Return the entry of a table.

        The location in the entry is the newest metadata file of the table.

        Raises TableNotFoundError, or TableFormatError if the catalog records no metadata file.
        """
        identifier = f"{database}.{name}"
        try:
            with self._catalog() as catalog:
                table = catalog.load_table((*database.split("."), name))
        except _Located as located:
            return CatalogEntry("iceberg", located.location, storage_options(self._properties))
        except MISSING_TABLE as error:
            raise TableNotFoundError(f"has no table {identifier!r}: {error}") from error
        if not table.metadata_location:
            raise TableFormatError(f"it records no metadata file of {identifier!r}")
        # A REST catalog returns the metadata in its first answer, with credentials for this table.
        return CatalogEntry(
            "iceberg", table.metadata_location, storage_options(self._properties | dict(table.io.properties))
        )

    def _catalog(self) -> Catalog:
        implementation = f"{LocatingFileIO.__module__}.{LocatingFileIO.__qualname__}"
        return open_catalog(self._name, self._properties | {"py-io-impl": implementation})


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Return pyiceberg's client of a catalog.

    Raises ConfigError if pyiceberg would apply a configuration file in the working folder.
    """
    _check_working_folder(name)
    return load_catalog(name, **properties)


def _check_working_folder(catalog: str) -> None:
    """Raise ConfigError if pyiceberg would apply a configuration file in the working folder."""
    folders = [os.environ.get(PYICEBERG_HOME) or None, os.path.expanduser("~")]
    if any(folder and os.path.isfile(os.path.join(folder, PYICEBERG_YML)) for folder in folders):
        return  # pyiceberg reads the first file that exists.
    # Other people may have written the file, which decides where pyiceberg sends the catalog's credentials.
    path = os.path.abspath(PYICEBERG_YML)
    if os.path.isfile(path):
        raise ConfigError(
            f"catalog {catalog!r}: pyiceberg would apply {path}, because it is in the working folder: set "
            f"{PYICEBERG_HOME} to that folder if you trust the file, or start from another folder"
        )
