"""`Metastore` and `open_table`: access to the published versions of the tables below a root.

The root is the folder with all stored state. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from metastore_assets.lookup.arguments import check_mapping, check_text, text_tuple
from metastore_assets.lookup.results import ResultSet
from metastore_assets.lookup.summaries import VersionSummary, summarize
from metastore_assets.lookup.table import Scanner, Table
from metastore_assets.lookup.version_references import VersionReference, list_tables, list_versions, open_version
from metastore_assets.store.objects import ObjectStore


class Metastore:
    """The published versions of all tables below a root."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        statistic_classes: Iterable[str] = (),
        table_locations: Iterable[str] = (),
    ) -> None:
        """Open a root, without reading anything yet.

        Args:
            root: A local path or a URI, such as `s3://bucket/metastore`.
            storage_options: Options of the root's object store.
            statistic_classes: Classes of custom statistics, as `module:Class`. Only these classes may be imported
                to compute statistics of filtered rows. By default, none.
            table_locations: Folders and URI prefixes below which data files of tables may be read, such as
                `"s3://lake/"`. Other locations are refused, because anyone who can write the root can forge the
                location in a version.
        """
        root_text = os.fspath(root) if isinstance(root, os.PathLike) else root
        check_text("root", root_text, "a local path or a URI")
        check_mapping("storage_options", storage_options)
        self._store = ObjectStore(root_text, storage_options)
        self._statistic_classes = text_tuple("statistic_classes", statistic_classes, "texts such as 'module:Class'")
        self._table_locations = text_tuple("table_locations", table_locations, "folders and URI prefixes as texts")

    def __repr__(self) -> str:
        return f"Metastore({self._store.uri()!r})"

    def tables(self) -> ResultSet[VersionSummary]:
        """Return a summary of the newest version of each table that has one, sorted by the table's name."""
        return summarize(lambda name: open_version(self._store, name)[1], self.table_names())

    def table_names(self) -> Sequence[str]:
        """Return the names of the tables with a published version, sorted.

        Unlike `tables`, it reads no version.
        """
        return tuple(list_tables(self._store))

    def versions(self, name: str) -> ResultSet[VersionSummary]:
        """Return summaries of a table's published versions, oldest first; empty for an unknown table."""
        return summarize(lambda number: open_version(self._store, name, number)[1], self.version_numbers(name))

    def version_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of a table's published versions, ascending.

        Unlike `versions`, it reads no version.
        """
        return tuple(list_versions(self._store, name))

    def table(self, name: str, *, version: VersionReference | None = None) -> Table:
        """Return a table, opened at a version.

        Later versions do not change its answers.

        Args:
            name: The table's name.
            version: A number; a snapshot, as `"snapshot:ID"`; or a time (`datetime` or ISO 8601 text), which selects
                the newest version whose snapshot was committed by then. Default: the newest version.
                `lookup.version_references` describes the texts.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        versions, resolved_version = open_version(self._store, name, version)
        return Table(versions.objects, resolved_version, open_scanner, self._statistic_classes, self._table_locations)


def open_table(
    root: str | os.PathLike[str],
    name: str,
    *,
    version: VersionReference | None = None,
    storage_options: Mapping[str, str] | None = None,
    statistic_classes: Iterable[str] = (),
    table_locations: Iterable[str] = (),
) -> Table:
    """Return a table, opened at a version.

    A shorthand for `Metastore(root).table(name, version=version)`.

    Args:
        root: A local path or a URI, such as `s3://bucket/metastore`.
        name: The table's name.
        version: A number; a snapshot, as `"snapshot:ID"`; or a time (`datetime` or ISO 8601 text), which selects the
            newest version whose snapshot was committed by then. Default: the newest version.
            `lookup.version_references` describes the texts.
        storage_options: Options of the root's object store.
        statistic_classes: Classes of custom statistics, as `module:Class`. Only these classes may be imported to
            compute statistics of `filter(…)`.
        table_locations: Folders and URI prefixes such as `"s3://lake/"`. `count`, `scan` and `filter(…, read=True)`
            read the table only if its location in the version is below one of them.

    Raises:
        VersionNotFoundError: There is no such version.
        StoreError: The root cannot be read.
    """
    metastore = Metastore(
        root, storage_options=storage_options, statistic_classes=statistic_classes, table_locations=table_locations
    )
    return metastore.table(name, version=version)


def open_scanner() -> Scanner:
    """Create the object with which a `Table` reads data files."""
    # Imports the table formats and the pipeline, which most lookups do not need.
    from metastore_assets.scan import TableScanner

    return TableScanner()
