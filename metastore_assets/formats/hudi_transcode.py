"""Log files of Hudi with the rows of their Avro blocks in Parquet: hudi-rs reads more types from there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.formats.avro import AvroColumns
from metastore_assets.formats.hudi_log import AVRO_BLOCK, PARQUET_BLOCK, SCHEMA_HEADER, LogBlock, written_block

_BLOCK_VERSION = 3
_SYNC = b"\0" * 16


def needs_transcoding(avro_schema: str) -> bool:
    """Whether a schema has enumerations, or timestamps inside of other types."""
    return any(_is_hard(field["type"], nested=False) for field in json.loads(avro_schema)["fields"])


def transcoded(data: bytes, blocks: Iterable[LogBlock]) -> bytes:
    """The log file with these blocks. Raises ArrowInvalid for content that is broken."""
    result = b""
    for block in blocks:
        start, length = block.place
        content, kind = data[start : start + length], block.kind
        if kind == AVRO_BLOCK:
            content, kind = _parquet(content, block.headers), PARQUET_BLOCK
        result += written_block(kind, block.headers, content)
    return result


def _is_hard(type_: object, *, nested: bool) -> bool:
    if isinstance(type_, list):
        return any(_is_hard(branch, nested=nested) for branch in type_)
    if not isinstance(type_, Mapping):
        return False
    if type_["type"] == "enum" or (nested and "timestamp" in str(type_.get("logicalType"))):
        return True
    below = [type_["type"], type_.get("items"), type_.get("values"), *(one["type"] for one in type_.get("fields", ()))]
    return any(_is_hard(part, nested=True) for part in below)


def _parquet(content: bytes, headers: Mapping[int, str]) -> bytes:
    """An Avro block's rows: behind version and number of rows, the length and the bytes of each."""
    version, count = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:8], "big")
    if version != _BLOCK_VERSION:
        raise pa.ArrowInvalid(f"Avro log blocks of version {version} have no reader")
    position = 8
    rows = []
    for _ in range(count):
        length = int.from_bytes(content[position : position + 4], "big")
        rows.append(content[position + 4 : position + 4 + length])
        position += 4 + length
    if position != len(content):
        raise pa.ArrowInvalid("a log block is longer or shorter than its rows")
    columns = AvroColumns(pa.PythonFile(pa.BufferReader(_container(headers[SCHEMA_HEADER], rows)), mode="r"))
    table = pa.table(
        [pa.chunked_array(columns.read(index), field.type) for index, field in enumerate(columns.fields)],
        schema=pa.schema(columns.fields),
    )
    columns.close()
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _container(schema: str, rows: list[bytes]) -> bytes:
    """An Avro file of these rows."""
    body = b"".join(rows)
    items = b"".join(_text(text) for text in ("avro.schema", schema, "avro.codec", "null"))
    return b"Obj\x01" + _long(2) + items + _long(0) + _SYNC + _long(len(rows)) + _long(len(body)) + body + _SYNC


def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    """A number that is not negative, zigzag-encoded."""
    value <<= 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])
