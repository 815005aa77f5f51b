"""JSON of a table's metadata, parsed within limits; a key that stands twice in an object is no JSON here."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from metastore_assets.storage.compression import decompress_gzip, is_gzip
from metastore_assets.storage.corrupt_input import check_limit
from metastore_assets.storage.limits import (
    COMPRESSED_VALUES,
    COMPRESSED_VALUES_PER_BYTE,
    DOCUMENT_VALUES,
    LINE_BYTES,
    NESTING,
    RECORD_VALUES,
)


def parsed(data: bytes | str) -> Any:
    """A document. Raises ValueError, or RecursionError when it is nested too deeply."""
    check_limit(DOCUMENT_VALUES, most_values(data), "values")
    return _DECODER.decode(data if isinstance(data, str) else data.decode("utf-8-sig"))


def parsed_file(data: bytes) -> Any:
    """The document in a file that may be packed by gzip. Raises one of `damage.DAMAGE`."""
    if not is_gzip(data):
        return parsed(data)
    text = decompress_gzip(data)
    most = max(COMPRESSED_VALUES, COMPRESSED_VALUES_PER_BYTE * len(data))
    check_limit(most, most_values(text), f"values in {len(data):,} packed bytes")
    return parsed(text)


def parsed_line(line: bytes) -> Any:
    """The document in one of many lines. Raises ValueError, or RecursionError."""
    check_limit(LINE_BYTES, len(line), "bytes in a line")
    check_limit(RECORD_VALUES, most_values(line), "values in a line")
    return _DECODER.decode(line.decode("utf-8-sig"))


def most_values(text: bytes | str) -> int:
    """How many values there are at most in a text that is JSON."""
    if isinstance(text, str):
        return 1 + text.count(",") + text.count("[") + text.count("{")
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def is_deep(value: Any, depth: int = NESTING) -> bool:
    """Whether there are values inside of each other on more than so many levels."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(is_deep(one, depth - 1) for one in inner)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"an object has the key {twice[:100]!r} twice")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
