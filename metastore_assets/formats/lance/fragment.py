"""The source of a fragment of a Lance table, with which any process can open the fragment.

A fragment has data files with different columns, and a deletion file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.formats.lance.native import call_or_end, fragment_metadata, lance_errors, open_dataset
from metastore_assets.formats.lance.schema import arrow_fields, field_ids, has_nested_blob, is_blob
from metastore_assets.formats.lance.versions import LanceVersion
from metastore_assets.formats.readers.chunks import CHUNK_BYTES, CHUNK_ROWS
from metastore_assets.formats.readers.columns import check_types
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader, fragment_errors
from metastore_assets.formats.schema_casting import PARQUET_FIELD_ID, FieldMatcher, canonical_type, cast_to_schema
from metastore_assets.startup import pc
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, UnsupportedError, check_limit
from metastore_assets.storage.io_counters import record_read
from metastore_assets.storage.limits import FIELDS, FILE_ROWS
from metastore_assets.storage.location import Location
from metastore_assets.storage.object_store import OverwrittenError

_READAHEAD = 2
_EXTERNAL_BLOB = 3
"""The kind of a blob whose content is at a URI, possibly outside of the table."""


@dataclass(frozen=True, slots=True)
class LanceFragmentSource:
    """A fragment of one version of a Lance table.

    Any process can open it.
    """

    version: LanceVersion
    number: int
    """Number of the fragment in the version."""
    id: str
    """Id of the fragment. Opening fails if the stored fragment has another id."""
    path: str
    """Path or URI of the first data file, for messages."""
    files: tuple[tuple[Location, str], ...]
    """Location and path of each data file, and of the deletion file."""

    def stored_size(self) -> int:
        """Return the total size of the fragment's files in the storage, in bytes."""
        return sum(location.stat(path).size for location, path in self.files)

    def open(self) -> FileFragmentReader:
        """Open the fragment.

        Raises FragmentError, for example if the version was removed.
        """
        with fragment_errors(self.path, "the version", self.version.manifest_path), lance_errors():
            dataset = open_dataset(self.version)
            fragment = dataset.get_fragment(self.number)
            bases = {number: (base.path, base.is_dataset_root) for number, base in dataset.base_paths().items()}
            if fragment is None or fragment_metadata(fragment, bases).id != self.id:
                raise OverwrittenError(f"{self.version.manifest_path} has been overwritten since it was listed")
        with fragment_errors(self.path), lance_errors():
            for location, path in self.files:
                # pylance resolves links itself; this refuses links that lead out of a confined table.
                if location.is_local:
                    location.validate_file(path)
                location.stat(path)
            columns = LanceColumns(dataset, fragment, self.files)
        return FileFragmentReader(columns, path=self.path, mapping=ColumnMapping(FieldMatcher(by_id=True), {}))


class LanceColumns:
    """The columns of an opened fragment, without its deleted rows."""

    def __init__(self, dataset: Any, fragment: Any, files: Sequence[tuple[Location, str]]) -> None:
        """Read the schema and the number of live rows.

        Args:
            dataset: pylance's dataset of the version.
            fragment: pylance's fragment.
            files: Location and path of each of the fragment's files.

        Raises:
            ArrowInvalid: a file is corrupt.
            FileNotFoundError: a file was removed.
            LimitError: the fragment has too many rows.
        """
        self._dataset = dataset
        self._fragment = fragment
        self._files = files
        stored_ids = {number for file in fragment.data_files() for number in file.fields}
        schema, fields = dataset.schema, dataset.lance_schema.fields()
        check_types(schema)
        is_stored = [not stored_ids.isdisjoint(field_ids(field)) for field in fields]
        columns = arrow_fields(schema, fields, PARQUET_FIELD_ID)
        self._stored = [field for field, is_field_stored in zip(schema, is_stored, strict=True) if is_field_stored]
        stored_fields = [field for field, is_field_stored in zip(columns, is_stored, strict=True) if is_field_stored]
        self._stored_fields = stored_fields
        self.fields: list[pa.Field] = [
            *stored_fields,
            *_dropped_fields(stored_ids, {number for field in fields for number in field_ids(field)}),
        ]
        with _missing_files(files):
            self.row_count: int = fragment.count_rows()
        check_limit(FILE_ROWS, self.row_count, "rows in one fragment")

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield the live rows of the column at `index`, in chunks of about CHUNK_BYTES.

        Raises UnsupportedError for blobs that are external or inside of other types.
        """
        stored_field, target = self._stored[index], self._stored_fields[index].type
        options: dict[str, Any] = {"batch_size": CHUNK_ROWS, "batch_size_bytes": CHUNK_BYTES}
        if has_nested_blob(stored_field.type) and not is_blob(stored_field):
            raise UnsupportedError("it has blobs inside of other types, which have no reader")
        if is_blob(stored_field):
            options = {"batch_size": self._blob_rows(stored_field), "blob_handling": "all_binary"}
        matcher = FieldMatcher()
        for array in self._scan(stored_field, options):
            if isinstance(array, pa.DictionaryArray) and not pa.types.is_nested(target):
                yield array
            else:
                # The first cast matches fields by name, and the second adds the field ids to the type.
                yield cast_to_schema(array, canonical_type(target), matcher).cast(target)

    def close(self) -> None:
        """Add the number of bytes that pylance has read to the counts of I/O (see `record_read`)."""
        record_read(self._dataset.uri, self._dataset.io_stats_incremental().read_bytes)

    def _scan(self, stored_field: pa.Field, options: dict[str, Any]) -> Iterator[pa.Array]:
        """Yield the live rows of a column as pylance returns them, with options of its scanner.

        Raises UnsupportedError if pylance cannot select the column by its name.
        """
        with _missing_files(self._files), lance_errors():
            try:
                scanner = self._fragment.scanner(columns=[stored_field.name], batch_readahead=_READAHEAD, **options)
                names = scanner.projected_schema.names
            except ValueError as error:
                raise _selection_error(stored_field) from error
            if names != [stored_field.name]:
                raise _selection_error(stored_field)
            batches = iter(scanner.to_batches())
            while (batch := call_or_end(lambda: next(batches, None))) is not None:
                yield batch.column(0)

    def _blob_rows(self, stored_field: pa.Field) -> int:
        """Return the number of blobs to read at once.

        Together, they have at most about CHUNK_BYTES.

        Raises UnsupportedError if the column has external blobs.
        """
        longest = 1
        for blobs in self._scan(stored_field, {"blob_handling": "all_descriptions", "batch_size": CHUNK_ROWS}):
            if "kind" in blobs.type.names and pc.any(pc.equal(blobs.field("kind"), _EXTERNAL_BLOB)).as_py():
                raise UnsupportedError("it has external blobs, whose content is not part of the table")
            longest = max(longest, pc.max(blobs.field("size")).as_py() or 0)
        return max(1, min(CHUNK_ROWS, CHUNK_BYTES // longest))


@contextmanager
def _missing_files(files: Iterable[tuple[Location, str]]) -> Iterator[None]:
    """If pylance fails in the `with` block, raise FileNotFoundError if one of `files` is missing.

    pylance has no separate error for missing files. If none is missing, pylance's own error is raised.
    """
    try:
        yield
    except CORRUPTION_ERRORS:
        for location, path in files:
            location.stat(path)
        raise


def _selection_error(stored_field: pa.Field) -> UnsupportedError:
    return UnsupportedError(f"pylance cannot select a column named {stored_field.name!r}; rename it")


def _dropped_fields(stored_ids: set[int], schema_ids: set[int]) -> list[pa.Field]:
    """Return a placeholder for each field id that may be that of a dropped column.

    If the data files have an id that the schema lacks, each lower id that the schema lacks may be that of a dropped
    column, too. For example, if the data files have the ids 0, 2 and 5, and the schema has 0 and 1, the result has the
    ids 2, 3, 4 and 5.

    Raises LimitError if such an id exceeds the limit `FIELDS`, the maximum number of fields.
    """
    # Data files list only the ids of leaf fields. The id of a dropped struct is lower than those of its fields, so each
    # unused lower id may be that of a dropped column.
    dropped_ids = [number for number in stored_ids - schema_ids if number >= 0]
    check_limit(FIELDS, max(dropped_ids, default=0), "as the id of a field that the schema lacks")
    candidates = sorted(set(range(max(dropped_ids) + 1)) - schema_ids) if dropped_ids else []
    return [pa.field("", pa.null(), metadata={PARQUET_FIELD_ID: str(number)}) for number in candidates]
