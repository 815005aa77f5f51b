"""A cache of the entries of manifests. Manifests are immutable."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from metastore_assets.formats.iceberg.manifests import FileEntry, Manifest, Statistics
from metastore_assets.formats.iceberg.metadata import TableMetadata
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key


class ManifestCache:
    """The cached entries of one table's manifests.

    The key of a manifest is its path, its length, the commit that added it, and the table's UUID. A table that is
    recreated at the same location therefore has other keys.
    """

    def __init__(self, cache: MetadataCache, table: str, metadata: TableMetadata) -> None:
        """Create the cache.

        Args:
            cache: the metadata cache of the table.
            table: URI of the table's folder.
            metadata: the table's metadata, whose UUID and partition specs are part of every key.
        """
        self._cache = cache
        # The entries also depend on the partition specs.
        self._table = [table, metadata.uuid, metadata.default_spec_id, repr(sorted(metadata.specs.items()))]

    def get(self, manifest: Manifest) -> list[FileEntry] | None:
        """Return the cached entries of a manifest; None if they are not cached.

        The entries of data files have no statistics.
        """
        return None if manifest.length is None else self._cache.get(self._key(manifest), _decode_entries)

    def put(self, manifest: Manifest, entries: Sequence[FileEntry]) -> None:
        """Cache the entries of a manifest, unless the manifest list lacks its length."""
        if manifest.length is not None:
            self._cache.put(self._key(manifest), _encode_entries(entries))

    def _key(self, manifest: Manifest) -> bytes:
        identity = manifest.path, manifest.length, manifest.snapshot_id, manifest.sequence_number
        kind = "delete manifest" if manifest.content else "manifest"
        return cache_key(kind, *self._table, *identity, manifest.spec_id, manifest.content)


def _encode_entries(entries: Sequence[FileEntry]) -> bytes:
    records = [entry._replace(statistics=_encode_statistics(entry.statistics)) for entry in entries]  # type: ignore[arg-type]
    return zlib.compress(json.dumps(records, separators=(",", ":"), default=_encode_bytes).encode(), 1)


def _decode_entries(data: bytes) -> list[FileEntry]:
    return [_decode_entry(FileEntry(*record)) for record in json.loads(zlib.decompress(data))]


def _decode_entry(record: FileEntry) -> FileEntry:
    return record._replace(
        partition=tuple(map(_decode_value, record.partition)),
        equality_ids=tuple(record.equality_ids),
        statistics=None if record.statistics is None else Statistics(*map(_decode_mapping, record.statistics)),
    )


def _encode_statistics(statistics: Statistics | None) -> list[list[tuple[int, Any]]] | None:
    """Return the maps of statistics as lists of pairs, because the keys of JSON objects are texts."""
    return None if statistics is None else [list(one.items()) for one in statistics]


def _decode_mapping(pairs: Any) -> Mapping[int, Any]:
    return {key: _decode_value(value) for key, value in pairs}


def _encode_bytes(value: bytes) -> dict[str, str]:
    return {"bytes": base64.b64encode(value).decode()}


def _decode_value(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value
