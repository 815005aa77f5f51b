"""Partition keys: one reversible string per partition, such as `day=2024-01-01/country=FR`.

Special characters are percent-encoded. A key is safe as a Dagster partition key and in its range syntax (`a...b`,
`a,b`, `[`, `]`, `*`, quotes), on a command line, and in a URL. Letters and digits of all scripts are not encoded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from metastore_assets.errors import PartitionKeyError

ALL_PARTITIONS = "*"
"""The text that selects all partitions. It is not a key."""
UNPARTITIONED = "all"
"""The only key of a table without partition columns. All other keys contain `=`."""
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The text for null after `=`, as in Hive's folders. A value that equals this text is encoded as
`%5F_HIVE_DEFAULT_PARTITION__`."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~:+@() ")
_SIMPLE = re.compile(r"[a-zA-Z0-9_:-]*")
"""Matches most texts that need no encoding. This is faster than a test of each character."""
_ESCAPE = re.compile(r"%[0-9A-F]{2}")


def encode_partition_key(items: Sequence[tuple[str, str | None]]) -> str:
    """Return the key of a partition.

    `decode_partition_key` is the inverse.

    Names and values may be any text. Null, the empty text, and Hive's text for null have different keys.

    Args:
        items: (partition column, value) pairs in the order of the table's partition columns. The value None is null.
            The key is `all` if there are no pairs.
    """
    if not items:
        return UNPARTITIONED
    return "/".join(f"{_encode(name)}={_encode_value(value)}" for name, value in items)


def decode_partition_key(key: str) -> tuple[tuple[str, str | None], ...]:
    """Return the (column, value) pairs of a key; none for `all`.

    Raises PartitionKeyError if the key is invalid.
    """
    items = [] if key == UNPARTITIONED else [_decode_item(key, item) for item in key.split("/")]
    if encode_partition_key(items) != key:
        raise PartitionKeyError(f"{key!r} is not a partition key as the Metastore writes them")
    return tuple(items)


def _encode_value(value: str | None) -> str:
    if value is None:
        return NULL_VALUE
    return "%5F" + value[1:] if value == NULL_VALUE else _encode(value)


def _encode(text: str) -> str:
    if _SIMPLE.fullmatch(text):
        return text
    return "".join(
        char if _is_unencoded(char, text[index - 1 : index], index == len(text) - 1) else _escape(char)
        for index, char in enumerate(text)
    )


def _is_unencoded(char: str, previous: str, last: bool) -> bool:
    """Return whether a key contains a character as it is, without percent-encoding.

    Args:
        char: The character.
        previous: The character before it; empty at the beginning.
        last: Whether it is the last character.
    """
    if char == ".":
        # Two dots mean a parent folder, three dots a Dagster range.
        return previous != "."
    if char == " ":
        # Blanks at an edge, or repeated ones, get lost when somebody types or copies the key.
        return not last and previous not in ("", " ")
    if char < "\x80":
        return char in _PLAIN
    # The Unicode data of 2002 never changes, so a key does not depend on the Python version that wrote it.
    return unicodedata.ucd_3_2_0.category(char)[0] in "LMN"


def _escape(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _decode_item(key: str, item: str) -> tuple[str, str | None]:
    name, equals, value = item.partition("=")
    if not equals:
        raise PartitionKeyError(f"{key!r} is not a partition key: {item!r} has no `=`")
    return _decode(key, name), None if value == NULL_VALUE else _decode(key, value)


def _decode(key: str, text: str) -> str:
    try:
        data = _ESCAPE.sub(lambda match: chr(int(match[0][1:], 16)), text.encode().decode("latin-1"))
        return data.encode("latin-1").decode("utf-8", "surrogatepass")
    except UnicodeError:
        raise PartitionKeyError(f"{key!r} is not a partition key: {text!r} is not percent-encoded UTF-8") from None
