"""Hudi tables to which tests append rows, delete rows, and compact."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tests.formats.hudi.writer import META, HudiWriter, Slice
from tests.formats.table_writers import Row, Table

_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": ["null", "long"], "default": None},
    {"name": "text", "type": ["null", "string"], "default": None},
    {"name": "day", "type": ["null", "string"], "default": None},
]
_ESCAPED = re.compile(r"[\x01-\x1f\"#%'*/:=?\\{\[\]^\x7f]")


class HudiCopyOnWrite(Table):
    """A Hudi table with timeline layout 1, whose deletes rewrite base files."""

    kind = "hudi"
    version = 6

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.writer = HudiWriter(folder, self.version, by_commit=True, fields=_FIELDS, key="id", partition_field="day")
        self.writer.set_properties(**{"hoodie.datasource.write.partitionpath.urlencode": "true"})

    def column_range(self, path: Path, index: int) -> tuple[int, int]:
        """Return the start and size, in bytes, of a column chunk in the first row group of a base file.

        `index` does not count Hudi's own columns.
        """
        return super().column_range(path, len(META) + index)

    def _append(self, rows: Sequence[Row], day: str) -> None:
        instant = self.writer.tick()
        one = self.writer.new_slice(_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", day), instant)
        self._rewrite(one, instant, rows)
        self.writer.slices[one.file_id] = one

    def _delete(self, ids: Collection[int]) -> None:
        for one in list(self.writer.slices.values()):
            if not self._ids(one).isdisjoint(ids):
                self._delete_from(one, ids)

    def _delete_from(self, one: Slice, ids: Collection[int]) -> None:
        remaining = self._ids(one) - set(ids)
        self._rewrite(one, self.writer.tick(), [row for row in self.rows.values() if row[0] in remaining])

    def compact(self, day: str) -> None:
        rows = [row for row in self.rows.values() if row[2] == day]
        folder = f"day={_ESCAPED.sub(lambda match: f'%{ord(match[0]):02X}', day)}"
        old = [one for one in self.writer.slices.values() if one.partition == folder]
        if not rows:
            return
        instant = self.writer.tick()
        one = self.writer.new_slice(folder.removeprefix("day="), instant)
        self._rewrite(one, instant, rows, "replacecommit", old)
        self.writer.slices[one.file_id] = one

    def _rewrite(
        self,
        one: Slice,
        instant: str,
        rows: Sequence[Row],
        action: str = "commit",
        replaced_slices: Collection[Slice] = (),
    ) -> None:
        self.writer.request(instant, action)
        records = [dict(zip(("id", "text", "day"), row, strict=True)) for row in rows]
        stat = self.writer.base_file(one, instant, records)
        one.base_name, one.base_instant, one.logs = stat["path"].rpartition("/")[2], instant, 0
        one.base_rows = {str(row[0]): {"id": row[0]} for row in rows}
        self.writer.complete(instant, action, [stat], replaced_slices, "CLUSTER" if replaced_slices else "UPSERT")

    def _ids(self, one: Slice) -> set[int]:
        return {row["id"] for row in one.base_rows.values()} & set(self.rows)


class HudiMergeOnRead(HudiCopyOnWrite):
    """A Hudi table with timeline layout 2, whose deletes write log files."""

    version = 9

    def _delete_from(self, one: Slice, ids: Collection[int]) -> None:
        instant = self.writer.tick()
        self.writer.request(instant, "deltacommit")
        deletes = {str(key): 0 for key in self._ids(one) & set(ids)}
        self.writer.complete(instant, "deltacommit", [self.writer.log_file(one, instant, (), deletes)])


HUDI_TABLES: tuple[type[Table], ...] = (HudiCopyOnWrite, HudiMergeOnRead)
