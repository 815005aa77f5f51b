"""Digests of 128 bits, as 32 hexadecimal digits.

Stored files contain them, so a later release must return the same digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

_JSON = json.JSONEncoder(sort_keys=True)


def digest_bytes(data: bytes) -> str:
    """Return the digest of bytes: the first half of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def digest_texts(texts: Iterable[str]) -> str:
    """Return the digest of a sequence of texts, joined by NUL characters.

    Two sequences can have the same digest if a text contains a NUL character. The digests of an empty
    sequence and of one empty text are equal.
    """
    return digest_bytes("\0".join(texts).encode("utf-8", "surrogatepass"))


def digest_json(value: Any) -> str:
    """Return the digest of a value's JSON text.

    The order of keys in objects has no effect.
    """
    return digest_bytes(_JSON.encode(value).encode())
