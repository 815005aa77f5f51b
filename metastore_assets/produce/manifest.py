"""Version manifests: each is written once, as the last file, and names all files of its version.

    <storage>/versions/<document>.json     names all files of a version
    <storage>/data/<unique>.parquet        runs and updates; a file exists only once a version references it

A compaction replaces runs by equivalent ones, so it writes another document of the same version. Document numbers are
consecutive, and their version numbers never decrease.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import (
    CorruptionError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.produce.state import FlowState
from metastore_assets.store.documents import Documents
from metastore_assets.store.expire import Expired, expire, without
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore

DATA = "data"
"""The folder of all files that a dataflow writes."""


@dataclass(frozen=True)
class Manifest:
    """One version, as published or as compacted later."""

    number: int
    document: int
    """Number of its document."""
    state: FlowState


NOTHING = Manifest(0, 0, FlowState())
"""The manifest before the first version."""


class Manifests:
    """The manifests in a storage."""

    def __init__(self, storage: ObjectStore, folder: str = DATA) -> None:
        self._storage = storage
        self._folder = folder
        self._documents = Documents(storage)

    def latest(self) -> Manifest:
        """Return the newest version, or NOTHING before the first."""
        document = self._documents.newest()
        return self._read(document) if document else NOTHING

    def read(self, number: int) -> Manifest:
        """Return a version as it was compacted last. Raises VersionNotFoundError."""
        if number == 0:
            return NOTHING
        manifest = self._last_of(number, self.latest())
        if manifest is None:
            numbers = [one.number for one in map(self._there, self._documents.numbers()) if one is not None]
            there = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise VersionNotFoundError(f"{self._storage.uri()} has no version {number}; there are: {there}")
        return manifest

    def publish(self, manifest: Manifest) -> None:
        """Publish a manifest as the newest. Raises VersionConflictError if its document number is taken."""
        if not self._documents.create(manifest.document, _encoded(manifest)):
            raise VersionConflictError(
                f"{self._storage.uri(self._documents.path(manifest.document))} was published by another process first; "
                "advance again"
            )

    def expire(self, keep: int, grace: timedelta) -> Expired:
        """Delete all but the newest `keep` versions, then files that no remaining manifest names.

        Nothing younger than `grace` is deleted. Files of a manifest that was the newest within the last `grace` are
        retained, because a running publisher may have started from it. So `grace` must be longer than the longest run.
        """
        if keep < 1:
            raise ValueError(f"keep = {keep}: at least one version stays")
        oldest: list[int] = []

        def first(documents: Sequence[int]) -> int:
            begin = self._there(documents[0])
            oldest.extend([begin.number] if begin else [])
            latest = self.latest()
            oldest_retained = self._last_of(latest.number - keep + 1, latest)
            return oldest_retained.document if oldest_retained else documents[0]

        def unnamed(paths: pa.Array, documents: Sequence[int]) -> pa.Array:
            paths = paths.filter(pc.starts_with(paths, f"{self._folder}/"))
            # A manifest that a concurrent `expire` has just deleted names no files.
            remaining = [manifest for manifest in map(self._there, documents) if manifest is not None]
            oldest.extend(manifest.number for manifest in remaining[:1])
            named = {path for manifest in remaining for path in manifest.state.paths()}
            return without(paths, pa.array(sorted(named), pa.string()))

        removed = expire(self._documents, first, unnamed, grace)
        return replace(removed, versions=oldest[-1] - oldest[0] if oldest else 0)

    def _last_of(self, number: int, latest: Manifest) -> Manifest | None:
        """Find the last document of a version by binary search; None if it has expired."""
        if not 0 < number <= latest.number:
            return None
        low, high = number, latest.document - (latest.number - number)
        while low < high:
            middle = (low + high + 1) // 2
            manifest = self._there(middle)
            low, high = (middle, high) if manifest is None or manifest.number <= number else (low, middle - 1)
        manifest = self._there(low)
        return manifest if manifest is not None and manifest.number == number else None

    def _there(self, document: int) -> Manifest | None:
        """Return a manifest, or None if it has expired."""
        try:
            return self._read(document)
        except VersionNotFoundError:
            return None

    def _read(self, document: int) -> Manifest:
        path = self._documents.path(document)
        try:
            return _decoded(parse_json(self._documents.read(document)), self._storage.uri(path))
        except ObjectNotFoundError:
            raise VersionNotFoundError(f"{self._storage.uri(path)} has been expired") from None
        except (ValueError, KeyError, TypeError, CorruptionError) as error:
            raise CorruptionError(f"{self._storage.uri(path)} is damaged ({type(error).__name__}: {error})") from error


def _encoded(manifest: Manifest) -> bytes:
    # The publisher id makes the documents of two attempts differ, even if everything else is equal.
    fields = {"publisher": uuid.uuid4().hex, "number": manifest.number, "document": manifest.document}
    return json.dumps({**fields, **manifest.state.to_json()}, indent=1).encode()


def _decoded(fields: dict[str, Any], uri: str) -> Manifest:
    try:
        return Manifest(fields["number"], fields["document"], FlowState.from_json(fields))
    except CorruptionError:
        raise
    except StoreError as error:
        raise StoreError(f"{uri}: {error}") from None
