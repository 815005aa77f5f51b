"""The writer of ledger tables (see `ledger_format`), with which `test_contract` tests their format."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.formats.table_writers import Row, Table, arrow, rows_of

_LEDGER = "_ledger"


class LedgerTable(Table):
    """A ledger table.

    Deletes and compactions write new files.
    """

    kind = "ledger"

    def _append(self, rows: Sequence[Row], day: str) -> None:
        self._commit([*self._files(), self._write(rows, day)])

    def _delete(self, ids: Collection[int]) -> None:
        entries = self._files()
        for fragment, rows in self.fragments_of(ids):
            entries = [entry for entry in entries if not fragment.path.endswith(entry["path"])]
            if live := [row for row in rows if row[0] not in ids]:
                entries.append(self._write(live, live[0][2]))
        self._commit(entries)

    def compact(self, day: str) -> None:
        snapshot = self.snapshot()
        group = [rows for rows in (rows_of(snapshot, one) for one in snapshot.fragments) if rows[0][2] == day]
        if len(group) > 1:
            others = [entry for entry in self._files() if entry["partition"]["day"] != day]
            self._commit([*others, self._write([row for rows in group for row in rows], day)])

    def _write(self, rows: Sequence[Row], day: str) -> dict[str, Any]:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{uuid.uuid4()}.parquet"
        pq.write_table(arrow(rows).drop_columns(["day"]), path)
        return {"path": path.name, "partition": {"day": day}, "rows": len(rows), "size": path.stat().st_size}

    def _commits(self) -> list[Path]:
        return sorted((self.folder / _LEDGER).glob("*.json"))

    def _files(self) -> list[dict[str, Any]]:
        commits = self._commits()
        return json.loads(commits[-1].read_text())["files"] if commits else []

    def _commit(self, files: list[dict[str, Any]]) -> None:
        number = len(self._commits()) + 1
        commit = {
            "number": number,
            "time": time.time(),
            "columns": {"id": "long", "text": "text", "day": "text"},
            "partition_columns": ["day"],
            "files": files,
        }
        (self.folder / _LEDGER).mkdir(parents=True, exist_ok=True)
        (self.folder / _LEDGER / f"{number:08}.json").write_text(json.dumps(commit))


LEDGER_TABLES = (LedgerTable,)
