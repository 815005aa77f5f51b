"""The export of statistics to a table in a catalog: to its columns, properties and partitions.

A version is the published statistics of a table at one snapshot. An export changes a table in Glue or a Hive metastore
with several requests, and may be interrupted between these requests. Claims are properties that describe the exported
statistics. They are removed before the statistics change and stored last, so an interrupted export claims nothing
wrong. These properties show whether an export is complete:

- The property `writing` of the table has a token of the export. Its presence means that the export is incomplete.
- The property `content` of a partition ends in `:writing` while its statistics are changed.
- The mark is a set of table properties that name the exported version. It is removed first and written last.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from metastore_assets.batching import batched
from metastore_assets.errors import ExportError
from metastore_assets.exports.base import ExportedVersion, ExportMark, ExportOptions, ExportTarget, WrittenExport
from metastore_assets.exports.catalog_table import PartitionName, RegisteredTable, TableChangedError, TableDeclaration
from metastore_assets.exports.declared_columns import UNKNOWN_ROWS, DeclaredColumns, Numbers
from metastore_assets.exports.partition_values import RegisteredPartitions, registered_values, version_values
from metastore_assets.exports.table_properties import WrittenColumns

_ROWS, _SIZE = "numRows", "totalSize"
_WRITING = ":writing"
"""The end of the property `content` of a partition whose statistics are incomplete."""
_CONFLICT = "conflict"
"""The value of the property `writing` after two exports at once. The partitions may then have statistics of either."""
_BATCH = 200
"""Number of partitions that are changed together."""


class CatalogOptions(ExportOptions):
    """The settings of an export to a catalog."""

    partitions: bool = True
    """Whether statistics of partitions are written, besides those of the table."""


class CatalogTarget(ExportTarget):
    """A target that writes statistics of a table and its partitions to a catalog.

    The statistics are those of columns, and the numbers `numRows` and `totalSize`.
    """

    is_single = True
    options_model = CatalogOptions
    accuracy_property: ClassVar[str | None] = None
    """The property by which a table or partition declares its statistics to be accurate; None if there is none."""

    @abstractmethod
    def open(self) -> AbstractContextManager[RegisteredTable]:
        """Return a context manager that connects to the catalog, and yields the table.

        Entering it raises ExportError if the configuration does not name the table in a catalog of the target's type:
        `glue` or `hive`.
        """

    def properties_of(self, numbers: Numbers) -> dict[str, str]:
        """Return the properties from which engines read the row count and the size of a table or partition."""
        return {_ROWS: str(numbers.rows), _SIZE: str(numbers.bytes)}

    def content_of(self, numbers: Numbers) -> str:
        """Return the text that identifies the statistics of a partition.

        An export stores it as the property `content` of the partition. If a partition in the catalog already has this
        text, the export does not write the partition again.

        Args:
            numbers: The statistics to write for the partition.
        """
        return numbers.content

    def write(self, version: ExportedVersion) -> WrittenExport:
        """Write the statistics of the changed partitions, and then those of the table.

        See `ExportTarget.write`. The mark, which names the exported version, is removed first. The mark of the new
        version is stored last. If another export started meanwhile, no mark is stored, and TableChangedError is raised.
        """
        if version.version.format not in ("files", "hudi"):
            raise ExportError(
                f"engines do not take the statistics of {version.version.format} tables from {self.title}: the export "
                f"`{self.kind}` is for plain files and Hudi tables"
            )
        with self.open() as table:
            declaration = table.load()
            names, properties = self._names, declaration.properties
            self._refuse_foreign(table, declaration)
            registered_partitions = self._registered(table, declaration)
            previous = WrittenColumns.from_properties(properties, names.columns)
            columns = DeclaredColumns(version, declaration.columns, list(declaration.keys), previous.names)
            numbers = Numbers(version.version.row_count, version.version.bytes, columns.declare(version.columns()))
            started_columns = WrittenColumns.in_progress({*columns.matched, *previous.names})
            token = uuid.uuid4().hex
            table.change_properties(
                {
                    **started_columns.to_properties(names.columns),
                    **({names.partitions: "true"} if self.options.partitions else {}),
                    names.writing: token,
                },
                self._claims(previous),
            )
            if names.partitions in properties and not self.options.partitions:
                self._remove_from_all_partitions(table, previous.names)
            size, unmatched_count = self._write_partitions(table, version, columns, registered_partitions)
            written_columns = {statistics.column for statistics in numbers.columns}
            table.delete_statistics(name for name in previous.names if name not in written_columns)
            size += table.write_statistics(numbers.columns, version.version.published_at)
            # A column can have statistics of partitions alone. They are removed with it.
            digests = {
                **WrittenColumns.in_progress(columns.written).digests,
                **WrittenColumns.of_statistics({one.column: one.counts for one in numbers.columns}).digests,
            }
            new_properties = {
                **self.properties_of(numbers),
                **version.mark.to_properties(self.kind),
                **WrittenColumns(digests).to_properties(names.columns),
                names.content: str(numbers.rows),
            }
            finished_names = {names.writing, *self._claims(started_columns)}
            try:
                table.change_properties(
                    new_properties,
                    finished_names | (set() if self.options.partitions else {names.partitions}),
                    expected=(names.writing, token),
                )
            except TableChangedError:
                self._revoke(table, started_columns)
                raise
        notes = columns.notes()
        if unmatched_count:
            notes.append(f"{unmatched_count} partitions are not registered in {self.title}, and were left out")
        return WrittenExport(size + _size(new_properties), len(numbers.columns), tuple(notes))

    def status(self) -> ExportMark | None:
        """Return the mark of the last export, which names the exported version.

        Returns None if there was no export, if the last one is incomplete, or if another program changed the table's
        statistics since.
        """
        with self.open() as table:
            properties = table.load().properties
            mark = ExportMark.from_properties(properties, self.kind)
            if mark is None or self._names.writing in properties:
                return None
            return mark if self._has_our_content(table, properties) else None

    def remove(self) -> bool:
        """Remove everything that the last export wrote.

        Return whether there was an export.

        Statistics of the table stay if another program has changed them since. The column statistics of partitions are
        always removed. The row count and the size of a partition stay if another program has changed the row count.
        """
        names = self._names
        with self.open() as table:
            properties = table.load().properties
            if ExportMark.from_properties(properties, self.kind) is None and names.writing not in properties:
                return False
            columns = WrittenColumns.from_properties(properties, names.columns)
            # An INSERT of Hive changes only the number of rows. Our column statistics would stay after a purge.
            has_our_rows = properties.get(_ROWS) == properties.get(names.content, properties.get(_ROWS))
            numbers = {_ROWS, _SIZE, *self._accuracy} if has_our_rows else set()
            table.change_properties({names.writing: "removing"}, numbers & self._accuracy)
            if names.partitions in properties:
                self._remove_from_all_partitions(table, columns.names)
            table.delete_statistics(columns.unchanged(_stored_counts(table, columns)))
            removed_names = {names.content, names.partitions, names.writing, *columns.to_properties(names.columns)}
            table.change_properties({}, {*removed_names, *ExportMark.property_names(self.kind), *numbers})
            return True

    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        """Return each column's statistics as the catalog has them.

        Example: `{"": {"numRows": "9"}, "id": {"numNulls": 0}}`. The column name `""` stands for the whole table.
        """
        with self.open() as table:
            declaration = table.load()
            numbers = {name: declaration.properties.get(name) for name in (_ROWS, _SIZE, *sorted(self._accuracy))}
            return {"": numbers, **table.statistics(list(declaration.columns))}

    @property
    def _names(self) -> _PropertyNames:
        prefix = f"metastore-assets.{self.kind}."
        return _PropertyNames(*(f"{prefix}{name}" for name in ("content", "columns", "partitions", "writing")))

    @property
    def _accuracy(self) -> set[str]:
        return {self.accuracy_property} if self.accuracy_property else set()

    def _claims(self, columns: WrittenColumns) -> set[str]:
        """Return the names of the table properties that declare that the table has exported statistics.

        The properties are those of the mark, the exported row count, the list of exported columns, and the declaration
        of accuracy.

        Args:
            columns: The exported columns. A long list of columns is stored in several properties, and the result has
                the names of all of these.
        """
        names = self._names
        marks = ExportMark.property_names(self.kind)
        return {names.content, *columns.to_properties(names.columns), *marks, *self._accuracy}

    def _revoke(self, table: RegisteredTable, started_columns: WrittenColumns) -> None:
        """Remove the properties that describe the statistics, after a concurrent export.

        The stored statistics may be a mixture of both exports. They stay, and nothing declares them accurate. The
        table's property `writing` becomes `conflict`. The columns of both exports stay recorded as being written.

        Args:
            table: The table.
            started_columns: The columns that this export recorded when it started.
        """
        names = self._names
        stored_columns = WrittenColumns.from_properties(table.load().properties, names.columns)
        columns = WrittenColumns.in_progress({*stored_columns.names, *started_columns.names})
        new_properties = {**columns.to_properties(names.columns), names.writing: _CONFLICT}
        table.change_properties(new_properties, self._claims(stored_columns))

    def _refuse_foreign(self, table: RegisteredTable, declaration: TableDeclaration) -> None:
        """Raise ExportError if the table has statistics that we did not write.

        Nothing is raised if the option `replace` is set, or if an export of the table is incomplete.
        """
        properties = declaration.properties
        if self.options.replace or self._names.writing in properties:
            return
        if ExportMark.from_properties(properties, self.kind) is not None:
            is_foreign = not self._has_our_content(table, properties)
        else:
            is_foreign = properties.get(_ROWS) not in UNKNOWN_ROWS or bool(table.statistics(list(declaration.columns)))
        if is_foreign:
            raise self._foreign_error(f"table {self.table.identifier!r}")

    def _foreign_error(self, subject: str) -> ExportError:
        return ExportError(
            f"{subject} has statistics that something else wrote to {self.title}, such as ANALYZE TABLE: set "
            "`replace: true` for this export to replace them"
        )

    def _has_our_content(self, table: RegisteredTable, properties: Mapping[str, str]) -> bool:
        """Return whether the table still has the row count and the column statistics that an export wrote."""
        names = self._names
        columns = WrittenColumns.from_properties(properties, names.columns)
        has_our_rows = names.content in properties and properties.get(_ROWS) == properties[names.content]
        return has_our_rows and columns.unchanged(_stored_counts(table, columns)) == columns.names

    def _has_our_rows(self, properties: Mapping[str, str]) -> bool:
        """Return whether a partition's `numRows` still equals the row count that our export stored.

        The property `content` has this row count.
        """
        content = properties.get(self._names.content)
        return content is not None and content.partition(":")[0] == properties.get(_ROWS, "")

    def _registered(self, table: RegisteredTable, declaration: TableDeclaration) -> RegisteredPartitions:
        """Return the partitions that the catalog has; none if partitions are not exported.

        Raises ExportError if another program wrote statistics of any partition. Nothing is raised if the option
        `replace` is set, or if an export of the table is incomplete.
        """
        types = list(declaration.keys.values())
        registered_partitions = RegisteredPartitions([name.lower() for name in declaration.keys], types, {})
        if not self.options.partitions or not declaration.keys:
            return RegisteredPartitions([], [], {})
        writing = declaration.properties.get(self._names.writing)
        for partition in table.partitions():
            properties = partition.properties
            is_ours = self._has_our_rows(properties) or properties.get(_ROWS) in UNKNOWN_ROWS
            if not (is_ours or writing is not None or self.options.replace):
                key = "/".join(map("=".join, zip(declaration.keys, partition.values, strict=True)))
                raise self._foreign_error(f"the partition {key} of table {self.table.identifier!r}")
            content = properties.get(self._names.content, "")
            if content and writing == _CONFLICT:
                content = _WRITING
            registered_partitions.partitions[registered_values(partition.values, types)] = partition.name, content
        return registered_partitions

    def _write_partitions(
        self,
        table: RegisteredTable,
        version: ExportedVersion,
        columns: DeclaredColumns,
        registered_partitions: RegisteredPartitions,
    ) -> tuple[int, int]:
        """Write the statistics of the partitions whose statistics changed since the last export.

        Return (sent bytes, number of the version's partitions that the catalog does not register). Our statistics are
        removed from registered partitions that the version does not have.
        """
        if not registered_partitions.names:
            return 0, 0
        size = unmatched_count = 0
        remaining = dict(registered_partitions.partitions)
        for batch in batched(version.partitions(), _BATCH):
            changed_numbers: dict[PartitionName, Numbers] = {}
            for entry, exported_columns in batch:
                values = version_values(entry.key, registered_partitions.names, registered_partitions.types)
                partition = None if values is None else remaining.pop(values, None)
                numbers = Numbers(entry.row_count, entry.bytes, columns.declare(exported_columns))
                unmatched_count += partition is None
                if partition is not None and self.content_of(numbers) != partition[1]:
                    changed_numbers[partition[0]] = numbers
            size += self._write_batch(table, version, changed_numbers, columns)
        removed_partitions = [name for name, content in remaining.values() if content]
        self._remove_from_partitions(table, removed_partitions, sorted(columns.written | set(columns.previous_columns)))
        return size, unmatched_count

    def _write_batch(
        self,
        table: RegisteredTable,
        version: ExportedVersion,
        changed_numbers: Mapping[PartitionName, Numbers],
        columns: DeclaredColumns,
    ) -> int:
        """Write the statistics and properties of changed partitions to the catalog.

        Return their size in bytes.

        While the statistics are written, the partitions count as incomplete. If an earlier export wrote statistics of
        columns for which a partition has none now, these old statistics are deleted.
        """
        if not changed_numbers:
            return 0
        table.change_partitions(list(changed_numbers), self._unclaimed)
        for name, numbers in changed_numbers.items():
            written_columns = {one.column for one in numbers.columns}
            table.delete_statistics(
                [column for column in columns.previous_columns if column not in written_columns], name
            )
        statistics = {name: numbers.columns for name, numbers in changed_numbers.items()}
        size = table.write_partition_statistics(statistics, version.version.published_at)
        new_properties = {
            name: {**self.properties_of(numbers), self._names.content: self.content_of(numbers)}
            for name, numbers in changed_numbers.items()
        }

        def with_claims(name: PartitionName, properties: dict[str, str]) -> dict[str, str]:
            return self._without_accuracy(properties) | new_properties[name]

        # A Hive metastore declares statistics to be accurate when it stores them.
        table.change_partitions(list(changed_numbers), with_claims)
        return size + sum(map(_size, new_properties.values()))

    def _unclaimed(self, name: PartitionName, properties: dict[str, str]) -> dict[str, str]:
        """Return the properties that a partition has while its statistics are changed.

        These are its present properties without those that declare statistics accurate. The value of the property
        `content` becomes `numRows` followed by `:writing`, such as `100:writing`.

        Args:
            name: The name of the partition, which is not used. `change_partitions` passes it.
            properties: The present properties of the partition.
        """
        return self._without_accuracy(properties) | {self._names.content: f"{properties.get(_ROWS, '')}{_WRITING}"}

    def _without_accuracy(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {key: text for key, text in properties.items() if key not in self._accuracy}

    def _remove_from_all_partitions(self, table: RegisteredTable, columns: Sequence[str]) -> None:
        ours = [partition.name for partition in table.partitions() if self._names.content in partition.properties]
        self._remove_from_partitions(table, ours, columns)

    def _remove_from_partitions(
        self, table: RegisteredTable, names: Iterable[PartitionName], columns: Sequence[str]
    ) -> None:
        """Remove our column statistics and properties from partitions.

        If another program has changed `numRows` of a partition, its `numRows` and `totalSize` stay.
        """

        def without_claims(name: PartitionName, properties: dict[str, str]) -> dict[str, str]:
            unclaimed_properties = self._unclaimed(name, properties)
            foreign = {} if self._has_our_rows(properties) else {self._names.content: f"?{_WRITING}"}
            return unclaimed_properties | foreign

        def without_ours(name: PartitionName, properties: dict[str, str]) -> dict[str, str]:
            numbers = (_ROWS, _SIZE) if self._has_our_rows(properties) else ()
            removed_names = {self._names.content, *self._accuracy, *numbers}
            return {key: text for key, text in properties.items() if key not in removed_names}

        for batch in batched(names, _BATCH):
            table.change_partitions(batch, without_claims)
            for name in batch:
                table.delete_statistics(columns, name)
            table.change_partitions(batch, without_ours)


@dataclass(frozen=True)
class _PropertyNames:
    """The names of the properties of one target."""

    content: str
    """The row count that an export wrote. For partitions, also a digest of their statistics."""
    columns: str
    """The `WrittenColumns` of the table."""
    partitions: str
    """Present if an export wrote statistics of the table's partitions."""
    writing: str
    """Present while an export of the table is incomplete."""


def _stored_counts(table: RegisteredTable, columns: WrittenColumns) -> dict[str, list[int | None]]:
    """Return the numbers that the catalog stores of each written column, such as `{"id": [0, None]}`.

    Each list has one item per name in `table.count_names`, in this order; None if the catalog lacks the number.
    Columns without statistics are omitted. All numbers are integers, which catalogs neither round nor convert.
    """
    stored_statistics = table.statistics(columns.names)
    return {column: [numbers.get(name) for name in table.count_names] for column, numbers in stored_statistics.items()}


def _size(properties: Mapping[str, str]) -> int:
    return sum(len(name) + len(text) for name, text in properties.items())
