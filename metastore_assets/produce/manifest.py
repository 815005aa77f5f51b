"""Version manifests: each is written once, as the last file, and names all files of its version.

    <storage>/versions/<document>.json     names all files of a version
    <storage>/data/<unique>.parquet        runs and updates; a file exists only once a version references it

A compaction replaces runs by equivalent ones, so it writes another document of the same version. Document numbers are
consecutive, and their version numbers never decrease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.produce.state import FlowState
from metastore_assets.store.documents import Documents
from metastore_assets.store.expire import ExpiryCounts, exclude, expire
from metastore_assets.store.objects import ObjectStore

DATA = "data"
"""The folder of all files that a dataflow writes."""


@dataclass(frozen=True)
class FlowManifest:
    """One version, as published or as compacted later."""

    number: int
    document: int
    """Number of its document."""
    state: FlowState


NOTHING = FlowManifest(0, 0, FlowState())
"""The manifest before the first version."""


class Manifests:
    """The manifests in a storage."""

    def __init__(self, storage: ObjectStore, folder: str = DATA) -> None:
        self._storage = storage
        self._folder = folder
        self._documents = Documents(storage)

    def latest(self) -> FlowManifest:
        """Return the newest version, or NOTHING before the first."""
        document = self._documents.newest()
        return self._documents.load(document, _decode_manifest) if document else NOTHING

    def read(self, number: int) -> FlowManifest:
        """Return a version as it was compacted last. Raises VersionNotFoundError."""
        if number == 0:
            return NOTHING
        manifest = self._last_of(number, self.latest())
        if manifest is None:
            numbers = [one.number for one in map(self._read_if_present, self._documents.numbers()) if one is not None]
            existing = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise VersionNotFoundError(f"{self._storage.uri()} has no version {number}; there are: {existing}")
        return manifest

    def publish(self, manifest: FlowManifest) -> None:
        """Publish a manifest as the newest. Raises VersionConflictError if its document number is taken."""
        fields = {"number": manifest.number, "document": manifest.document, **manifest.state.to_json()}
        self._documents.publish(manifest.document, fields)

    def expire(self, keep: int, grace: timedelta) -> ExpiryCounts:
        """Delete all but the newest `keep` versions, then files that no remaining manifest names.

        Nothing younger than `grace` is deleted. Files of a manifest that was the newest within the last `grace` are
        retained, because a running publisher may have started from it. So `grace` must be longer than the longest run.
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

        def unnamed(paths: pa.Array, documents: Sequence[int]) -> pa.Array:
            paths = paths.filter(pc.starts_with(paths, f"{self._folder}/"))
            # A manifest that a concurrent `expire` has just deleted names no files.
            remaining = [manifest for manifest in map(self._read_if_present, documents) if manifest is not None]
            oldest.extend(manifest.number for manifest in remaining[:1])
            named = {path for manifest in remaining for path in manifest.state.paths()}
            return exclude(paths, pa.array(sorted(named), pa.string()))

        removed = expire(self._documents, first, unnamed, grace)
        return replace(removed, versions=oldest[-1] - oldest[0] if oldest else 0)

    def _last_of(self, number: int, latest: FlowManifest) -> FlowManifest | None:
        """Find the last document of a version by binary search; None if it has expired."""
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
        """Return a manifest, or None if it has expired."""
        try:
            return self._documents.load(document, _decode_manifest)
        except VersionNotFoundError:
            return None


def _decode_manifest(fields: Mapping[str, Any]) -> FlowManifest:
    return FlowManifest(fields["number"], fields["document"], FlowState.from_json(fields))
