"""A root and the tables that have published versions below it."""

from __future__ import annotations

from collections.abc import Mapping

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.lookup.table import TableLookup
from metastore_assets.messages import close_names
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore


class Metastore:
    """Everything published below a root: a local path or a URI, with its storage options."""

    def __init__(self, root: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = ObjectStore(root, storage_options)

    def tables(self) -> list[str]:
        """Names of the tables with a published version, sorted."""
        return [name for name in self._store.folders() if VersionStore(self._store, name).newest()]

    def versions(self, name: str) -> list[int]:
        """Numbers of a table's published versions, ascending; empty when there is none."""
        return VersionStore(self._store, name).numbers() if _is_folder_name(name) else []

    def table(self, name: str, version: int | None = None) -> TableLookup:
        """One table as of a version, by default the newest. Raises VersionNotFoundError when there is none.

        What is read later is of that version, whatever is published meanwhile.
        """
        if not _is_folder_name(name):
            raise self._unpublished(name)
        versions = VersionStore(self._store, name)
        found = versions.latest() if version is None else versions.read(version)
        if found is None:
            raise self._unpublished(name)
        return TableLookup(versions.objects, found)

    def _unpublished(self, name: str) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"table {name!r} has no published version below {self._store.uri()}; run `metastore refresh {name}`"
            + close_names(name, self.tables(), "; published are: {}")
        )


def open_table(
    root: str, name: str, storage_options: Mapping[str, str] | None = None, version: int | None = None
) -> TableLookup:
    """One table below a root, as of a version, by default the newest: `Metastore(root).table(name)`."""
    return Metastore(root, storage_options).table(name, version)


def _is_folder_name(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & {"/", "\0"}
