"""The subject that a check is evaluated for: a table, partition or column at a version.

A version is the published statistics of a table at one snapshot. Some checks compare two versions of a subject. A
baseline selects the earlier one: by its number, by its age, or as the version of the snapshot before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import NotStoredError, VersionNotFoundError
from metastore_assets.lookup import Table, TextValue
from metastore_assets.metastore import Metastore
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.columns import schema_columns

if TYPE_CHECKING:
    from metastore_assets.checks.settings import Baseline, ColumnValue
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import Snapshot, SnapshotReference, TableFormat

_TEXT_CLASSES = ("string", "binary", "uuid")
_SINGLE_READS = 3
"""The number of partitions whose statistics of a column are read one by one. The next partition causes all to be read
at once."""


@dataclass(frozen=True)
class CheckContext:
    """What checks need besides the version: earlier versions, the table's current snapshot, and the time."""

    metastore: Metastore
    """Gives access to earlier versions."""
    snapshot: Callable[[], Snapshot]
    """Returns the current snapshot from the table's metadata. Raises MetastoreError."""
    reference: Callable[[], SnapshotReference]
    """Returns id and commit time of the current snapshot, with as few requests as possible. Raises MetastoreError."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _earlier: dict[object, Table] = field(default_factory=dict)
    _rows: dict[tuple[int, str], dict[str, ColumnStatistics]] = field(default_factory=dict)
    """A cache of statistics by partition key, for each version number and column."""

    def earlier(self, table: Table, baseline: Baseline) -> Table:
        """Return the table at the earlier version that a baseline selects.

        The result is cached.

        Raises NotStoredError if there is no such version.
        """
        key = (table.version.number, baseline)
        if key not in self._earlier:
            self._earlier[key] = _earlier_version(self.metastore, table, baseline)
        return self._earlier[key]

    def row(self, table: Table, column: str, partition: str) -> ColumnStatistics:
        """Return the statistics of a column in a partition.

        The result is cached.

        Raises:
            ColumnNotFoundError: The table has no such column.
            PartitionNotFoundError: The version has no such partition.
        """
        rows = self._rows.setdefault((table.version.number, column), {})
        if partition not in rows and len(rows) == _SINGLE_READS:
            statistics = table.statistics([column], partition="*")
            rows.update((row.partition or "", row) for row in statistics)
        if partition not in rows:
            (rows[partition],) = table.statistics([column], partition=partition)
        return rows[partition]


def create_check_context(metastore: Metastore, table: TableConfig, lookup: Table) -> CheckContext:
    """Create the context of a configured table.

    Args:
        metastore: The Metastore with the table's versions.
        table: The table's configuration.
        lookup: The table, opened at a version. The stored table metadata of this version save requests when the table's
            current snapshot is read.
    """

    def table_format() -> TableFormat:
        from metastore_assets.formats import MetadataCache, open_table_format

        return open_table_format(table, MetadataCache(lambda: lookup.version.metadata_cache))

    return CheckContext(metastore, lambda: table_format().snapshot(), lambda: table_format().current())


@dataclass(frozen=True)
class Subject:
    """The subject that a check is evaluated for: a table, partition or column at a version."""

    table: Table
    context: CheckContext
    partition: str | None = None
    column_name: str | None = None

    @property
    def column(self) -> str:
        """Name of the column.

        Only checks of columns may use it: other subjects raise AssertionError.
        """
        assert self.column_name is not None
        return self.column_name

    @property
    def row_count(self) -> int:
        """Number of rows of the table or partition."""
        return self.table.count(partition=self.partition).value

    @cached_property
    def row(self) -> ColumnStatistics:
        """Statistics of the column.

        Raises ColumnNotFoundError if the table has no such column in the version.
        """
        if self.partition is not None:
            return self.context.row(self.table, self.column, self.partition)
        return self.table.statistics([self.column])[0]

    @property
    def label(self) -> str:
        """The text by which messages name a column: `column 'id' of table 'orders'`.

        Only columns have one.
        """
        return f"column {self.column_name!r} of table {self.table.version.table!r}"

    def literal(self, value: ColumnValue) -> pa.Scalar:
        """Convert a configured value to the column's type.

        Raises:
            LiteralError: The value does not fit the type.
            NotStoredError: Values of the type, such as structs, cannot be compared.
        """
        return self.table.literal(self.column, self._untyped(value))

    def _untyped(self, value: ColumnValue) -> object:
        """Convert a configured value to an argument of `Table.literal`.

        Booleans are unchanged. So are numbers for a column of texts, binary values or UUIDs, because `Table.literal`
        must reject them. All other values become a `TextValue`, which `Table.literal` parses as the column's type.
        """
        is_text = self.row.type_class in _TEXT_CLASSES
        if isinstance(value, str):
            return TextValue(value)
        if isinstance(value, datetime):
            return TextValue(value.isoformat())
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            # As text, 0.1 is exactly a tenth in a decimal column. The float is not.
            return value if is_text else TextValue(repr(value))
        return TextValue(value.isoformat())

    def earlier(self, baseline: Baseline) -> Subject | None:
        """Return the same subject at an earlier version; None if that version does not have the partition.

        Raises:
            NotStoredError: There is no such version, or it has no such column.
        """
        table = self.context.earlier(self.table, baseline)
        if self.partition is not None and table.find_partition(self.partition) is None:
            return None
        column = None
        if self.column_name is not None:
            column = find_column_name(table, self.row.field_id)
            if column is None:
                raise NotStoredError(f"{self.label} does not exist in version {table.version.number}")
        return replace(self, table=table, column_name=column)


def find_column_name(table: Table, field_id: str) -> str | None:
    """Return the name of the column with a field id in a version, or None without such a column."""
    columns = schema_columns(table.version.schema)
    return next((column.path for column in columns if column.field_id == field_id), None)


def _earlier_version(metastore: Metastore, table: Table, baseline: Baseline) -> Table:
    """Return the table at the earlier version that a baseline selects.

    Raises NotStoredError if there is none.
    """
    version = table.version
    numbers = [number for number in metastore.version_numbers(version.table) if number < version.number]
    if isinstance(baseline, int):
        if baseline >= version.number:
            raise NotStoredError(f"version {baseline} is not before version {version.number}")
        if baseline not in numbers:
            raise NotStoredError(
                f"version {baseline} of table {version.table!r} has expired: raise `keep_versions` to retain more"
            )
        return metastore.table(version.table, version=baseline)
    for number in reversed(numbers):
        try:
            candidate = metastore.table(version.table, version=number)
        except VersionNotFoundError:
            continue  # expired after it was listed
        earlier = candidate.version
        if baseline == "previous":
            # A version of the same snapshot under other policies has the same rows.
            if (earlier.snapshot, earlier.committed_at) != (version.snapshot, version.committed_at):
                return candidate
        elif earlier.published_at <= version.published_at - baseline:
            return candidate
    from metastore_assets.checks.base import describe_duration

    what = "of an earlier snapshot" if baseline == "previous" else f"from {describe_duration(baseline)} before"
    raise NotStoredError(f"there is no version {what}: nothing to compare version {version.number} with")
