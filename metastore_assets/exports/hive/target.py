"""The export target `hive`: statistics of a table and its partitions in a Hive metastore."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from metastore_assets.errors import ExportError
from metastore_assets.exports.base import (
    ExportedVersion,
    ExportMark,
    ExportOptions,
    ExportTarget,
    WrittenExport,
)
from metastore_assets.exports.declared_columns import UNKNOWN_ROWS, DeclaredColumns, Numbers
from metastore_assets.exports.hive.column_statistics import counts_of, read_thrift, to_thrift
from metastore_assets.exports.hive.metastore import HiveTable, open_hive_table
from metastore_assets.exports.partition_values import RegisteredPartitions, registered_values, version_values
from metastore_assets.exports.table_properties import WrittenColumns

if TYPE_CHECKING:
    from hive_metastore.ttypes import Table

_CONTENT = "metastore-assets.hive.content"
"""The property with the number of rows that an export wrote. Partitions also have a digest of their statistics."""
_COLUMNS = "metastore-assets.hive.columns"
"""The property with `WrittenColumns` of the table."""
_PARTITIONS = "metastore-assets.hive.partitions"
"""The property that a table has if an export wrote statistics of its partitions."""
_WRITING = "metastore-assets.hive.writing"
"""The property that a table has while an export is written. The property stays if the export is interrupted."""
_ROWS, _SIZE, _ACCURATE = "numRows", "totalSize", "COLUMN_STATS_ACCURATE"
_BATCH = 200
"""Number of partitions that are written with one request."""


class HiveOptions(ExportOptions):
    """The settings of an export to a Hive metastore."""

    partitions: bool = True
    """Whether statistics of partitions are written, besides those of the table."""
    accurate: bool = False
    """Whether `COLUMN_STATS_ACCURATE` declares the numbers to be accurate. Hive then answers `count`, `min` and `max`
    from them without reading the table, also after commits that have not been exported yet."""


_HivePartitions: TypeAlias = RegisteredPartitions[tuple[str, str]]
"""For each registered partition, its name and the digest that an earlier export wrote, which may be empty."""


class HiveTarget(ExportTarget):
    """Column statistics, `numRows` and `totalSize` of a table and its partitions."""

    kind = "hive"
    title = "the Hive metastore"
    is_single = True
    options_model = HiveOptions

    def write(self, version: ExportedVersion) -> WrittenExport:
        """Write the changed partitions, then the table, and last the mark. See `ExportTarget.write`."""
        if version.version.format not in ("files", "hudi"):
            raise ExportError(
                f"engines take the statistics of {version.version.format} tables from elsewhere than from the Hive "
                "metastore: the export `hive` is for plain files and Hudi tables"
            )
        with self._open() as table:
            declared = table.load()
            properties = dict(declared.parameters or {})
            self._refuse_foreign(table, properties)
            registered = self._registered(table, declared)
            types = {column.name: column.type for column in declared.sd.cols}
            keys = [key.name for key in declared.partitionKeys or []]
            previous = WrittenColumns.from_properties(properties, _COLUMNS)
            columns = DeclaredColumns(version, types, keys, previous.names)
            numbers = Numbers(version.version.row_count, version.version.bytes, columns.declare(version.columns()))
            # Until the last request, `_WRITING` shows that the export is incomplete, and nothing is declared accurate.
            replaced = {_CONTENT, _ACCURATE, *previous.to_properties(_COLUMNS), *ExportMark.property_names(self.kind)}
            started = WrittenColumns.in_progress({*columns.written, *previous.names})
            writing = {_WRITING: version.mark.digest, **started.to_properties(_COLUMNS)}
            table.change_properties(writing | ({_PARTITIONS: "true"} if self.options.partitions else {}), replaced)
            if _PARTITIONS in properties and not self.options.partitions:
                _remove_from_all_partitions(table, columns.previous_columns)
            size, unmatched = self._write_partitions(table, version, columns, registered)
            table.delete_statistics([name for name in columns.previous_columns if name not in columns.written])
            objects = to_thrift(numbers.columns)
            table.write_statistics(objects)
            added = {
                **_properties(numbers, accurate=self.options.accurate),
                **version.mark.to_properties(self.kind),
                **WrittenColumns.of_statistics(counts_of(read_thrift(objects))).to_properties(_COLUMNS),
                _CONTENT: str(numbers.rows),
            }
            finished = {_WRITING, _ACCURATE, *started.to_properties(_COLUMNS)}
            table.change_properties(added, finished | (set() if self.options.partitions else {_PARTITIONS}))
        notes = columns.notes()
        if unmatched:
            notes.append(f"{unmatched} partitions are not registered in the metastore, and were left out")
        size += sum(len(key) + len(text) for key, text in added.items()) + table.size_of(objects)
        return WrittenExport(size, len(numbers.columns), tuple(notes))

    def status(self) -> ExportMark | None:
        """Return the mark of the last export; None without one, or if another program changed the statistics since."""
        with self._open() as table:
            properties = table.load().parameters or {}
            mark = ExportMark.from_properties(properties, self.kind)
            return mark if mark is not None and _has_our_content(table, properties) else None

    def remove(self) -> bool:
        """Remove our column statistics, `numRows`, `totalSize` and our properties. Return whether there was an export.

        Whatever another program has changed since the export stays: the statistics of a column, or both numbers. The
        metastore computes sizes again when the table changes.
        """
        with self._open() as table:
            properties = table.load().parameters or {}
            has_mark = ExportMark.from_properties(properties, self.kind) is not None
            if not has_mark and _WRITING not in properties:
                return False
            columns = WrittenColumns.from_properties(properties, _COLUMNS)
            # An INSERT of Hive changes only the number of rows. Our column statistics would stay after a purge.
            has_our_rows = properties.get(_ROWS) == properties.get(_CONTENT, properties.get(_ROWS))
            numbers = {_ROWS, _SIZE, _ACCURATE} if has_our_rows else set()
            table.change_properties({_WRITING: "removing"}, numbers & {_ACCURATE})
            if _PARTITIONS in properties:
                _remove_from_all_partitions(table, columns.names)
            table.delete_statistics(columns.unchanged(_stored_counts(table, columns)))
            removed = {_CONTENT, _PARTITIONS, _WRITING, *columns.to_properties(_COLUMNS)}
            table.change_properties({}, {*removed, *ExportMark.property_names(self.kind), *numbers})
            return True

    def read_back(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the statistics by column and by Thrift's name: `{"": {"numRows": "9"}, "id": {"numNulls": 0}}`.

        The empty name stands for the whole table.
        """
        with self._open() as table:
            declared = table.load()
            numbers = {name: (declared.parameters or {}).get(name) for name in (_ROWS, _SIZE, _ACCURATE)}
            return {"": numbers, **read_thrift(table.statistics([one.name for one in declared.sd.cols]))}

    def _open(self) -> AbstractContextManager[HiveTable]:
        return open_hive_table(self.table, self.title)

    def _refuse_foreign(self, table: HiveTable, properties: Mapping[str, str]) -> None:
        """Raise ExportError if another program wrote statistics of the table, unless the option `replace` is set."""
        if self.options.replace or _WRITING in properties:
            return
        if ExportMark.from_properties(properties, self.kind) is not None:
            is_foreign = not _has_our_content(table, properties)
        else:
            names = [column.name for column in table.load().sd.cols]
            is_foreign = properties.get(_ROWS) not in UNKNOWN_ROWS or bool(table.statistics(names))
        if is_foreign:
            raise ExportError(
                f"table {self.table.identifier!r} has statistics that something else wrote to the Hive metastore, such "
                "as ANALYZE TABLE of Hive: set `replace: true` for this export to replace them"
            )

    def _registered(self, table: HiveTable, declared: Table) -> _HivePartitions:
        """Return the partitions that the metastore registers; none if the option `partitions` is off.

        Raises ExportError if another program wrote statistics of one, unless the option `replace` is set.
        """
        keys = declared.partitionKeys or []
        if not self.options.partitions:
            return _HivePartitions([], [], {})
        registered = _HivePartitions([key.name.lower() for key in keys], [key.type for key in keys], {})
        if not keys:
            return registered
        is_writing = _WRITING in (declared.parameters or {})
        for name, partition in (
            pair for names in _batches(table.partition_names()) for pair in table.load_partitions(names)
        ):
            properties = partition.parameters or {}
            content, rows = properties.get(_CONTENT, ""), properties.get(_ROWS)
            is_ours = is_writing or rows in UNKNOWN_ROWS or content.partition(":")[0] == rows
            if not is_ours and not self.options.replace:
                raise ExportError(
                    f"the partition {name} of table {self.table.identifier!r} has statistics that something else wrote "
                    "to the Hive metastore: set `replace: true` for this export to replace them"
                )
            values = registered_values(partition.values, registered.types)
            registered.partitions[values] = name, content
        return registered

    def _write_partitions(
        self, table: HiveTable, version: ExportedVersion, columns: DeclaredColumns, registered: _HivePartitions
    ) -> tuple[int, int]:
        """Write the partitions whose numbers changed since the last export.

        Returns:
            The bytes that were sent, and the number of partitions that the metastore does not register.
        """
        if not registered.names:
            return 0, 0
        size = unmatched = 0
        remaining = dict(registered.partitions)
        for batch in _batches(version.partitions()):
            changed: dict[str, Numbers] = {}
            for entry, exported in batch:
                values = version_values(entry.key, registered.names, registered.types)
                name, content = ("", "") if values is None else remaining.pop(values, ("", ""))
                numbers = Numbers(entry.row_count, entry.bytes, columns.declare(exported))
                unmatched += not name
                if name and self._mark(numbers) != content:
                    changed[name] = numbers
            size += self._write_batch(table, changed, columns)
        removed_names = [name for name, content in remaining.values() if content]
        for names in _batches(removed_names):
            _remove_from_partitions(table, names, sorted(columns.written | set(columns.previous_columns)))
        return size, unmatched

    def _mark(self, numbers: Numbers) -> str:
        """Return the value of the property `_CONTENT`, which identifies the statistics of a partition."""
        return f"{numbers.content}:accurate" if self.options.accurate else numbers.content

    def _write_batch(self, table: HiveTable, changed: Mapping[str, Numbers], columns: DeclaredColumns) -> int:
        objects = {name: to_thrift(numbers.columns) for name, numbers in changed.items()}
        for name, numbers in changed.items():
            written = {one.column for one in numbers.columns}
            table.delete_statistics([column for column in columns.previous_columns if column not in written], name)
        table.write_partition_statistics(objects)
        partitions = table.load_partitions(list(changed))
        size = sum(table.size_of(one) for one in objects.values())
        for name, partition in partitions:
            numbers = changed[name]
            parameters = {key: text for key, text in (partition.parameters or {}).items() if key != _ACCURATE}
            added = {**_properties(numbers, accurate=self.options.accurate), _CONTENT: self._mark(numbers)}
            partition.parameters = parameters | added
            size += sum(len(key) + len(text) for key, text in added.items())
        table.change_partitions([partition for _, partition in partitions])
        return size


def _properties(numbers: Numbers, *, accurate: bool) -> dict[str, str]:
    """Return the properties with the numbers of rows and bytes, and `COLUMN_STATS_ACCURATE` if `accurate`."""
    properties = {_ROWS: str(numbers.rows), _SIZE: str(numbers.bytes)}
    if accurate:
        exact = {one.column: "true" for one in numbers.columns if one.has_exact_bounds}
        properties[_ACCURATE] = json.dumps({"BASIC_STATS": "true", "COLUMN_STATS": exact}, separators=(",", ":"))
    return properties


def _has_our_content(table: HiveTable, properties: Mapping[str, str]) -> bool:
    """Return whether the number of rows and the statistics of all columns are still those that the export wrote."""
    columns = WrittenColumns.from_properties(properties, _COLUMNS)
    has_our_rows = _CONTENT in properties and properties.get(_ROWS) == properties[_CONTENT]
    return has_our_rows and columns.unchanged(_stored_counts(table, columns)) == columns.names


def _stored_counts(table: HiveTable, columns: WrittenColumns) -> dict[str, list[int | None]]:
    return counts_of(read_thrift(table.statistics(columns.names)))


def _remove_from_all_partitions(table: HiveTable, columns: Sequence[str]) -> None:
    """Remove our statistics and our properties from all partitions that have them."""
    for names in _batches(table.partition_names()):
        ours = [name for name, partition in table.load_partitions(names) if _CONTENT in (partition.parameters or {})]
        _remove_from_partitions(table, ours, columns)


def _remove_from_partitions(table: HiveTable, names: Sequence[str], columns: Sequence[str]) -> None:
    """Remove our column statistics and our properties from partitions.

    If another program has changed `numRows` of a partition since, then its `numRows` and `totalSize` stay.
    """
    for name in names:
        table.delete_statistics(columns, name)
    partitions = [partition for _, partition in table.load_partitions(names)]
    for partition in partitions:
        parameters = partition.parameters or {}
        has_our_rows = parameters.get(_CONTENT, "").partition(":")[0] == parameters.get(_ROWS)
        removed = {_CONTENT, _ACCURATE, *((_ROWS, _SIZE) if has_our_rows else ())}
        partition.parameters = {key: text for key, text in parameters.items() if key not in removed}
    table.change_partitions(partitions)


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH)):
        yield batch
