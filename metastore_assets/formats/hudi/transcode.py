"""Conversion of Hudi files to types that hudi-rs can merge.

Avro blocks become Parquet. Local timestamps become timestamps in UTC with the same stored numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.formats.hudi.log import AVRO_BLOCK, PARQUET_BLOCK, SCHEMA_HEADER, encode_block, read_blocks
from metastore_assets.formats.hudi.type_changes import cast_as_hudi
from metastore_assets.formats.readers.avro import AvroColumns
from metastore_assets.formats.readers.parquet import open_parquet
from metastore_assets.formats.schema_casting import FieldMatcher, cast_to_schema
from metastore_assets.storage.thrift import encode_zigzag
from metastore_assets.values.columns import map_child_types

_SYNC = b"\0" * 16
_LOCAL = "local-timestamp-"
_BATCH_ROWS = 16_384


def needs_transcoding(avro_schema: str) -> bool:
    """Return True if an Avro schema has types that hudi-rs cannot merge.

    These are enumerations, local timestamps, and nested timestamps.
    """
    return any(_needs_transcoding(field["type"], is_nested=False) for field in json.loads(avro_schema)["fields"])


def in_utc(avro_schema: str) -> str:
    """Return the Avro schema with UTC timestamps instead of timestamps without a zone.

    Both types store the same numbers.
    """
    return avro_schema.replace(f'"{_LOCAL}', '"timestamp-')


def transcode_base(path: str) -> None:
    """Replace a Parquet file by a copy whose timestamps are in UTC.

    If the path is a link, the copy replaces the link, and the file that it points to stays. Raises ArrowInvalid for
    corrupt content.
    """
    target = f"{path}.new"
    with pa.OSFile(path, "rb") as source:
        file = open_parquet(source)
        with pq.ParquetWriter(target, _schema_in_utc(file.schema_arrow), compression="zstd") as writer:
            for batch in file.iter_batches(_BATCH_ROWS):
                writer.write_table(_table_in_utc(pa.table(batch)))
    os.replace(target, path)


def transcode_log(path: str, columns: pa.Schema) -> None:
    """Convert the rows of a log file to Parquet, and their timestamps to UTC.

    The result replaces the file or link at the path. Raises ArrowInvalid for corrupt content.

    Args:
        path: the path of the log file.
        columns: the columns of the table. Those that a block lacks are added with nulls, because hudi-rs would take
            their values from the replaced row. Structs get the table's fields, matched by name.
    """
    with open(path, "rb") as file:
        data = file.read()
    result = b""
    for block in read_blocks(pa.BufferReader(data)):
        start, length = block.content_range
        content, kind = data[start : start + length], block.kind
        headers = {key: in_utc(text) if key == SCHEMA_HEADER else text for key, text in block.headers.items()}
        if kind == AVRO_BLOCK:
            content, kind = _encode_parquet(_decode_avro_block(content, block.headers), columns), PARQUET_BLOCK
        elif kind == PARQUET_BLOCK:
            content = _encode_parquet(open_parquet(pa.BufferReader(content)).read(), columns)
        result += encode_block(kind, headers, content)
    # The path may be a link to the table's own file, which must not change.
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(result)


def encode_avro_block(content: bytes, schema: str) -> bytes:
    """Return the rows of an Avro block of a log file as an Avro container file.

    The block consists of a version, the number of rows, and for each row its length and its bytes. Raises ArrowInvalid
    for corrupt content.
    """
    count = int.from_bytes(content[4:8], "big")
    position = 8
    rows = []
    for _ in range(count):
        if position + 4 > len(content):
            break
        length = int.from_bytes(content[position : position + 4], "big")
        rows.append(content[position + 4 : position + 4 + length])
        position += 4 + length
    if position != len(content) or len(rows) != count:
        raise pa.ArrowInvalid("a log block is longer or shorter than its rows")
    return _encode_avro_file(schema, rows)


def _needs_transcoding(type_: object, *, is_nested: bool) -> bool:
    """Return True if an Avro type, or a type in it, cannot be merged by hudi-rs.

    `is_nested` says whether the type is inside of another one. There, UTC timestamps cannot be merged either.
    """
    if isinstance(type_, list):
        return any(_needs_transcoding(branch, is_nested=is_nested) for branch in type_)
    if not isinstance(type_, Mapping):
        return False
    logical = str(type_.get("logicalType"))
    if type_["type"] == "enum" or logical.startswith(_LOCAL) or (is_nested and "timestamp" in logical):
        return True
    nested_types = [
        type_["type"],
        type_.get("items"),
        type_.get("values"),
        *(field["type"] for field in type_.get("fields", ())),
    ]
    return any(_needs_transcoding(part, is_nested=True) for part in nested_types)


def _encode_parquet(table: pa.Table, columns: pa.Schema) -> bytes:
    for field in columns:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        elif pa.types.is_nested(field.type):
            matcher = FieldMatcher(convert=cast_as_hudi)
            chunks = [cast_to_schema(chunk, field.type, matcher) for chunk in table.column(index).chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    sink = pa.BufferOutputStream()
    pq.write_table(_table_in_utc(table), sink)
    return sink.getvalue().to_pybytes()


def _table_in_utc(table: pa.Table) -> pa.Table:
    """Return the table with all timestamps in UTC.

    Stored numbers stay the same.
    """
    schema = _schema_in_utc(table.schema)
    columns = [
        pa.chunked_array([cast_to_schema(chunk, field.type, FieldMatcher()) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _schema_in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_type_in_utc(field.type)) for field in schema])


def _type_in_utc(type_: pa.DataType) -> pa.DataType:
    """Return the type with timestamps in UTC, also in nested types."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp(type_.unit, "UTC")
    return map_child_types(type_, _type_in_utc)


def _decode_avro_block(content: bytes, headers: Mapping[int, str]) -> pa.Table:
    """Return the rows of an Avro block of a log file."""
    container = encode_avro_block(content, headers[SCHEMA_HEADER])
    columns = AvroColumns(pa.PythonFile(pa.BufferReader(container), mode="r"))
    table = pa.table(
        [pa.chunked_array(columns.read(index), field.type) for index, field in enumerate(columns.fields)],
        schema=pa.schema(columns.fields),
    )
    columns.close()
    return table


def _encode_avro_file(schema: str, rows: list[bytes]) -> bytes:
    """Return an Avro container file with the given encoded rows."""
    body = b"".join(rows)
    items = b"".join(_encode_text(text) for text in ("avro.schema", schema, "avro.codec", "null"))
    header = b"Obj\x01" + encode_zigzag(2) + items + encode_zigzag(0) + _SYNC
    return header + encode_zigzag(len(rows)) + encode_zigzag(len(body)) + body + _SYNC


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return encode_zigzag(len(data)) + data
