"""Random histories of Hudi tables: the steps of writers and table services, and the expected rows.

A file slice is a base file and its log files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.formats.hudi.writer import HudiWriter, Row, Slice, rollback


class History:
    """A table that tests change by the methods of this class, and its expected rows by Hudi's rules."""

    def __init__(self, writer: HudiWriter) -> None:
        self.writer = writer
        self.states: dict[str, list[tuple[Any, ...]]] = {}
        """Rows after each completed write, by its instant.

        Instants whose rows a later compaction may change are removed.
        """

    def slices(self) -> list[Slice]:
        return list(self.writer.slices.values())

    def rows(self) -> list[tuple[Any, ...]]:
        live = [row for one in self.slices() for row in self._merged(one, one.changes).values()]
        return sorted(((row["key"], row["part"], row["ts"], row.get("value")) for row in live), key=repr)

    def insert(self, part: str, rows: list[Row], to_log: bool = False) -> None:
        """Write a new file group with a base file or, with `to_log`, only a log file, as some indexes do."""
        writer, instant = self.writer, self.writer.tick()
        one = writer.new_slice(part, instant)
        writer.request(instant, "deltacommit")
        rows = [dict(row) | {"part": part} for row in rows]
        if to_log:
            stat = writer.log_file(one, instant, rows)
            one.changes = [(row["key"], row, row["ts"]) for row in rows]
        else:
            stat = writer.base_file(one, instant, rows)
            one.base_name = stat["path"].rpartition("/")[2]
            one.base_rows = {row["key"]: row for row in rows}
        writer.slices[one.file_id] = one
        self._complete(instant, "deltacommit", stat)

    def upsert(self, one: Slice, rows: list[Row], deletes: Mapping[str, int], kind: int) -> None:
        """Write a log file with a block of rows, then blocks of deletes.

        Args:
            one: The slice that gets the log file.
            rows: The rows of the first block.
            deletes: The ordering value of each deleted key; zero for none.
            kind: The kind of the first block: 3 for Avro, 5 for Parquet.
        """
        instant = self.writer.tick()
        part = one.partition.partition("=")[2]
        rows = [dict(row) | {"part": part} for row in rows]
        self.writer.request(instant, "deltacommit")
        stat = self.writer.log_file(one, instant, rows, deletes, kind)
        one.changes += [(row["key"], row, row["ts"]) for row in rows]
        one.changes += [(key, None, ordering) for key, ordering in deletes.items()]
        self._complete(instant, "deltacommit", stat)

    def rewrite(self, one: Slice, rows: list[Row]) -> None:
        """Insert or update rows by writing a new base file of the slice, as copy-on-write does.

        Nothing happens if the slice has changes in log files, or a planned compaction.
        """
        if one.planned or one.changes:
            return
        instant = self.writer.tick()
        part = one.partition.partition("=")[2]
        one.base_rows = one.base_rows | {row["key"]: dict(row) | {"part": part} for row in rows}
        self.writer.request(instant, "commit")
        stat = self.writer.base_file(one, instant, one.base_rows.values())
        one.base_name, one.base_instant, one.logs = stat["path"].rpartition("/")[2], instant, 0
        self._complete(instant, "commit", stat)

    def fail(self, one: Slice, rows: list[Row], take_back: bool) -> None:
        """Start a write that never completes, and leaves a log file and, in another partition, a base file.

        With `take_back`, roll it back as the next writer does.
        """
        writer, instant = self.writer, self.writer.tick()
        writer.request(instant, "deltacommit")
        stat = writer.log_file(one, instant, [dict(row) | {"part": "failed"} for row in rows])
        orphan = writer.new_slice("orphan", instant)
        orphan_file = writer.base_file(orphan, instant, [{"key": "orphan", "ts": 1}])
        if take_back:
            undone = writer.tick()
            if writer.version >= 8:
                (writer.folder / stat["path"]).unlink()
            else:
                writer.raw_log_file(one, undone, rollback(undone, instant))
            (writer.folder / orphan_file["path"]).unlink()
            for path in writer.timeline.glob(f"{instant}.*"):
                path.unlink()

    def plan_compaction(self, one: Slice) -> None:
        """Plan a compaction, unless one is planned.

        Before table version 8, later log files belong to the base file that the compaction will write.
        """
        if one.planned is None:
            one.planned = (self.writer.tick(), len(one.changes))
            (self.writer.timeline / f"{one.planned[0]}.compaction.requested").write_bytes(b"")
            if self.writer.version < 8:
                one.base_instant, one.logs = one.planned[0], 0

    def compact(self, one: Slice) -> None:
        """Carry out the planned compaction, if there is one.

        The rows at the time of the plan become a base file.
        """
        if one.planned is not None:
            instant, count = one.planned
            (self.writer.timeline / f"{instant}.compaction.inflight").write_bytes(b"")
            one.base_rows, one.changes = self._merged(one, one.changes[:count]), one.changes[count:]
            stat = self.writer.base_file(one, instant, one.base_rows.values(), "9-9-9")
            one.base_name, one.base_instant, one.planned = stat["path"].rpartition("/")[2], instant, None
            self.writer.complete(instant, "commit", [stat], operation="COMPACT")
            # A compaction drops deletes, so that later records with lower ordering values apply from now on.
            forgetful = [] if self.writer.by_commit else [later for later in self.states if later > instant]
            for later in forgetful:
                del self.states[later]

    def replace(self, part: str, rows: list[Row]) -> None:
        """Replace a partition's file groups by one, as clustering does with the same rows.

        Groups with a planned compaction remain.
        """
        writer, instant = self.writer, self.writer.tick()
        one = writer.new_slice(part, instant)
        old = [other for other in self.slices() if other.partition == one.partition and other.planned is None]
        writer.request(instant, "replacecommit")
        one.base_rows = {row["key"]: dict(row) | {"part": part} for row in rows}
        stat = writer.base_file(one, instant, one.base_rows.values())
        one.base_name = stat["path"].rpartition("/")[2]
        writer.slices[one.file_id] = one
        self._complete(instant, "replacecommit", stat, old)

    def _complete(
        self, instant: str, action: str, stat: Mapping[str, Any], replaced_slices: Iterable[Slice] = ()
    ) -> None:
        self.writer.complete(instant, action, [stat], replaced_slices)
        self.states[instant] = self.rows()

    def _merged(self, one: Slice, changes: list[tuple[str, Row | None, int]]) -> dict[str, Row]:
        """Return the rows of a slice after changes, by record key.

        Changes are merged with one another first, then with the base file. A change has a key, a row or None for a
        delete, and an ordering value.
        """
        latest: dict[str, tuple[Row | None, int]] = {}
        for key, row, ordering in changes:
            if row is None and not self.writer.by_commit and latest.get(key) == (None, 0):
                continue  # A record deleted without an ordering value stays deleted.
            if key not in latest or self._wins(row, ordering, *latest[key]):
                latest[key] = (row, ordering)
        rows = dict(one.base_rows)
        for key, (row, ordering) in latest.items():
            if key in rows and not self._wins(row, ordering, rows[key], rows[key]["ts"]):
                continue
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        return rows

    def _wins(self, row: Row | None, ordering: int, before: Row | None, before_ordering: int) -> bool:
        # A delete without an ordering value (zero) always applies, and so does any record after it.
        absolute = (row is None and ordering == 0) or (before is None and before_ordering == 0)
        return self.writer.by_commit or absolute or ordering >= before_ordering
