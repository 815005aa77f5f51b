"""Queries over several versions of a table: its history, and comparisons of two versions.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.lookup.arguments import check_text
from metastore_assets.lookup.results import ResultSet, TableRows
from metastore_assets.lookup.version_references import VersionColumns, VersionReference, resolve_version
from metastore_assets.startup import pc
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore

if TYPE_CHECKING:
    from metastore_assets.history import HistoryPoint
    from metastore_assets.history.history_row import HistoryRow
    from metastore_assets.lookup.diff import TableDiff
    from metastore_assets.lookup.table import Table
    from metastore_assets.lookup.value_count_changes import TableChanges


class History:
    """Queries over the versions of a table, up to a given version."""

    def __init__(
        self, versions: VersionStore, columns: VersionColumns, table: Table, open_version: Callable[[Version], Table]
    ) -> None:
        """Create the queries of a table.

        Args:
            versions: All versions of the table.
            columns: The columns of `table`.
            table: The table as of the last version to include.
            open_version: A function that returns the same table as of another version.
        """
        self._versions = versions
        self._columns = columns
        self._table = table
        self._open_version = open_version

    def at(self, version: VersionReference | Version | Table) -> Table:
        """Return the table as of another version; a table is returned unchanged.

        Raises VersionNotFoundError.
        """
        from metastore_assets.lookup.table import Table

        if isinstance(version, Table):
            return version
        return self._open_version(version if isinstance(version, Version) else resolve_version(self._versions, version))

    def rows(self, column: str | None = None) -> ResultSet[HistoryRow]:
        """Return the statistics of a column in every version, the oldest first.

        If `column` is None, the statistics of all columns are returned.
        """
        from metastore_assets.history.history_row import parse_history

        table = self._read(column)
        return ResultSet(TableRows(table, parse_history), self._table.as_of, lambda: table, guarantee=None)

    def _read(self, column: str | None) -> pa.Table:
        from metastore_assets.history import read_history

        field_id = None if column is None else self._columns.column(column).field_id
        rows = read_history(self._versions, self._table.version.number)
        return rows if field_id is None else rows.filter(pc.equal(rows["field_id"], field_id))

    def points(self, column: str | None, statistic: str) -> ResultSet[HistoryPoint]:
        """Return the value of one statistic in every version, the oldest first.

        Args:
            column: The dotted path of a column; None for a statistic of the table, such as `row_count`.
            statistic: The name of the statistic.
        """
        from metastore_assets.history import points, points_table, version_points

        check_text("statistic", statistic, "the name of a statistic, such as 'row_count'")
        rows = self._read(column)
        history = version_points(rows, statistic) if column is None else points(rows, statistic)
        return ResultSet(history, self._table.as_of, lambda: points_table(history), guarantee=None)

    def diff(self, before: VersionReference | Table, after: VersionReference | Table | None = None) -> TableDiff:
        """Return the differences between two versions.

        If `after` is None, the later version is the last one of this history. See `Table.diff`.
        """
        from metastore_assets.lookup.diff import diff

        return diff(self.at(before), self._table if after is None else self.at(after))

    def changes(self, since: VersionReference, columns: Iterable[str] | None = None) -> TableChanges:
        """Return the values whose frequencies differ from those in an earlier version.

        See `Table.changes`.
        """
        from metastore_assets.lookup.value_count_changes import changes

        return changes(self.at(since), self._table, columns)
