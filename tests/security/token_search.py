"""Searches for values in all files below a folder, including compressed and encoded content."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_BASE64 = re.compile(rb"[A-Za-z0-9+/=]{16,}")
_ZSTD = b"\x28\xb5\x2f\xfd"
_DEPTH = 4


def files_with(folder: Path, *tokens: str | bytes) -> list[str]:
    """Return the files below a folder whose name or content contains one of the tokens."""
    token_bytes = [token.encode() if isinstance(token, str) else token for token in tokens]
    paths = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else ():
        name = str(path.relative_to(folder))
        pieces = [name.encode(), *pieces_of(path)]
        if any(token in piece for token in token_bytes for piece in pieces):
            paths.append(name)
    return paths


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, its values if it is Parquet, and the decoded forms of both."""
    data = path.read_bytes()
    yield from unpacked(data)
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(path)
        for key, value in (file.schema_arrow.metadata or {}).items():
            yield key
            yield from unpacked(value)
        yield repr(file.metadata.to_dict()).encode()
        table = file.read()
        yield str(table.to_pydict()).encode()
        for value in _bytes_in(table.to_pylist()):
            yield from unpacked(value)


def unpacked(data: bytes, depth: int = _DEPTH) -> Iterator[bytes]:
    """Yield the bytes and all their decoded forms, up to `depth` levels deep.

    The decoded encodings are zlib, gzip, deflate, zstd, base 64, JSON strings, Arrow streams and Arrow schemas.
    """
    yield data
    if not depth or not data:
        return
    for unpack in (zlib.decompress, gzip.decompress, _inflated, _zstd, _json, _arrow):
        try:
            inner = unpack(data)
        except Exception:  # noqa: BLE001 it is not packed in this way
            continue
        if inner and inner != data:
            yield from unpacked(inner, depth - 1)
    for match in _BASE64.finditer(data):
        try:
            inner = base64.b64decode(match[0], validate=True)
        except binascii.Error:
            continue
        yield from unpacked(inner, depth - 1)


def _inflated(data: bytes) -> bytes:
    return zlib.decompress(data, -15)


def _zstd(data: bytes) -> bytes:
    if data[:4] != _ZSTD:
        raise ValueError(data[:4])
    return bytes(pa.input_stream(pa.BufferReader(data), compression="zstd").read())


def _json(data: bytes) -> bytes:
    """Return the texts of a JSON document without escapes."""
    return "\n".join(_texts_in(json.loads(data))).encode("utf-8", "surrogatepass")


def _arrow(data: bytes) -> bytes:
    """Return the values of an Arrow stream, or the fields and the metadata of a schema."""
    try:
        reader = pa.ipc.open_stream(data)
    except pa.ArrowInvalid:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        return str([(field, field.metadata, field.type) for field in schema]).encode() + str(schema.metadata).encode()
    return str(reader.read_all().to_pydict()).encode()


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)
    else:
        yield str(value)


def _bytes_in(value: Any) -> Iterator[bytes]:
    """Yield each text and each bytes object inside a value, as bytes.

    Keys of dictionaries are left out.
    """
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _bytes_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _bytes_in(inner)
