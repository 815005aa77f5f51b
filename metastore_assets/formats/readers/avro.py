"""Reader of Avro files: their header, their records, and their columns."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import fastavro
import pyarrow as pa

from metastore_assets.formats.metadata_json import parse_json
from metastore_assets.formats.readers.avro_limits import AvroLimits
from metastore_assets.formats.readers.avro_schema import AvroType, resolve_record_type
from metastore_assets.formats.readers.calendars import FileCalendar
from metastore_assets.formats.readers.columns import check_distinct
from metastore_assets.formats.readers.spill import SpilledColumns
from metastore_assets.storage.compression import CODECS, decompress_block
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, UnsupportedError, check_limit, error_reason
from metastore_assets.storage.limits import HEADER_BYTES, METADATA_BYTES
from metastore_assets.storage.thrift import encode_zigzag

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BUFFER = 4 << 20
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20
_LONGEST_VARINT = 10


class AvroColumns:
    """The top-level columns of an Avro file.

    The constructor decodes all rows into a temporary Parquet file.
    """

    def __init__(self, source: pa.NativeFile, *, rebases: bool = True) -> None:
        """Decode all rows, and close the source.

        With `rebases`, Spark's Julian days become Gregorian days.
        """
        with _decoder_errors():
            stream = io.BufferedReader(source, _BUFFER)
            header = read_header(stream)
            check_distinct(header.arrow_schema.names)
            batches = _decode_batches(stream, header)
            calendar = FileCalendar.of(header.metadata)
            if rebases and not calendar.is_gregorian:
                batches = map(partial(_rebase_batch, calendar), batches)
            self._rows = SpilledColumns(header.arrow_schema, batches)
        source.close()
        self.fields = self._rows.fields
        self.row_count = self._rows.row_count

    def read(self, index: int) -> Iterator[pa.Array]:
        """Yield all values of the top-level column with number `index`, in file order."""
        return self._rows.read(index)

    def close(self) -> None:
        """Delete the decoded rows."""
        self._rows.close()


@dataclass(frozen=True)
class AvroHeader:
    """Header of an Avro file: schema, metadata, codec, and the marker at the end of each block."""

    schema: Any
    """Schema of the records, as parsed JSON."""
    metadata: Mapping[str, bytes]
    codec: str
    sync: bytes

    @cached_property
    def type(self) -> AvroType:
        """The type of the records.

        Raises ArrowInvalid if the schema is invalid, or Arrow has no such type.
        """
        return resolve_record_type(self.schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns, with the names and field ids of the file."""
        return pa.schema(list(self.type.arrow))


def read_avro_fields(source: pa.NativeFile) -> list[pa.Field]:
    """Return the top-level columns of an Avro file from its header.

    Raises ArrowInvalid if two columns have the same name; also the errors of `read_header`.
    """
    with _decoder_errors():
        schema = read_header(io.BufferedReader(source, 1 << 16)).arrow_schema
        check_distinct(schema.names)
        return list(schema)


def read_avro_header(data: bytes) -> AvroHeader:
    """Return the header of an Avro file that is in memory.

    Raises the errors of `read_header`.
    """
    with _decoder_errors():
        return read_header(_stream(data))


def read_avro_records(
    data: bytes, schemas: Callable[[Any], tuple[Any, Any | None]] = lambda schema: (schema, None)
) -> Iterator[Any]:
    """Yield the records of an Avro file that is in memory, as Python values.

    Args:
        data: content of the file.
        schemas: converts the schema in the file to (writer schema, reader schema). The writer schema may rename fields;
            the reader schema may select fields. Without a reader schema (None), records have all fields, and are
            decoded faster.

    Raises:
        ArrowInvalid: the file is corrupt.
        UnsupportedError, LimitError: as for `read_header`.
    """
    with _decoder_errors():
        stream = _stream(data)
        header = read_header(stream)
        writer_schema, reader_schema = schemas(header.schema)
        blocks = _Blocks(stream, header, writer_schema)
        yield from _read_records(fastavro.block_reader(cast(Any, blocks), reader_schema))


def read_header(stream: io.BufferedReader) -> AvroHeader:
    """Read the header at the start of a stream, and return it.

    The stream is then at the first block.

    Call it in a `_decoder_errors` block, because corrupt bytes also raise other errors, such as EOFError.

    Raises:
        ArrowInvalid: the file is no Avro file, or is corrupt.
        UnsupportedError: the codec has no reader, or a type contains itself.
        LimitError: a limit is exceeded.
    """
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise pa.ArrowInvalid("it is no Avro file: it does not start with `Obj`")
    metadata: dict[str, bytes] = {}
    while count := _read_varint(stream):
        if count < 0:
            _read_varint(stream)
        for _ in range(abs(count)):
            key = _read_exactly(stream, _read_varint(stream)).decode()
            metadata[key] = _read_exactly(stream, _read_varint(stream))
            check_limit(HEADER_BYTES, stream.tell(), "bytes in the header of the Avro file")
    codec_name = metadata.get("avro.codec", b"").decode()
    codec = _ALIASES.get(codec_name.lower(), codec_name.lower())
    if codec not in CODECS:
        raise UnsupportedError(f"the Avro codec {codec_name!r} has no reader; {', '.join(CODECS)} have")
    schema = parse_json(metadata["avro.schema"])
    AvroLimits(schema)
    return AvroHeader(schema, metadata, codec, _read_exactly(stream, _SYNC_BYTES))


def _decode_batches(stream: io.BufferedReader, header: AvroHeader) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches of bounded size, from a stream at the first block."""
    blocks = _Blocks(stream, header, header.type.written)
    rows: list[Any] = []
    size = 0.0
    for block in fastavro.block_reader(cast(Any, blocks), return_named_type=True):
        average = blocks.block_bytes / max(1, block.num_records)
        for record in _read_records([block]):
            rows.append(record)
            size += average
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield _to_batch(rows, header)
                rows, size = [], 0.0
    if rows:
        yield _to_batch(rows, header)


def _rebase_batch(calendar: FileCalendar, batch: pa.RecordBatch) -> pa.RecordBatch:
    if not batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([calendar.rebase(column) for column in batch.columns], schema=batch.schema)


def _read_records(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield the records of blocks.

    Raises ArrowInvalid if bytes follow the last record of a block.
    """
    for block in blocks:
        yield from block
        if block.bytes_.read(1):
            raise pa.ArrowInvalid("a block of the Avro file is longer than its records")


def _to_batch(rows: list[Any], header: AvroHeader) -> pa.RecordBatch:
    prepare = header.type.prepare
    array = pa.array([prepare(row) for row in rows] if prepare else rows, header.type.raw)
    return pa.RecordBatch.from_struct_array(_to_arrow(array, header.type))


def _to_arrow(array: pa.Array, type_: AvroType) -> pa.Array:
    """Convert decoded values to the Arrow type that the schema declares."""
    target = type_.arrow
    if array.type == target:
        return array
    if pa.types.is_decimal(target):
        return _to_decimals(array, target)
    if target == pa.uuid():
        return pa.ExtensionArray.from_storage(target, array)
    if not pa.types.is_nested(target):
        return array.view(target)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        children = [_to_arrow(array.field(number), child) for number, child in enumerate(type_.children)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_map(array.type):
        items = _to_arrow(array.items, type_.children[0])
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=target, mask=mask)
    values = _to_arrow(array.values, type_.children[0])
    if pa.types.is_map(target):
        return pa.MapArray.from_arrays(array.offsets, values.field(0), values.field(1), type=target, mask=mask)
    return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)


def _to_decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert big-endian integers in two's complement, of any length, to decimals."""
    width = target.bit_width // 8
    data = bytearray()
    for value in array.to_pylist():
        unscaled_value = int.from_bytes(value or b"", "big", signed=True)
        data += unscaled_value.to_bytes(width, "little", signed=True)
    buffers = [array.is_valid().buffers()[1], pa.py_buffer(bytes(data))]
    result = pa.Array.from_buffers(target, len(array), buffers)
    # Validation refuses values with more digits than the schema declares.
    result.validate(full=True)
    return result


class _Blocks:
    """A file-like object for the Avro decoder: a header with a given schema, then the blocks of a file.

    The blocks are decompressed and checked against limits.
    """

    def __init__(self, stream: io.BufferedReader, header: AvroHeader, schema: Any) -> None:
        self._limits = AvroLimits(schema)
        self._pieces = self._decompressed_blocks(stream, header)
        self._buffer = io.BytesIO(_container_header(schema, header.sync))
        self._position = 0
        self.block_bytes = 0
        """Decompressed size in bytes of the block that was read last."""

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; `b""` at the end of the file.

        Raises ArrowInvalid for a corrupt block.
        """
        data = self._buffer.read(size)
        if not data and size:
            # The decoder takes the end of a file inside of a block for a regular end, so an error is raised here.
            with _decoder_errors():
                piece = next(self._pieces, b"")
            self._buffer = io.BytesIO(piece)
            data = self._buffer.read(size)
        self._position += len(data)
        return data

    def tell(self) -> int:
        return self._position

    def _decompressed_blocks(self, stream: io.BufferedReader, header: AvroHeader) -> Iterator[bytes]:
        """Yield each block in pieces, with its data decompressed.

        The pieces are the encoded counts of records and bytes, the data unless it is empty, and the sync marker.

        Raises ArrowInvalid, EOFError or an error of decompression for a corrupt block. Raises LimitError if a limit is
        exceeded.
        """
        while stream.peek(1):
            count = _read_varint(stream)
            if count < 0:
                raise pa.ArrowInvalid("a block of the Avro file has fewer than no records")
            data = decompress_block(header.codec, _read_exactly(stream, _read_varint(stream)))
            if _read_exactly(stream, _SYNC_BYTES) != header.sync:
                raise pa.ArrowInvalid("a block of the Avro file does not end with the file's marker")
            self._limits.check(data, count)
            self.block_bytes = len(data)
            yield encode_zigzag(count) + encode_zigzag(len(data))
            if data:
                yield data  # The decoder reads it in one call.
            yield header.sync


def _container_header(schema: Any, sync: bytes) -> bytes:
    items = [(b"avro.schema", json.dumps(schema).encode()), (b"avro.codec", b"null")]
    texts = b"".join(encode_zigzag(len(text)) + text for item in items for text in item)
    return _MAGIC + encode_zigzag(len(items)) + texts + b"\0" + sync


def _stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(cast(Any, io.BytesIO(data)), _BUFFER)


def _read_exactly(stream: io.BufferedReader, size: int) -> bytes:
    """Return the next `size` bytes.

    Raises EOFError if there are fewer, ArrowInvalid for a negative size, and LimitError for a size that is too large.
    """
    if size < 0:
        raise pa.ArrowInvalid("the Avro file has a part of negative length")
    check_limit(METADATA_BYTES, size, "bytes in one part of the Avro file")
    # Reading in pieces limits memory to the bytes that exist. The declared length may be false.
    pieces = []
    while size and (piece := stream.read(min(size, _BUFFER))):
        pieces.append(piece)
        size -= len(piece)
    if size:
        raise EOFError
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _read_varint(stream: io.BufferedReader) -> int:
    """Read an integer in Avro's zigzag encoding of variable length.

    Raises ArrowInvalid if it has more than 64 bits, and EOFError at the end.
    """
    value = 0
    for position in range(_LONGEST_VARINT):
        byte = _read_exactly(stream, 1)[0]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise pa.ArrowInvalid("the Avro file has a number of more than 64 bits")


_ALIASES = {"": "null", "uncompressed": "null", "gzip": "deflate", "zstd": "zstandard"}
"""Avro's names of codecs, by the names that other formats and writers use."""


@contextmanager
def _decoder_errors() -> Iterator[None]:
    """Convert errors of the decoder about corrupt bytes to ArrowInvalid.

    OSError, ValueError and Arrow's own exceptions are not changed.
    """
    try:
        yield
    except EOFError as error:
        raise pa.ArrowInvalid("the Avro file ends early") from error
    except (OSError, ValueError, pa.ArrowException):
        raise
    except (*CORRUPTION_ERRORS, fastavro.schema.SchemaParseException, fastavro.read.SchemaResolutionError) as error:
        raise pa.ArrowInvalid(f"the Avro file is broken: {error_reason(error)}") from error
