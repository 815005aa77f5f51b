"""A small table format outside of `metastore_assets`, registered by an entry point.

A table is a folder with `_ledger/<number>.json` for each commit. A commit lists the table's Parquet files: path,
partition, row count. Files are never changed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, SnapshotNotFoundError, TableFormatError, TableNotFoundError
from metastore_assets.formats import (
    FormatDetector,
    FormatRegistration,
    Fragment,
    HistoryChange,
    OpenContext,
    Snapshot,
    SnapshotReference,
    TableFormat,
    check_option_names,
    encode_partition_key,
)
from metastore_assets.formats.bounds import FragmentBounds, bounds_table
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import table_location

LEDGER = "_ledger"
_TYPES = {"long": pa.int64(), "text": pa.string()}


@dataclass(frozen=True)
class LedgerSource:
    """One Parquet file of a ledger table."""

    path: str
    partition: tuple[tuple[str, str], ...]

    def open(self) -> LedgerReader:
        try:
            return LedgerReader(self)
        except FileNotFoundError as error:
            raise FragmentError(f"{self.path} is gone", path=self.path, missing=True) from error
        except (OSError, pa.ArrowException) as error:
            raise FragmentError(f"{self.path}: {error}", path=self.path) from error


class LedgerReader:
    """An opened Parquet file of a ledger table."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._file = pq.ParquetFile(source.path)
        self.row_count: int = self._file.metadata.num_rows
        self.stored_columns = frozenset([*self._file.schema_arrow.names, *dict(source.partition)])

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        constants = dict(self._source.partition)
        if field.name in constants:
            yield pa.repeat(pa.scalar(constants[field.name], field.type), self.row_count)
        elif field.name not in self.stored_columns:
            yield pa.nulls(self.row_count, field.type)
        else:
            try:
                for batch in self._file.iter_batches(columns=[field.name]):
                    yield batch.column(0).cast(field.type)
            except (OSError, pa.ArrowException) as error:
                path = self._source.path
                raise FragmentError(f"{path}: column {field.name!r}: {error}", path=path) from error

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


class LedgerFormat(TableFormat):
    """A ledger table.

    Its snapshots are its commits.
    """

    def __init__(self, table: TableConfig, context: OpenContext) -> None:
        check_option_names(table, "max_commits")
        self._location = table_location(table)
        if table.at is not None:
            raise SnapshotNotFoundError(f"{self._location.uri} has no state {table.at!r}: only the newest is read")

    def snapshot_id(self) -> str:
        return self.current().id

    def current(self) -> SnapshotReference:
        commit = self._commit()
        return SnapshotReference(str(commit["number"]), datetime.fromtimestamp(commit["time"], UTC))

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        return "rolled back" if int(current.id) < int(previous.id) else None

    def snapshot(self) -> Snapshot:
        commit = self._commit()
        fragments = [self._fragment(entry) for entry in commit["files"]]
        return Snapshot(
            format="ledger",
            id=str(commit["number"]),
            committed_at=datetime.fromtimestamp(commit["time"], UTC),
            schema=pa.schema([(name, _TYPES[type_]) for name, type_ in commit["columns"].items()]),
            partition_columns=tuple(commit["partition_columns"]),
            fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
        )

    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self._commit()["partition_columns"])

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        return bounds_table(snapshot, column, [FragmentBounds()] * len(snapshot.fragments))

    def _commit(self) -> Any:
        try:
            names = self._location.names(LEDGER)
        except FileNotFoundError:
            names = []
        if not names:
            raise TableNotFoundError(f"{self._location.uri} holds no ledger table")
        path = f"{LEDGER}/{max(names)}"
        try:
            return json.loads(self._location.read(path))
        except (OSError, ValueError) as error:
            raise TableFormatError(f"{self._location.full_path(path)} cannot be read: {error}") from error

    def _fragment(self, entry: Any) -> Fragment:
        partition = tuple(entry["partition"].items())
        path = self._location.full_path(entry["path"])
        identity = f"{zlib.crc32(entry['path'].encode()):08x}"
        source = LedgerSource(path, partition)
        return Fragment(identity, encode_partition_key(partition), path, entry["size"], entry["rows"], source)


def _holds_ledger(location: Location) -> bool:
    return bool(location.has_any(LEDGER))


FORMAT = FormatRegistration(
    "ledger",
    "Ledger",
    LedgerFormat,
    detect=_holds_ledger,
    detector=FormatDetector(LEDGER, _holds_ledger),
)
