"""The packed form of a segment's list of files, in the JSON document of a version.

A segment is a sorted set of rows in one or more files, and a version's document lists the files of its segments. A
large segment has hundreds of files, and each commit reads a document and writes the next one. In the packed form of the
list, the unique names of all files are bytes, and the other fields are columns that are compressed together. If the
next version has the same segment, the packed form is copied to its document unchanged.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from types import NoneType
from typing import Any

from metastore_assets.store import json_fields
from metastore_assets.store.segments import PackedSegment, SegmentFile

MIN_FILES = 8
"""Minimum number of files of a packed segment."""
_MAX_DECOMPRESSED_BYTES = 128 << 20
"""Maximum size in bytes of decompressed fields: enough for hundreds of thousands of columns. Without a limit, a small
compressed text may expand to gigabytes."""
_COMPRESSION_LEVEL = 3
"""For lists of files, it takes half of the CPU time of zlib's default, and 5 % more bytes."""
_NAME_DIGITS = 32
_NAME = re.compile(f"[0-9a-f]{{{_NAME_DIGITS}}}")
"""The unique name in the path of a file, as hexadecimal digits."""
_COUNTS = ("rows", "footer_bytes", "compact_footer_start")
_KEYS = ("first", "last")


def pack_segment(files: Sequence[SegmentFile]) -> PackedSegment | None:
    """Return a segment with the packed form of its list of files.

    Return None if the segment has fewer than `MIN_FILES` files, or if the packed form cannot express the list: for
    example, because the paths differ in more than their unique names.

    Args:
        files: The files of the segment, by ascending key.
    """
    match = _NAME.search(files[0].path) if len(files) >= MIN_FILES else None
    if match is None:
        return None
    names = [file.path[match.start() : match.end()] for file in files]
    fields: dict[str, Any] = {"path": files[0].path.split(names[0])}
    if files[0].companion is not None:
        fields["companion"] = files[0].companion.split(names[0])
    columns: dict[str, Any] = {name: [getattr(file, name) for file in files] for name in (*_COUNTS, *_KEYS)}
    columns["absorbed"] = [number for number, file in enumerate(files) if file.absorbed]
    try:
        fields["names"] = base64.b64encode(bytes.fromhex("".join(names))).decode()
        fields["columns"] = compress(json.dumps(columns, ensure_ascii=False).encode())
        packed = unpack_segment(fields, "segment")
    except ValueError:
        return None
    return packed if packed.files == tuple(files) else None


def unpack_segment(fields: Mapping[str, Any], name: str) -> PackedSegment:
    """Return a segment from the packed form of its list of files.

    Args:
        fields: The packed form, a JSON object.
        name: The name of the field with the packed form, for errors.

    Raises:
        ValueError: The form is damaged.
        KeyError: A field is missing.
    """
    digits = _decode_base64(fields["names"], name).hex()
    names = [digits[start : start + _NAME_DIGITS] for start in range(0, len(digits), _NAME_DIGITS)]
    if len(digits) % _NAME_DIGITS or len(names) < MIN_FILES:
        raise ValueError(f"{name} has an incomplete list of names")
    companion = fields.get("companion")
    companions: Iterable[str | None] = repeat(None) if companion is None else _join_names(companion, names, name)
    columns = json_fields.mapping(json_fields.parse_json(decompress(fields["columns"], name)), name)
    counts = [_column(columns, field, name, len(names), {int}) for field in _COUNTS]
    firsts, lasts = (_column(columns, field, name, len(names), {str, NoneType}) for field in _KEYS)
    if not 0 <= min(map(min, counts)) <= max(map(max, counts)) <= json_fields.MAX_COUNT:
        raise ValueError(f"{name} has a number that is no whole number from 0 to 2**63 - 1")
    rows, footer_bytes, compact_footer_starts = counts
    is_absorbed = [False] * len(names)
    for number in json_fields.items(columns["absorbed"], name):
        if json_fields.count(number, name) >= len(names):
            raise ValueError(f"{name} has no file {number}")
        is_absorbed[number] = True
    values = zip(
        _join_names(fields["path"], names, name),
        rows,
        firsts,
        lasts,
        chain([False], repeat(True)),
        footer_bytes,
        is_absorbed,
        companions,
        compact_footer_starts,
        strict=False,
    )
    # `SegmentFile._make` takes twice as long.
    return PackedSegment(tuple(map(tuple.__new__, repeat(SegmentFile), values)), fields)


def compress(data: bytes) -> str:
    """Compress bytes, and return the result as base64 text."""
    return base64.b64encode(zlib.compress(data, _COMPRESSION_LEVEL)).decode()


def decompress(encoded_text: object, name: str) -> bytes:
    """Return the bytes that `compress` encoded.

    `name` is the field's name in errors.

    Raises:
        ValueError: The text is corrupt, or expands to more than `_MAX_DECOMPRESSED_BYTES`.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(_decode_base64(encoded_text, name), _MAX_DECOMPRESSED_BYTES)
    except zlib.error as error:
        raise ValueError(f"{name}: {error}") from error
    if not inflater.eof:
        raise ValueError(f"{name} is cut short, or has more than {_MAX_DECOMPRESSED_BYTES:,} bytes")
    return data


def _decode_base64(text: object, name: str) -> bytes:
    encoded_text = json_fields.text(text, name)
    try:
        return base64.b64decode(encoded_text, validate=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _join_names(parts: object, names: Sequence[str], name: str) -> list[str]:
    """Return a path for each of `names`: the first of the two `parts`, this name, and the second part.

    `name` is the name of the field, for errors. Raises ValueError if `parts` are not two texts, or if the results are
    no paths below the folder of the document.
    """
    texts = json_fields.texts(parts, name)
    if len(texts) != 2:
        raise ValueError(f"{name} has a path without a prefix and a suffix")
    prefix, suffix = texts
    json_fields.path(f"{prefix}{names[0]}{suffix}", name)
    return [f"{prefix}{each}{suffix}" for each in names]


def _column(columns: Mapping[str, Any], field: str, name: str, count: int, types: set[type]) -> list[Any]:
    """Return the values of a column, one for each file.

    Raises ValueError if their number or a type is wrong.
    """
    values = json_fields.items(columns[field], name)
    if len(values) != count or not types.issuperset(map(type, values)):
        raise ValueError(f"{name} has invalid values of {field}")
    return values
