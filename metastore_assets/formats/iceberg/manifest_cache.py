"""A cache of the entries of manifests, which never change."""

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

    A manifest is identified by path, length, the commit that added it, and the table. A table that is recreated at the
    same location has other manifests.
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
        """Return the entries of a manifest, without statistics of data files; None if they are not cached."""
        return None if manifest.length is None else self._cache.get(self._key(manifest), _decoded)

    def put(self, manifest: Manifest, entries: Sequence[FileEntry]) -> None:
        """Cache the entries of a manifest."""
        if manifest.length is not None:
            self._cache.put(self._key(manifest), _encoded(entries))

    def _key(self, manifest: Manifest) -> bytes:
        identity = manifest.path, manifest.length, manifest.snapshot_id, manifest.sequence_number
        kind = "delete manifest" if manifest.content else "manifest"
        return cache_key(kind, *self._table, *identity, manifest.spec_id, manifest.content)


def _encoded(entries: Sequence[FileEntry]) -> bytes:
    records = [entry._replace(statistics=_pairs(entry.statistics)) for entry in entries]  # type: ignore[arg-type]
    return zlib.compress(json.dumps(records, separators=(",", ":"), default=_bytes).encode(), 1)


def _decoded(data: bytes) -> list[FileEntry]:
    return [_entry(FileEntry(*record)) for record in json.loads(zlib.decompress(data))]


def _entry(record: FileEntry) -> FileEntry:
    return record._replace(
        partition=tuple(map(_value, record.partition)),
        equality_ids=tuple(record.equality_ids),
        statistics=None if record.statistics is None else Statistics(*map(_mapping, record.statistics)),
    )


def _pairs(statistics: Statistics | None) -> list[list[tuple[int, Any]]] | None:
    """Return the maps of statistics as lists of pairs, because the keys of JSON objects are texts."""
    return None if statistics is None else [list(one.items()) for one in statistics]


def _mapping(pairs: Any) -> Mapping[int, Any]:
    return {key: _value(value) for key, value in pairs}


def _bytes(value: bytes) -> dict[str, str]:
    return {"bytes": base64.b64encode(value).decode()}


def _value(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value
