"""Manifests of the versions of a dataflow.

A manifest is a JSON document that names all files of one version.

    <storage>/versions/<document>.json     a manifest, which is written once, after all files of its version
    <storage>/data/<unique>.parquet        a run (sorted rows) or an update (changes)

A compaction replaces runs by equivalent ones, and writes another manifest for the same version. Manifests have
consecutive document numbers. Their version numbers never decrease. `expire` deletes data files that no manifest names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Any

import pyarrow as pa

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.produce.state import FlowState
from metastore_assets.store import json_fields
from metastore_assets.store.documents import Documents
from metastore_assets.store.expire import ExpiryCounts, Retention, expire
from metastore_assets.store.objects import ObjectStore

DATA = "data"
"""The folder of all data files of a dataflow."""


@dataclass(frozen=True)
class FlowManifest:
    """One version of a dataflow, as it was published or compacted."""

    number: int
    document: int
    """Number of the document that holds this manifest."""
    state: FlowState


NOTHING = FlowManifest(0, 0, FlowState())
"""The manifest before the first version."""


class Manifests:
    """The manifests of all versions in a storage."""

    def __init__(self, storage: ObjectStore, folder: str = DATA) -> None:
        self._storage = storage
        self._folder = folder
        self._documents = Documents(storage)

    def latest(self) -> FlowManifest:
        """Return the newest manifest; before the first version, `NOTHING`, which names no files."""
        document = self._documents.newest()
        return self._load(document) if document else NOTHING

    def read(self, number: int) -> FlowManifest:
        """Return the newest manifest of a version: each compaction of a version publishes another one.

        The manifest of version 0 is `NOTHING`. Raises VersionNotFoundError if the version has expired, or was never
        published.
        """
        if number == 0:
            return NOTHING
        manifest = self._last_of(number, self.latest())
        if manifest is None:
            manifests = map(self._read_if_present, self._documents.numbers())
            numbers = [existing.number for existing in manifests if existing is not None]
            available = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise VersionNotFoundError(f"{self._storage.uri()} has no version {number}; there are: {available}")
        return manifest

    def publish(self, manifest: FlowManifest) -> None:
        """Publish a manifest as the newest.

        Raises VersionConflictError if its document number is taken.
        """
        fields = {"number": manifest.number, "document": manifest.document, **manifest.state.to_json()}
        self._documents.publish(manifest.document, fields)

    def expire(self, keep: int, grace: timedelta) -> ExpiryCounts:
        """Delete the manifests of all versions except the newest `keep` ones, then the unreferenced files.

        Nothing younger than `grace` is deleted, nor files of a version that was the newest within this time. `grace`
        must be longer than any update of the dataflow takes, because an update reads the version that it started from.

        Raises ValueError if `keep` is less than 1.
        """
        if keep < 1:
            raise ValueError(f"keep = {keep}: at least one version stays")
        oldest: list[int] = []

        def first(documents: Sequence[int]) -> int:
            begin = self._read_if_present(documents[0])
            oldest.extend([begin.number] if begin else [])
            latest = self.latest()
            oldest_retained = self._last_of(latest.number - keep + 1, latest)
            return oldest_retained.document if oldest_retained else documents[0]

        def referenced(batches: Iterator[Sequence[int]]) -> Iterator[pa.Array]:
            oldest_remaining: int | None = None
            for document in chain.from_iterable(batches):
                manifest = self._read_if_present(document)
                if manifest is None:
                    continue  # A concurrent `expire` has just deleted it.
                oldest_remaining = manifest.number if oldest_remaining is None else oldest_remaining
                yield pa.array(sorted(manifest.state.paths()), pa.string())
            oldest.extend([] if oldest_remaining is None else [oldest_remaining])

        retention = Retention(first, referenced, lambda path: path.startswith(f"{self._folder}/"))
        expiry_counts = expire(self._documents, retention, grace)
        return replace(expiry_counts, versions=oldest[-1] - oldest[0] if oldest else 0)

    def _last_of(self, number: int, latest: FlowManifest) -> FlowManifest | None:
        """Return the manifest of a version after its last compaction.

        Args:
            number: Number of the version.
            latest: The newest manifest of all versions.

        Returns:
            The manifest; None if the version has expired, or if there is none with this number.
        """
        if not 0 < number <= latest.number:
            return None
        low, high = number, latest.document - (latest.number - number)
        while low < high:
            middle = (low + high + 1) // 2
            manifest = self._read_if_present(middle)
            low, high = (middle, high) if manifest is None or manifest.number <= number else (low, middle - 1)
        manifest = self._read_if_present(low)
        return manifest if manifest is not None and manifest.number == number else None

    def _read_if_present(self, document: int) -> FlowManifest | None:
        try:
            return self._load(document)
        except VersionNotFoundError:
            return None

    def _load(self, document: int) -> FlowManifest:
        """Return the manifest in the document with this number.

        Raises VersionNotFoundError if the document does not exist, and CorruptionError if it is damaged.
        """

        def decode(fields: Mapping[str, Any]) -> FlowManifest:
            manifest = FlowManifest(
                json_fields.count(fields["number"], "number"),
                json_fields.count(fields["document"], "document"),
                FlowState.from_json(fields),
            )
            if manifest.document != document:
                raise ValueError(f"it is that of document {manifest.document}")  # Copied by hand, perhaps to undo.
            return manifest

        return self._documents.load(document, decode)
