"""A cache of what a Hudi table's immutable files contain: commit metadata and blocks of log files."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence

from metastore_assets.formats.hudi.commits import Commit, Write
from metastore_assets.formats.hudi.log import SCHEMA_HEADER, LogBlock
from metastore_assets.formats.hudi.timeline import Instant
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.location import StoredFile


class HudiFileCache:
    """The cached contents of one table's files.

    A file is identified by its path, size and version in a listing.
    """

    def __init__(self, cache: MetadataCache, table: str) -> None:
        """Create the cache.

        Args:
            cache: the metadata cache of the table.
            table: URI of the table's folder.
        """
        self._cache = cache
        self._table = table

    def get_commit(self, instant: Instant) -> Commit | None:
        """Return the cached metadata of an instant; None if they are not cached."""
        return self._cache.get(self._key("commit", instant.stored), lambda data: self._decode_commit(instant, data))

    def put_commit(self, commit: Commit) -> None:
        """Cache the metadata of an instant."""
        schema = None if commit.schema is None else commit.schema.encode("utf-8", "surrogatepass")
        digest = None
        if schema is not None:
            # Nearly all commits have the same schema.
            digest = hashlib.sha256(schema).hexdigest()[:32]
            self._cache.put(cache_key("hudi schema", digest), zlib.compress(schema))
        writes = [[*write.group, write.name, write.rows, write.previous] for write in commit.writes]
        fields = [writes, commit.replaced, digest, commit.is_rewrite, commit.evolved_by_id]
        value = zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 1)
        self._cache.put(self._key("commit", commit.instant.stored), value)

    def get_blocks(self, stored: StoredFile) -> list[LogBlock] | None:
        """Return the cached blocks of a log file; None if they are not cached. Their headers lack the schema."""
        return self._cache.get(self._key("log", stored), _decode_blocks)

    def put_blocks(self, stored: StoredFile, blocks: Sequence[LogBlock]) -> None:
        """Cache the blocks of a log file."""
        fields = [
            [
                block.kind,
                [[key, text] for key, text in block.headers.items() if key != SCHEMA_HEADER],
                block.content_range,
                block.version,
            ]
            for block in blocks
        ]
        self._cache.put(self._key("log", stored), json.dumps(fields, separators=(",", ":")).encode())

    def _decode_commit(self, instant: Instant, data: bytes) -> Commit:
        """Decode a cached commit.

        Raises LookupError if its schema, which is cached separately, is missing.
        """
        writes, replaced, digest, is_rewrite, evolved_by_id = json.loads(zlib.decompress(data))
        schema = None
        if digest is not None:
            schema = self._cache.get(cache_key("hudi schema", digest), _decode_schema)
            if schema is None:
                raise LookupError(digest)
        return Commit(
            instant,
            tuple(Write((folder, file), name, rows, previous) for folder, file, name, rows, previous in writes),
            tuple((folder, file) for folder, file in replaced),
            schema,
            is_rewrite,
            evolved_by_id,
        )

    def _key(self, kind: str, stored: StoredFile) -> bytes:
        return cache_key(f"hudi {kind}", self._table, *stored)


def _decode_schema(data: bytes) -> str:
    return zlib.decompress(data).decode("utf-8", "surrogatepass")


def _decode_blocks(data: bytes) -> list[LogBlock]:
    return [
        LogBlock(kind, dict(headers), (start, size), version)
        for kind, headers, (start, size), version in json.loads(data)
    ]
