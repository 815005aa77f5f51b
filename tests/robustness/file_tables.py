"""Random histories of plain Parquet files in folders."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.robustness.histories import History


class PlainFiles(History):
    """Plain Parquet files in `p=…` folders.

    A changed file is written under another name.
    """

    steps: ClassVar = (
        *("append", "delete", "upsert", "overwrite_partition", "drop_partition"),
        *("add_column", "widen", "compact", "restore"),
    )

    def fragments(self) -> set[Hashable]:
        return {(path.name, path.stat().st_mtime_ns) for path in self._files()}

    def live(self) -> pa.Table:
        """Return the expected rows, without columns that no file has any more."""
        stored_names = {name for path in self._files() for name in pq.ParquetFile(path).schema_arrow.names}
        rows = super().live()
        return rows.select([name for name in rows.column_names if name in stored_names | {"p"}])

    def _create(self) -> None:
        self.uri.mkdir(parents=True)
        self.written = 0

    def _append(self, rows: pa.Table) -> None:
        for value in self.partitions:
            partition_rows = rows.filter(pa.array([other == value for other in rows["p"].to_pylist()], pa.bool_()))
            if len(partition_rows):
                self.written += 1
                folder = self.uri / f"p={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe='')}"
                folder.mkdir(exist_ok=True)
                pq.write_table(partition_rows.drop_columns("p"), folder / f"{self.written}.parquet")

    def _some_columns(self) -> Collection[str]:
        return list(self.model.columns)[: self.draw.randrange(5, len(self.model.columns) + 1)]

    def _delete(self, ids: Collection[int]) -> None:
        for path in self._files():
            table = pq.ParquetFile(path).read()
            remaining = table.filter(
                pa.array([partition_rows not in ids for partition_rows in table["id"].to_pylist()], pa.bool_())
            )
            if len(remaining) < len(table):
                path.unlink()
                if len(remaining):
                    self.written += 1
                    pq.write_table(remaining, path.with_name(f"{self.written}.parquet"))

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        """Add a column by appending a file that has the column, because the files have no common schema."""
        rows = self.drawn(1)
        self.model.columns[key] = (name, type_)
        for row in rows.values():
            row[key] = 7
        self._append(self.model.arrow(rows))
        self.model.rows |= rows

    def _widen(self, name: str) -> None:
        """Widen the column in later files.

        The first later file has a value that does not fit the earlier type.
        """
        rows = self.drawn(1)
        self.model.columns["n"] = (name, pa.int64())
        for row in rows.values():
            row["n"] = 2**50
        self._append(self.model.arrow(rows))
        self.model.rows |= rows

    def _compact(self) -> None:
        for path in self._files():
            path.unlink()
        self._append(self.model.live())

    def _token(self) -> Path:
        copy = self.folder / f"copy{len(self.states)}"
        shutil.copytree(self.uri, copy)
        return copy

    def _restore(self, token: Any) -> None:
        shutil.rmtree(self.uri)
        shutil.copytree(token, self.uri)

    def _files(self) -> list[Path]:
        return sorted(self.uri.rglob("*.parquet"))
