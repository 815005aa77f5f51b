"""A cache of metadata of a Hudi table: commits, log block headers, and records of states.

A record describes an earlier state of the table (see `StateRecord`). The changes since that state are computed from
the record. An instant is a completed write or clean on the table's timeline.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence

from metastore_assets.digests import digest_bytes
from metastore_assets.formats.base import SnapshotReference
from metastore_assets.formats.hudi.commits import Commit, Write
from metastore_assets.formats.hudi.log import SCHEMA_HEADER, LogBlock
from metastore_assets.formats.hudi.state_record import StateRecord
from metastore_assets.formats.hudi.timeline import Instant
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.location import StoredFile


class HudiFileCache:
    """The cached metadata of one table.

    A file is identified by its path, size and ETag or modification time, so an overwritten file is read again.
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
        digest = self._put_schema(commit.schema)
        writes = [[*write.group, write.name, write.rows, write.previous] for write in commit.writes]
        fields = [writes, commit.replaced, digest, commit.is_rewrite, commit.evolved_by_id]
        value = zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 1)
        self._cache.put(self._key("commit", commit.instant.stored), value)

    def get_blocks(self, stored_file: StoredFile) -> list[LogBlock] | None:
        """Return the cached blocks of a log file; None if they are not cached.

        The schemas in the headers of the blocks are missing.
        """
        return self._cache.get(self._key("log", stored_file), _decode_blocks)

    def put_blocks(self, stored_file: StoredFile, blocks: Sequence[LogBlock]) -> None:
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
        self._cache.put(self._key("log", stored_file), json.dumps(fields, separators=(",", ":")).encode())

    def get_state(self, reference: SnapshotReference) -> StateRecord | None:
        """Return the record of a snapshot's state, and remove it from the cache; None if it is not cached."""
        key = self._state_key(reference)
        record = self._cache.get(key, self._decode_state)
        self._cache.discard([key])
        return record

    def put_state(self, reference: SnapshotReference, record: StateRecord) -> None:
        """Cache the record of a snapshot's state."""
        fields = record.to_json() | {"schema": self._put_schema(record.schema)}
        self._cache.put(self._state_key(reference), zlib.compress(json.dumps(fields).encode()))

    def discard(self, instants: Iterable[Instant], logs: Iterable[StoredFile]) -> None:
        """Remove the metadata of instants and the blocks of log files from the cache."""
        self._cache.discard(
            [
                *(self._key("commit", instant.stored) for instant in instants),
                *(self._key("log", stored_file) for stored_file in logs),
            ]
        )

    def _decode_state(self, data: bytes) -> StateRecord:
        fields = json.loads(zlib.decompress(data))
        return StateRecord.from_json(fields | {"schema": self._get_schema(fields["schema"])})

    def _state_key(self, reference: SnapshotReference) -> bytes:
        return cache_key("hudi state", self._table, reference.id, str(reference.committed_at))

    def _decode_commit(self, instant: Instant, data: bytes) -> Commit:
        """Decode a cached commit.

        Raises LookupError if its schema, which is cached separately, is missing.
        """
        writes, replaced_groups, digest, is_rewrite, evolved_by_id = json.loads(zlib.decompress(data))
        return Commit(
            instant,
            tuple(Write((folder, file), name, rows, previous) for folder, file, name, rows, previous in writes),
            tuple((folder, file) for folder, file in replaced_groups),
            self._get_schema(digest),
            is_rewrite,
            evolved_by_id,
        )

    def _put_schema(self, schema: str | None) -> str | None:
        """Cache a schema under its digest, and return the digest.

        Nearly all commits have the same schema.
        """
        if schema is None:
            return None
        data = schema.encode("utf-8", "surrogatepass")
        digest = digest_bytes(data)
        self._cache.put(cache_key("hudi schema", digest), zlib.compress(data))
        return digest

    def _get_schema(self, digest: str | None) -> str | None:
        """Return the schema that `_put_schema` cached under a digest; None if `digest` is None.

        Raises LookupError if no schema is cached under the digest.
        """
        if digest is None:
            return None
        schema = self._cache.get(cache_key("hudi schema", digest), _decode_schema)
        if schema is None:
            raise LookupError(digest)
        return schema

    def _key(self, kind: str, stored_file: StoredFile) -> bytes:
        return cache_key(f"hudi {kind}", self._table, *stored_file)


def _decode_schema(data: bytes) -> str:
    return zlib.decompress(data).decode("utf-8", "surrogatepass")


def _decode_blocks(data: bytes) -> list[LogBlock]:
    return [
        LogBlock(kind, dict(headers), (start, size), version)
        for kind, headers, (start, size), version in json.loads(data)
    ]
