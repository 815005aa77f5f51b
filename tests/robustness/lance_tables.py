"""Random histories of Lance tables, written by pylance."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, ClassVar

import lance
import pyarrow as pa

from tests.robustness.histories import History, Rows, condition


class LanceTables(History):
    """A Lance table without partitions.

    Deletes write deletion files. A widened column is a new column in files of its own.
    """

    steps: ClassVar = (
        *("append", "delete", "upsert", "overwrite_partition", "drop_partition"),
        *("add_column", "drop_column", "widen", "rename", "compact", "restore", "index"),
    )

    partition_column = None

    @property
    def table(self) -> Any:
        return lance.dataset(self.uri)

    def fragments(self) -> set[Hashable]:
        return {
            (*(file.path for file in fragment.data_files()), fragment.deletion_file())
            for fragment in self.table.get_fragments()
        }

    def index(self) -> None:
        """Create an index, which is a commit that changes no row."""
        self.table.create_scalar_index("id", "BTREE")

    def _create(self) -> None:
        lance.write_dataset(
            self.model.arrow({}), self.uri, data_storage_version=self.draw.choice(["2.0", "2.1", "2.2"])
        )

    def _append(self, rows: pa.Table) -> None:
        lance.write_dataset(rows, self.uri, mode="append", max_rows_per_file=self.draw.choice([7, 100]))

    def _delete(self, ids: Collection[int]) -> None:
        self.table.delete(condition(ids))

    def _upsert(self, rows: Rows) -> None:
        merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self.model.arrow(rows))

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        self.table.add_columns(pa.schema([pa.field(name, type_)]))

    def _drop_column(self, name: str) -> None:
        self.table.drop_columns([name])

    def _widen(self, name: str) -> None:
        self.table.alter_columns({"path": name, "data_type": pa.int64()})

    def _rename(self, old: str, new: str) -> None:
        self.table.alter_columns({"path": old, "name": new})

    def _compact(self) -> None:
        self.table.optimize.compact_files(materialize_deletions_threshold=0)

    def _token(self) -> int:
        return int(self.table.version)

    def _restore(self, token: Any) -> None:
        self.table.checkout_version(token).restore()
