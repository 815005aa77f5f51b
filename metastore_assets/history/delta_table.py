"""The Delta table of a history, at `<root>/<table>/history`.

The library `deltalake` reads and writes it.

A history has the statistics of a table's columns, with a row per version and column. The root is the folder with all
stored state. A version has the statistics of one snapshot of the table.
"""

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
from metastore_assets.history.version_rows import SCHEMA
from metastore_assets.storage.corrupt_input import error_reason
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import HISTORY

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_APPLICATION = "metastore"
"""Application id of the Delta transactions (`txn`). Their version is the number of the last Metastore version whose
rows were appended."""
_SETTINGS = {
    # The log must not contain values: a purge could not remove them from it.
    "delta.dataSkippingStatsColumns": "version,field_id",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "20",
}
_UNSUPPORTED = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\[\\\]^|]")
"""Parts of a local path that `deltalake` decodes or replaces, so that it uses another folder, or that crash it."""
_REFUSED = re.compile(r"(os error|Os \{ code:) (1|13|28|30|122)\b|\b403\b|access ?denied|permission denied", re.I)
"""Matches errors of `deltalake` that are no damage: missing permission, a read-only or full disk, a used-up quota."""
_COMPACTION_INTERVAL = 20
"""Small files are compacted at every Delta version that is a multiple of this."""
_FILE_BYTES = 8_000_000
"""Target size of compaction in bytes. Files of this size are not compacted again."""


def explain_unavailable(objects: ObjectStore) -> str | None:
    """Return a message that says why a table's folder cannot store a history; None if it can."""
    uri = objects.uri(HISTORY)
    unsupported_part = None if objects.is_remote else _UNSUPPORTED.search(uri)
    if unsupported_part is None:
        return None
    return (
        f"no history can be stored at {uri}: the library deltalake does not support {unsupported_part[0]!r} in a path; "
        "use a root without it"
    )


class ConflictError(StoreError):
    """Raised when another process has changed the history since it was read.

    A failed commit also raises it, because such a change is the probable cause. The caller must read the history again.
    """


class HistoryTable:
    """The Delta table of a history.

    Methods raise MissingPackageError if `deltalake` is not installed, and StoreError if the history cannot be read or
    written.
    """

    def __init__(self, objects: ObjectStore) -> None:
        """Prepare access to the history in a table's folder.

        Raises StoreError if the folder cannot store a history, for the reason that `explain_unavailable` returns.
        """
        reason = explain_unavailable(objects)
        if reason is not None:
            raise StoreError(reason)
        self._uri = objects.uri(HISTORY)
        # The library follows links even when it removes files.
        self._refuse_links = partial(objects.refuse_links, HISTORY)
        # The library parses a path that looks like a URL as one.
        self._url = self._uri if objects.is_remote else Path(self._uri).as_uri()
        self._options = objects.storage_options
        # On disk Arrow's file system, because the library's is a slower Python object.
        self._files = None if objects.is_remote else fs.SubTreeFileSystem(self._uri, fs.LocalFileSystem())

    def last_appended(self) -> int:
        """Return the number of the last version whose rows were appended; 0 if there is none."""
        table = self._open()
        return 0 if table is None else self._last(table)

    def read(self) -> tuple[pa.Table, int, int]:
        """Return (all rows, number of the last appended version, Delta version).

        Rows are sorted by version and column position. Without a Delta table there are no rows, and both numbers are 0.
        """
        table = self._open()
        if table is None:
            return SCHEMA.empty_table(), 0, 0
        with self._translated_errors("read"):
            rows = table.to_pyarrow_table(filesystem=self._files)
            columns = [
                rows[field.name].cast(field.type)
                if field.name in rows.column_names
                else pa.nulls(len(rows), field.type)
                for field in SCHEMA
            ]
            rows = pa.Table.from_arrays(columns, schema=SCHEMA)
            rows = rows.sort_by([("version", "ascending"), ("position", "ascending")])
            return rows, self._last(table), table.version()

    def append(self, rows: pa.Table, after: int, last_number: int) -> None:
        """Append the rows of versions in one commit.

        At regular intervals, also merge small data files, and delete data files that are no longer used. If that fails,
        a later append tries again.

        Args:
            rows: The rows of the versions numbered `after` + 1 to `last_number`.
            after: The number of the last version that was appended before.
            last_number: The number of the last version in `rows`.

        Raises:
            ConflictError: The last appended version is not `after`, or another process appended meanwhile.
        """
        from deltalake import write_deltalake

        self._refuse_links()
        table = self._open(create=True)
        assert table is not None
        if self._last(table) != after:
            raise ConflictError(f"{self._uri}: another process appended to it")
        with self._translated_errors("write"):
            write_deltalake(
                table, rows, mode="append", schema_mode="merge", commit_properties=self._commit(last_number)
            )
        if table.version() % _COMPACTION_INTERVAL == 0:
            with suppress(StoreError), self._translated_errors("compact"):  # a later append tries again
                table.optimize.compact(target_size=_FILE_BYTES)
                table.vacuum(dry_run=False)

    def replace(self, rows: pa.Table, commit: int, last_number: int) -> None:
        """Replace all rows, and delete the data files of the previous rows.

        Args:
            rows: The new rows.
            commit: The Delta version from which the new rows were derived.
            last_number: The number of the last version in `rows`.

        Raises:
            ConflictError: The Delta table has a newer version than `commit`, whose changes would be undone.
        """
        from deltalake import write_deltalake

        self._refuse_links()
        table = self._open(create=True)
        assert table is not None
        if table.version() != commit:
            raise ConflictError(f"{self._uri}: another process changed it")
        with self._translated_errors("write"):
            write_deltalake(
                table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=self._commit(last_number)
            )
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def _commit(self, last_number: int) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(_APPLICATION, last_number)])

    def _last(self, table: DeltaTable) -> int:
        return table.transaction_version(_APPLICATION) or 0

    def _open(self, *, create: bool = False) -> DeltaTable | None:
        """Open the Delta table.

        If it does not exist, create it if `create` is true, otherwise return None.
        """
        with extra("history", "the history of tables"):
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        with self._translated_errors("write" if create else "read"):
            try:
                return DeltaTable(self._url, storage_options=self._options)
            except TableNotFoundError:
                if not create:
                    return None
            # Created empty, so that of two processes the second sees the transaction of the first.
            DeltaTable.create(
                self._url, SCHEMA, mode="ignore", configuration=_SETTINGS, storage_options=self._options,
                name="history", description="Statistics of the columns of a table, version by version",
            )  # fmt: skip
            return DeltaTable(self._url, storage_options=self._options)

    @contextmanager
    def _translated_errors(self, verb: str) -> Iterator[None]:
        """Convert errors of `deltalake` in the block to errors of this package.

        A failed commit becomes a ConflictError, because another process has probably changed the table. Other errors of
        `deltalake` and Arrow, and any OSError or ValueError, become a StoreError.

        Args:
            verb: What failed, for the message: `read`, `write` or `compact`.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise ConflictError(f"cannot {verb} the history at {self._uri}: {error}") from error
        except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
            reason = error_reason(error)
            advice = (
                f"give this user access to {self._uri}, and check the free space"
                if _REFUSED.search(reason)
                else "if it is damaged, remove that folder: the next append recreates it from the existing versions"
            )
            raise StoreError(f"cannot {verb} the history at {self._uri}: {reason}; {advice}") from error
