"""The folders of the root, and the locations of tables that must not overlap them.

The root is the folder with all stored state. The statistics of a table are in `<root>/<name of the table>`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from metastore_assets.errors import ConfigError
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import location_address

_IGNORED = ("_", ".")
"""Readers of plain files, and commands that delete unused files of a table, ignore folders with such names."""


@dataclass(frozen=True)
class RootFolders:
    """The root and the folders in it, one for each table."""

    root: Location = field(repr=False)
    names: frozenset[str]
    """The names of all tables, which are the names of the folders."""

    def check(self, table: str, location: Location) -> None:
        """Raise ConfigError if a table overlaps the root so that files would be lost or read by mistake.

        A table must not be in the folder for the statistics of any table. The root must not be in the table's folder,
        unless the path from that folder to the root has a name that begins with `_` or `.`: readers of the table ignore
        such names.

        Args:
            table: The name of the table.
            location: The location of the table, or of its metadata file in the folder `metadata`.
        """
        location = _table_folder(location)
        name = self.folder_of(location)
        if name is not None:
            raise ConfigError(
                f"table {table!r} is in {location_address(self.root.resolved).uri.rstrip('/')}/{name}, the folder for "
                f"statistics of table {name!r}: choose a `root` in which there are no tables"
            )
        if is_read_with_table(self.root, location):
            root, folder = location_address(self.root.resolved), location_address(location.resolved)
            raise ConfigError(
                f"the root {root.uri} is in {folder.uri}, the folder of table {table!r}: readers of the table would "
                "read the stored statistics as data, and a vacuum might delete them; choose another `root`, or one in "
                "a folder whose name begins with `_`"
            )

    def folder_of(self, location: Location) -> str | None:
        """Return the name of the table in whose folder for statistics a location is; None if it is in none."""
        root, address = location_address(self.root.resolved), location_address(location.resolved)
        if not root.contains(address):
            return None
        name = address.path[len(root.path) :].strip("/").split("/")[0]
        return name if name in self.names else None


def is_read_with_table(location: Location, table: Location) -> bool:
    """Return whether a folder or file is in a table's folder, under a name that readers do not ignore.

    Args:
        location: The location of the folder or file.
        table: The location of the table, or of its metadata file in the folder `metadata`.
    """
    inner, folder = location_address(location.resolved), location_address(_table_folder(table).resolved)
    between = inner.path[len(folder.path) :].split("/")
    return folder.contains(inner) and not any(part.startswith(_IGNORED) for part in between)


def _table_folder(location: Location) -> Location:
    """Return the folder of a table, given its location.

    The location may be that of its metadata file in the folder `metadata`.
    """
    parent = location.parent
    if location.uri.endswith(".metadata.json") and parent is not None and parent.uri.endswith("/metadata"):
        return parent.parent or location
    return location
