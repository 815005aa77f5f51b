"""Sources of the fragments of an Iceberg table, with which any process can open a fragment.

A fragment is a data file with the delete files that apply to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metastore_assets.formats.base import ArrowFile, FragmentReader, FragmentSource
from metastore_assets.formats.deletion_vectors import check_within
from metastore_assets.formats.iceberg.delete_files import PositionDeletes, Positions
from metastore_assets.formats.iceberg.equality import EqualityDeletes, find_deleted_positions
from metastore_assets.formats.iceberg.name_mapping import FallbackIds, has_ids
from metastore_assets.formats.readers.columns import FileColumns, open_columns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.schema_casting import FieldMatcher
from metastore_assets.formats.values import Constant
from metastore_assets.storage.location import Location


@dataclass(frozen=True)
class IcebergFragmentSource:
    """A data file with its delete files, which any process can open."""

    location: Location
    path: str
    format: str
    recorded_path: str
    """The path of the data file as its manifest records it."""
    constants: tuple[tuple[str, Constant], ...]
    """Field id and value of each column that is constant in the file's partition. The file may store the column, too.
    """
    position_deletes: tuple[PositionDeletes, ...]
    equality_deletes: tuple[EqualityDeletes, ...]
    fallback: FallbackIds

    def stored_size(self) -> int:
        """Return the size of the data file in the storage, in bytes."""
        return self.location.stat(self.path).size

    def arrow_file(self) -> ArrowFile | str:
        """Return the data file, or the reason why Arrow alone cannot read its rows."""
        if self.format != "parquet":
            return f"it is no Parquet file, but {self.format}"
        if self.position_deletes or self.equality_deletes:
            return "it has deleted rows"
        return ArrowFile(self.location, self.path, (), constant_ids=frozenset(id_ for id_, _ in self.constants))

    def open(self) -> FileFragmentReader:
        """Open the data file and read the positions of its deleted rows.

        Raises FragmentError.
        """
        full_path = self.location.full_path(self.path)
        with ExitStack() as stack:
            with fragment_errors(full_path):
                columns = open_columns(self.format, self.location.open(self.path), rebases=False)
                stack.callback(columns.close)
                matcher = self.fallback.matcher(self.format, columns.fields)
                reader = self._reader(columns, matcher, full_path, None)
            deleted_positions = self._deleted_positions(reader, columns.row_count, full_path)
            stack.pop_all()
        return self._reader(columns, matcher, full_path, deleted_positions)

    def _reader(
        self, columns: FileColumns, matcher: FieldMatcher, full_path: str, deleted_positions: Positions | None
    ) -> FileFragmentReader:
        """Return a reader of the file's rows.

        A partition column in `self.constants` has its value from there, unless the file has field ids and stores the
        column. All other columns are read from the file.
        """
        constants = dict(self.constants)
        if has_ids(columns.fields):
            # Columns in the file take precedence. Files migrated from Hive have neither ids nor partition values.
            stored_identities = set(map(matcher.identity, columns.fields))
            constants = {key: value for key, value in constants.items() if key not in stored_identities}
        mapping = ColumnMapping(matcher, constants)
        return FileFragmentReader(columns, path=full_path, mapping=mapping, deleted_positions=deleted_positions)

    def _deleted_positions(self, reader: FileFragmentReader, row_count: int, full_path: str) -> Positions | None:
        """Return the ascending positions of the deleted rows; None if no deletes apply.

        Args:
            reader: reads the data file without deletes.
            row_count: the number of rows in the data file.
            full_path: the path of the data file, for messages.
        """
        position_arrays: list[Positions] = []
        for deletes in self.position_deletes:
            what = "the deletion vector" if deletes.format == "puffin" else "the list of deleted rows"
            with fragment_errors(full_path, what, deletes.location.full_path(deletes.path)):
                positions = deletes.positions(self.recorded_path, row_count)
                check_within(positions, row_count)
                position_arrays.append(positions)
        if self.equality_deletes:
            with fragment_errors(full_path):
                position_arrays.append(find_deleted_positions(reader, full_path, self.equality_deletes, self.fallback))
        return _ascending(position_arrays) if position_arrays else None


def _ascending(parts: Sequence[Positions]) -> Positions:
    return np.unique(np.concatenate(parts))


@dataclass(frozen=True)
class RepeatedFragmentSource:
    """A data file that a snapshot lists several times, so that its rows are repeated."""

    sources: tuple[FragmentSource, ...]
    """One source for each time that the file is listed."""

    def open(self) -> RepeatedFragmentReader:
        """Open the data file once for each item of `sources`.

        Return one reader of all their rows.

        Raises FragmentError.
        """
        with ExitStack() as stack:
            readers = [stack.enter_context(source.open()) for source in self.sources]
            return RepeatedFragmentReader(readers, stack.pop_all())


class RepeatedFragmentReader:
    """A reader that returns the rows of several readers, one after the other."""

    def __init__(self, readers: Sequence[FragmentReader], exit_stack: ExitStack) -> None:
        """Chain readers of files with the same columns.

        `exit_stack` closes them.
        """
        self._readers = readers
        self._exit_stack = exit_stack

    @property
    def row_count(self) -> int:
        """Total number of live rows."""
        return sum(reader.row_count for reader in self._readers)

    @property
    def stored_columns(self) -> frozenset[str]:
        """Identities (field ids) of the top-level columns that the file stores."""
        return self._readers[0].stored_columns

    def read(self, field: pa.Field, *, encoded: bool = False) -> Iterator[pa.Array]:
        """Yield the live rows of one top-level column; see `FragmentReader.read`."""
        for reader in self._readers:
            yield from reader.read(field, encoded=encoded)

    def __enter__(self) -> RepeatedFragmentReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._exit_stack.close()
