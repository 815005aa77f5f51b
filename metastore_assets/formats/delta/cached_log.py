"""The cached replay of a Delta log, so that planning only reads later commits.

The cache stores the live files at a base version, in pieces, and the changes of later commits as further pieces. A
commit therefore adds little to the cache. The cache also stores the identity of the commit file of its version. If the
table is recreated at the same location, this commit file differs, and the cached replay is not used.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.delta.actions import AddedFile, FileKey, LogChanges, Replay, TableState
from metastore_assets.formats.delta.log import Log, commit_name, commit_path, log_since, read_log
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.location import Location

_MAX_FILES = 50_000
"""Maximum number of files in one piece of a base version."""
_MAX_CHANGES = 32
"""Maximum number of pieces with changes. More are merged into one."""


_DEFAULTS = frozenset(["CURRENT_DEFAULT", "EXISTS_DEFAULT", "delta.invariants"])
"""Keys of column metadata that contain values. They are not cached, because the column may be hidden and readers do not
need them."""


@dataclass(frozen=True)
class _Piece:
    """A reference to cached changes (`LogChanges`): the digest of their bytes, and their size in bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class _Head:
    """The entry point of a cached replay: its version, protocol, metadata, and references to the pieces."""

    version: int
    identity: Sequence[str]
    """Identity of the commit file of the version."""
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    changes: list[_Piece]
    """References to the changes from the base version to `version`, newest first."""
    state: list[_Piece]
    """References to the live files at the base version. These pieces remove nothing, and no file is in two of them."""


class CachedLog:
    """Replays a table's log from the cache and the later commits, and caches the result.

    If the cache cannot be used, it replays the log from its checkpoint.
    """

    def __init__(self, location: Location, cache: MetadataCache, at: str | None) -> None:
        """Create a cached log.

        Args:
            location: the table's folder.
            cache: the metadata cache of the table.
            at: the `at` of the configuration. Each `at` has its own entries in the cache.
        """
        self._location = location
        self._cache = cache
        self._uri = location.uri
        self._key = cache_key("delta log", self._uri, at)
        self._verified_log: Log | None = None
        """The log that `log` listed last, if it has the cached version and all later commits."""
        self._used_keys: set[bytes] = set()
        """Cache keys of all pieces that were read or stored."""

    def log(self) -> Log | None:
        """List the log from the cached version on.

        Return None if nothing is cached, or the log does not continue the cached replay. The caller then lists the log
        itself.
        """
        head = self._head()
        if head is None:
            return None
        log = log_since(self._location, head.version)
        newest = log.newest
        self._verified_log = log if newest is not None and self._is_continued_by(head, log, newest) else None
        return self._verified_log

    def replay(self, log: Log, version: int) -> TableState:
        """Return the protocol, metadata and live files of a version, from the cache where possible.

        Args:
            log: the listed log: from the cached version on (see `log`), or as `read_log` returns it.
            version: the version to replay.

        Raises:
            TableFormatError: the log has gaps or violates the protocol.
        """
        # The identity is read first. If the table is recreated meanwhile, the cached replay will not match the new log.
        identity = self._identity(version) if version in log.commits else None
        head = self._head()
        if head is None or not (self._verified_log is log or self._is_continued_by(head, log, version)):
            return self._replay_fully(log, version, identity)
        references = (*head.changes, *head.state)
        pieces = [changes for changes in map(self._load, references) if changes is not None]
        if len(pieces) < len(references):
            return self._replay_fully(
                log if log is not self._verified_log else read_log(self._location), version, identity
            )
        replay = Replay(self._location)
        for number in range(version, head.version, -1):
            replay.read_commit(commit_name(number))
        new = replay.changes()
        replay.add_cached(head.protocol, head.metadata, pieces)
        state = replay.state(version)
        if version == head.version:
            return state
        changes, base = [self._store_piece(new), *head.changes], head.state
        if len(changes) > _MAX_CHANGES:
            changes = [self._store_piece(_merge_changes([new, *pieces[: len(head.changes)]]))]
        if 2 * sum(piece.size for piece in changes) > sum(piece.size for piece in base):
            changes, base = [], self._store_files(state)
        self._store(version, identity, state, changes, base)
        return state

    def _replay_fully(self, log: Log, version: int, identity: Sequence[str] | None) -> TableState:
        """Replay a version without the cache, and cache the result. Without `identity`, cache nothing."""
        replay = Replay(self._location)
        replay.read(log, version)
        state = replay.state(version)
        self._store(version, identity, state, [], self._store_files(state) if identity is not None else [])
        return state

    def _head(self) -> _Head | None:
        return self._cache.get(self._key, _decode_head)

    def _is_continued_by(self, head: _Head, log: Log, version: int) -> bool:
        """Return True if a log continues the cached replay.

        It must be of the same table, and have all commits from the cached version to `version`.
        """
        if head.version > version or not log.commits.issuperset(range(head.version, version + 1)):
            return False
        return self._identity(head.version) == head.identity

    def _identity(self, version: int) -> Sequence[str] | None:
        try:
            return self._location.identity(commit_path(version))
        except FileNotFoundError:
            return None

    def _store(
        self, version: int, identity: Sequence[str] | None, state: TableState, changes: list[_Piece], base: list[_Piece]
    ) -> None:
        """Cache a replay, and drop pieces that it does not use. Without `identity`, cache nothing."""
        if identity is None:
            self._cache.discard([self._key])
        else:
            head = _Head(version, identity, state.protocol, state.metadata, changes, base)
            self._cache.put(self._key, _encode_head(head))
        self._cache.discard(self._used_keys - {self._piece_key(piece.digest) for piece in (*changes, *base)})

    def _store_files(self, state: TableState) -> list[_Piece]:
        """Store the live files of a state in pieces, and return references to them.

        Equal states give equal pieces.
        """
        adds = sorted(state.adds, key=lambda add: add.path)
        return [
            self._store_piece(LogChanges(adds[start : start + _MAX_FILES], []))
            for start in range(0, len(adds), _MAX_FILES)
        ]

    def _store_piece(self, changes: LogChanges) -> _Piece:
        value = _encode_changes(changes)
        digest = hashlib.sha256(value).hexdigest()[:32]
        self._used_keys.add(self._piece_key(digest))
        self._cache.put(self._piece_key(digest), value)
        return _Piece(digest, len(value))

    def _load(self, piece: _Piece) -> LogChanges | None:
        self._used_keys.add(self._piece_key(piece.digest))
        return self._cache.get(self._piece_key(piece.digest), _decode_changes)

    def _piece_key(self, digest: str) -> bytes:
        return cache_key("delta actions", self._uri, digest)


def _merge_changes(changes: Sequence[LogChanges]) -> LogChanges:
    """Return the net effect of several changes, which are given newest first."""
    newer_keys: set[FileKey] = set()
    paths: set[str] = set()
    adds, removed = [], []
    for change in changes:
        for add in change.adds:
            if add.key not in newer_keys and add.key[0] not in paths:
                paths.add(add.key[0])
                adds.append(add)
        added_keys = {add.key for add in change.adds}
        removed += [key for key in (*change.removed, *added_keys) if key not in newer_keys]
        newer_keys |= {*added_keys, *change.removed}
    return LogChanges(adds, sorted(set(removed) - {add.key for add in adds}, key=repr))


def _encode_changes(changes: LogChanges) -> bytes:
    adds = [
        [add.path, add.size, add.modification_time, add.partition_values, add.row_count, _encode_vector(add.vector)]
        for add in changes.adds
    ]
    return zlib.compress(json.dumps([adds, changes.removed], separators=(",", ":")).encode(), 1)


def _decode_changes(data: bytes) -> LogChanges:
    """Decode a piece of the cache. The files in it have no statistics."""
    adds, removed = json.loads(zlib.decompress(data))
    return LogChanges(
        [
            AddedFile(path, size, time, values, rows, vector and DeletionVector(*vector), None)
            for path, size, time, values, rows, vector in adds
        ],
        [(path, vector) for path, vector in removed],
    )


def _encode_vector(vector: DeletionVector | None) -> list[Any] | None:
    if vector is None:
        return None
    return [vector.storage, vector.path_or_inline, vector.offset, vector.size, vector.cardinality]


def _redacted_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata without column defaults and constraints, which may contain values of rows.

    Metadata with an invalid schema are returned unchanged: the table is then refused.
    """
    settings = metadata.get("configuration") or {}
    settings = {key: value for key, value in settings.items() if not key.startswith("delta.constraints.")}
    try:
        schema = json.dumps(_without_defaults(json.loads(metadata["schemaString"])))
    except (ValueError, RecursionError):
        return metadata  # invalid schemas are refused where they are used
    return {**metadata, "configuration": settings, "schemaString": schema}


def _without_defaults(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_defaults(value) for key, value in schema.items() if key not in _DEFAULTS}
    return [_without_defaults(item) for item in schema] if isinstance(schema, list) else schema


def _encode_head(head: _Head) -> bytes:
    references = [[[piece.digest, piece.size] for piece in pieces] for pieces in (head.changes, head.state)]
    return json.dumps(
        [head.version, head.identity, head.protocol, _redacted_metadata(head.metadata), *references]
    ).encode()


def _decode_head(data: bytes) -> _Head:
    version, identity, protocol, metadata, changes, state = json.loads(data)
    return _Head(
        version, identity, protocol, metadata, *([_Piece(*piece) for piece in pieces] for pieces in (changes, state))
    )
