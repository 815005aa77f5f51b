"""Random histories of Iceberg tables, written by pyiceberg."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression, EqualTo, In, IsNull
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tests.robustness.histories import History, Rows


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
