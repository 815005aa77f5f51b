"""The source of a fragment of a table of plain files, with which any process can open the fragment.

A fragment is one data file.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.errors import FatalFileError, FragmentError
from metastore_assets.formats.base import ArrowFile
from metastore_assets.formats.files.declared_types import cast_losslessly
from metastore_assets.formats.files.listed_files import DataFile
from metastore_assets.formats.files.partitioning import Items, typed_constant
from metastore_assets.formats.files.schemas import describe_file, open_text
from metastore_assets.formats.files.text_reader import TextReader
from metastore_assets.formats.readers.columns import FileColumns, open_columns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.readers.spill import SpilledColumns
from metastore_assets.formats.schema_casting import FieldMatcher
from metastore_assets.storage.location import Location, StoredFile


@dataclass(frozen=True, slots=True)
class FileReading:
    """The settings with which data files are read.

    Most files of a partition share one such object.
    """

    location: Location
    """The folder of the table, or its only file."""
    kind: str
    suffix: str
    partition: Items
    """`kind`, `suffix` and `partition` are those of `DataFile`."""
    reader: TextReader | None
    """The reader of a CSV or JSON file; None for other kinds."""
    types: tuple[tuple[str, pa.DataType], ...]
    """Types of the columns of a CSV or JSON file, by name."""
    is_readable: bool
    """Whether the file could be read when the snapshot was made. If not, the table's schema may lack columns of the
    file."""
    fatal: str | None = None
    """The error message if reading the file crashed a process, else None. Such a file is not opened again."""


@dataclass(frozen=True, slots=True)
class FilesFragmentSource:
    """The source of a fragment: one data file, with the content that it had when it was listed."""

    stored: StoredFile
    reading: FileReading

    @property
    def file(self) -> DataFile:
        """The data file."""
        return DataFile(self.stored, self.reading.kind, self.reading.suffix, self.reading.partition)

    def arrow_file(self) -> ArrowFile | str:
        """Return the data file.

        If Arrow alone cannot read its rows, return the reason as text.
        """
        if self.reading.kind != "parquet":
            return f"it is no Parquet file, but {self.reading.kind}"
        if not self.reading.is_readable:
            return "it could not be read when the table was planned"
        constants = tuple((name, typed_constant(value)) for name, value in self.reading.partition)
        return ArrowFile(self.reading.location, self.stored.path, constants)

    def open(self) -> FileFragmentReader:
        """Return a reader of the file's rows in the table's types.

        Raises:
            FragmentError: the file cannot be read. `missing=True` means that the snapshot is out of date.
        """
        reading = self.reading
        path = reading.location.full_path(self.stored.path)
        if reading.fatal is not None:
            raise FatalFileError(reading.fatal, path=path)
        if not reading.is_readable:
            describe_file(reading.location, self.file, reading.reader)
            raise FragmentError(f"{path} could not be read when the table was planned", path=path, missing=True)
        with fragment_errors(path), ExitStack() as stack:
            columns = self._columns()
            stack.callback(columns.close)
            reader = FileFragmentReader(
                columns,
                path=path,
                mapping=ColumnMapping(
                    FieldMatcher(convert=cast_losslessly),
                    {name: typed_constant(value) for name, value in reading.partition},
                ),
                verify=lambda: reading.location.check(self.stored),
            )
            stack.pop_all()
        return reader

    def _columns(self) -> FileColumns:
        """Open the columns of the file.

        All rows of a CSV or JSON file are first written to a temporary file.
        """
        reading = self.reading
        if reading.reader is None:
            return open_columns(reading.kind, reading.location.open_stored(self.stored))
        schema, batches = reading.reader.batches(lambda: open_text(reading.location, self.file), dict(reading.types))
        columns = SpilledColumns(schema, batches)
        reading.location.check(self.stored)
        return columns
