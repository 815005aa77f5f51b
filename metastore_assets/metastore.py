"""`Metastore` and `open_table`: access to the published versions of the tables below a root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metastore_assets.lookup.table import Scanner, Table
from metastore_assets.lookup.versions import VersionSelector, list_tables, list_versions, open_version
from metastore_assets.store.objects import ObjectStore


class Metastore:
    """The published versions of all tables below a root."""

    def __init__(
        self,
        root: str,
        storage_options: Mapping[str, str] | None = None,
        statistics: Iterable[str] = (),
        table_locations: Iterable[str] = (),
    ) -> None:
        """Open a root, without reading anything yet.

        Args:
            root: A local path or a URI, such as `s3://bucket/metastore`.
            storage_options: Options of the root's object store.
            statistics: Classes of user-defined statistics, as `module:Class`, that may be imported where a filtered
                view has to compute them.
            table_locations: Folders and prefixes of the tables themselves. Versions record where their tables are; only
                locations at or below one of these are read, because whoever can write the root can forge a record.
        """
        self._store = ObjectStore(root, storage_options)
        self._statistics = (statistics,) if isinstance(statistics, str) else tuple(statistics)
        self._table_locations = (table_locations,) if isinstance(table_locations, str) else tuple(table_locations)

    def tables(self) -> list[str]:
        """Return the names of the tables with a published version, sorted."""
        return list_tables(self._store)

    def versions(self, name: str) -> list[int]:
        """Return the numbers of a table's published versions, ascending; none for an unknown table."""
        return list_versions(self._store, name)

    def table(self, name: str, version: VersionSelector | None = None) -> Table:
        """Return a table as of a version. What is published later does not change its answers.

        Args:
            name: The table's name.
            version: A version's number; a snapshot's id, as text; or a time, as `datetime` or in ISO 8601, for the
                newest version of what was committed by then. None for the newest version.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        versions, resolved = open_version(self._store, name, version)
        return Table(versions.objects, resolved, open_scanner, self._statistics, self._table_locations)


def open_table(
    root: str,
    name: str,
    version: VersionSelector | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    statistics: Iterable[str] = (),
    table_locations: Iterable[str] = (),
) -> Table:
    """Return a table below a root as of a version, as `Metastore(root).table(name, version)`.

    Args:
        root: A local path or a URI, such as `s3://bucket/metastore`.
        name: The table's name.
        version: A version's number; a snapshot's id, as text; or a time, as `datetime` or in ISO 8601, for the newest
            version of what was committed by then. None for the newest version.
        storage_options: Options of the root's object store.
        statistics: Classes of user-defined statistics, as `module:Class`, that may be imported where `filter` has to
            compute them.
        table_locations: Where `count`, `scan` and `filter(…, read=True)` may read the table, if its version records
            that it is there: folders and prefixes such as `"s3://lake/"`.

    Raises:
        VersionNotFoundError: There is no such version.
        StoreError: The root cannot be read.
    """
    return Metastore(root, storage_options, statistics, table_locations).table(name, version)


def open_scanner() -> Scanner:
    """Return a scanner, which reads the files of tables."""
    # Imports the table formats and the pipeline, which most lookups do not need.
    from metastore_assets.scan import TableScanner

    return TableScanner()
