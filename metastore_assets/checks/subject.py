"""What a check looks at: a version of a table, or one partition or one column of it, and earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from metastore_assets.errors import NotKeptError, VersionNotFoundError
from metastore_assets.lookup import Table, TextValue
from metastore_assets.metastore import Metastore
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.values.leaf_columns import schema_leaves

if TYPE_CHECKING:
    from metastore_assets.config.check_settings import Against, Literally
    from metastore_assets.config.tables import TableConfig
    from metastore_assets.formats.base import Snapshot, SnapshotReference, TableFormat

_TEXTS = ("string", "binary", "uuid")
_FEW = 3
"""Partitions of a column that are asked for one by one; whoever asks for another one will want them all."""


@dataclass(frozen=True)
class Surroundings:
    """What checks may ask beside the version that they are of."""

    metastore: Metastore
    """For earlier versions."""
    snapshot: Callable[[], Snapshot]
    """What the table's own metadata say of it now. Raises MetastoreError."""
    reference: Callable[[], SnapshotReference]
    """Which snapshot that is, at the least cost. Raises MetastoreError."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _earlier: dict[object, Table] = field(default_factory=dict)
    _rows: dict[tuple[int, str], dict[str, ColumnStatistics]] = field(default_factory=dict)
    """By version and column, statistics of partitions."""

    def earlier(self, table: Table, against: Against) -> Table:
        """The version that one is compared with. Raises NotKeptError where there is none."""
        key = (table.version.number, against)
        if key not in self._earlier:
            self._earlier[key] = _earlier(self.metastore, table, against)
        return self._earlier[key]

    def row(self, table: Table, column: str, partition: str) -> ColumnStatistics:
        """The statistics of a column in one of many partitions. Raises ColumnNotFoundError, PartitionNotFoundError."""
        rows = self._rows.setdefault((table.version.number, column), {})
        if partition not in rows and len(rows) == _FEW:
            found = table.statistics([column], partitions="all")
            rows.update(zip(found.partitions or (), found, strict=True))
        if partition not in rows:
            (rows[partition],) = table.statistics([column], partition)
        return rows[partition]


def surroundings_of(metastore: Metastore, config: TableConfig, table: Table) -> Surroundings:
    """Those of a table that is configured, as of a version, which planning its metadata is made shorter by."""

    def table_format() -> TableFormat:
        from metastore_assets.formats import MetadataCache, open_table_format

        return open_table_format(config, MetadataCache(lambda: table.version.memory))

    return Surroundings(metastore, lambda: table_format().snapshot(), lambda: table_format().current())


@dataclass(frozen=True)
class Subject:
    """A table as of a version, or one partition of it; of a check of a column, that column."""

    table: Table
    around: Surroundings
    partition: str | None = None
    of_column: str | None = None

    @property
    def column(self) -> str:
        """The column's name. Only of a check of a column."""
        assert self.of_column is not None
        return self.of_column

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.table.row_count(self.partition)

    @cached_property
    def row(self) -> ColumnStatistics:
        """The column's statistics. Raises ColumnNotFoundError."""
        if self.partition is not None:
            return self.around.row(self.table, self.column, self.partition)
        return self.table.statistics([self.column])[0]

    @property
    def named(self) -> str:
        """For messages."""
        return f"column {self.of_column!r} of table {self.table.version.table!r}"

    def literal(self, value: Literally) -> pa.Scalar:
        """A value of the configuration as one of the column. Raises LiteralError, and NotKeptError for a column that
        has no values of its own."""
        return self.table.literal(self.column, self._given(value))

    def _given(self, value: Literally) -> object:
        """YAML makes numbers and dates of what may be meant otherwise: as text it is what the column's type says."""
        is_text = self.row.type_class in _TEXTS
        if isinstance(value, str):
            return TextValue(value)
        if isinstance(value, datetime):
            return TextValue(value.isoformat())
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            # In decimals a tenth is one, which it is not as a float.
            return value if is_text else TextValue(repr(value))
        return TextValue(value.isoformat())

    def earlier(self, against: Against) -> Subject | None:
        """The same of an earlier version; None for a partition that there was not. Raises NotKeptError."""
        table = self.around.earlier(self.table, against)
        if self.partition is not None and table.find_partition(self.partition) is None:
            return None
        column = None
        if self.of_column is not None:
            column = column_named_then(table, self.row.field_id)
            if column is None:
                raise NotKeptError(f"{self.named} was not there in version {table.version.number}")
        return replace(self, table=table, of_column=column)


def column_named_then(table: Table, field_id: str) -> str | None:
    """Return the name that a version has for the column with a field id, or None if it has no such column."""
    leaves = (leaf for leaves in schema_leaves(table.version.schema) for leaf in leaves)
    return next((leaf.path for leaf in leaves if leaf.field_id == field_id), None)


def _earlier(metastore: Metastore, table: Table, against: Against) -> Table:
    version = table.version
    numbers = [number for number in metastore.versions(version.table) if number < version.number]
    if isinstance(against, int):
        if against >= version.number:
            raise NotKeptError(f"version {against} is not before version {version.number}")
        if against not in numbers:
            raise NotKeptError(
                f"version {against} of table {version.table!r} is not kept any more; `keep_versions` says how many are"
            )
        return metastore.table(version.table, against)
    for number in reversed(numbers):
        try:
            found = metastore.table(version.table, number)
        except VersionNotFoundError:
            continue  # expired since it was listed
        own = found.version
        if against == "previous":
            # A version of the same snapshot, made under other policies, has the same rows.
            if (own.snapshot, own.committed_at) != (version.snapshot, version.committed_at):
                return found
        elif own.published_at <= version.published_at - against:
            return found
    what = "of an earlier snapshot" if against == "previous" else f"from {against} before"
    raise NotKeptError(f"there is no version {what}: nothing to compare version {version.number} with")
