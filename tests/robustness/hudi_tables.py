"""Random histories of Hudi merge-on-read tables, written without a library."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from tests.formats.hudi.writer import HudiWriter, Slice
from tests.robustness.histories import History, Rows

_NAMES = {pa.int32(): "int", pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}
"""The names of types in Avro schemas."""


class HudiTables(History):
    """A Hudi table in which deletes and updates write log files or, less often, new base files.

    A file group is a base file with its log files. Each append writes a new file group to each partition of its rows.
    """

    steps: ClassVar = (
        *("append", "delete", "delete", "upsert", "overwrite_partition", "drop_partition"),
        *("add_column", "widen", "compact", "clean", "fail"),
    )
    partitions: ClassVar = ["a", "b", "c"]

    def clean(self) -> None:
        """Remove the outdated files of live file groups, and all files of replaced file groups."""
        retained_names = self.incomplete_files.union(*self.fragments())
        removed_names: dict[str, list[str]] = {}
        for path in sorted(self.uri.glob("p=*/*")):
            if not path.name.startswith(".hoodie") and path.name not in retained_names:
                removed_names.setdefault(path.parent.name, []).append(path.name)
        self.writer.clean(removed_names)

    def fail(self) -> None:
        """Write a log file in a commit that never completes."""
        instant = self.writer.tick()
        self.writer.request(instant, "deltacommit")
        for one in list(self.writer.slices.values())[:1]:
            stat = self.writer.log_file(one, instant, [self._row(self.next_id) | {"s": "failed"}])
            self.incomplete_files.update(stat["logFiles"])

    def fragments(self) -> set[frozenset[str]]:
        return {frozenset(self.files[file_id]) for file_id in self.writer.slices}

    def _create(self) -> None:
        self.writer = HudiWriter(
            self.uri,
            self.draw.choice([6, 9]),
            by_commit=True,
            fields=[_field(name, type_) for name, type_ in self.model.columns.values()],
            key="id",
            partition_field="p",
        )
        self.ids: dict[str, set[int]] = {}
        """The live rows of each file group."""
        self.files: dict[str, set[str]] = {}
        """The names of each file group's newest base file and its log files."""
        self.incomplete_files: set[str] = set()
        """The names of the log files of commits that did not complete."""

    def _append(self, rows: pa.Table) -> None:
        instant = self._request("deltacommit")
        self._complete(instant, "deltacommit", self._write_groups(instant, rows.to_pylist()))

    def _delete(self, ids: Collection[int]) -> None:
        self._change({}, ids)

    def _upsert(self, rows: Rows) -> None:
        self._change(rows, rows.keys() & self.model.rows.keys())

    def _change(self, rows: Rows, ids: Collection[int]) -> None:
        """Delete the rows with these ids, and write `rows`, in one commit.

        If a row stays in its partition, its file group is updated. All other new rows are written to new file groups.
        """
        instant = self._request("deltacommit")
        stats, inserted_rows = [], dict(rows)
        for one in self.writer.slices.values():
            changed_ids = self.ids[one.file_id] & set(ids)
            updates = {key: rows[key] for key in changed_ids if key in rows and f"p={rows[key]['p']}" == one.partition}
            if not changed_ids:
                continue
            inserted_rows = {key: row for key, row in inserted_rows.items() if key not in updates}
            self.ids[one.file_id] -= changed_ids - updates.keys()
            if len(self.files[one.file_id]) == 1 and self.draw.random() < 0.3:
                live = {key: self.model.rows[key] for key in self.ids[one.file_id]} | updates
                stats.append(self._write_base(one, instant, live.values()))
            else:
                deletes = {str(key): 0 for key in changed_ids - updates.keys()}
                stat = self.writer.log_file(one, instant, updates.values(), deletes, self.draw.choice([3, 5]))
                self.files[one.file_id].update(stat["logFiles"])
                stats.append(stat)
        self._complete(instant, "deltacommit", [*stats, *self._write_groups(instant, inserted_rows.values())])

    def _overwrite_partition(self, value: str | None, rows: Rows, removed_ids: Collection[int]) -> None:
        instant = self._request("replacecommit")
        replaced_slices = [one for one in self.writer.slices.values() if one.partition == f"p={value}"]
        stats = self._write_groups(instant, rows.values())
        self.writer.complete(instant, "replacecommit", stats, replaced_slices, "INSERT_OVERWRITE")

    def _drop_partition(self, value: str | None, removed_ids: Collection[int]) -> None:
        self._overwrite_partition(value, {}, removed_ids)

    def _add_column(self, key: str, name: str, type_: pa.DataType) -> None:
        self.writer.fields.append(_field(name, type_))
        self._complete(self._request("deltacommit"), "deltacommit", [])

    def _widen(self, name: str) -> None:
        self.writer.fields = [_field(name, pa.int64()) if one["name"] == name else one for one in self.writer.fields]
        self._complete(self._request("deltacommit"), "deltacommit", [])

    def _compact(self) -> None:
        """Compact the file groups with log files."""
        instant = self.writer.tick()
        (self.writer.timeline / f"{instant}.compaction.requested").write_bytes(b"")
        (self.writer.timeline / f"{instant}.compaction.inflight").write_bytes(b"")
        stats = []
        for one in self.writer.slices.values():
            if len(self.files[one.file_id]) > 1:
                rows = [self.model.rows[key] for key in self.ids[one.file_id]]
                stats.append(self._write_base(one, instant, rows))
        self.writer.complete(instant, "commit", stats, operation="COMPACT")

    def _token(self) -> None:
        return None

    def _restore(self, token: Any) -> NoReturn:
        raise AssertionError("this kind of table does not support the step")

    def _request(self, action: str) -> str:
        instant = self.writer.tick()
        self.writer.request(instant, action)
        return instant

    def _complete(self, instant: str, action: str, stats: Iterable[Mapping[str, Any]]) -> None:
        self.writer.complete(instant, action, stats)

    def _write_groups(self, instant: str, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Write a file group with the rows of each partition.

        Return the write stats of the commit.
        """
        by_partition: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            by_partition.setdefault(row["p"], []).append(row)
        stats = []
        for value, partition_rows in by_partition.items():
            one = self.writer.new_slice(value, instant)
            self.writer.slices[one.file_id] = one
            self.ids[one.file_id] = {row["id"] for row in partition_rows}
            stats.append(self._write_base(one, instant, partition_rows))
        return stats

    def _write_base(self, one: Slice, instant: str, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Write a new base file of a file group.

        Return its write stat.
        """
        stat = self.writer.base_file(one, instant, rows)
        one.base_name, one.base_instant, one.logs = stat["path"].rpartition("/")[2], instant, 0
        self.files[one.file_id] = {one.base_name}
        return stat


def _field(name: str, type_: pa.DataType) -> dict[str, Any]:
    return {"name": name, "type": ["null", _NAMES[type_]], "default": None}
