"""The Delta table at `<root>/<table>/history`: what the library `deltalake` does for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as fs

from metastore_assets.errors import StoreError
from metastore_assets.extras import extra
from metastore_assets.history.rows import SCHEMA
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import HISTORY

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_APPLICATION = "metastore"
"""Under this name the Delta table says up to which version it has rows, in the same commit as the rows."""
_SETTINGS = {
    # Of values nothing may be in the log, whence a purge could not remove it.
    "delta.dataSkippingStatsColumns": "version,field_id",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "20",
}
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_COMPACTED = 20
"""Commits after which small files become one."""
_FILE_BYTES = 8_000_000
"""Files of that size are not written again."""


def why_none(objects: ObjectStore) -> str | None:
    """Why no history can be kept there; None where it can."""
    uri = objects.uri(HISTORY)
    found = None if objects.is_remote else _ESCAPE.search(uri)
    if found is None:
        return None
    return (
        f"no history can be kept at {uri}: the library deltalake takes `{found[0]}` in a path for the character it "
        "stands for, and looks elsewhere; give the Metastore a root without it"
    )


class ConflictError(StoreError):
    """Raised when somebody else has committed meanwhile: look again what there is."""


class HistoryTable:
    """Appends and reads. Raises MissingPackageError without `deltalake`, StoreError where it fails or cannot be."""

    def __init__(self, objects: ObjectStore) -> None:
        reason = why_none(objects)
        if reason is not None:
            raise StoreError(reason)
        self._uri = objects.uri(HISTORY)
        # The library follows links, also where it removes files.
        self._refuse_links = partial(objects.refuse_links, HISTORY)
        # The library takes a path for a URL where it looks like one.
        self._url = self._uri if objects.is_remote else Path(self._uri).as_uri()
        self._options = objects.storage_options
        # On disk not the library's, which is a Python object: see `store.ahead`.
        self._files = None if objects.is_remote else fs.SubTreeFileSystem(self._uri, fs.LocalFileSystem())

    def last(self) -> int:
        """The number of the newest version that was appended; 0 where there is none."""
        table = self._open()
        return 0 if table is None else self._last(table)

    def read(self) -> tuple[pa.Table, int, int]:
        """All rows, by version and position, the newest version's number as `last` tells it, and that of the commit
        to the Delta table that this is as of."""
        table = self._open()
        if table is None:
            return SCHEMA.empty_table(), 0, 0
        with self._explained("read"):
            rows = table.to_pyarrow_table(filesystem=self._files)
            columns = [
                rows[field.name].cast(field.type)
                if field.name in rows.column_names
                else pa.nulls(len(rows), field.type)
                for field in SCHEMA
            ]
            found = pa.Table.from_arrays(columns, schema=SCHEMA)
            found = found.sort_by([("version", "ascending"), ("position", "ascending")])
            return found, self._last(table), table.version()

    def append(self, rows: pa.Table, after: int, last: int) -> None:
        """Append the rows of versions after one, up to another, all or none. Raises ConflictError where the newest
        version that was appended is not `after`, or that changes meanwhile."""
        from deltalake import write_deltalake

        self._refuse_links()
        table = self._open(create=True)
        assert table is not None
        if self._last(table) != after:
            raise ConflictError(f"{self._uri}: somebody else appends to it")
        with self._explained("write"):
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=self._commit(last))
        if table.version() % _COMPACTED == 0:
            with suppress(StoreError), self._explained("compact"):  # the next time will do
                table.optimize.compact(target_size=_FILE_BYTES)
                table.vacuum(dry_run=False)

    def replace(self, rows: pa.Table, commit: int, last: int) -> None:
        """Have these rows, of versions up to `last`, and no others, and no files of what was there.

        Raises ConflictError where the newest commit is not `commit`, of which rows were read, or that changes
        meanwhile: who appends, and who takes values out, would be undone.
        """
        from deltalake import write_deltalake

        self._refuse_links()
        table = self._open(create=True)
        assert table is not None
        if table.version() != commit:
            raise ConflictError(f"{self._uri}: somebody else changes it")
        with self._explained("write"):
            write_deltalake(
                table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=self._commit(last)
            )
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def _commit(self, last: int) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(_APPLICATION, last)])

    def _last(self, table: DeltaTable) -> int:
        return table.transaction_version(_APPLICATION) or 0

    def _open(self, *, create: bool = False) -> DeltaTable | None:
        with extra("history", "the history of tables"):
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        with self._explained("read"):
            try:
                return DeltaTable(self._url, storage_options=self._options)
            except TableNotFoundError:
                if not create:
                    return None
            # Empty at first, so that who comes second finds the transaction of who was first.
            DeltaTable.create(
                self._url, SCHEMA, mode="ignore", configuration=_SETTINGS, storage_options=self._options,
                name="history", description="Statistics of the columns of a table, version by version",
            )  # fmt: skip
            return DeltaTable(self._url, storage_options=self._options)

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise ConflictError(f"cannot {verb} the history at {self._uri}: {error}") from error
        except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
            raise StoreError(
                f"cannot {verb} the history at {self._uri}: {str(error).splitlines()[0]}; where it is damaged, remove "
                "that folder: it is begun anew with the versions there are"
            ) from error
