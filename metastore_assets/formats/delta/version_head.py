"""A cache of the heads of a Delta table's versions.

The head is everything about a version except its files.

The changes since a version are computed from its head and from the commits after it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from metastore_assets.formats.metadata_cache import MetadataCache, cache_key

_VALUES = frozenset(["CURRENT_DEFAULT", "EXISTS_DEFAULT", "delta.invariants"])
"""Keys of column metadata that contain values. They are not cached, because the column may be hidden and readers do not
need them."""


@dataclass(frozen=True)
class VersionHead:
    """A version of a Delta table without its files: protocol, metadata, commit time and commit file."""

    version: int
    identity: Sequence[str]
    """Identity of the commit file of the version. If the table is recreated, this commit file differs."""
    committed_at: datetime | None
    """Time in the commit file, in UTC; None if it has none."""
    selection: str
    """Digest of the configuration that decides which files the snapshot has, and under which paths."""
    protocol: dict[str, Any]
    metadata: dict[str, Any]


class HeadCache:
    """A cache of the heads of versions of a table."""

    def __init__(self, cache: MetadataCache, table: str) -> None:
        """Create the cache.

        Args:
            cache: the metadata cache of the table.
            table: URI of the table's folder.
        """
        self._cache = cache
        self._table = table
        self._used_keys: set[bytes] = set()

    def get(self, version: int) -> VersionHead | None:
        """Return the cached head of a version, or None."""
        key = self._key(version)
        self._used_keys.add(key)
        return self._cache.get(key, _decode)

    def put(self, head: VersionHead) -> None:
        """Cache the head of a version, and remove heads of other versions from the cache.

        Only the heads for which `get` or `put` of this object was called before are removed.
        """
        key = self._key(head.version)
        self._cache.discard(self._used_keys - {key})
        self._cache.put(key, _encode(head))
        self._used_keys.add(key)

    def _key(self, version: int) -> bytes:
        return cache_key("delta head", self._table, version)


def _encode(head: VersionHead) -> bytes:
    time = head.committed_at and head.committed_at.isoformat()
    fields = asdict(head) | {"committed_at": time, "metadata": _without_values(head.metadata)}
    return zlib.compress(json.dumps(fields, separators=(",", ":")).encode())


def _decode(data: bytes) -> VersionHead:
    fields = json.loads(zlib.decompress(data))
    time = fields["committed_at"]
    return VersionHead(**fields | {"committed_at": time and datetime.fromisoformat(time)})


def _without_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata without column defaults and constraints, which may contain values of rows."""
    settings = metadata.get("configuration") or {}
    settings = {key: value for key, value in settings.items() if not key.startswith("delta.constraints.")}
    try:
        schema = json.dumps(_without_defaults(json.loads(metadata["schemaString"])))
    except (ValueError, RecursionError):
        return dict(metadata)  # invalid schemas are refused where they are used
    return {**metadata, "configuration": settings, "schemaString": schema}


def _without_defaults(schema: Any) -> Any:
    """Return a schema's JSON without the keys in `_VALUES`, at any depth."""
    if isinstance(schema, dict):
        return {key: _without_defaults(value) for key, value in schema.items() if key not in _VALUES}
    return [_without_defaults(item) for item in schema] if isinstance(schema, list) else schema
