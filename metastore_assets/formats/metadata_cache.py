"""A cache of what planning read from immutable files, so that the next plan need not read them again.

A key is a digest of everything that the cached value depends on: where the file is, its size and version (ETag, or
modification time in nanoseconds), and how it is read. A value is bytes. A value that cannot be decoded counts as
missing, and the file is read instead. A plan with the cache therefore equals the plan without it.
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
"""Part of every key. Raise the number when the cached value of the same file changes. Arrow's readers decide on types,
so Arrow's version is included."""
_MAX_PROCESS_BYTES = 256 << 20
_MAX_VALUE_BYTES = 16 << 20
"""Larger values are not cached: reading them would take as long as reading the file."""


def cache_key(kind: str, *identity: object) -> bytes:
    """Return the key of a cached value.

    Args:
        kind: what the value is, for example `"hudi schema"`.
        identity: JSON values that the cached value depends on.
    """
    return hashlib.sha256(json.dumps([_EDITION, kind, *identity]).encode()).digest()[:16]


class MetadataCache:
    """Cached values of one table: those of its last version, those of this process, and those added by this plan."""

    def __init__(self, load: Callable[[], Mapping[bytes, bytes]] = dict, *, ignore_process: bool = False) -> None:
        """Create a cache.

        Args:
            load: returns the values that a version stores; called once, when a key is not found elsewhere.
            ignore_process: do not use or fill the values that this process shares between tables.
        """
        self._load = load
        self._loaded: Mapping[bytes, bytes] | None = None
        self._process = {} if ignore_process else _PROCESS
        self._entries: dict[bytes, bytes] = {}

    def get(self, key: bytes, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded value of a key; None when there is none, or none that can be decoded."""
        value = self._entries.get(key)
        if value is None:
            value = self._process.get(key)
        if value is None:
            self._loaded = self._load() if self._loaded is None else self._loaded
            value = self._loaded.get(key)
        if value is None:
            return None
        try:
            decoded = decode(value)
        except CORRUPTION_ERRORS:
            return None
        self._entries[key] = value
        return decoded

    def put(self, key: bytes, value: bytes, *, shared: bool = False) -> None:
        """Set the value of a key; with `shared` also for other caches of this process."""
        if len(value) > _MAX_VALUE_BYTES:
            return
        self._entries[key] = value
        if shared and self._process is _PROCESS:
            _share(key, value)

    def discard(self, keys: Iterable[bytes]) -> None:
        """Remove keys from `entries`."""
        for key in keys:
            self._entries.pop(key, None)

    @property
    def entries(self) -> Mapping[bytes, bytes]:
        """The values that were read or set. Others are not worth storing: they belong to files no longer in use."""
        return self._entries


_PROCESS: dict[bytes, bytes] = {}
"""Values of whole files that this process has read, for tables that have no version yet. Keys tell tables apart."""
_process_bytes = 0


def _share(key: bytes, value: bytes) -> None:
    global _process_bytes
    if _process_bytes + len(value) > _MAX_PROCESS_BYTES:
        clear_process_cache()
    _process_bytes += len(value) - len(_PROCESS.get(key, b""))
    _PROCESS[key] = value


def clear_process_cache() -> None:
    """Remove all values that this process shares between caches."""
    global _process_bytes
    _PROCESS.clear()
    _process_bytes = 0
