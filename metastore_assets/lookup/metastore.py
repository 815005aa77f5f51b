"""A root and the tables that have published versions below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.lookup.as_of import VersionChoice, find_version
from metastore_assets.lookup.table import Table
from metastore_assets.messages import close_names
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore


class Metastore:
    """Everything published below a root: a local path or a URI, with its storage options.

    `statistics`: classes of user-defined statistics, as `module:Class`, that may be imported to answer of some rows.
    `table_locations`: folders and prefixes of the tables themselves. Versions record where their tables are; what they
    record is read only at or below one of these, for whoever can write the root can write that, too.
    """

    def __init__(
        self,
        root: str,
        storage_options: Mapping[str, str] | None = None,
        statistics: Iterable[str] = (),
        table_locations: Iterable[str] = (),
    ) -> None:
        self._store = ObjectStore(root, storage_options)
        self._statistics = (statistics,) if isinstance(statistics, str) else tuple(statistics)
        self._table_locations = (table_locations,) if isinstance(table_locations, str) else tuple(table_locations)

    def tables(self) -> list[str]:
        """Names of the tables with a published version, sorted."""
        return [name for name in self._store.folders() if VersionStore(self._store, name).newest()]

    def versions(self, name: str) -> list[int]:
        """Numbers of a table's published versions, ascending; empty when there is none."""
        return VersionStore(self._store, name).numbers() if _is_folder_name(name) else []

    def table(self, name: str, version: VersionChoice | None = None) -> Table:
        """One table as of a version, by default the newest. Raises VersionNotFoundError when there is none.

        `version`: its number; the id of a snapshot, as text; or a time, as `datetime` or in ISO 8601: the newest
        version of that snapshot, or of what was committed by then.

        What is read later is of that version, whatever is published meanwhile.
        """
        if not _is_folder_name(name):
            raise self._unpublished(name)
        versions = VersionStore(self._store, name)
        found = versions.latest() if version is None else find_version(versions, version)
        if found is None:
            raise self._unpublished(name)
        return Table(versions.objects, found, self._statistics, self._table_locations)

    def _unpublished(self, name: str) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"table {name!r} has no published version below {self._store.uri()}; run `metastore refresh {name}`"
            + close_names(name, self.tables(), "; published are: {}")
        )


def open_table(
    root: str,
    name: str,
    version: VersionChoice | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    statistics: Iterable[str] = (),
    table_locations: Iterable[str] = (),
) -> Table:
    """One table below a root, as of a version, by default the newest: `Metastore(root).table(name, version)`.

    `root` is a local path or a URI, such as `s3://bucket/metastore`, with its storage options. `version`: a number, the
    id of a snapshot, or a time, as `datetime` or in ISO 8601. `statistics`: the classes of user-defined statistics, as
    `module:Class`, that may be imported where `filter` has to compute them. `table_locations`: where the table itself
    may be read, by `count`, `scan` and `filter(…, read=True)`, if its version says that it is there: `"s3://lake/"`.

    Raises VersionNotFoundError, StoreError.
    """
    return Metastore(root, storage_options, statistics, table_locations).table(name, version)


def _is_folder_name(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & {"/", "\0"}
