"""The interface of catalogs, and the entry of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Format = Literal["delta", "files", "hudi", "iceberg"]
_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_key",
}
"""Storage options by pyiceberg's property names."""
_SHARED = {
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
}
"""Properties that apply to both the catalog and its tables."""


@dataclass(frozen=True)
class PartitionFolder:
    """A registered partition of plain files."""

    values: tuple[str | None, ...]
    """Values of the partition columns, in their order."""
    location: str
    """The recorded location."""


@dataclass(frozen=True)
class RegisteredFolders:
    """The registered folders of a table of plain files; only these contain its rows."""

    columns: tuple[tuple[str, str], ...]
    """Partition columns with their types, as the catalog names them; empty without partitions."""
    partitions: tuple[PartitionFolder, ...]
    """Registered partitions; empty if there are no partition columns: then the table's own folder has the rows."""


@dataclass(frozen=True)
class CatalogEntry:
    """The catalog entry of a table."""

    format: Format
    location: str
    """The recorded location: the newest metadata file of an Iceberg table, otherwise the table's folder."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Storage options to read the table with; its configuration takes precedence. Not shown, because some are secret.
    """
    options: Mapping[str, Any] = field(default_factory=dict)
    """Reader options of plain files that follow from the table's declaration."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Types by column, for files that store no types."""
    folders: RegisteredFolders | None = None
    """Registered folders of plain files; None if folder names contain the values (`column=value`)."""


@dataclass(frozen=True)
class ListedTable:
    """A table in the listing of a database."""

    name: str
    """The name within the database."""
    format: Format | None
    """None if the table is not supported."""
    reason: str = ""
    """Why it is not supported."""


class Catalog(Protocol):
    """A catalog behind its client library. Its errors are those of the library; `asking` converts them."""

    def tables(self, database: str) -> Sequence[ListedTable]:
        """Return all tables and views of a database, in no order. Raises TableNotFoundError if there is no such
        database.
        """

    def table(self, database: str, name: str) -> CatalogEntry:
        """Return one table. Raises TableNotFoundError, or TableFormatError if it is not supported."""


def storage_options(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the storage options of some properties. Properties for files take precedence over general ones."""
    options = {
        ours: str(properties[theirs])
        for names in (_SHARED, _OPTIONS)
        for theirs, ours in names.items()
        if properties.get(theirs)
    }
    if options.get("aws_endpoint", "").startswith("http://"):
        options["aws_allow_http"] = "true"
    return options
