"""Reading and writing Parquet objects, with failures that name the object."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.store.backend import Input, Output
from metastore_assets.store.prefetch import chunk_ranges

if TYPE_CHECKING:
    from metastore_assets.store.objects import ObjectStore

ROW_GROUP_ROWS = 131_072
"""Most rows in one row group."""
_MAX_IDLE_FILES = 2
"""Most idle files of a `SharedParquet` that stay open for the next reader."""


@dataclass(frozen=True)
class MinimalParquet:
    """How to write a file of which every byte counts: no column but the top-level texts has a dictionary, and none but
    those named a minimum and maximum."""

    encodings: Mapping[str, str] = field(default_factory=dict)
    """Of leaf columns, by dotted path."""
    stores_arrow_types: bool = False
    """Whether Arrow's types are kept beside Parquet's, which do not tell texts of over 2 GB in all from others."""
    bounded: Sequence[str] = ()
    """Leaf columns that have a minimum and maximum per row group, by dotted path."""
    zstd_columns: Collection[str] | None = None
    """Columns of the schema that have many bytes per row group: compressed with zstd. The others with LZ4, which adds
    no header and is ready at once: of a hundred bytes it makes less than zstd, in a tenth of the time. None: all."""


class ParquetTableWriter:
    """One Parquet file being written. Tables must have exactly the schema it was opened with."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self.row_count = 0

    def write_table(self, table: pa.Table, row_group_rows: int = ROW_GROUP_ROWS) -> None:
        """Append the rows as one or more row groups of at most `row_group_rows` rows; no rows, no row group."""
        if table.num_rows:
            self._writer.write_table(table, row_group_size=min(row_group_rows, ROW_GROUP_ROWS))
            self.row_count += table.num_rows

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add to the file's key-value metadata."""
        self._writer.add_key_value_metadata(dict(metadata))


@contextmanager
def parquet_writer(
    sink: Output,
    schema: pa.Schema,
    encodings: Mapping[str, str] | None = None,
    bounded: Sequence[str] | None = None,
    minimal: MinimalParquet | None = None,
) -> Iterator[ParquetTableWriter]:
    """Write Parquet to a sink; the footer is written when the block ends.

    `bounded` names the columns that get a minimum and maximum per row group; without it, all of short values.

    `encodings` of columns, by name, are for files of sorted rows: these columns have no dictionaries. Compressed with
    zstd, but for columns of numbers in such files: LZ4 leaves them 4 % larger, and they are read in three quarters of
    the time.
    """
    dictionary: list[str] | bool
    if minimal is not None:
        bounded, dictionary = minimal.bounded, [field.name for field in schema if pa.types.is_string(field.type)]
        light = set() if minimal.zstd_columns is None else set(schema.names).difference(minimal.zstd_columns)
    else:
        if bounded is None:
            bounded = [path for field in schema for path in _bounded(field, field.name)]
        dictionary = [name for name in schema.names if name not in encodings] if encodings else True
        light = {field.name for field in schema if pa.types.is_primitive(field.type)} if encodings else set()
    # Checksums, because a page that was damaged may still decompress: to other numbers.
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression={
            leaf: "lz4" if field.name in light else "zstd" for field in schema for leaf in _leaves(field, field.name)
        },
        write_statistics=list(bounded),
        write_page_checksum=True,
        use_dictionary=dictionary,
        column_encoding=dict(minimal.encodings if minimal else encodings or {}) or None,
        store_schema=minimal is None or minimal.stores_arrow_types,
    )
    if minimal is not None and not minimal.stores_arrow_types and schema.metadata:
        writer.add_key_value_metadata(schema.metadata)  # which the writer takes for a part of Arrow's types
    try:
        yield ParquetTableWriter(writer)
    except BaseException:
        # Closed here, into a sink that will be thrown away: left open, it would be closed by the garbage collector.
        with suppress(Exception):
            writer.close()
        raise
    writer.close()


class ParquetObject:
    """A Parquet object that is open for ranged reads. Names the object when one of its row groups is damaged, whoever
    reads it. Reads in the thread that asks: see `store.ahead`. Not to be shared by threads.

    Columns go by dotted path; the path of a struct, list or map means all that is inside. So they do in Arrow's
    `ParquetFile`, which makes a table of all such paths whenever it opens a file: a quarter of what it takes to read
    one of 5,000 histograms.
    """

    def __init__(self, source: Input, uri: str, metadata: pq.FileMetaData | None) -> None:
        self._reader = pq.ParquetReader()
        self._reader.open(
            source.file,
            metadata=metadata,
            pre_buffer=False,
            page_checksum_verification=True,
            arrow_extensions_enabled=True,
        )
        self._uri = uri
        self._fetch = source.fetch
        self._leaves_by_path: dict[bool, dict[str, list[int]]] = {}

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer, which stays readable."""
        return self._reader.metadata

    @property
    def num_row_groups(self) -> int:
        """How many row groups there are."""
        return self._reader.num_row_groups

    @property
    def schema_arrow(self) -> pa.Schema:
        """The columns in Arrow's types."""
        return self._reader.schema_arrow

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, of all columns or of some."""
        with parquet_errors(self._uri):
            leaves = self._leaves(range(self.num_row_groups), columns)
            return self._reader.read_all(column_indices=leaves, use_threads=False)

    def read_row_group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one row group."""
        return self.read_row_groups([number], columns)

    def read_row_groups(self, numbers: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of some row groups, in the order given."""
        with parquet_errors(self._uri):
            leaves = self._leaves(numbers, columns)
            return self._reader.read_row_groups(numbers, column_indices=leaves, use_threads=False)

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of rows of one row group each, of which one is held at a time."""
        for number in row_groups:
            leaves = self._leaves([number], columns)
            yield from self._reader.iter_batches(batch_size, [number], column_indices=leaves, use_threads=False)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> ParquetObject:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _leaves(self, row_groups: Sequence[int], columns: Sequence[str] | None) -> list[int] | None:
        """Which of the leaf columns to read, None for all; they are fetched, where that is done ahead."""
        if self._fetch is not None:
            self._fetch(chunk_ranges(self.metadata, row_groups, None if columns is None else frozenset(columns)))
        if columns is None:
            return None
        # Names may have dots in them, and without one there is nothing inside of another column.
        deep = any("." in column for column in columns)
        if deep not in self._leaves_by_path:
            # Made once: a wide file is read column by column.
            leaves: dict[str, list[int]] = {}
            for leaf, path in enumerate(self._reader.column_paths):
                for name in accumulate(path, "{}.{}".format) if deep else path[:1]:
                    leaves.setdefault(name, []).append(leaf)
            self._leaves_by_path[deep] = leaves
        return [leaf for column in columns for leaf in self._leaves_by_path[deep].get(column, ())]


def open_parquet(source: Input, uri: str, metadata: pq.FileMetaData | None = None) -> ParquetObject:
    """Open Parquet for ranged reads. Raises CorruptionError when it is not Parquet or is cut short."""
    with parquet_errors(uri):
        return ParquetObject(source, uri, metadata)


class SharedParquet:
    """A Parquet object whose footer is read once, and which many threads can read.

    Arrow's files are not thread-safe, so each reading thread gets a file of its own, opened with the known footer.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        first = store.open_parquet(path)
        self.metadata: pq.FileMetaData = first.metadata
        self._idle = [first]  # a list's `pop` and `append` are atomic

    @contextmanager
    def acquire(self) -> Iterator[ParquetObject]:
        """A file that nobody else reads meanwhile."""
        try:
            file = self._idle.pop()
        except IndexError:
            file = self._store.open_parquet(self._path, self.metadata)
        try:
            yield file
        finally:
            if len(self._idle) < _MAX_IDLE_FILES:
                self._idle.append(file)
            else:
                file.close()

    def close(self) -> None:
        """Close what is open."""
        while self._idle:
            self._idle.pop().close()


@contextmanager
def parquet_errors(uri: str) -> Iterator[None]:
    """Turn what pyarrow raises while reading a Parquet object into errors that name it."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise StoreError(f"cannot read {uri}: {error.strerror}") from error
        raise _corrupt(uri, error) from error
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise _corrupt(uri, error) from error


def _bounded(field: pa.Field, path: str) -> Iterator[str]:
    """Columns that get a minimum and maximum per row group, so that any engine can skip: not nested text and bytes.

    Those may be long, and would make the footer, which every reader reads first, as large as the data.
    """
    if pa.types.is_struct(field.type):
        for child in field.type:
            if not pa.types.is_string(child.type):
                yield from _bounded(child, f"{path}.{child.name}")
    elif pa.types.is_string(field.type) or pa.types.is_primitive(field.type) or pa.types.is_decimal(field.type):
        yield path


def _leaves(field: pa.Field, path: str) -> Iterator[str]:
    """The columns of the file that a field is stored as."""
    type_ = field.type
    if pa.types.is_struct(type_):
        for child in type_:
            yield from _leaves(child, f"{path}.{child.name}")
    elif pa.types.is_map(type_):
        yield from _leaves(type_.key_field, f"{path}.key_value.key")
        yield from _leaves(type_.item_field, f"{path}.key_value.value")
    elif pa.types.is_nested(type_):
        yield from _leaves(type_.value_field, f"{path}.list.element")
    else:
        yield path


def _corrupt(uri: str, error: Exception) -> CorruptionError:
    cause = str(error).split("\n", 1)[0]
    return CorruptionError(
        f"{uri} is damaged ({cause}); restore it, or rebuild what it is part of: a table with "
        "`metastore refresh NAME --full`, a stage with `rebuild`"
    )
