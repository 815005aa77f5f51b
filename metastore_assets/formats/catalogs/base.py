"""What every catalog answers, and what it says of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Format = Literal["delta", "files", "hudi", "iceberg"]


@dataclass(frozen=True)
class PartitionFolder:
    """A partition of plain files, as a catalog has it registered."""

    values: tuple[str | None, ...]
    """Of the partition columns, in their order."""
    location: str
    """As recorded."""


@dataclass(frozen=True)
class Folders:
    """Which folders below a table of plain files hold its rows: those that are registered, and no others."""

    columns: tuple[tuple[str, str], ...]
    """Partition columns with their types, as the catalog names them; empty without partitions."""
    partitions: tuple[PartitionFolder, ...]
    """Empty without columns: then it is the table's own folder."""


@dataclass(frozen=True)
class Entry:
    """What a catalog says of one table."""

    format: Format
    location: str
    """As recorded: the newest metadata file of an Iceberg table, else the table's folder."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """To read the table with, where its configuration says nothing else. Not shown: some are secret."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Reader options of plain files, which follow from how the table is declared."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Of files without types of their own, types by column."""
    folders: Folders | None = None
    """Of plain files; None where folders' names say the values (`column=value`), as the catalog knows none."""


@dataclass(frozen=True)
class Listed:
    """One table of a database."""

    name: str
    """Within the database."""
    format: Format | None
    """None for what cannot be described."""
    reason: str = ""
    """Why not."""


class Catalog(Protocol):
    """A catalog, asked by its own client. Errors are whatever that raises; see `asking`."""

    def tables(self, database: str) -> Sequence[Listed]:
        """All tables of a database, views too, in no order. Raises TableNotFoundError when there is none."""

    def table(self, database: str, name: str) -> Entry:
        """One table. Raises TableNotFoundError, or TableFormatError for what cannot be described."""
