"""Test tables that have the same operations in every format.

This module has those of Delta and of plain files.

A fragment is the smallest unit of rows that a format adds or removes: a data file and the deletes on it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.orc as orc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import TableConfig
from metastore_assets.formats import (
    UNPARTITIONED,
    Fragment,
    Snapshot,
    TableFormat,
    encode_partition_key,
    open_table_format,
)
from tests.formats.delta.log_writer import commit, delete_rows, newest
from tests.formats.oracle import read_rows

Row = tuple[int, str, str]
"""(id, text, day): `day` is the partition column, `id` unique for ever."""
DAYS = ("2024-01-01", "2024-01-02", "a/b,c=d%20é😀\n")


class Table(ABC):
    """A table with the columns id, text and day, partitioned by day.

    `rows` are its expected rows by id.
    """

    kind: str
    partition_columns: ClassVar[tuple[str, ...]] = ("day",)
    """Empty for a format without partitions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[int, Row] = {}
        self.next_id = 0

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows.

        The rows of each day become a file.
        """
        for day in sorted({row[2] for row in rows}):
            self._append([row for row in rows if row[2] == day], day)
        self.rows |= {row[0]: row for row in rows}
        self.next_id = max(self.next_id, *(row[0] + 1 for row in rows))

    def delete(self, ids: Collection[int]) -> None:
        self._delete(frozenset(ids) & set(self.rows))
        self.rows = {key: row for key, row in self.rows.items() if key not in ids}

    @abstractmethod
    def compact(self, day: str) -> None:
        """Rewrite the files of one partition as one file."""

    @abstractmethod
    def _append(self, rows: Sequence[Row], day: str) -> None: ...

    @abstractmethod
    def _delete(self, ids: Collection[int]) -> None: ...

    def partition_key(self, day: str) -> str:
        return encode_partition_key([("day", day)]) if self.partition_columns else UNPARTITIONED

    def column_range(self, path: Path, index: int) -> tuple[int, int]:
        """Return the start and size, in bytes, of a column chunk in the first row group of a Parquet file."""
        column = pq.ParquetFile(path).metadata.row_group(0).column(index)
        return column.dictionary_page_offset or column.data_page_offset, column.total_compressed_size

    def format(self) -> TableFormat:
        return open_table_format(TableConfig(name="t", uri=str(self.folder)))

    def snapshot(self) -> Snapshot:
        return self.format().snapshot()

    def fragments_of(self, ids: Collection[int]) -> list[tuple[Fragment, list[Row]]]:
        """Return the fragments that have rows with any of these ids, and all rows of each."""
        snapshot = self.snapshot()
        fragment_rows = [(fragment, rows_of(snapshot, fragment)) for fragment in snapshot.fragments]
        return [(fragment, rows) for fragment, rows in fragment_rows if any(row[0] in ids for row in rows)]


def rows_of(snapshot: Snapshot, fragment: Fragment) -> list[Row]:
    names = snapshot.schema.names
    order = [names.index(name) for name in ("id", "text", "day")]
    return [tuple(row[index] for index in order) for row in read_rows(snapshot, [fragment])]  # type: ignore[misc]


def arrow(rows: Sequence[Row]) -> pa.Table:
    ids, texts, days = (list(column) for column in zip(*rows, strict=True))
    return pa.table({"id": pa.array(ids, pa.int64()), "text": pa.array(texts, pa.string()), "day": days})


class DeltaCopyOnWrite(Table):
    """A Delta table written by deltalake, whose deletes rewrite files."""

    kind = "delta"
    configuration: ClassVar[dict[str, str | None]] = {}

    def _append(self, rows: Sequence[Row], day: str) -> None:
        write_deltalake(
            str(self.folder), arrow(rows), mode="append", partition_by=["day"], configuration=self.configuration
        )

    def _delete(self, ids: Collection[int]) -> None:
        if ids:
            DeltaTable(str(self.folder)).delete(f"id in ({', '.join(map(str, sorted(ids)))})")

    def compact(self, day: str) -> None:
        DeltaTable(str(self.folder)).optimize.compact(partition_filters=[("day", "=", day)])

    def restore(self, version: int) -> None:
        DeltaTable(str(self.folder)).restore(version)


class DeltaDeletionVectors(DeltaCopyOnWrite):
    """A Delta table whose deletes write deletion vectors, in a file or inline in turn."""

    configuration: ClassVar[dict[str, str | None]] = {"delta.enableDeletionVectors": "true"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._deletes = 0

    def _delete(self, ids: Collection[int]) -> None:
        for fragment, _ in self.fragments_of(ids):
            path = _log_path(self.folder, fragment.path)
            # Positions in the file include rows that were deleted before.
            stored_ids = pq.ParquetFile(fragment.path).read(["id"])["id"].to_pylist()
            live = {row[0] for row in self.rows.values()} - set(ids)
            storage = "uip"[self._deletes % 3]
            self._deletes += 1
            delete_rows(self.folder, path, [index for index, key in enumerate(stored_ids) if key not in live], storage)

    def compact(self, day: str) -> None:
        """Replace the files of a day by one file without deletion vectors.

        If the day has one file, change nothing.
        """
        snapshot = self.snapshot()
        key = encode_partition_key([("day", day)])
        group = [(f, rows_of(snapshot, f)) for f in snapshot.fragments if f.partition_key == key]
        if len(group) < 2:
            return
        adds = [newest(self.folder, "add", _log_path(self.folder, fragment.path)) for fragment, _ in group]
        target = Path(group[0][0].path).with_name(f"part-{uuid.uuid4()}.parquet")
        pq.write_table(arrow([row for _, rows in group for row in rows]).drop_columns(["day"]), target)
        path = f"{adds[0]['path'].rpartition('/')[0]}/{target.name}"
        new = {
            "path": path,
            "partitionValues": adds[0]["partitionValues"],
            "size": target.stat().st_size,
            "modificationTime": 5,
            "dataChange": False,
        }
        removes = [
            {key: add[key] for key in ("path", "partitionValues", "deletionVector") if key in add} for add in adds
        ]
        commit(
            self.folder,
            {"add": new},
            *({"remove": remove | {"dataChange": False, "deletionTimestamp": 1}} for remove in removes),
        )


class Files(Table):
    """Plain files in Hive-style folders."""

    kind = "files"
    suffix: str

    def _path(self, day: str) -> Path:
        folder = self.folder / f"day={day.replace('%', '%25').replace('/', '%2F')}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{uuid.uuid4()}{self.suffix}"

    def _append(self, rows: Sequence[Row], day: str) -> None:
        self._write(rows, self._path(day))

    @abstractmethod
    def _write(self, rows: Sequence[Row], path: Path) -> None: ...

    def _delete(self, ids: Collection[int]) -> None:
        for fragment, rows in self.fragments_of(ids):
            self.overwrite(Path(fragment.path), [row for row in rows if row[0] not in ids])

    def overwrite(self, path: Path, rows: Sequence[Row]) -> None:
        before = path.stat().st_mtime_ns
        path.unlink()
        if rows:
            self._write(rows, path)
            if path.stat().st_mtime_ns == before:
                os.utime(path, ns=(time.time_ns(), before + 1))

    def compact(self, day: str) -> None:
        snapshot = self.snapshot()
        fragment_rows = [(fragment, rows_of(snapshot, fragment)) for fragment in snapshot.fragments]
        group = [(fragment, rows) for fragment, rows in fragment_rows if rows[0][2] == day]
        if len(group) > 1:
            self._write([row for _, rows in group for row in rows], self._path(day))
            for fragment, _ in group:
                Path(fragment.path).unlink()


class ParquetFiles(Files):
    suffix = ".parquet"

    def _write(self, rows: Sequence[Row], path: Path) -> None:
        pq.write_table(arrow(rows).drop_columns(["day"]), path, row_group_size=3)


class RowFiles(Files):
    """Plain files in a format that stores values row by row."""


class CsvFiles(RowFiles):
    suffix = ".csv"

    def _write(self, rows: Sequence[Row], path: Path) -> None:
        pacsv.write_csv(arrow(rows).drop_columns(["day"]), path)


class OrcFiles(Files):
    suffix = ".orc"

    def _write(self, rows: Sequence[Row], path: Path) -> None:
        orc.write_table(arrow(rows).drop_columns(["day"]), path)


class AvroFiles(RowFiles):
    suffix = ".avro"

    def _write(self, rows: Sequence[Row], path: Path) -> None:
        fields = [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
        with path.open("wb") as file:
            records = [{"id": row[0], "text": row[1]} for row in rows]
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, records, codec="deflate")


class JsonFiles(RowFiles):
    suffix = ".jsonl"

    def _write(self, rows: Sequence[Row], path: Path) -> None:
        path.write_text("".join(json.dumps({"id": row[0], "text": row[1]}) + "\n" for row in rows))


TABLES: tuple[type[Table], ...] = (
    DeltaCopyOnWrite,
    DeltaDeletionVectors,
    ParquetFiles,
    OrcFiles,
    AvroFiles,
    CsvFiles,
    JsonFiles,
)


def _log_path(table: Path, path: str) -> str:
    """Return the path of a data file as the log of the table has it."""
    for file in sorted((table / "_delta_log").glob("*.json")):
        for line in file.read_text(encoding="utf-8").splitlines():
            add: dict[str, Any] | None = json.loads(line).get("add")
            if add and add["path"].rpartition("/")[2] == Path(path).name:
                return str(add["path"])
    raise AssertionError(f"no file of the log is {path}")


def parquet_bytes(**columns: Any) -> bytes:
    """Return the bytes of a Parquet file with these columns."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()
