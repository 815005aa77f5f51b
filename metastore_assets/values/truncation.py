"""Bounds of limited length for long strings and binary values: the nearest value below or above."""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.values.types import TypeClass

MAX_BOUND_BYTES = 4096
"""The maximum length in bytes of a stored minimum or maximum. A bound replaces longer values."""
_LAST_CODE_POINT = 0x10FFFF
_GREATEST_CODE_POINTS = (0x7F, 0x7FF, 0xFFFF)
"""The greatest code points that UTF-8 encodes in one, two, and three bytes."""


def truncate_lower(value: bytes, cls: TypeClass, max_bytes: int | None = None) -> tuple[pa.Scalar, bool]:
    """Return the greatest value of at most `max_bytes` bytes that is not greater than `value`.

    Args:
        value: The value, UTF-8 for strings.
        cls: The type class of the value, of kind `bytes`.
        max_bytes: The maximum length of the bound; `MAX_BOUND_BYTES` by default.

    Returns:
        (bound, whether it equals `value`).
    """
    max_bytes = MAX_BOUND_BYTES if max_bytes is None else max_bytes
    if len(value) <= max_bytes:
        return _scalar(value, cls), True
    if cls.name != "string":
        return _scalar(value[:max_bytes], cls), False
    prefix = _truncate_characters(value, max_bytes)
    spare = max_bytes - len(prefix)
    # The removed character needs more than the spare bytes, so every character that fits sorts before it.
    filler = chr(_GREATEST_CODE_POINTS[spare - 1]).encode() if spare else b""
    return _scalar(prefix + filler, cls), False


def truncate_upper(value: bytes, cls: TypeClass, max_bytes: int | None = None) -> tuple[pa.Scalar | None, bool]:
    """Return the least value of at most `max_bytes` bytes that is not less than `value`.

    Args:
        value: The value, UTF-8 for strings.
        cls: The type class of the value, of kind `bytes`.
        max_bytes: The maximum length of the bound; `MAX_BOUND_BYTES` by default.

    Returns:
        (bound, whether it equals `value`). The bound is None if all values of at most `max_bytes` bytes are less.
    """
    max_bytes = MAX_BOUND_BYTES if max_bytes is None else max_bytes
    if len(value) <= max_bytes:
        return _scalar(value, cls), True
    bound = _next_text(value, max_bytes) if cls.name == "string" else prefix_successor(value[:max_bytes])
    return (None if bound is None else _scalar(bound, cls)), False


def _truncate_characters(value: bytes, max_bytes: int) -> bytes:
    end = max_bytes
    while value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


def prefix_successor(prefix: bytes) -> bytes | None:
    """Return the least byte string greater than all that start with a prefix: `b"ac"` for `b"ab"`.

    The result is None if all bytes of the prefix are 255.
    """
    stripped_prefix = prefix.rstrip(b"\xff")
    return stripped_prefix[:-1] + bytes([stripped_prefix[-1] + 1]) if stripped_prefix else None


def _next_text(value: bytes, max_bytes: int) -> bytes | None:
    """Return the least text of at most `max_bytes` bytes greater than `value`; None if there is none.

    `value` must be longer than `max_bytes` bytes, which is not checked. For a shorter value, the result may be wrong,
    because the function never appends a character.
    """
    text = _truncate_characters(value, max_bytes).decode()
    size = len(text.encode())
    while text:
        last = ord(text[-1])
        text, size = text[:-1], size - len(text[-1].encode())
        after = 0xE000 if last == 0xD7FF else last + 1  # UTF-8 has no surrogates
        if last < _LAST_CODE_POINT and size + len(chr(after).encode()) <= max_bytes:
            return (text + chr(after)).encode()
    return None


def _scalar(value: bytes, cls: TypeClass) -> pa.Scalar:
    return pa.scalar(value.decode() if cls.name == "string" else value, cls.arrow)
