"""Bounds of long strings and binary values: the nearest value of at most so many bytes."""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.values.types import TypeClass

MAX_BOUND_BYTES = 4096
"""Bytes of a stored minimum or maximum; longer ones are replaced by a bound."""
_LAST_CODE_POINT = 0x10FFFF
_WIDEST = (0x7F, 0x7FF, 0xFFFF)
"""Greatest code point that UTF-8 holds in one, two, three bytes."""


def truncate_lower(value: bytes, cls: TypeClass, longest: int | None = None) -> tuple[pa.Scalar, bool]:
    """The greatest storable value that is not above `value`, and whether it is `value` itself.

    Of at most `longest` bytes, or of `MAX_BOUND_BYTES`.

    Being the nearest one makes bounds merge exactly: no storable value lies between a long value and its bound.
    """
    longest = MAX_BOUND_BYTES if longest is None else longest
    if len(value) <= longest:
        return _scalar(value, cls), True
    if cls.name != "string":
        return _scalar(value[:longest], cls), False
    prefix = _whole_characters(value, longest)
    spare = longest - len(prefix)
    # The character cut off needs more than the spare bytes, so any character that fits there sorts below it.
    filler = chr(_WIDEST[spare - 1]).encode() if spare else b""
    return _scalar(prefix + filler, cls), False


def truncate_upper(value: bytes, cls: TypeClass, longest: int | None = None) -> tuple[pa.Scalar | None, bool]:
    """The least storable value that is not below `value`, None when there is none, and whether it is `value` itself."""
    longest = MAX_BOUND_BYTES if longest is None else longest
    if len(value) <= longest:
        return _scalar(value, cls), True
    bound = _next_text(value, longest) if cls.name == "string" else prefix_successor(value[:longest])
    return (None if bound is None else _scalar(bound, cls)), False


def _whole_characters(value: bytes, longest: int) -> bytes:
    end = longest
    while value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


def prefix_successor(prefix: bytes) -> bytes | None:
    """The least bytes that are greater than all that begin with a prefix; None when there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _next_text(value: bytes, longest: int) -> bytes | None:
    text = _whole_characters(value, longest).decode()
    size = len(text.encode())
    while text:
        last = ord(text[-1])
        text, size = text[:-1], size - len(text[-1].encode())
        after = 0xE000 if last == 0xD7FF else last + 1  # surrogates are no characters
        if last < _LAST_CODE_POINT and size + len(chr(after).encode()) <= longest:
            return (text + chr(after)).encode()
    return None


def _scalar(value: bytes, cls: TypeClass) -> pa.Scalar:
    return pa.scalar(value.decode() if cls.name == "string" else value, cls.arrow)
