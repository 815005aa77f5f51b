"""Reading and writing of Parquet objects.

Errors name the object.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.startup import pc
from metastore_assets.store.backend import Input, Output
from metastore_assets.store.compact_footers import (
    MAX_COMPACT_FOOTER_BYTES,
    Bounds,
    CompactFooter,
    CompactFooterRange,
    encode_compact_footer,
)
from metastore_assets.store.prefetch import chunk_ranges

if TYPE_CHECKING:
    from metastore_assets.store.objects import ObjectStore
    from metastore_assets.store.read_rounds import Reading

ROW_GROUP_ROWS = 131_072
"""Maximum number of rows in a row group."""
_METADATA_ENTRY_BYTES = (1 << 31) - 1
"""Maximum size of an entry of the key-value metadata. The index of a run contains complete keys, such as a text of 100
MB, and Arrow reads at most 100 MB by default."""
_MAX_IDLE_FILES = 2
"""Maximum number of idle files of a `SharedParquet` that stay open."""


@dataclass(frozen=True)
class MinimalParquet:
    """Options of a Parquet file with minimal size.

    Only `dictionary_columns`, and top-level columns of text, have dictionaries.
    """

    encodings: Mapping[str, str] = field(default_factory=dict)
    """Encodings of leaf columns, by dotted path."""
    stores_arrow_types: bool = False
    """Whether the file also stores Arrow's types, which distinguish `string` from `large_string`."""
    bounded_columns: Sequence[str] = ()
    """Leaf columns with a minimum and maximum per row group, by dotted path. Others have none."""
    zstd_columns: Collection[str] | None = None
    """Columns with many bytes per row group, which are compressed with zstd; None for all. Other columns are compressed
    with LZ4, which has no header, so that it is smaller for about a hundred bytes, and takes a tenth of the time."""
    dictionary_columns: Collection[str] = ()
    """Nested leaf columns that also have dictionaries, by dotted path."""


@dataclass(frozen=True)
class ParquetOptions:
    """Options that determine how the columns of a Parquet file are stored."""

    encodings: Mapping[str, str] | None = None
    """{column: Parquet encoding}, such as `DELTA_BINARY_PACKED` for sorted numbers. Each column that is missing here
    gets a dictionary, unless it is nested. None: all columns get one, nested ones too."""
    bounded_columns: Sequence[str] | None = None
    """Columns with a minimum and maximum per row group. None: all columns with short values."""
    minimal: MinimalParquet | None = None
    """Options of a file with minimal size, which replace `encodings`, `bounded_columns` and `plain_columns`."""
    plain_columns: Collection[str] = ()
    """Leaf columns without a dictionary, by dotted path, if `encodings` and `minimal` are None."""
    adds_compact_footer: bool = False
    """Whether the file gets a compact footer between the row groups and the footer. Then the footer has no minima and
    maxima, whatever `bounded_columns` says."""


DEFAULT_OPTIONS = ParquetOptions()


class ParquetTableWriter:
    """A Parquet file that is being written.

    All tables must have the schema of the file.
    """

    def __init__(self, writer: pq.ParquetWriter, sink: Output) -> None:
        self._writer = writer
        self._sink = sink
        self.row_count = 0
        self.footer_bytes = 0
        """Number of bytes after the row groups, known when the file is closed."""
        self.compact_footer: CompactFooterRange | None = None
        """The position of the compact footer, known when the file is closed; None if the file has none."""
        self.key_bounds: list[Bounds] | None = None
        """The least and the greatest value of the first column in each row group, if the file gets a compact footer."""

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer, known when the file is closed."""
        return self._writer.writer.metadata

    @property
    def row_group_bytes(self) -> int:
        """Number of bytes of the row groups so far.

        It cannot be read after the file is closed.
        """
        return self._sink.tell()

    def write_table(self, table: pa.Table, row_group_rows: int = ROW_GROUP_ROWS) -> None:
        """Append a table as row groups of at most `row_group_rows` rows.

        An empty table adds no row group.
        """
        if table.num_rows:
            row_group_rows = min(row_group_rows, ROW_GROUP_ROWS)
            self._writer.write_table(table, row_group_size=row_group_rows)
            self.row_count += table.num_rows
            if self.key_bounds is not None:
                for start in range(0, table.num_rows, row_group_rows):
                    bounds = pc.min_max(table.column(0).slice(start, row_group_rows)).as_py()
                    self.key_bounds.append((bounds["min"], bounds["max"]))

    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add entries to the file's key-value metadata."""
        self._writer.add_key_value_metadata(dict(metadata))


@contextmanager
def parquet_writer(
    sink: Output, schema: pa.Schema, options: ParquetOptions = DEFAULT_OPTIONS
) -> Iterator[ParquetTableWriter]:
    """Open a Parquet file for writing.

    The footer is written when the block ends.

    Columns are compressed with zstd. With `options.encodings`, columns of numbers are compressed with LZ4 instead:
    files are slightly larger (4 %), and reading takes three quarters of the time. With `options.minimal.zstd_columns`,
    only these columns are compressed with zstd, and all others with LZ4.

    Args:
        sink: The file that is written.
        schema: Columns of all tables.
        options: How the columns are stored.
    """
    dictionary: list[str] | bool
    encodings, bounded_paths, minimal, plain = (
        options.encodings,
        options.bounded_columns,
        options.minimal,
        options.plain_columns,
    )
    if minimal is not None:
        bounded_paths, dictionary = (
            minimal.bounded_columns,
            [*(field.name for field in schema if pa.types.is_string(field.type)), *minimal.dictionary_columns],
        )
        light = set() if minimal.zstd_columns is None else set(schema.names).difference(minimal.zstd_columns)
    else:
        if bounded_paths is None:
            bounded_paths = [path for field in schema for path in _bounded(field, field.name)]
        dictionary = [name for name in schema.names if name not in encodings] if encodings else True
        if plain:
            leaves = (leaf for field in schema for leaf in leaf_paths(field, field.name))
            dictionary = [leaf for leaf in leaves if leaf not in plain]
        light = {field.name for field in schema if pa.types.is_primitive(field.type)} if encodings else set()
    # A damaged page may still decompress, to other numbers. Only a checksum detects that.
    footer_sink = _FooterSink(sink) if options.adds_compact_footer else None
    writer = pq.ParquetWriter(
        footer_sink or sink,
        schema,
        compression={
            leaf: "lz4" if field.name in light else "zstd" for field in schema for leaf in leaf_paths(field, field.name)
        },
        write_statistics=[] if footer_sink else list(bounded_paths),
        write_page_checksum=True,
        use_dictionary=dictionary,
        column_encoding=dict(minimal.encodings if minimal else encodings or {}) or None,
        store_schema=minimal is None or minimal.stores_arrow_types,
    )
    if minimal is not None and not minimal.stores_arrow_types and schema.metadata:
        writer.add_key_value_metadata(schema.metadata)  # the writer drops it together with Arrow's types
    try:
        table_writer = ParquetTableWriter(writer, sink)
        if footer_sink is not None:
            table_writer.key_bounds = []
        yield table_writer
    except BaseException:
        # The sink is discarded, so close the writer now. Otherwise the garbage collector would close it later.
        with suppress(Exception):
            writer.close()
        raise
    data_bytes = sink.tell()
    if footer_sink is not None:
        footer_sink.holds_footer = True
    writer.close()
    if footer_sink is not None:
        footer = bytes(footer_sink.footer)
        compact = encode_compact_footer(table_writer.metadata, footer, table_writer.key_bounds or [])
        table_writer.compact_footer = CompactFooterRange(data_bytes, len(compact))
        sink.write(compact)
        sink.write(footer)
    table_writer.footer_bytes = sink.tell() - data_bytes


class _FooterSink(io.RawIOBase):
    """A sink that passes bytes on to another one until `holds_footer` is set.

    From then on, the bytes that are written are the footer. They are not passed on, but stored in `footer`.
    """

    def __init__(self, sink: Output) -> None:
        self._sink = sink
        self.holds_footer = False
        self.footer = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.holds_footer:
            return self._sink.write(data)
        self.footer += data
        return len(data)

    def tell(self) -> int:
        return self._sink.tell() + len(self.footer)


class ParquetObject:
    """A Parquet object that is open for ranged reads.

    Threads must not share it.

    Columns are dotted paths. The path of a struct, list or map selects everything inside. Arrow's `ParquetFile` offers
    the same, but builds a table of all paths when it opens a file. For a file of 5,000 histograms, this table takes a
    quarter of the time of reading one histogram.
    """

    def __init__(self, source: Input, uri: str, metadata: pq.FileMetaData | None) -> None:
        self._reader = pq.ParquetReader()
        self._reader.open(
            source.file,
            metadata=_parse_footer(source.tail) if metadata is None else metadata,
            pre_buffer=False,
            page_checksum_verification=True,
            arrow_extensions_enabled=True,
            thrift_string_size_limit=_METADATA_ENTRY_BYTES,
        )
        self._uri = uri
        self._fetched_ranges = source.fetched_ranges
        self._column_paths: list[list[str]] = []
        """The path of each leaf column, known after columns are first read by name."""
        self._leaves_by_path: dict[bool, dict[str, list[int]]] = {}

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer, also after the file is closed."""
        return self._reader.metadata

    @property
    def num_row_groups(self) -> int:
        """Number of row groups."""
        return self._reader.num_row_groups

    @property
    def schema_arrow(self) -> pa.Schema:
        """The columns, with Arrow's types."""
        return self._reader.schema_arrow

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows, with all columns or some."""
        with parquet_errors(self._uri):
            leaves = self._leaves(columns)
            self._fetch(range(self.num_row_groups), leaves)
            return self._reader.read_all(column_indices=leaves, use_threads=False)

    def read_row_group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of one row group, with all columns or some."""
        return self.read_row_groups([number], columns)

    def read_row_groups(self, numbers: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of row groups, in the given order, with all columns or some."""
        with parquet_errors(self._uri):
            leaves = self._leaves(columns)
            self._fetch(numbers, leaves)
            return self._reader.read_row_groups(numbers, column_indices=leaves, use_threads=False)

    def reading(self, numbers: Sequence[int], columns: Sequence[str] | None = None) -> Reading[pa.Table]:
        """Return a reading of row groups, which returns the same table as `read_row_groups`.

        A reading is a generator that yields the byte ranges that it needs, and is sent their bytes (see
        `store.read_rounds`). No other method may be called until it ends.
        """
        with parquet_errors(self._uri):
            leaves = self._leaves(columns)
            if self._fetched_ranges is not None:
                yield from self._fetched_ranges.reading(chunk_ranges(self.metadata, numbers, leaves))
            return self._reader.read_row_groups(numbers, column_indices=leaves, use_threads=False)

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most `batch_size` rows, each from one row group."""
        for number in row_groups:
            leaves = self._leaves(columns)
            self._fetch([number], leaves)
            yield from self._reader.iter_batches(batch_size, [number], column_indices=leaves, use_threads=False)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> ParquetObject:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fetch(self, row_groups: Sequence[int], leaves: Sequence[int] | None) -> None:
        """Fetch the bytes of row groups before they are read, if the object is remote."""
        if self._fetched_ranges is not None:
            self._fetched_ranges.fetch(chunk_ranges(self.metadata, row_groups, leaves))

    def _leaves(self, columns: Sequence[str] | None) -> list[int] | None:
        """Return the indices of the leaf columns of some columns; None for all columns if `columns` is None."""
        if columns is None:
            return None
        # Without a dot, no path leads into a column. Names of top-level columns may contain dots themselves.
        deep = any("." in column for column in columns)
        if deep not in self._leaves_by_path:
            # Computed once, because wide files are read column by column.
            leaves: dict[str, list[int]] = {}
            self._column_paths = self._column_paths or self._reader.column_paths
            for leaf, path in enumerate(self._column_paths):
                for name in accumulate(path, "{}.{}".format) if deep else path[:1]:
                    leaves.setdefault(name, []).append(leaf)
            self._leaves_by_path[deep] = leaves
        return [leaf for column in columns for leaf in self._leaves_by_path[deep].get(column, ())]


def open_parquet(source: Input, uri: str, metadata: pq.FileMetaData | None = None) -> ParquetObject:
    """Open a Parquet object for reading.

    Args:
        source: The open object.
        uri: URI of the object, for errors.
        metadata: The footer, if it was read before; None to read it.

    Raises:
        CorruptionError: The object is truncated or not Parquet.
    """
    with parquet_errors(uri):
        return ParquetObject(source, uri, metadata)


class SharedParquet:
    """A Parquet object that many threads can read.

    Arrow's files are not thread-safe, so each thread acquires an open file of its own. All of these files use one
    footer, which is read only once, unless it is released.

    A file can also have a compact footer, a short form of its footer (see `store.compact_footers`). If the compact
    footer is read instead, each read of row groups first builds a footer of these row groups.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        footer_bytes: int = 0,
        compact_footer: CompactFooterRange | None = None,
    ) -> None:
        """Open an object.

        Args:
            store: The store of the object.
            path: Path of the object.
            footer_bytes: Number of bytes after the row groups; 0 if unknown. If known, one request reads the footer.
            compact_footer: Position of the compact footer, to read instead of the footer; None to read the footer.
        """
        self._store = store
        self._path = path
        self._footer_bytes = footer_bytes
        self._metadata: pq.FileMetaData | None = None
        self._idle: list[ParquetObject] = []  # a list's `pop` and `append` are atomic
        self._compact: CompactFooter | None = None
        self._encoded_compact: bytes | None = None
        """The compact footer as it is in the file, which takes little memory; None if the footer is read instead."""
        self._data_bytes = 0
        """Size of the row groups, if the compact footer is read."""
        if compact_footer is not None:
            start, size = compact_footer
            self._data_bytes = start
            # A wrong size in the version's document must not allocate any amount of memory.
            self._encoded_compact = store.read_range(path, start, start + min(size, MAX_COMPACT_FOOTER_BYTES))
            self._compact_footer()  # Fails early if it is damaged.
        else:
            self._idle.append(self._open(is_first=True))

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer.

        It is read again if it was released.
        """
        metadata = self._metadata
        if metadata is None:
            with self.acquire() as file:
                metadata = file.metadata
        return metadata

    def group_sizes(self) -> tuple[list[int], list[int]]:
        """Return (number of rows of each row group, decompressed size in bytes of each row group)."""
        compact = self._compact_footer()
        if compact is not None:
            return compact.group_rows, compact.group_bytes
        metadata = self.metadata
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        return [group.num_rows for group in groups], [group.total_byte_size for group in groups]

    @property
    def key_value_metadata(self) -> Mapping[bytes, bytes]:
        """The key-value metadata of the file."""
        compact = self._compact_footer()
        if compact is not None:
            return compact.key_value_metadata
        return self.metadata.metadata or {}

    def key_bounds(self) -> Sequence[Bounds | None]:
        """Return bounds of the values of the first column in each row group; None if they are unknown."""
        compact = self._compact_footer()
        if compact is not None:
            return compact.key_bounds
        metadata = self.metadata
        statistics = [metadata.row_group(group).column(0).statistics for group in range(metadata.num_row_groups)]
        return [(chunk.min, chunk.max) if chunk is not None and chunk.has_min_max else None for chunk in statistics]

    @contextmanager
    def acquire(self) -> Iterator[ParquetObject]:
        """Yield an open file that no other thread uses during the block."""
        try:
            file = self._idle.pop()
        except IndexError:
            file = self._open()
        try:
            yield file
        finally:
            if len(self._idle) < _MAX_IDLE_FILES:
                self._idle.append(file)
            else:
                file.close()

    @contextmanager
    def acquire_groups(self, groups: Sequence[int]) -> Iterator[tuple[ParquetObject, list[int]]]:
        """Yield (an open file, the numbers of the row groups `groups` in this file).

        No other thread uses the file during the block. The file may lack other row groups, so the numbers may differ
        from those in `groups`.
        """
        compact = self._compact_footer()
        if compact is None:
            with self.acquire() as file:
                yield file, list(groups)
            return
        with parquet_errors(self._store.uri(self._path)):
            footer = compact.build_footer(groups)
        with self._store.open_parquet(self._path, footer, data_bytes=self._data_bytes) as file:
            yield file, list(range(len(groups)))

    def _compact_footer(self) -> CompactFooter | None:
        """Return the compact footer, or None if the ordinary footer is read instead.

        The compact footer is decoded again if it was released.
        """
        compact = self._compact  # Another thread may release it.
        if compact is None and self._encoded_compact is not None:
            with parquet_errors(self._store.uri(self._path)):
                compact = self._compact = CompactFooter.decode(self._encoded_compact)
        return compact

    def _open(self, *, is_first: bool = False) -> ParquetObject:
        metadata = self._metadata  # Another thread may release it.
        if metadata is not None:
            return self._store.open_parquet(self._path, metadata)
        file = self._store.open_parquet(self._path, footer_bytes=self._footer_bytes, use_cached_tail=not is_first)
        self._metadata = file.metadata
        return file

    def release(self) -> None:
        """Close the idle files and forget the footer.

        A footer takes half a megabyte if it has 500 column chunks. Only the encoded form of a compact footer is kept.
        """
        self._metadata = self._compact = None
        self.close()

    def close(self) -> None:
        """Close the idle files."""
        while self._idle:
            self._idle.pop().close()


def _parse_footer(tail: bytes) -> pq.FileMetaData | None:
    """Return the footer of a Parquet object from its last bytes; None if they do not contain all of it.

    Arrow would read the last 64 kilobytes of the object, even if the footer is smaller and already in memory.
    """
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        return None
    reader = pq.ParquetReader()
    reader.open(pa.BufferReader(tail[-length:]), thrift_string_size_limit=_METADATA_ENTRY_BYTES)
    return reader.metadata


@contextmanager
def parquet_errors(uri: str) -> Iterator[None]:
    """Convert pyarrow's errors about a Parquet object to errors of the store that name the object.

    An OSError with an error number becomes a StoreError. Other errors of Arrow, a ValueError and a KeyError become a
    CorruptionError.
    """
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
    """Yield the dotted paths of a field's leaf columns for which the file stores a minimum and a maximum.

    These are numbers, booleans and times, in structs too, and top-level columns of text. Nothing in a list or map is
    among them. `path` is the dotted path of the field.
    """
    if pa.types.is_struct(field.type):
        for child in field.type:
            if not pa.types.is_string(child.type):
                yield from _bounded(child, f"{path}.{child.name}")
    elif pa.types.is_string(field.type) or pa.types.is_primitive(field.type) or pa.types.is_decimal(field.type):
        yield path


def leaf_paths(field: pa.Field, path: str) -> Iterator[str]:
    """Yield the dotted paths of a field's leaf columns in the file."""
    type_ = field.type
    if pa.types.is_struct(type_):
        for child in type_:
            yield from leaf_paths(child, f"{path}.{child.name}")
    elif pa.types.is_map(type_):
        yield from leaf_paths(type_.key_field, f"{path}.key_value.key")
        yield from leaf_paths(type_.item_field, f"{path}.key_value.value")
    elif pa.types.is_nested(type_):
        yield from leaf_paths(type_.value_field, f"{path}.list.element")
    else:
        yield path


def _corrupt(uri: str, error: Exception) -> CorruptionError:
    cause = str(error).split("\n", 1)[0]
    return CorruptionError(
        f"{uri} is damaged ({cause}); restore it, or rebuild what it is part of: a table with "
        "`metastore refresh NAME --full`, a stage with `rebuild`"
    )
