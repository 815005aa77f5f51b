"""Reader of Parquet files, one column at a time, in chunks of bounded size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.formats.readers.calendars import SPARK_VERSION, FileCalendar
from metastore_assets.formats.readers.chunks import CHUNK_BYTES, CHUNK_ROWS
from metastore_assets.formats.readers.columns import check_types
from metastore_assets.formats.readers.int96 import check_no_overflow, has_common_years, merge_units
from metastore_assets.formats.readers.parquet_footer import REFUSED, is_misunderstood, read_lenient_metadata
from metastore_assets.storage.corrupt_input import UnsupportedError, check_limit
from metastore_assets.storage.limits import FILE_ROWS
from metastore_assets.values.types import is_byte_string

_DICTIONARY_ROWS = 4096
_SHORT_DICTIONARY = 64 << 10
"""Maximum size in bytes of a dictionary page for which a string column is read as a dictionary array."""
_VALUE_BYTES = 8
_LONG_LISTS = "Length spanned by list offsets"
"""Part of Arrow's message for a list column with more levels than values."""
_LONG_DIFFERENCES = re.compile(r"Init(Header|Block) EOF|bit width larger than integer")
"""Matches Arrow's message for differences (DELTA_BINARY_PACKED) of more bits than the column's integers have."""
_ENCRYPTED = "no decryption found"
"""Part of Arrow's message for a file whose footer is encrypted."""


def open_parquet(source: pa.NativeFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a Parquet file.

    Args:
        source: content of the file.
        metadata: the footer, if it was read before.

    Returns:
        The file. It reads INT96 timestamps in microseconds, which cover the years 1 to 9999.

    Raises:
        UnsupportedError: the file is encrypted.
        OSError, ArrowException: the file is corrupt.
    """
    return _open(source, "us", metadata)


def _open(
    source: pa.NativeFile,
    int96_unit: str,
    metadata: pq.FileMetaData | None = None,
    dictionary_leaves: list[int] | None = None,
) -> pq.ParquetFile:
    """Open a Parquet file.

    If Arrow refuses or misunderstands the schema, the file is opened again with a changed footer.

    Raises UnsupportedError if it is encrypted, or an error of Arrow if it is corrupt.

    Args:
        source: The content of the file.
        int96_unit: The unit in which INT96 timestamps are read, such as `us`.
        metadata: The footer, if it was read before.
        dictionary_leaves: The numbers of the leaf columns to read as dictionary arrays; None for none.
    """
    try:
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=dictionary_leaves,
            # Arrow's prefetch threads abort a process that exits while they release a Python file.
            pre_buffer=False,
            coerce_int96_timestamp_unit=int96_unit,
            arrow_extensions_enabled=True,
            page_checksum_verification=True,
        )
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if _ENCRYPTED in str(error):
            raise UnsupportedError("it is encrypted, which has no reader") from error
        if metadata is not None:
            raise
        if REFUSED.search(str(error)):
            return _open(source, int96_unit, read_lenient_metadata(source))
        return _open_without_arrow_schema(source, int96_unit, error)
    if metadata is None and is_misunderstood(file.schema):
        return _open(source, int96_unit, read_lenient_metadata(source))
    return file


def _open_without_arrow_schema(source: pa.NativeFile, int96_unit: str, error: Exception) -> pq.ParquetFile:
    """Open a file that Arrow refused with `error`, without the schema that Arrow stored in it.

    Raises the same error if this schema is not the reason.
    """
    try:
        return _open(source, int96_unit, read_lenient_metadata(source, has_arrow_schema=False))
    except (OSError, pa.ArrowException, UnsupportedError):
        raise error from None


class ParquetColumns:
    """The top-level columns of an opened Parquet file."""

    def __init__(self, source: pa.NativeFile, *, rebases: bool = True) -> None:
        """Open the file without reading rows.

        Args:
            source: content of the file.
            rebases: whether to convert Spark's Julian days to Gregorian days.

        Raises:
            UnsupportedError: the file is encrypted.
            OSError, ArrowException: the file is corrupt.
            LimitError: the file has too many rows, or a too large schema.
        """
        self._source = source
        self._file = file = open_parquet(source)
        self._calendar = FileCalendar.of(file.metadata.metadata) if rebases else FileCalendar()
        self.fields: list[pa.Field] = list(file.schema_arrow)
        self.row_count = validate_row_count(file.metadata)
        check_types(self.fields)
        self._leaves = _leaf_ranges(self.fields)
        self._text_leaves = {
            leaves.start for leaves, field in zip(self._leaves, self.fields, strict=True) if is_byte_string(field.type)
        }
        """Numbers of the leaf columns that store top-level strings and bytes."""
        self._polars_columns: dict[int, pa.Array] = {}
        """By number, the last top-level column that Polars read."""
        if self._leaves and self._leaves[-1].stop != file.metadata.num_columns:
            raise pa.ArrowInvalid("the columns of the file's schema cannot be distinguished")

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield all values of the top-level column with number `index`, in file order.

        INT96 timestamps are in microseconds, or in nanoseconds if microseconds would lose digits. Dates and timestamps
        that Spark wrote in Julian days are converted to Gregorian days, unless `rebases` was false. Strings and bytes
        are dictionary arrays in row groups whose dictionary is short.
        """
        if _has_empty_struct(self.fields[index].type):
            yield from self._read_empty(self.fields[index])
            return
        leaves = self._leaves[index]
        has_int96 = any(self._file.schema.column(leaf).physical_type == "INT96" for leaf in leaves)
        may_encode = leaves.start in self._text_leaves
        is_dictionary = False
        for group in range(self._file.num_row_groups):
            try:
                chunks = self._read_group(
                    self._dictionary_file if is_dictionary else self._file, group, leaves, is_dictionary
                )
                first = next(chunks, None)
            except OSError:
                if not is_dictionary:
                    raise
                # The previous row group had a dictionary; this one has an encoding that Arrow does not read as one.
                is_dictionary = False
                chunks = self._read_group(self._file, group, leaves, is_dictionary)
                first = next(chunks, None)
            if first is None:
                continue
            # Row groups of a file are mostly alike, so this restarts a read about once per file.
            if may_encode and is_dictionary != self._has_short_dictionary(group, leaves.start):
                is_dictionary = not is_dictionary
                chunks = self._read_group(
                    self._dictionary_file if is_dictionary else self._file, group, leaves, is_dictionary
                )
                first = next(chunks)
            arrays = chain([first], chunks)
            for array in self._convert_int96(arrays, group, leaves) if has_int96 else arrays:
                yield array if self._calendar.is_gregorian else self._calendar.rebase(array, has_int96=has_int96)

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def _read_empty(self, field: pa.Field) -> Iterator[pa.Array]:
        """Yield the values of a column of structs without fields, of which Parquet stores nothing.

        Raises UnsupportedError if the structs may be null, or are nested in other types.
        """
        if pa.types.is_struct(field.type) and not field.type.num_fields and not field.nullable:
            for start in range(0, self.row_count, CHUNK_ROWS):
                yield pa.Array.from_buffers(field.type, min(CHUNK_ROWS, self.row_count - start), [None])
        elif self.row_count:
            raise UnsupportedError(
                "it has a struct without fields, of which Parquet stores nothing: which of them are null cannot be "
                "read; write the files with a field in the struct, or without the struct"
            )

    @cached_property
    def _dictionary_file(self) -> pq.ParquetFile:
        """The same file, opened to return strings and bytes as dictionary arrays."""
        return _open(self._source, "us", self._file.metadata, sorted(self._text_leaves))

    def _read_group(self, file: pq.ParquetFile, group: int, leaves: range, is_dictionary: bool) -> Iterator[pa.Array]:
        """Yield the values of a top-level column in one row group.

        The first array has one row: reading it validates the metadata of the row group before they are used. If the
        column has numbers, or lists of numbers, in an encoding that Arrow cannot read, Polars reads the remaining rows.

        Raises UnsupportedError for any other column in such an encoding, and Arrow's errors for a corrupt column.

        Args:
            file: The file, opened so that it returns the wanted types, such as timestamps in nanoseconds.
            group: The number of the row group.
            leaves: The numbers of the column's leaf columns.
            is_dictionary: Whether `file` was opened to return strings and bytes as dictionary arrays. The lengths of
                the yielded arrays depend on this.
        """
        position = 0
        try:
            # Arrow fetches all requested row groups at once, so each call requests one.
            batches = file.reader.iter_batches(1, row_groups=[group], column_indices=list(leaves), use_threads=False)
            for batch in batches:
                if not position:
                    # Only the first batch validates the metadata of the row group. Reading corrupt metadata before
                    # would end the process.
                    file.reader.set_batch_size(self._chunk_rows(group, leaves, is_dictionary))
                yield batch.column(0)
                position += batch.num_rows
        except (pa.ArrowInvalid, OSError) as error:
            explanation = self._explain_unread(group, leaves, str(error))
            if explanation is None:
                raise
            index = self._leaves.index(leaves)
            type_ = self.fields[index].type
            if not _is_number(type_.value_type if pa.types.is_list(type_) else type_):
                raise UnsupportedError(explanation) from error
            yield from self._read_with_polars(group, index, position, error)

    def _explain_unread(self, group: int, leaves: range, message: str) -> str | None:
        """Return why Arrow failed to read a column, if the encoding is one that Polars may read; else None.

        Args:
            group: The number of the row group that Arrow has failed to read.
            leaves: The numbers of the column's leaf columns.
            message: The message of Arrow's error.
        """
        if _LONG_LISTS in message:
            return (
                "it has nulls that take several values, as DuckDB writes nulls among arrays of fixed size, which Arrow "
                "does not read; cast the column to a list before it is written, as in `x::float[]`"
            )
        chunks = [self._file.metadata.row_group(group).column(leaf) for leaf in leaves]
        has_differences = any(
            chunk.physical_type == "INT32" and "DELTA_BINARY_PACKED" in chunk.encodings for chunk in chunks
        )
        if has_differences and _LONG_DIFFERENCES.search(message):
            return (
                "it has differences of integers that take more than 32 bits, as DuckDB writes them with "
                "`parquet_version v2`, which Arrow does not read; write the file with `parquet_version v1`"
            )
        return None

    def _read_with_polars(self, group: int, index: int, position: int, error: Exception) -> Iterator[pa.Array]:
        """Yield rows of a column of numbers, or lists of numbers, that Arrow cannot read.

        DuckDB stores a null among arrays of fixed size as several child values, and differences of 32-bit integers in
        up to 33 bits. Arrow refuses both. Polars reads the whole column instead. The column stays in memory until
        another such column is read.

        Args:
            group: The number of the row group.
            index: The number of the top-level column.
            position: The number, within the row group, of the first row to yield.
            error: The error of Arrow, which becomes the cause of errors.

        Raises:
            ArrowInvalid: Polars reads a number of rows that differs from the file's row count.
        """
        type_ = self.fields[index].type
        if index not in self._polars_columns:
            import polars as pl  # few files need it, and importing it takes time

            self._source.seek(0)
            frame = pl.read_parquet(self._source.read(), columns=[index], use_statistics=False, low_memory=True)
            if frame.height != self.row_count:
                raise pa.ArrowInvalid(f"it has {frame.height:,} rows and should have {self.row_count:,}") from error
            self._polars_columns = {index: frame.to_series().to_arrow().cast(type_)}
        rows = [self._file.metadata.row_group(number).num_rows for number in range(group + 1)]
        for start in range(sum(rows[:-1]) + position, sum(rows), CHUNK_ROWS):
            yield self._polars_columns[index].slice(start, min(CHUNK_ROWS, sum(rows) - start))

    def _convert_int96(self, arrays: Iterator[pa.Array], group: int, leaves: range) -> Iterator[pa.Array]:
        """Yield INT96 timestamps in microseconds, or in nanoseconds if microseconds would lose digits.

        Raises UnsupportedError if values fit neither unit.
        """
        # Spark's INT96 timestamps have whole microseconds.
        finer = None if self._is_written_by_spark else self._read_group(self._nanosecond_file, group, leaves, False)
        position = 0
        for array in arrays:
            if not has_common_years(array):
                millis = pa.concat_arrays(list(self._read_group(self._millisecond_file, group, leaves, False)))
                check_no_overflow(array, millis.slice(position, len(array)))
            position += len(array)
            if finer is None:
                yield array
            else:
                yield from merge_units(array, next(finer))

    @cached_property
    def _nanosecond_file(self) -> pq.ParquetFile:
        return _open(self._source, "ns", self._file.metadata)

    @cached_property
    def _millisecond_file(self) -> pq.ParquetFile:
        return _open(self._source, "ms", self._file.metadata)

    @property
    def _is_written_by_spark(self) -> bool:
        return SPARK_VERSION.encode() in (self._file.metadata.metadata or {})

    def _has_short_dictionary(self, group: int, leaf: int) -> bool:
        column = self._file.metadata.row_group(group).column(leaf)
        if not column.has_dictionary_page or column.dictionary_page_offset is None:
            return False
        # Writers change the encoding within a chunk. Arrow reads no differences of texts as a dictionary.
        if any(encoding.startswith("DELTA") for encoding in column.encodings):
            return False
        return bool(0 < column.data_page_offset - column.dictionary_page_offset <= _SHORT_DICTIONARY)

    def _chunk_rows(self, group: int, leaves: range, is_dictionary: bool) -> int:
        """Return how many rows of a row group to read at once.

        Together, they have at most about CHUNK_BYTES.

        Args:
            group: The number of the row group.
            leaves: The numbers of the leaf columns to read.
            is_dictionary: Whether strings and bytes are read as dictionary arrays.
        """
        metadata = self._file.metadata.row_group(group)
        max_rows = CHUNK_ROWS
        size = 0
        for leaf in leaves:
            column = metadata.column(leaf)
            # Runs, dictionaries and nulls take almost no space in the file, but every value takes space in memory.
            width = max(_VALUE_BYTES, self._file.schema.column(leaf).length)
            size += max(column.total_uncompressed_size, column.num_values * width)
            if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY" and not is_dictionary:
                # The footer does not say how long the strings in the dictionary are.
                max_rows = _DICTIONARY_ROWS
        average = max(1, size // max(1, metadata.num_rows))
        return max(1, min(max_rows, CHUNK_BYTES // average))


def validate_row_count(metadata: pq.FileMetaData) -> int:
    """Check the row count in a footer, and return it.

    A false count could fill memory with nulls.

    Raises:
        ArrowInvalid: the count contradicts the row groups.
        LimitError: the count is too large.
    """
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(groups, default=0) < 0 or sum(groups) != metadata.num_rows:
        raise pa.ArrowInvalid(f"it says that it has {metadata.num_rows:,} rows, its row groups have {sum(groups):,}")
    check_limit(FILE_ROWS, metadata.num_rows, "rows in one file")
    return int(metadata.num_rows)


def _leaf_ranges(fields: list[pa.Field]) -> list[range]:
    """Return for each field the positions of its leaf columns among all leaf columns of the Parquet file."""
    # Leaves are numbered by position, because dotted paths are ambiguous: `a.b` is a column, or a field of the column
    # `a`.
    ranges = []
    start = 0
    for field in fields:
        stop = start + leaf_count(field.type)
        ranges.append(range(start, stop))
        start = stop
    return ranges


def leaf_count(type_: pa.DataType) -> int:
    """Return the number of Parquet leaf columns that store a type."""
    if isinstance(type_, pa.BaseExtensionType):
        return leaf_count(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return leaf_count(type_.value_type)
    if pa.types.is_nested(type_):
        return sum(leaf_count(type_.field(index).type) for index in range(type_.num_fields))
    return 1


def _has_empty_struct(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return _has_empty_struct(type_.storage_type)
    if not pa.types.is_nested(type_):
        return False
    children = [type_.field(index).type for index in range(type_.num_fields)]
    return (pa.types.is_struct(type_) and not children) or any(map(_has_empty_struct, children))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))
