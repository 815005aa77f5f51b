"""Parsing of JSON in the metadata of tables, with checks of sizes, of types, and of repeated keys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
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

_MAX_SHOWN = 60
"""Maximum number of characters of a value in a message."""
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON document.

    Raises ValueError if it is invalid or too large, or RecursionError if it is nested too deeply.
    """
    check_limit(DOCUMENT_VALUES, max_value_count(data), "values")
    return _DECODER.decode(data if isinstance(data, str) else data.decode("utf-8-sig"))


def parse_json_file(data: bytes) -> Any:
    """Parse the JSON document in a file, which may be compressed with gzip.

    Raises the errors of `parse_json`. For a compressed file, it also raises those of `decompress_gzip`.
    """
    if not is_gzip(data):
        return parse_json(data)
    text = decompress_gzip(data)
    limit = max(COMPRESSED_VALUES, COMPRESSED_VALUES_PER_BYTE * len(data))
    check_limit(limit, max_value_count(text), f"values in {len(data):,} packed bytes")
    return parse_json(text)


def parse_json_line(line: bytes) -> Any:
    """Parse one line of a JSON lines file.

    Raises ValueError if it is invalid or too large, or RecursionError if it is nested too deeply.
    """
    check_limit(LINE_BYTES, len(line), "bytes in a line")
    check_limit(RECORD_VALUES, max_value_count(line), "values in a line")
    return _DECODER.decode(line.decode("utf-8-sig"))


def max_value_count(text: bytes | str) -> int:
    """Return an upper bound for the number of values in a JSON text."""
    if isinstance(text, str):
        return 1 + text.count(",") + text.count("[") + text.count("{")
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def is_nested_deeply(value: Any, depth: int = NESTING) -> bool:
    """Return True if a parsed value nests objects and lists on more than `depth` levels."""
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(is_nested_deeply(child, depth - 1) for child in children)


def _object_of_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        duplicate = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"an object has the key {duplicate[:100]!r} twice")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_object_of_distinct_keys)


def as_object(value: Any, what: str) -> Mapping[str, Any]:
    """Return the value if it is a JSON object.

    Otherwise raise ValueError. `what` names the value in the message.
    """
    if not isinstance(value, Mapping):
        raise _type_error(what, value, "an object")
    return value


def as_objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    """Return the value if it is a list of JSON objects.

    Otherwise raise ValueError. `what` names the value in the message.
    """
    return [as_object(item, what) for item in as_list(value, what)]


def as_list(value: Any, what: str) -> list[Any]:
    """Return the value if it is a list.

    Otherwise raise ValueError. `what` names the value in the message.
    """
    if not isinstance(value, list):
        raise _type_error(what, value, "a list")
    return value


def as_integer(value: Any, what: str, minimum: int = _MIN_INT64, *, unsigned: bool = False) -> int:
    """Return the value if it is a 64-bit integer of at least `minimum`.

    Args:
        value: the parsed JSON value.
        what: the name of the value, for the message.
        minimum: the least allowed value, inclusive.
        unsigned: whether the maximum is 2**64 - 1 instead of 2**63 - 1.

    Raises:
        ValueError: the value is not an integer, or is out of this range.
    """
    maximum = _MAX_INT64 * 2 + 1 if unsigned else _MAX_INT64
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        expected = "a whole number" if minimum == _MIN_INT64 else f"a whole number of at least {minimum}"
        raise _type_error(what, value, expected)
    return value


def as_text(value: Any, what: str) -> str:
    """Return the value if it is a non-empty text without NUL characters or lone surrogates.

    Otherwise raise ValueError. `what` names the value in the message.
    """
    if not isinstance(value, str) or not value or "\0" in value:
        raise _type_error(what, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _type_error(what, value, "a text of whole characters") from None
    return value


def check_distinct(values: Iterable[Any], what: str) -> None:
    """Raise ValueError if two of the values are equal.

    `what` names the values in the message.
    """
    values = list(values)
    if len(set(values)) < len(values):
        repeated = next(value for value, count in Counter(values).items() if count > 1)
        raise ValueError(f"{what} {format_value(repeated)} occurs twice")


def format_value(value: Any) -> str:
    """Return a value as printable text of bounded length, for a message."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN * 3:
        return "a number of hundreds of digits"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _type_error(what: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{what} is missing" if value is None else f"{what} is {format_value(value)}, not {expected}")
