"""Random histories of Delta tables, which are written by deltalake or by hand.

Tables written by hand have deletion vectors and mapped columns.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake

from tests.formats.delta.log_writer import add_file, commit, mapped, metadata, protocol, write_vector
from tests.robustness.histories import PARTITIONS, History, ModelledSchemaHistory, Rows, condition

_NAMES = {
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.decimal128(12, 2): "decimal(12,2)",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
}
"""The names of types in schemas of Delta."""


class DeltaCopyOnWrite(History):
    """A Delta table written by deltalake, which rewrites files."""

    steps: ClassVar = (
        *("append", "delete", "upsert", "overwrite_partition", "drop_partition"),
        *("add_column", "compact", "vacuum", "restore"),
    )

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    def vacuum(self) -> None:
        """Remove the files without live rows.

        From then on, no earlier state can be restored.
        """
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.states.clear()

    def fragments(self) -> set[Hashable]:
        return set(pa.table(self.table.get_add_actions())["path"].to_pylist())

    def _create(self) -> None:
        schema = self.model.live().schema
        write_deltalake(self.uri, pa.RecordBatchReader.from_batches(schema, []), partition_by=["p"])

    def _append(self, rows: pa.Table) -> None:
        write_deltalake(self.uri, rows, mode="append", schema_mode="merge")

    def _some_columns(self) -> Collection[str]:
        return list(self.model.columns)[: self.draw.randrange(5, len(self.model.columns) + 1)]

    def _delete(self, ids: Collection[int]) -> None:
        self.table.delete(condition(ids))

    def _upsert(self, rows: Rows) -> None:
        source = self.model.arrow(rows)
        every = {f"`{name}`": f"source.`{name}`" for name in source.column_names}
        merging = self.table.merge(source, "target.id = source.id", source_alias="source", target_alias="target")
        merging.when_matched_update(every).when_not_matched_insert(every).execute()

    def _overwrite_partition(self, value: str | None, rows: Rows, removed_ids: Collection[int]) -> None:
        write_deltalake(self.uri, self.model.arrow(rows), mode="overwrite", predicate=_is(value), schema_mode="merge")

    def _drop_partition(self, value: str | None, removed_ids: Collection[int]) -> None:
        self.table.delete(_is(value))

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        self.table.alter.add_columns([Field(name, "long")])

    def _compact(self) -> None:
        self.table.optimize.compact()

    def _token(self) -> int:
        return self.table.version()

    def _restore(self, token: int) -> None:
        if token < self.table.version():
            self.table.restore(token)


def _is(value: str | None) -> str:
    return "p is null" if value is None else f"p = '{value}'"


class DeltaMapped(ModelledSchemaHistory):
    """A Delta table written by hand, with deletion vectors and with renamed and widened columns."""

    steps: ClassVar = (
        *("append", "delete", "delete", "upsert", "drop_partition"),
        *("add_column", "drop_column", "widen", "rename", "compact", "restore"),
    )

    def fragments(self) -> set[Hashable]:
        return {(path, file.deleted_positions) for path, file in self.files.items()}

    def _create(self) -> None:
        self.files: dict[str, _LiveFile] = {}
        self.written = 0
        self.numbers = {key: number for number, key in enumerate(self.model.columns)}
        commit(self.uri, protocol("columnMapping", "deletionVectors", "typeWidening"), self._metadata())

    def _metadata(self) -> dict[str, Any]:
        columns = self.model.columns.items()
        fields = [mapped(name, _NAMES[type_], self.numbers[key]) for key, (name, type_) in columns]
        return metadata(fields, ["p"], **{"delta.columnMapping.mode": "name"})

    def _append(self, rows: pa.Table) -> None:
        commit(self.uri, *self._write(rows))

    def _write(self, rows: pa.Table) -> list[dict[str, Any]]:
        """Write a file with the rows of each partition.

        Returns the actions that add the files.
        """
        physical = {name: f"p{self.numbers[key]}" for key, (name, _) in self.model.columns.items()}
        actions = []
        for value in PARTITIONS:
            partition_rows = rows.filter(pa.array([other == value for other in rows["p"].to_pylist()], pa.bool_()))
            if len(partition_rows):
                self.written += 1
                path = f"{self.written}.parquet"
                data = partition_rows.drop_columns("p")
                data = data.rename_columns([physical[name] for name in data.column_names])
                actions.append(add_file(self.uri, data, path, **{physical["p"]: value}))
                self.files[path] = _LiveFile(actions[-1]["add"], tuple(partition_rows["id"].to_pylist()))
        return actions

    def _delete(self, ids: Collection[int]) -> None:
        actions = []
        for path, file in list(self.files.items()):
            positions = file.deleted_positions | {
                position for position, partition_rows in enumerate(file.ids) if partition_rows in ids
            }
            if positions == file.deleted_positions:
                continue  # a vector of the same rows with another file name would be another fragment
            actions.append(file.remove())
            del self.files[path]
            if len(positions) < len(file.ids):
                vector = write_vector(self.uri, sorted(positions), self.draw.choice("uip"))
                self.files[path] = _LiveFile(file.add | {"deletionVector": vector}, file.ids, positions)
                actions.append({"add": self.files[path].add})
        commit(self.uri, *actions)

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        self.numbers[key] = len(self.numbers)

    def take(self, step: str) -> None:
        before = self._metadata()
        super().take(step)
        if step in ("add_column", "drop_column", "widen", "rename") and self._metadata() != before:
            commit(self.uri, self._metadata())

    def _compact(self) -> None:
        removes = [file.remove() for file in self.files.values()]
        self.files.clear()
        commit(self.uri, *removes, *self._write(self.model.live()))

    def _token(self) -> tuple[dict[str, _LiveFile], dict[str, Any]]:
        return dict(self.files), self._metadata()

    def _restore(self, token: tuple[dict[str, _LiveFile], dict[str, Any]]) -> None:
        files, metadata_action = token
        removes = [file.remove() for path, file in self.files.items() if files.get(path) != file]
        adds = [{"add": file.add} for path, file in files.items() if self.files.get(path) != file]
        self.files = dict(files)
        commit(self.uri, metadata_action, *removes, *adds)


@dataclass(frozen=True)
class _LiveFile:
    add: dict[str, Any]
    ids: tuple[int, ...]
    deleted_positions: frozenset[int] = frozenset()
    """Positions of the deleted rows of the file."""

    def remove(self) -> dict[str, Any]:
        copied_keys = ("path", "partitionValues", "deletionVector")
        return {"remove": {key: self.add[key] for key in copied_keys if key in self.add}}
