"""Random histories of Iceberg tables by pyiceberg, and by hand.

Tables written by hand have delete files and deletion vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression, EqualTo, In, IsNull
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tests.formats.iceberg.writer import Entry, IcebergWriter, column
from tests.robustness.histories import History, ModelledSchemaHistory, Rows

_NAMES = {pa.int32(): "int", pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}
"""The names of types in schemas of Iceberg."""


class IcebergCopyOnWrite(History):
    """An Iceberg table partitioned by the values of `p`, in which deletes rewrite files."""

    steps: ClassVar = (
        *("append", "delete", "upsert", "overwrite_partition", "drop_partition"),
        *("add_column", "drop_column", "widen", "rename", "compact", "restore"),
    )
    restores_schema = False

    def fragments(self) -> set[Hashable]:
        return {task.file.file_path for task in self.table.scan().plan_files()}

    def _create(self) -> None:
        catalog = SqlCatalog("c", uri="sqlite://", warehouse=self.folder.as_uri())
        catalog.create_namespace("n")
        schema = self.model.live().schema
        self.table: Table = catalog.create_table("n.t", schema, location=self.uri.as_uri())
        with self.table.update_spec() as update:
            update.add_identity("p")

    def _append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    def _delete(self, ids: Collection[int]) -> None:
        if ids:
            self.table.delete(In("id", ids))

    # Upserts are a delete and an append: pyiceberg's upserts fail once a column has been renamed.

    def _overwrite_partition(self, value: str | None, rows: Rows, removed_ids: Collection[int]) -> None:
        self.table.overwrite(self.model.arrow(rows), _is(value))

    def _drop_partition(self, value: str | None, removed_ids: Collection[int]) -> None:
        self.table.delete(_is(value))

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        with self.table.update_schema() as update:
            update.add_column(name, LongType())

    def _drop_column(self, name: str) -> None:
        with self.table.update_schema() as update:
            update.delete_column(name)

    def _widen(self, name: str) -> None:
        with self.table.update_schema() as update:
            update.update_column(name, LongType())

    def _rename(self, old: str, new: str) -> None:
        with self.table.update_schema() as update:
            update.rename_column(old, new)

    def _compact(self) -> None:
        self.table.overwrite(self.model.live())

    def _token(self) -> int | None:
        snapshot = self.table.current_snapshot()
        return snapshot and snapshot.snapshot_id

    def _restore(self, token: Any) -> None:
        self.table.manage_snapshots().set_current_snapshot(token).commit()


def _is(value: str | None) -> BooleanExpression:
    return IsNull("p") if value is None else EqualTo("p", value)


class IcebergMergeOnRead(ModelledSchemaHistory):
    """An Iceberg table whose deletes write delete files, which apply to data files.

    Tables of version 2 have position deletes, and those of version 3 have deletion vectors. Both have equality deletes.
    """

    steps: ClassVar = (
        *("append", "delete", "delete", "upsert", "overwrite_partition", "drop_partition"),
        *("add_column", "drop_column", "widen", "rename", "compact", "restore"),
    )
    restores_schema = False

    def fragments(self) -> set[Hashable]:
        return {(file.path, file.deletes) for file in self.files.values()}

    def _create(self) -> None:
        self.files: dict[str, _LiveFile] = {}
        self.field_ids = {key: number for number, key in enumerate(self.model.columns, 1)}
        self.writer = IcebergWriter(
            self.uri,
            self._columns(),
            specs={0: [{"name": "p", "field-id": 1000, "source-id": self.field_ids["p"], "transform": "identity"}]},
            partition_types={1000: "string"},
            version=self.draw.choice([2, 3]),
        )
        self._commit()

    def _columns(self) -> list[dict[str, Any]]:
        return [column(self.field_ids[key], name, _NAMES[type_]) for key, (name, type_) in self.model.columns.items()]

    def _commit(self, *added_entries: Entry, removed_entries: Collection[Entry] = ()) -> None:
        self.writer.commit(*added_entries, removed_entries=removed_entries, retain_manifests=self.draw.random() < 0.7)

    def _append(self, rows: pa.Table) -> None:
        self._commit(*self._write(rows))

    def _write(self, rows: pa.Table) -> list[Entry]:
        """Write a data file with the rows of each partition.

        Returns the entries of the files.
        """
        entries = []
        for value in self.partitions:
            partition_rows = rows.filter(pa.array([other == value for other in rows["p"].to_pylist()], pa.bool_()))
            if len(partition_rows):
                entries.append(self.writer.data(partition_rows, partition=(value,)))
                ids = partition_rows["id"].to_pylist()
                self.files[entries[-1]["file_path"]] = _LiveFile(entries[-1], tuple(ids), frozenset(ids))
        return entries

    def _delete(self, ids: Collection[int]) -> None:
        added_entries: list[Entry] = []
        removed_entries: list[Entry] = []
        is_equality = self.draw.random() < 0.3
        for value in self.partitions:
            files = [file for file in self._of(value) if file.live_ids & set(ids)]
            if not files:
                continue
            if is_equality:
                keys = pa.table({"id": pa.array(sorted(set(ids) & self.of_partition(value)), pa.int64())})
                added_entries.append(self.writer.equality_deletes(keys, "id", partition=(value,)))
                self._record(self._of(value), ids, added_entries[-1])
            elif self.writer.version == 3:
                removed_entries += [file.vector for file in files if file.vector is not None]
                added_entries += [self._write_vector(file, ids) for file in files]
            elif self.draw.random() < 0.5:
                added_entries.append(self._write_positions(files, ids))
            else:
                added_entries += [self._write_positions([file], ids) for file in files]
        self._commit(*added_entries, removed_entries=removed_entries)

    def _of(self, value: str | None) -> list[_LiveFile]:
        return [file for file in self.files.values() if file.entry["partition"] == (value,)]

    def _write_positions(self, files: Collection[_LiveFile], ids: Collection[int]) -> Entry:
        """Write one file of position deletes for data files of one partition."""
        rows = [(file.path, position) for file in files for position in file.positions(file.live_ids & set(ids))]
        (partition,) = {file.entry["partition"] for file in files}
        (path, *others) = [file.path for file in files]
        more = {} if others else {"referenced_data_file": path}
        entry = self.writer.position_deletes(rows, partition=partition, **more)
        self._record(files, ids, entry)
        return entry

    def _write_vector(self, file: _LiveFile, ids: Collection[int]) -> Entry:
        """Write the deletion vector of all deleted rows of a file.

        It replaces an earlier vector.
        """
        positions = file.positions(set(file.ids) - (file.live_ids - set(ids)))
        entry = self.writer.deletion_vector(file.path, positions, partition=file.entry["partition"])
        self._record([replace(file, deletes=file.deletes - {_key(file.vector)}, vector=entry)], ids, entry)
        return entry

    def _record(self, files: Collection[_LiveFile], ids: Collection[int], delete_file: Entry) -> None:
        """Record that a delete file applies to the given data files, and deletes their rows with these ids."""
        for file in files:
            live_ids, deletes = file.live_ids - set(ids), file.deletes | {_key(delete_file)}
            self.files[file.path] = replace(file, live_ids=live_ids, deletes=deletes)

    def _drop_partition(self, value: str | None, removed_ids: Collection[int]) -> None:
        self._replace([value], None)

    def _overwrite_partition(self, value: str | None, rows: Rows, removed_ids: Collection[int]) -> None:
        self._replace([value], self.model.arrow(rows))

    def _replace(self, values: Collection[str | None], rows: pa.Table | None) -> None:
        """Remove all files of the partitions `values`, and write rows in the same commit."""
        self.files = {path: file for path, file in self.files.items() if file.entry["partition"][0] not in values}
        removed_entries = [entry for entry in self.writer.live if entry["partition"][0] in values]
        self._commit(*([] if rows is None else self._write(rows)), removed_entries=removed_entries)

    def _compact(self) -> None:
        self._replace(self.partitions, self.model.live())

    def take(self, step: str) -> None:
        super().take(step)
        if self._columns() != self.writer.schemas[-1]:
            self.writer.schemas.append(self._columns())
            self.writer.write_metadata()

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        self.field_ids[key] = len(self.field_ids) + 1

    def _token(self) -> Any:
        writer = self.writer
        return writer.refs["main"], list(writer.live), list(writer.manifests), dict(self.files)

    def _restore(self, token: Any) -> None:
        self.writer.refs["main"], live, manifests, files = token
        self.writer.live, self.writer.manifests = list(live), list(manifests)
        self.files = dict(files)
        self.writer.write_metadata()


@dataclass(frozen=True)
class _LiveFile:
    """A data file of the current snapshot."""

    entry: Entry
    ids: tuple[int, ...]
    """The id of each row, also of deleted ones."""
    live_ids: frozenset[int]
    deletes: frozenset[Hashable] = frozenset()
    """Keys of the delete files that apply to this file."""
    vector: Entry | None = None
    """The deletion vector of this file."""

    @property
    def path(self) -> str:
        return str(self.entry["file_path"])

    def positions(self, ids: Collection[int]) -> list[int]:
        return [position for position, key in enumerate(self.ids) if key in ids]


def _key(delete_file: Entry | None) -> str | None:
    return delete_file and delete_file["file_path"]
