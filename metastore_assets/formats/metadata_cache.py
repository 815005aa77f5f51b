"""What was learnt of files that do not change, by their identity, so that planning need not read them again.

Keys are digests of all that what was learnt depends on: where a file is, its size and version (ETag, or modification
time in nanoseconds), and how it is read. Values are bytes. What cannot be made sense of was never learnt: then the file
is read. So whatever is kept, by whomever, a plan is the one that is made without.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import pyarrow as pa

from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS

T = TypeVar("T")

_EDITION = f"1 {pa.__version__}"
"""Raised when something else would be learnt of the same file. Arrow's readers decide on types, so theirs counts."""
_MOST_BYTES = 256 << 20
_MOST_BYTES_OF_ONE = 16 << 20
"""Of what is learnt of one file: more is not kept, for it is no less than reading the file."""


def memory_key(kind: str, *identity: object) -> bytes:
    """The key of what is learnt of something. `identity` is of what JSON knows; `kind` tells what is learnt."""
    return hashlib.sha256(json.dumps([_EDITION, kind, *identity]).encode()).digest()[:16]


class Memory:
    """What is known from before, and what is learnt now."""

    def __init__(self, load: Callable[[], Mapping[bytes, bytes]] = dict, *, anew: bool = False) -> None:
        """`load` gives what a version keeps, and is called when that is asked for. `anew`: nothing else is known."""
        self._load = load
        self._known: Mapping[bytes, bytes] | None = None
        self._shared = {} if anew else _PROCESS
        self._kept: dict[bytes, bytes] = {}

    def recall(self, key: bytes, decode: Callable[[bytes], T]) -> T | None:
        """What was learnt under a key; None when nothing was, or nothing that can be decoded."""
        value = self._kept.get(key)
        if value is None:
            value = self._shared.get(key)
        if value is None:
            self._known = self._load() if self._known is None else self._known
            value = self._known.get(key)
        if value is None:
            return None
        try:
            decoded = decode(value)
        except CORRUPTION_ERRORS:
            return None
        self._kept[key] = value
        return decoded

    def learn(self, key: bytes, value: bytes, *, shared: bool = False) -> None:
        """Keep what was learnt, in place of what was known under that key; `shared`, for others in this process too."""
        if len(value) > _MOST_BYTES_OF_ONE:
            return
        self._kept[key] = value
        if shared and self._shared is _PROCESS:
            _share(key, value)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Do not keep what was recalled or learnt under some keys: something else took its place."""
        for key in keys:
            self._kept.pop(key, None)

    @property
    def kept(self) -> Mapping[bytes, bytes]:
        """What was recalled or learnt: all that is worth keeping, for what nobody asked for is of files that went."""
        return self._kept


_PROCESS: dict[bytes, bytes] = {}
"""What this process learnt of whole files, for whoever asks next without a version: keys tell tables apart."""
_held = 0


def _share(key: bytes, value: bytes) -> None:
    global _held
    if _held + len(value) > _MOST_BYTES:
        forget()
    _held += len(value) - len(_PROCESS.get(key, b""))
    _PROCESS[key] = value


def forget() -> None:
    """Forget what this process learnt."""
    global _held
    _PROCESS.clear()
    _held = 0
