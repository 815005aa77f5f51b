"""Questions about other versions of a table, and what became of it: a part of `Table`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast, overload

import pyarrow as pa

from metastore_assets.lookup.as_of import VersionChoice, find_version
from metastore_assets.startup import pc
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.leaf_columns import LeafColumn

if TYPE_CHECKING:
    from metastore_assets.history import HistoryPoint
    from metastore_assets.lookup.changes import Changes
    from metastore_assets.lookup.diff import TableDiff
    from metastore_assets.lookup.table import Table
    from metastore_assets.store.versions import VersionStore


class PastAnswers:
    """Answers from several versions."""

    _objects: ObjectStore
    _version: Version
    _leaves: Sequence[LeafColumn]
    user_statistics: tuple[str, ...]
    table_locations: tuple[str, ...]

    if TYPE_CHECKING:

        @property
        def versions(self) -> VersionStore: ...

        def _check(self, column: str) -> None: ...

    @overload
    def history(self, column: str | None = None) -> pa.Table: ...

    @overload
    def history(self, column: str | None, statistic: str) -> list[HistoryPoint]: ...

    def history(self, column: str | None = None, statistic: str | None = None) -> pa.Table | list[HistoryPoint]:
        """What was known in every version up to this one, those that expired included.

        Of a `statistic` one point per version, the oldest first. It is a name of those in `metastore show --json`, such
        as `null_count`, a percentile (`p50`) or a user-defined one; without a column, `row_count`, `bytes`,
        `partitions` or `fragments`. Without it a table: a row per version and column, see
        `docs/reference/files.md`. A column is followed through renames, by its `field_id`.

        Raises ColumnNotFoundError, ValueError for an unknown statistic, StoreError, MissingPackageError.
        """
        from metastore_assets.history import points, points_of_versions, read_history

        if column is not None:
            self._check(column)
        rows = read_history(self.versions, self._version.number)
        if column is not None:
            (field_id,) = (leaf.field_id for leaf in self._leaves if leaf.path == column)
            rows = rows.filter(pc.equal(rows["field_id"], field_id))
        if statistic is None:
            return rows
        return points(rows, statistic) if column is not None else points_of_versions(rows, statistic)

    def diff(self, before: VersionChoice | Table, after: VersionChoice | Table | None = None) -> TableDiff:
        """What is different between two versions of the table: `orders.diff(41, 57)`; without the second, this one.

        Either may be a version, a snapshot or a time, as `open_table` takes them, or another table as it was opened.
        Columns of one table are paired through renames, those of two by name. Distances are those of histograms, or of
        lists.

        Raises VersionNotFoundError, StoreError.
        """
        from metastore_assets.lookup.diff import diff

        return diff(self.at(before), self._own if after is None else self.at(after))

    def changes(self, since: VersionChoice, columns: Iterable[str] | None = None) -> Changes:
        """What changed value by value since an earlier version: of each listed column, or of those named, a table of
        values that were added, deleted, or occur otherwise often. Of other columns a reason why that is not known.

        Raises VersionNotFoundError, ColumnNotFoundError, StoreError.
        """
        from metastore_assets.lookup.changes import changes

        return changes(self.at(since), self._own, columns)

    def at(self, version: VersionChoice | Table) -> Table:
        """The same table as of another version; a table that was opened is that one. Raises VersionNotFoundError."""
        from metastore_assets.lookup.table import Table

        if isinstance(version, Table):
            return version
        return Table(self._objects, find_version(self.versions, version), self.user_statistics, self.table_locations)

    @property
    def _own(self) -> Table:
        return cast("Table", self)
