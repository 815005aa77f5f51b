"""The cached replay of a Delta log up to a version, so that planning reads later commits only.

The cache holds the state at a base version, split into pieces, and pieces with the changes of later commits. A commit
therefore adds as little to the cache as it changes. The commit file of the cached version identifies the log: a table
that was recreated at the same location has another one.
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

_FILES = 50_000
"""Files of a state in one piece."""
_MAX_CHANGES = 32
"""Pieces with changes. More are merged into one."""


_DEFAULTS = frozenset(["CURRENT_DEFAULT", "EXISTS_DEFAULT", "delta.invariants"])
"""Metadata of columns that contain values. Readers do not need them, and the column may be hidden."""


@dataclass(frozen=True)
class _Piece:
    """A reference to cached changes: the digest and the size of their bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class _Head:
    """The cached replay up to a version."""

    version: int
    identity: Sequence[str]
    """Identity of the commit file of the version."""
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    changes: list[_Piece]
    """Changes since the base version, newest first."""
    state: list[_Piece]
    """Files of the base version. The pieces have no removals, and no file is in two of them."""


class CachedLog:
    """The state of a table, replayed from the cache and later commits, or from the complete log."""

    def __init__(self, location: Location, cache: MetadataCache, at: str | None) -> None:
        """Create a cached log. Each `at` of the configuration has its entries in the cache."""
        self._location = location
        self._cache = cache
        self._uri = location.uri
        self._key = cache_key("delta log", self._uri, at)
        self._verified_log: Log | None = None
        """The log that is known to continue the cached replay."""
        self._used_keys: set[bytes] = set()
        """Keys of all pieces that were read or stored."""

    def log(self) -> Log | None:
        """List the log from the cached version on; None without a cached replay of this log."""
        head = self._head()
        if head is None:
            return None
        log = log_since(self._location, head.version)
        newest = log.newest
        self._verified_log = log if newest is not None and self._is_continued_by(head, log, newest) else None
        return self._verified_log

    def replay(self, log: Log, version: int) -> TableState:
        """Return the state of a version; see `actions.replay`.

        Args:
            log: the log from the cached version on, or the complete log.
            version: the version to replay.
        """
        # The identity is read first: if the table is recreated meanwhile, the cached replay does not match the new log.
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
        changes, base = [self._piece(new), *head.changes], head.state
        if len(changes) > _MAX_CHANGES:
            changes = [self._piece(_merged([new, *pieces[: len(head.changes)]]))]
        if 2 * sum(piece.size for piece in changes) > sum(piece.size for piece in base):
            changes, base = [], self._state(state)
        self._store(version, identity, state, changes, base)
        return state

    def _replay_fully(self, log: Log, version: int, identity: Sequence[str] | None) -> TableState:
        replay = Replay(self._location)
        replay.read(log, version)
        state = replay.state(version)
        self._store(version, identity, state, [], self._state(state) if identity is not None else [])
        return state

    def _head(self) -> _Head | None:
        return self._cache.get(self._key, _decoded_head)

    def _is_continued_by(self, head: _Head, log: Log, version: int) -> bool:
        """Return whether the log has all commits from the cached version to another one."""
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
        if identity is None:
            self._cache.discard([self._key])
        else:
            head = _Head(version, identity, state.protocol, state.metadata, changes, base)
            self._cache.put(self._key, _encoded_head(head))
        self._cache.discard(self._used_keys - {self._piece_key(piece.digest) for piece in (*changes, *base)})

    def _state(self, state: TableState) -> list[_Piece]:
        """Store a state in pieces. Equal files give equal pieces."""
        adds = sorted(state.adds, key=lambda add: add.path)
        return [self._piece(LogChanges(adds[start : start + _FILES], [])) for start in range(0, len(adds), _FILES)]

    def _piece(self, changes: LogChanges) -> _Piece:
        value = _encoded(changes)
        digest = hashlib.sha256(value).hexdigest()[:32]
        self._used_keys.add(self._piece_key(digest))
        self._cache.put(self._piece_key(digest), value)
        return _Piece(digest, len(value))

    def _load(self, piece: _Piece) -> LogChanges | None:
        self._used_keys.add(self._piece_key(piece.digest))
        return self._cache.get(self._piece_key(piece.digest), _decoded)

    def _piece_key(self, digest: str) -> bytes:
        return cache_key("delta actions", self._uri, digest)


def _merged(changes: Sequence[LogChanges]) -> LogChanges:
    """Merge changes, newest first."""
    seen: set[FileKey] = set()
    paths: set[str] = set()
    adds, removed = [], []
    for change in changes:
        for add in change.adds:
            if add.key not in seen and add.key[0] not in paths:
                paths.add(add.key[0])
                adds.append(add)
        added_keys = {add.key for add in change.adds}
        removed += [key for key in (*change.removed, *added_keys) if key not in seen]
        seen |= {*added_keys, *change.removed}
    return LogChanges(adds, sorted(set(removed) - {add.key for add in adds}, key=repr))


def _encoded(changes: LogChanges) -> bytes:
    adds = [
        [add.path, add.size, add.modification_time, add.partition_values, add.row_count, _vector(add.vector)]
        for add in changes.adds
    ]
    return zlib.compress(json.dumps([adds, changes.removed], separators=(",", ":")).encode(), 1)


def _decoded(data: bytes) -> LogChanges:
    adds, removed = json.loads(zlib.decompress(data))
    return LogChanges(
        [
            AddedFile(path, size, time, values, rows, vector and DeletionVector(*vector), None)
            for path, size, time, values, rows, vector in adds
        ],
        [(path, vector) for path, vector in removed],
    )


def _vector(vector: DeletionVector | None) -> list[Any] | None:
    if vector is None:
        return None
    return [vector.storage, vector.path_or_inline, vector.offset, vector.size, vector.cardinality]


def _redacted_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata without defaults and constraints, which may contain values of rows."""
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


def _encoded_head(head: _Head) -> bytes:
    pieces = [[[piece.digest, piece.size] for piece in some] for some in (head.changes, head.state)]
    return json.dumps([head.version, head.identity, head.protocol, _redacted_metadata(head.metadata), *pieces]).encode()


def _decoded_head(data: bytes) -> _Head:
    version, identity, protocol, metadata, changes, state = json.loads(data)
    return _Head(version, identity, protocol, metadata, *([_Piece(*one) for one in some] for some in (changes, state)))
