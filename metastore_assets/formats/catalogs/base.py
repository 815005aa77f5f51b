"""The interface of catalog clients, and the table entries and database listings that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Format = Literal["delta", "files", "hudi", "iceberg"]
_TABLE_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_key",
}
"""Storage options by the pyiceberg property with the same meaning. These properties apply to files only."""
_SHARED_OPTIONS = {
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
}
"""Storage options by the pyiceberg property with the same meaning. These properties apply to the catalog and to files.
"""


@dataclass(frozen=True)
class PartitionFolder:
    """The folder that a catalog registers for one partition of plain files."""

    values: tuple[str | None, ...]
    """Values of the partition columns, in their order."""
    location: str
    """URI of the folder, as recorded."""


@dataclass(frozen=True)
class RegisteredFolders:
    """The folders that a catalog registers for a table of plain files.

    Other folders contain no rows of the table.
    """

    columns: tuple[tuple[str, str], ...]
    """Name and Hive type of each partition column; empty for an unpartitioned table."""
    partitions: tuple[PartitionFolder, ...]
    """Registered partitions; none for an unpartitioned table, whose rows are in the table's folder."""


@dataclass(frozen=True)
class CatalogEntry:
    """A catalog's record of a table: its format, its location, and the settings to read it with."""

    format: Format
    location: str
    """The recorded location: the newest metadata file of an Iceberg table, otherwise the table's folder."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Storage options to read the table with. Options in the table's configuration take precedence. `repr` omits them,
    because some are secret."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the format `files`, translated from the table's declaration in the catalog."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Declared Hive types by column, for files that store no types."""
    folders: RegisteredFolders | None = None
    """The registered folders of plain files. None if folder names (`column=value`) contain the partition values
    instead."""


@dataclass(frozen=True)
class ListedTable:
    """A table or view in the listing of a database."""

    name: str
    """The name within the database."""
    format: Format | None
    """The format; None if the table cannot be read."""
    reason: str = ""
    """Why the table cannot be read; empty for a table with a format."""


class Catalog(Protocol):
    """A client of one catalog.

    Its methods may raise errors of the client library.
    """

    def list_tables(self, database: str) -> Sequence[ListedTable]:
        """Return all tables and views of a database, in any order.

        Raises TableNotFoundError if the database does not exist.
        """

    def load_entry(self, database: str, name: str) -> CatalogEntry:
        """Return the entry of a table.

        Raises TableNotFoundError, or TableFormatError if the table cannot be read.
        """


def catalog_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return pyiceberg's file properties for the storage options of a table.

    For example, `aws_region` becomes `s3.region`.
    """
    return {name: options[option] for name, option in _TABLE_OPTIONS.items() if option in options}


def storage_options(properties: Mapping[str, Any]) -> dict[str, str]:
    """Translate properties of a catalog to storage options of its tables.

    For example, `s3.region` becomes `aws_region`. Properties that apply only to files (`s3.region`) take precedence
    over those that also apply to the catalog (`client.region`). An endpoint with `http://` adds the option
    `aws_allow_http`.
    """
    options = {
        option: str(properties[name])
        for options_by_property in (_SHARED_OPTIONS, _TABLE_OPTIONS)
        for name, option in options_by_property.items()
        if properties.get(name)
    }
    if options.get("aws_endpoint", "").startswith("http://"):
        options["aws_allow_http"] = "true"
    return options
