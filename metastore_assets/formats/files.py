"""Plain files in folders, flat or nested, with or without `column=value` folders: Parquet and CSV."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError, TableNotFoundError
from metastore_assets.formats.base import Fragment, Snapshot, SnapshotReference
from metastore_assets.formats.bounds import FragmentBounds, bounds_table
from metastore_assets.formats.conform import Matcher
from metastore_assets.formats.csv_files import CsvOptions, CsvSummary, inferred_fields, summarize, write_parquet
from metastore_assets.formats.listing import DataFile, data_files, is_hidden, partition_columns
from metastore_assets.formats.location import Location
from metastore_assets.formats.parquet import ParquetColumns, open_parquet
from metastore_assets.formats.partition_keys import encode_partition_key
from metastore_assets.formats.reader import FileFragmentReader, check_distinct, explained
from metastore_assets.formats.schema_union import plain_type, union_fields

_FOOTER_THREADS = 32
"""Footers read at a time while planning: most of it is waiting for the store."""
_CSV_THREADS = 4
"""CSV files read at a time while planning: each holds some blocks of text."""


class FilesFormat:
    """Files in folders. Their snapshot is what a listing shows: there is no commit that spans files."""

    def __init__(self, table: TableConfig) -> None:
        self._name = table.name
        self._options = table.options
        CsvOptions.of(table.name, table.options, "")  # What is wrong with them is told whatever the files are.
        self._location = Location.of(table.uri, table.storage_options)

    def snapshot_id(self) -> str:
        """A digest of the fragments' ids, from one listing."""
        return _digest([self._fragment_id(file) for file in self._files()])

    def current(self) -> SnapshotReference:
        """The digest: files have no commits that would have a time."""
        return SnapshotReference(self.snapshot_id(), None)

    def snapshot(self) -> Snapshot:
        """The files there are now. Reads the footer of each Parquet file, and each CSV file as a whole for its types.

        A file that cannot be read is a fragment like the others as long as another file tells the schema.
        """
        files = self._files()
        columns = partition_columns(self._location, files)
        details, fields = self._describe(files)
        schema = pa.schema(
            [field for field in fields if field.name not in columns] + [pa.field(name, pa.string()) for name in columns]
        )
        types = tuple((field.name, field.type) for field in schema)
        fragments = [self._fragment(file, rows, columns, types) for file, rows in zip(files, details, strict=True)]
        return Snapshot(
            format="files",
            id=_digest([fragment.id for fragment in fragments]),
            committed_at=None,
            schema=schema,
            partition_columns=columns,
            fragments=tuple(sorted(fragments, key=lambda fragment: (fragment.partition_key, fragment.id))),
        )

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """What the files' footers say: not read yet, so nothing."""
        return bounds_table(snapshot, column, [FragmentBounds()] * len(snapshot.fragments))

    def _files(self) -> list[DataFile]:
        try:
            files = data_files(self._location, self._location.list(is_hidden))
        except FileNotFoundError as error:
            raise TableNotFoundError(f"{self._location.uri} holds no table: {error}") from error
        except OSError as error:
            raise TableFormatError(f"{self._location.uri} cannot be listed: {error}") from error
        if not files:
            raise TableNotFoundError(f"{self._location.uri} holds no table: there are no data files")
        kinds = {file.kind: file for file in files}
        if len(kinds) > 1:
            paths = " and ".join(self._location.full_path(file.stored.path) for file in kinds.values())
            raise TableFormatError(f"{self._location.uri} mixes kinds of files: {paths}")
        return files

    def _csv_options(self, file: DataFile) -> CsvOptions | None:
        return CsvOptions.of(self._name, self._options, file.suffix) if file.kind == "csv" else None

    def _fragment_id(self, file: DataFile) -> str:
        stored = file.stored
        reader = [file.kind, repr(self._csv_options(file))]
        return _digest([stored.path, stored.size, stored.version, *reader])

    def _fragment(
        self, file: DataFile, rows: int | None, columns: tuple[str, ...], types: tuple[tuple[str, pa.DataType], ...]
    ) -> Fragment:
        values = dict(file.partition)
        # A file further up than others says nothing of the deeper columns: they are in its rows, or null.
        key = encode_partition_key([(name, values[name]) for name in columns if name in values])
        options = self._csv_options(file)
        source = FilesFragmentSource(self._location, file, options, types if options else ())
        path = self._location.full_path(file.stored.path)
        return Fragment(self._fragment_id(file), key, path, file.stored.size, rows, source)

    def _describe(self, files: Sequence[DataFile]) -> tuple[list[int | None], list[pa.Field]]:
        """The rows of each file, None where it cannot be read, and the columns of all."""

        def describe(file: DataFile) -> Any:
            try:
                return _described(self._location, file, self._csv_options(file))
            except FragmentError as error:
                return error

        with ThreadPoolExecutor(_CSV_THREADS if files[0].kind == "csv" else _FOOTER_THREADS) as pool:
            outcomes = list(pool.map(describe, files))
        readable = [
            (file, outcome) for file, outcome in zip(files, outcomes, strict=True) if isinstance(outcome, tuple)
        ]
        if not readable:
            raise TableFormatError(f"{self._location.uri} has no readable file: {outcomes[0]}") from outcomes[0]
        rows = [outcome[0] if isinstance(outcome, tuple) else None for outcome in outcomes]
        if files[0].kind == "csv":
            return rows, inferred_fields([outcome[1] for _, outcome in readable])
        schemas = {outcome[1]: self._location.full_path(file.stored.path) for file, outcome in reversed(readable)}
        return rows, union_fields(
            self._location.uri, [(path, list(schema)) for schema, path in reversed(schemas.items())]
        )


@dataclass(frozen=True)
class FilesFragmentSource:
    """One data file as the listing showed it."""

    location: Location
    file: DataFile
    csv: CsvOptions | None
    types: tuple[tuple[str, pa.DataType], ...]
    """Of a CSV file's columns, by name."""

    def open(self) -> FileFragmentReader:
        """Open the file. Raises FragmentError, with `missing` when it is gone or has been overwritten since."""
        path = self.location.full_path(self.file.stored.path)
        with explained(path), ExitStack() as stack:
            if self.csv is None:
                source = stack.enter_context(self.location.open_stored(self.file.stored))
            else:
                source = stack.enter_context(self._spilled(self.csv))
            reader = FileFragmentReader(
                ParquetColumns(source),
                path=path,
                matcher=Matcher(),
                constants={name: pa.scalar(value, pa.string()) for name, value in self.file.partition},
                verify=lambda: self.location.check(self.file.stored),
            )
            stack.pop_all()
        return reader

    def _spilled(self, options: CsvOptions) -> pa.NativeFile:
        """The rows as a Parquet file on local disk, so that each column is parsed once and read alone."""
        descriptor, name = tempfile.mkstemp(suffix=".parquet")
        os.close(descriptor)
        try:
            write_parquet(lambda: _open_text(self.location, self.file), options, dict(self.types), name)
            self.location.check(self.file.stored)
            return pa.OSFile(name, "rb")
        finally:
            # Stays readable while it is open, and leaves nothing behind however the process ends.
            os.unlink(name)


@lru_cache(maxsize=200_000)
def _described(location: Location, file: DataFile, options: CsvOptions | None) -> tuple[int, Any]:
    """Row count of a file, and its schema in plain types or its CsvSummary. Cached: equal arguments, same content."""
    stored = file.stored
    with explained(location.full_path(stored.path)):
        if options is not None:
            summary: CsvSummary = summarize(lambda: _open_text(location, file), options)
            result: tuple[int, Any] = summary.row_count, summary
        else:
            with location.open_stored(stored) as source:
                parquet = open_parquet(source)
                check_distinct(parquet.schema_arrow.names)
                stored_schema = parquet.schema_arrow.remove_metadata().serialize().to_pybytes()
                result = parquet.metadata.num_rows, _plain_schema(stored_schema)
        location.check(stored)
    return result


def _open_text(location: Location, file: DataFile) -> pa.NativeFile:
    source = location.open_stored(file.stored)
    return pa.CompressedInputStream(source, file.compression) if file.compression else source


@lru_cache(maxsize=4096)
def _plain_schema(serialized: bytes) -> pa.Schema:
    """A schema in plain types. One object for all files of one schema: a table has many files and few schemas."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
