"""Lance tables to which tests append rows, delete rows, and compact."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

import lance
from lance.file import LanceFileReader

from tests.formats.table_writers import Row, Table, arrow


class LanceTable(Table):
    """A Lance table written by pylance.

    Lance has no partitions.
    """

    kind = "lance"
    partition_columns: ClassVar[tuple[str, ...]] = ()
    file_version: ClassVar[str] = "2.0"
    stable_row_ids: ClassVar[bool] = False

    def _append(self, rows: Sequence[Row], day: str) -> None:
        lance.write_dataset(
            arrow(rows),
            self.folder,
            mode="append",
            data_storage_version=self.file_version,
            enable_stable_row_ids=self.stable_row_ids,
        )

    def _delete(self, ids: Collection[int]) -> None:
        if ids:
            lance.dataset(self.folder).delete(f"id in ({', '.join(map(str, sorted(ids)))})")

    def column_range(self, path: Path, index: int) -> tuple[int, int]:
        # A wrong length in an earlier buffer makes pylance run out of memory and end the process.
        characters = LanceFileReader(str(path)).metadata().columns[index].pages[0].buffers[-1]
        return characters.position, characters.size

    def compact(self, day: str) -> None:
        lance.dataset(self.folder).optimize.compact_files(materialize_deletions_threshold=0)


class LanceStableRowIds(LanceTable):
    """A Lance table of the newest file version with stable row ids."""

    file_version = "2.2"
    stable_row_ids = True


LANCE_TABLES: tuple[type[Table], ...] = (LanceTable, LanceStableRowIds)
