"""The export target `glue`: column statistics of a table and its partitions in AWS Glue's Data Catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from metastore_assets.errors import ExportError
from metastore_assets.exports.base import ExportedVersion, ExportMark, ExportOptions, ExportTarget, WrittenExport
from metastore_assets.exports.declared_columns import UNKNOWN_ROWS, DeclaredColumns, Numbers
from metastore_assets.exports.glue.catalog import GlueTable, open_glue_table
from metastore_assets.exports.glue.column_statistics import counts_of, read_response, to_request
from metastore_assets.exports.partition_values import RegisteredPartitions, registered_values, version_values
from metastore_assets.exports.table_properties import WrittenColumns

_PREFIX = "metastore-assets.glue."
_CONTENT = f"{_PREFIX}content"
"""The property with the number of rows that an export wrote. Partitions also have a digest of their statistics."""
_COLUMNS = f"{_PREFIX}columns"
"""The property with `WrittenColumns` of the table."""
_PARTITIONS = f"{_PREFIX}partitions"
"""The property that a table has if an export wrote statistics of its partitions."""
_WRITING = f"{_PREFIX}writing"
"""The property that a table has while an export is written. The property stays if the export is interrupted."""
_ROWS, _SIZE = "numRows", "totalSize"


class GlueOptions(ExportOptions):
    """The settings of an export to Glue."""

    partitions: bool = True
    """Whether statistics of partitions are written, besides those of the table. A partition that changed takes one
    request for each 25 columns."""


class GlueTarget(ExportTarget):
    """Column statistics, `numRows` and `totalSize` of a table and its partitions."""

    kind = "glue"
    title = "AWS Glue"
    is_single = True
    options_model = GlueOptions

    def write(self, version: ExportedVersion) -> WrittenExport:
        """Write the changed partitions, then the table, and last the mark. See `ExportTarget.write`."""
        if version.version.format not in ("files", "hudi"):
            raise ExportError(
                f"engines take the statistics of {version.version.format} tables from elsewhere than from Glue: the "
                "export `glue` is for plain files and Hudi tables"
            )
        with self._open() as table:
            declared = table.load()
            properties = declared.get("Parameters", {})
            self._refuse_foreign(table, declared)
            registered = self._registered(table, declared)
            types = {column["Name"]: column.get("Type", "") for column in declared["StorageDescriptor"]["Columns"]}
            keys = [key["Name"] for key in declared.get("PartitionKeys", ())]
            previous = WrittenColumns.from_properties(properties, _COLUMNS)
            columns = DeclaredColumns(version, types, keys, previous.names)
            numbers = Numbers(version.version.row_count, version.version.bytes, columns.declare(version.columns()))
            started = WrittenColumns.in_progress({*columns.written, *previous.names})
            writing = {_WRITING: version.mark.digest, **started.to_properties(_COLUMNS)}
            table.change_properties(
                writing | ({_PARTITIONS: "true"} if self.options.partitions else {}),
                {_CONTENT, *previous.to_properties(_COLUMNS), *ExportMark.property_names(self.kind)},
            )
            if _PARTITIONS in properties and not self.options.partitions:
                _remove_from_all_partitions(table, columns.previous_columns)
            size, unmatched = self._write_partitions(table, version, columns, registered)
            table.delete_statistics(name for name in columns.previous_columns if name not in columns.written)
            requests = to_request(numbers.columns, version.version.published_at)
            table.write_statistics(requests)
            added = {
                **_properties(numbers),
                **version.mark.to_properties(self.kind),
                **WrittenColumns.of_statistics(counts_of(read_response(requests))).to_properties(_COLUMNS),
                _CONTENT: str(numbers.rows),
            }
            finished = {_WRITING, *started.to_properties(_COLUMNS)}
            table.change_properties(added, finished | (set() if self.options.partitions else {_PARTITIONS}))
        notes = columns.notes()
        if unmatched:
            notes.append(f"{unmatched} partitions are not registered in Glue, and were left out")
        size += _size(requests) + _size(added)
        return WrittenExport(size, len(numbers.columns), tuple(notes))

    def status(self) -> ExportMark | None:
        """Return the mark of the last export; None without one, or if another program changed the statistics since."""
        with self._open() as table:
            properties = table.load().get("Parameters", {})
            mark = ExportMark.from_properties(properties, self.kind)
            return mark if mark is not None and _has_our_content(table, properties) else None

    def remove(self) -> bool:
        """Remove our column statistics, `numRows`, `totalSize` and our properties. Return whether there was an export.

        Whatever another program has changed since the export stays: the statistics of a column, or both numbers.
        """
        with self._open() as table:
            properties = table.load().get("Parameters", {})
            if ExportMark.from_properties(properties, self.kind) is None and _WRITING not in properties:
                return False
            columns = WrittenColumns.from_properties(properties, _COLUMNS)
            has_our_rows = properties.get(_ROWS) == properties.get(_CONTENT, properties.get(_ROWS))
            table.change_properties({_WRITING: "removing"})
            if _PARTITIONS in properties:
                _remove_from_all_partitions(table, columns.names)
            table.delete_statistics(columns.unchanged(_stored_counts(table, columns)))
            removed = {_CONTENT, _PARTITIONS, _WRITING, *columns.to_properties(_COLUMNS)}
            numbers = {_ROWS, _SIZE} if has_our_rows else set()
            table.change_properties({}, {*removed, *ExportMark.property_names(self.kind), *numbers})
            return True

    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the statistics by column and by Glue's name: `{"": {"numRows": "9"}, "id": {"NumberOfNulls": 0}}`.

        The empty name stands for the whole table.
        """
        with self._open() as table:
            declared = table.load()
            numbers = {name: declared.get("Parameters", {}).get(name) for name in (_ROWS, _SIZE)}
            return {"": numbers, **read_response(table.statistics(_column_names(declared)))}

    def _open(self) -> AbstractContextManager[GlueTable]:
        return open_glue_table(self.table, self.title)

    def _refuse_foreign(self, table: GlueTable, declared: Mapping[str, Any]) -> None:
        """Raise ExportError if another program wrote statistics of the table, unless the option `replace` is set."""
        properties = declared.get("Parameters", {})
        if self.options.replace or _WRITING in properties:
            return
        if ExportMark.from_properties(properties, self.kind) is not None:
            is_foreign = not _has_our_content(table, properties)
        else:
            is_foreign = properties.get(_ROWS) not in UNKNOWN_ROWS or bool(table.statistics(_column_names(declared)))
        if is_foreign:
            raise ExportError(
                f"table {self.table.identifier!r} has statistics that something else wrote to Glue: set "
                "`replace: true` for this export to replace them"
            )

    def _registered(self, table: GlueTable, declared: Mapping[str, Any]) -> RegisteredPartitions[dict[str, Any]]:
        """Return the partitions that Glue registers; none if the option `partitions` is off.

        Raises ExportError if another program wrote statistics of one, unless the option `replace` is set.
        """
        keys = declared.get("PartitionKeys", ())
        names, types = [key["Name"].lower() for key in keys], [key.get("Type", "") for key in keys]
        if not keys or not self.options.partitions:
            return RegisteredPartitions([], types, {})
        partitions = {registered_values(partition["Values"], types): partition for partition in table.partitions()}
        is_writing = _WRITING in declared.get("Parameters", {})
        for partition in partitions.values():
            parameters = partition.get("Parameters", {})
            rows, content = parameters.get(_ROWS), parameters.get(_CONTENT, "")
            is_ours = is_writing or rows in UNKNOWN_ROWS or content.partition(":")[0] == rows
            if not is_ours and not self.options.replace:
                raise ExportError(
                    f"the partition {'/'.join(partition['Values'])} of table {self.table.identifier!r} has statistics "
                    "that something else wrote to Glue: set `replace: true` for this export to replace them"
                )
        return RegisteredPartitions(names, types, partitions)

    def _write_partitions(
        self,
        table: GlueTable,
        version: ExportedVersion,
        columns: DeclaredColumns,
        registered: RegisteredPartitions[dict[str, Any]],
    ) -> tuple[int, int]:
        """Write the partitions whose numbers changed since the last export.

        Returns:
            The bytes that were sent, and the number of partitions that Glue does not register.
        """
        if not registered.names:
            return 0, 0
        remaining = dict(registered.partitions)
        size = unmatched = 0
        for entry, exported in version.partitions():
            values = version_values(entry.key, registered.names, registered.types)
            partition = None if values is None else remaining.pop(values, None)
            if partition is None:
                unmatched += 1
                continue
            numbers = Numbers(entry.row_count, entry.bytes, columns.declare(exported))
            parameters = partition.get("Parameters", {})
            if parameters.get(_CONTENT) == numbers.content:
                continue
            requests = to_request(numbers.columns, version.version.published_at)
            written = {one.column for one in numbers.columns}
            table.delete_statistics(
                (name for name in columns.previous_columns if name not in written), partition["Values"]
            )
            table.write_statistics(requests, partition["Values"])
            added = {**_properties(numbers), _CONTENT: numbers.content}
            table.change_partitions([(partition, {**parameters, **added})])
            size += _size(requests) + _size(added)
        for partition in remaining.values():
            if _CONTENT in partition.get("Parameters", {}):
                _remove_from_partition(table, partition, sorted(columns.written | set(columns.previous_columns)))
        return size, unmatched


def _column_names(declared: Mapping[str, Any]) -> list[str]:
    return [column["Name"] for column in declared["StorageDescriptor"]["Columns"]]


def _has_our_content(table: GlueTable, properties: Mapping[str, str]) -> bool:
    """Return whether the number of rows and the statistics of all columns are still those that the export wrote."""
    columns = WrittenColumns.from_properties(properties, _COLUMNS)
    has_our_rows = _CONTENT in properties and properties.get(_ROWS) == properties[_CONTENT]
    return has_our_rows and columns.unchanged(_stored_counts(table, columns)) == columns.names


def _stored_counts(table: GlueTable, columns: WrittenColumns) -> dict[str, list[int | None]]:
    return counts_of(read_response(table.statistics(columns.names)))


def _properties(numbers: Numbers) -> dict[str, str]:
    return {_ROWS: str(numbers.rows), _SIZE: str(numbers.bytes)}


def _remove_from_all_partitions(table: GlueTable, columns: Sequence[str]) -> None:
    """Remove our statistics and our properties from all partitions that have them."""
    for partition in list(table.partitions()):
        if _CONTENT in partition.get("Parameters", {}):
            _remove_from_partition(table, partition, columns)


def _remove_from_partition(table: GlueTable, partition: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Remove our column statistics and our properties from a partition.

    If another program has changed `numRows` since, then `numRows` and `totalSize` stay.
    """
    table.delete_statistics(columns, partition["Values"])
    parameters = dict(partition["Parameters"])
    if parameters.pop(_CONTENT).partition(":")[0] == parameters.get(_ROWS):
        parameters = {key: text for key, text in parameters.items() if key not in (_ROWS, _SIZE)}
    table.change_partitions([(partition, parameters)])


def _size(item: Any) -> int:
    return len(json.dumps(item, default=str))
