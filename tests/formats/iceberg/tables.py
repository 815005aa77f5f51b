"""Iceberg tables to which tests append rows, delete rows, and compact.

The classes differ in their kind of deletes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.formats.iceberg.writer import Entry, IcebergWriter, column
from tests.formats.table_writers import Row, Table, arrow


class IcebergCopyOnWrite(Table):
    """An Iceberg table written by pyiceberg, whose deletes rewrite files."""

    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        catalog = InMemoryCatalog("test", warehouse=str(folder.parent / "warehouse"))
        catalog.create_namespace("db")
        self._table = catalog.create_table(
            "db.t",
            Schema(
                NestedField(1, "id", LongType()),
                NestedField(2, "text", StringType()),
                NestedField(3, "day", StringType()),
            ),
            location=str(folder),
            partition_spec=PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day")),
        )

    def _append(self, rows: Sequence[Row], day: str) -> None:
        self._table.append(arrow(rows))

    def _delete(self, ids: Collection[int]) -> None:
        if ids:
            self._table.delete(f"id in ({', '.join(map(str, sorted(ids)))})")

    def compact(self, day: str) -> None:
        rows = [row for row in self.rows.values() if row[2] == day]
        if rows:
            same_day = EqualTo("day", day)  # type: ignore[call-arg, arg-type] # Its signature is made up at run time.
            self._table.overwrite(arrow(rows), overwrite_filter=same_day)


class IcebergPositionDeletes(Table):
    """An Iceberg table of version 2 whose deletes write one position delete file per data file."""

    kind = "iceberg"
    version = 2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._writer = IcebergWriter(
            folder,
            [column(1, "id", "long"), column(2, "text", "string"), column(3, "day", "string")],
            specs={0: [{"name": "day", "field-id": 1000, "source-id": 3, "transform": "identity"}]},
            partition_types={1000: "string"},
            version=self.version,
        )

    def _append(self, rows: Sequence[Row], day: str) -> None:
        self._writer.commit(self._writer.data(arrow(rows), partition=(day,)))

    def _delete(self, ids: Collection[int]) -> None:
        """Delete rows by id.

        Each data file that has one of these rows gets a delete file with all deleted positions of the data file.
        """
        added_entries: list[Entry] = []
        removed_entries: list[Entry] = []
        for data in [entry for entry in self._writer.live if entry["content"] == 0]:
            stored_ids = pq.read_table(data["file_path"], columns=["id"])["id"].to_pylist()
            if set(stored_ids) & set(ids):
                live = set(self.rows) - set(ids)
                positions = [position for position, key in enumerate(stored_ids) if key not in live]
                removed_entries += self._of(data)
                added_entries.append(self._write(data, positions))
        if added_entries:
            self._writer.commit(*added_entries, removed_entries=removed_entries)

    def _write(self, data: Entry, positions: list[int]) -> Entry:
        path = data["file_path"]
        rows = [(path, position) for position in positions]
        return self._writer.position_deletes(rows, partition=data["partition"], referenced_data_file=path)

    def _of(self, data: Entry) -> list[Entry]:
        """Return the delete files of a data file."""
        return [entry for entry in self._writer.live if entry.get("referenced_data_file") == data["file_path"]]

    def compact(self, day: str) -> None:
        old = [entry for entry in self._writer.live if entry["content"] == 0 and entry["partition"] == (day,)]
        rows = [row for row in self.rows.values() if row[2] == day]
        if rows:
            new = self._writer.data(arrow(rows), partition=(day,))
            self._writer.commit(new, removed_entries=[*old, *(entry for data in old for entry in self._of(data))])


class IcebergDeletionVectors(IcebergPositionDeletes):
    """An Iceberg table of version 3 with one deletion vector per data file with deleted rows."""

    version = 3

    def _write(self, data: Entry, positions: list[int]) -> Entry:
        return self._writer.deletion_vector(data["file_path"], positions, partition=data["partition"])


class IcebergEqualityDeletes(IcebergPositionDeletes):
    """An Iceberg table with equality deletes by id, which apply to all older files of a partition."""

    def _delete(self, ids: Collection[int]) -> None:
        """Delete rows by id, with one file of equality deletes for each day of these rows."""
        rows = [self.rows[key] for key in sorted(ids) if key in self.rows]
        days = sorted({row[2] for row in rows})
        by_day = [(day, pa.table({"id": [row[0] for row in rows if row[2] == day]})) for day in days]
        if by_day:
            self._writer.commit(
                *(self._writer.equality_deletes(table, "id", partition=(day,)) for day, table in by_day)
            )

    def _of(self, data: Entry) -> list[Entry]:
        return []


ICEBERG_TABLES: tuple[type[Table], ...] = (
    IcebergCopyOnWrite,
    IcebergPositionDeletes,
    IcebergDeletionVectors,
    IcebergEqualityDeletes,
)
