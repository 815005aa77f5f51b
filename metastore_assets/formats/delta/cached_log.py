"""What is left of the actions in a Delta log, kept up to a version, so that planning reads the commits since.

What is kept is the state at some version in pieces, and behind it the changes of later commits, some to a piece: so
what a commit adds to it is as small as the commit. That it is of this log tells the file of the newest commit that is
in it: a table that is made again at the same place has another one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metastore_assets.formats.deletion_vectors import DeletionVector
from metastore_assets.formats.delta.actions import AddedFile, Changes, FileKey, Replay, TableState
from metastore_assets.formats.delta.log import Log, commit_name, commit_path, log_since, read_log
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.location import Location

_FILES = 50_000
"""Of a state, in one piece."""
_MOST_CHANGES = 32
"""Pieces with changes: where there would be more, they become one."""


_DEFAULTS = frozenset(["CURRENT_DEFAULT", "EXISTS_DEFAULT", "delta.invariants"])
"""Metadata of columns that hold values or conditions on them, and that no reader of rows needs."""


@dataclass(frozen=True)
class _Piece:
    """Changes as they are kept: the digest of their bytes, and how many these are."""

    digest: str
    size: int


@dataclass(frozen=True)
class _Head:
    """What is kept of a log up to a version. `state` are pieces of nothing but additions, of distinct files."""

    version: int
    identity: Sequence[str]
    """Of the file of that version's commit."""
    protocol: dict[str, Any]
    metadata: dict[str, Any]
    changes: list[_Piece]
    """Newest first."""
    state: list[_Piece]


class CachedLog:
    """The state of a table, from what is kept and the commits since, or from the whole log."""

    def __init__(self, location: Location, cache: MetadataCache, at: str | None) -> None:
        """`at` is the state that is meant: that of each is kept by itself."""
        self._location = location
        self._cache = cache
        self._uri = location.uri
        self._key = cache_key("delta log", self._uri, at)
        self._sure: Log | None = None
        """The log that what is kept is known to lead into."""
        self._touched: set[bytes] = set()
        """Keys of all pieces that were recalled or learnt."""

    def log(self) -> Log | None:
        """The end of the log, from the version that is kept on; None where nothing is, or not of this log."""
        head = self._head()
        if head is None:
            return None
        log = log_since(self._location, head.version)
        newest = log.newest
        self._sure = log if newest is not None and self._reaches(head, log, newest) else None
        return self._sure

    def replay(self, log: Log, version: int) -> TableState:
        """As `actions.replay`. `log` has what is needed for either way to the version."""
        # Asked for before anything is read: if the table is made again meanwhile, what is kept is not of the new one.
        identity = self._identity(version) if version in log.commits else None
        head = self._head()
        if head is None or not (self._sure is log or self._reaches(head, log, version)):
            return self._anew(log, version, identity)
        found = [self._recall(piece) for piece in (*head.changes, *head.state)]
        pieces = [piece for piece in found if piece is not None]
        if len(pieces) < len(found):
            return self._anew(log if log is not self._sure else read_log(self._location), version, identity)
        replay = Replay(self._location)
        for number in range(version, head.version, -1):
            replay.read_commit(commit_name(number))
        new = replay.changes()
        replay.add_known(head.protocol, head.metadata, pieces)
        state = replay.state(version)
        if version == head.version:
            return state
        changes, base = [self._piece(new), *head.changes], head.state
        if len(changes) > _MOST_CHANGES:
            changes = [self._piece(_merged([new, *pieces[: len(head.changes)]]))]
        if 2 * sum(piece.size for piece in changes) > sum(piece.size for piece in base):
            changes, base = [], self._state(state)
        self._keep(version, identity, state, changes, base)
        return state

    def _anew(self, log: Log, version: int, identity: Sequence[str] | None) -> TableState:
        replay = Replay(self._location)
        replay.read(log, version)
        state = replay.state(version)
        self._keep(version, identity, state, [], self._state(state) if identity is not None else [])
        return state

    def _head(self) -> _Head | None:
        return self._cache.get(self._key, _decoded_head)

    def _reaches(self, head: _Head, log: Log, version: int) -> bool:
        """Whether what is kept and the commits in the log lead to a version."""
        if head.version > version or not log.commits.issuperset(range(head.version, version + 1)):
            return False
        return self._identity(head.version) == head.identity

    def _identity(self, version: int) -> Sequence[str] | None:
        try:
            return self._location.identity(commit_path(version))
        except FileNotFoundError:
            return None

    def _keep(
        self, version: int, identity: Sequence[str] | None, state: TableState, changes: list[_Piece], base: list[_Piece]
    ) -> None:
        if identity is None:
            self._cache.discard([self._key])
        else:
            head = _Head(version, identity, state.protocol, state.metadata, changes, base)
            self._cache.put(self._key, _encoded_head(head))
        self._cache.discard(self._touched - {self._piece_key(piece.digest) for piece in (*changes, *base)})

    def _state(self, state: TableState) -> list[_Piece]:
        """A state in pieces, which are the same again for the same files."""
        adds = sorted(state.adds, key=lambda add: add.path)
        return [self._piece(Changes(adds[start : start + _FILES], [])) for start in range(0, len(adds), _FILES)]

    def _piece(self, changes: Changes) -> _Piece:
        value = _encoded(changes)
        digest = hashlib.sha256(value).hexdigest()[:32]
        self._touched.add(self._piece_key(digest))
        self._cache.put(self._piece_key(digest), value)
        return _Piece(digest, len(value))

    def _recall(self, piece: _Piece) -> Changes | None:
        self._touched.add(self._piece_key(piece.digest))
        return self._cache.get(self._piece_key(piece.digest), _decoded)

    def _piece_key(self, digest: str) -> bytes:
        return cache_key("delta actions", self._uri, digest)


def _merged(changes: Sequence[Changes]) -> Changes:
    """Changes, newest first, as one."""
    seen: set[FileKey] = set()
    paths: set[str] = set()
    adds, gone = [], []
    for one in changes:
        for add in one.adds:
            if add.key not in seen and add.key[0] not in paths:
                paths.add(add.key[0])
                adds.append(add)
        own = {add.key for add in one.adds}
        gone += [key for key in (*one.gone, *own) if key not in seen]
        seen |= {*own, *one.gone}
    return Changes(adds, sorted(set(gone) - {add.key for add in adds}, key=repr))


def _encoded(changes: Changes) -> bytes:
    adds = [
        [add.path, add.size, add.modification_time, add.partition_values, add.row_count, _vector(add.vector)]
        for add in changes.adds
    ]
    return zlib.compress(json.dumps([adds, changes.gone], separators=(",", ":")).encode(), 1)


def _decoded(data: bytes) -> Changes:
    adds, gone = json.loads(zlib.decompress(data))
    return Changes(
        [
            AddedFile(path, size, time, values, rows, vector and DeletionVector(*vector), None)
            for path, size, time, values, rows, vector in adds
        ],
        [(path, vector) for path, vector in gone],
    )


def _vector(vector: DeletionVector | None) -> list[Any] | None:
    if vector is None:
        return None
    return [vector.storage, vector.path_or_inline, vector.offset, vector.size, vector.cardinality]


def _planned(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return what planning needs of the action `metaData`: defaults and constraints may name values of rows."""
    settings = metadata.get("configuration") or {}
    settings = {key: value for key, value in settings.items() if not key.startswith("delta.constraints.")}
    try:
        schema = json.dumps(_without_defaults(json.loads(metadata["schemaString"])))
    except (ValueError, RecursionError):
        return metadata  # it is refused where it is used
    return {**metadata, "configuration": settings, "schemaString": schema}


def _without_defaults(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_defaults(value) for key, value in schema.items() if key not in _DEFAULTS}
    return [_without_defaults(one) for one in schema] if isinstance(schema, list) else schema


def _encoded_head(head: _Head) -> bytes:
    pieces = [[[piece.digest, piece.size] for piece in some] for some in (head.changes, head.state)]
    return json.dumps([head.version, head.identity, head.protocol, _planned(head.metadata), *pieces]).encode()


def _decoded_head(data: bytes) -> _Head:
    version, identity, protocol, metadata, changes, state = json.loads(data)
    return _Head(version, identity, protocol, metadata, *([_Piece(*one) for one in some] for some in (changes, state)))
