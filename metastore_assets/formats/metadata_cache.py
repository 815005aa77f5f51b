"""A cache of values from immutable files of a table, so that these files need not be read again.

A key is a digest of everything that the cached value depends on: the file's location, size and version (ETag, or
modification time in nanoseconds), and the settings with which it is read.
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
"""Part of every key. Raise the number when this package's code changes what it caches for the same file. Arrow's
version is included, because Arrow's readers decide on types."""
_MAX_PROCESS_BYTES = 256 << 20
_MAX_VALUE_BYTES = 16 << 20
"""Larger values are not cached: reading them would take as long as reading the file."""


def cache_key(kind: str, *identity: object) -> bytes:
    """Return the key of a cached value.

    Args:
        kind: the kind of value, for example `"hudi schema"`.
        identity: JSON values that the cached value depends on.
    """
    return hashlib.sha256(json.dumps([_EDITION, kind, *identity]).encode()).digest()[:16]


class MetadataCache:
    """The cache of one table.

    It has the values that `put` added, those that the caches of this process share, and those that the table's last
    version stores. Here, a version is one published state of the table's statistics, and no state of the table itself.
    """

    def __init__(self, load: Callable[[], Mapping[bytes, bytes]] = dict, *, ignore_process: bool = False) -> None:
        """Create a cache.

        Args:
            load: returns the values that the table's last version stores. It is called at most once, for the first key
                that is not cached in this process.
            ignore_process: if true, the caches of other tables in this process do not get values from this cache, and
                this cache gets none from them.
        """
        self._load = load
        self._loaded: Mapping[bytes, bytes] | None = None
        self._process = {} if ignore_process else _PROCESS
        self._entries: dict[bytes, bytes] = {}
        self._stored_keys: set[bytes] = set()
        """Keys of `_entries` whose values come from the table's last version."""
        self._discarded: set[bytes] = set()

    def get(self, key: bytes, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded value of a key; None if no value is cached, or the value cannot be decoded.

        A returned value is added to `entries`.
        """
        value, is_stored = self._entries.get(key), key in self._stored_keys
        if value is None:
            value = self._process.get(key)
        if value is None:
            self._loaded = self._load() if self._loaded is None else self._loaded
            value, is_stored = self._loaded.get(key), True
        if value is None:
            return None
        try:
            decoded_value = decode(value)
        except CORRUPTION_ERRORS:
            return None
        self._entries[key] = value
        if is_stored:
            self._stored_keys.add(key)
        return decoded_value

    def put(self, key: bytes, value: bytes, *, shared: bool = False) -> None:
        """Cache a value under a key.

        Values over 16 MiB are ignored.

        With `shared`, the caches of other tables in this process can use the value too. A cache that was created with
        `ignore_process` neither shares values nor uses shared ones.
        """
        if len(value) > _MAX_VALUE_BYTES:
            return
        self._entries[key] = value
        self._stored_keys.discard(key)
        self._discarded.discard(key)
        if shared and self._process is _PROCESS:
            _share(key, value)

    def discard(self, keys: Iterable[bytes]) -> None:
        """Remove keys from `entries`, so that the table's next version does not store their values."""
        for key in keys:
            self._entries.pop(key, None)
            self._stored_keys.discard(key)
            self._discarded.add(key)

    @property
    def entries(self) -> Mapping[bytes, bytes]:
        """The values that `get` returned or `put` cached, except those that `discard` removed since.

        The table's next version stores only these.
        """
        return self._entries

    @property
    def new_entries(self) -> Mapping[bytes, bytes]:
        """The values among `entries` that do not come from the table's last version."""
        return {key: value for key, value in self._entries.items() if key not in self._stored_keys}

    @property
    def discarded(self) -> frozenset[bytes]:
        """The keys that `discard` removed and `put` did not add again."""
        return frozenset(self._discarded)


_PROCESS: dict[bytes, bytes] = {}
"""Values from files that this process has read completely. The caches of all tables share them."""
_process_bytes = 0


def _share(key: bytes, value: bytes) -> None:
    """Add a value to the shared values.

    If their total size would exceed _MAX_PROCESS_BYTES, remove all earlier values first.
    """
    global _process_bytes
    if _process_bytes + len(value) > _MAX_PROCESS_BYTES:
        clear_process_cache()
    _process_bytes += len(value) - len(_PROCESS.get(key, b""))
    _PROCESS[key] = value


def clear_process_cache() -> None:
    """Remove all values that the caches of this process share."""
    global _process_bytes
    _PROCESS.clear()
    _process_bytes = 0
